"""Offsets by time over a history and its topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from penstock import StreamsBuilder
from penstock.host.spark.checkpoints.stored_history import delete_chunks
from penstock.host.spark.planner.history_offsets import HistoryOffsets
from penstock.record import TopicPartition
from tests.host.spark.histories import store_history
from tests.host.spark.protocol.test_application_description import STRING, description_of
from tests.host.support import InputRecord

ONE, TWO = TopicPartition("in", 0), TopicPartition("in", 1)
OTHER = TopicPartition("other", 0)


class Topics:
    """Finds the same offset of each partition, whatever the time."""

    def __init__(self, offset: int | None) -> None:
        self._offset = offset
        self.asked: list[list[TopicPartition]] = []

    def __call__(self, partitions: Sequence[TopicPartition], time_ms: int) -> Mapping[TopicPartition, int]:
        self.asked.append(list(partitions))
        return {} if self._offset is None else dict.fromkeys(partitions, self._offset)


def offsets_over(tmp_path: Path, topics: Topics) -> HistoryOffsets:
    """Return the offsets over a history with the times 10, 20 and 30 in partition 0, before offset 5 of its topic."""
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    description = description_of(builder.build(), tmp_path)
    records = [InputRecord(b"k", b"v", time, 0) for time in (10, 20, 30)]
    config = description.config.overridden({"penstock.checkpoint.dir": str(tmp_path), "default.key.serde": STRING})
    history = store_history(config, "in", records, [5, 0])
    return HistoryOffsets(replace(description, histories={"in": history.bounds()}), topics)


def test_a_time_inside_the_history_needs_no_topic(tmp_path: Path) -> None:
    topics = Topics(9)
    offsets = offsets_over(tmp_path, topics)
    assert offsets.at({ONE: 2}, 15) == {ONE: 3}
    assert offsets.at({ONE: 4}, 10) == {ONE: 2}, "before the position, which the caller knows"
    assert topics.asked == []


def test_a_time_after_the_history_is_in_the_topic_after_the_change_over(tmp_path: Path) -> None:
    assert offsets_over(tmp_path, Topics(9)).at({ONE: 2, TWO: 0, OTHER: 1}, 31) == {ONE: 9, TWO: 9, OTHER: 9}
    assert offsets_over(tmp_path, Topics(1)).at({ONE: 2}, 31) == {ONE: 5}, "the topic has old records before it"
    assert offsets_over(tmp_path, Topics(None)).at({ONE: 2, OTHER: 0}, 31) == {}


def test_a_history_that_was_read_is_not_opened(tmp_path: Path) -> None:
    topics = Topics(7)
    offsets = offsets_over(tmp_path, topics)
    delete_chunks(str(tmp_path), "in")
    assert offsets.at({ONE: 5, TWO: 0, OTHER: 0}, 15) == {ONE: 7, TWO: 7, OTHER: 7}
    assert topics.asked == [[ONE, TWO, OTHER]]
