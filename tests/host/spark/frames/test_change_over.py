"""Where a topic follows its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from penstock.errors import StreamsError
from penstock.host.spark.frames.change_over import change_over
from penstock.plan.topic_history import TopicHistory
from penstock.record import TopicPartition


class Log:
    """One topic of brokers: the first offset of each partition, and the times of its records."""

    def __init__(self, *partitions: tuple[int, list[int]]) -> None:
        self._partitions = partitions

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._partitions[tp.partition][0] for tp in partitions}

    def end_offsets(self, partitions: Sequence[TopicPartition], read_committed: bool) -> dict[TopicPartition, int]:
        assert read_committed
        return {tp: sum((first, len(times))) for tp in partitions for first, times in [self._partitions[tp.partition]]}

    def offsets_for_time(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        return {
            tp: first + place
            for tp in partitions
            for first, times in [self._partitions[tp.partition]]
            for place in [next((place for place, time in enumerate(times) if time >= timestamp_ms), None)]
            if place is not None
        }


def changed_over(log: Log, partitions: int, at: int | Mapping[int, int]) -> tuple[int, ...]:
    admin: Any = log
    return change_over(admin, "t", partitions, TopicHistory((), at), "source in")


def test_a_time_is_the_first_record_that_is_not_older_or_the_end() -> None:
    log = Log((0, [5, 9, 10, 7]), (3, [1, 2]), (0, []))
    assert changed_over(log, 3, 10) == (2, 5, 0)


def test_offsets_are_taken_within_the_topic() -> None:
    log = Log((2, [5, 9]), (0, [1]))
    assert changed_over(log, 2, {0: 2, 1: 1}) == (2, 1)
    for offset in (1, 5):
        with pytest.raises(StreamsError, match=rf"t, partition 0 .* at offset {offset} \(source in\).* offsets 2 to 4"):
            changed_over(log, 2, {0: offset, 1: 0})


@pytest.mark.parametrize(
    ("at", "why"), [({0: 1}, "Partition 1: its offset is missing"), ({0: 0, 1: 0, 2: 0}, "2: there is no such")]
)
def test_each_partition_needs_an_offset(at: Mapping[int, int], why: str) -> None:
    with pytest.raises(StreamsError, match=rf"partitions 0 to 1, and at needs an offset .*\(source in\)\. .*{why}"):
        changed_over(Log((0, [1]), (0, [1])), 2, at)


def test_a_topic_that_has_lost_the_records_before_the_change_over_may_have_a_gap() -> None:
    log = Log((7, [50, 60]))
    with pytest.raises(StreamsError, match=r"partition 0 has no records from before .*offset 7.*at=\{0: 7, \.\.\.\}"):
        changed_over(log, 1, 40)
    assert changed_over(log, 1, {0: 7}) == (7,)
    assert changed_over(log, 1, 55) == (8,)
    assert changed_over(Log((0, [50])), 1, 40) == (0,), "nothing was ever deleted"


def test_records_may_arrive_during_the_requests() -> None:
    class GrowingLog(Log):
        def offsets_for_time(
            self, partitions: Sequence[TopicPartition], timestamp_ms: int
        ) -> dict[TopicPartition, int]:
            self._partitions = tuple((first, [*times, *arriving.pop(0)]) for first, times in self._partitions)
            found = super().offsets_for_time(partitions, timestamp_ms)
            self._partitions = tuple((first, [*times, 99]) for first, times in self._partitions)
            return found

    arriving = [[8, 12], []]
    assert changed_over(GrowingLog((0, [5])), 1, 10) == (2,)
    assert changed_over(GrowingLog((0, [5])), 1, 10) == (1,), "the end before the request, or records would be lost"
