"""What stands beside a committed offset, byte for byte as Kafka Streams writes and reads it."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.api import OffsetAndMetadata
from penstock.errors import StreamsError
from penstock.host.api import STATE_ELSEWHERE
from penstock.host.commits.committing import (
    MOST_BYTES,
    TOPIC,
    PartitionMetadata,
    check_has_state,
    check_task,
    checkpoint_of,
    commit_of,
    offsets_of,
)
from penstock.plan.subtopology import TaskId
from penstock.record import NO_TIMESTAMP, TopicPartition
from penstock.task.changelog_copy import NO_COMMIT
from penstock.task.task_checkpoint import TaskCheckpoint

LONGS = st.integers(-(2**63), 2**63 - 1)
FIRST, SECOND = TopicPartition("in", 0), TopicPartition("other", 0)


def test_a_time_is_written_as_kafka_streams_writes_it() -> None:
    assert PartitionMetadata(1795358782722).encode() == "AgAAAaIDuPUC"
    assert PartitionMetadata.decode("AgAAAaIDuPUC") == PartitionMetadata(1795358782722)


def test_what_processors_remember_stands_behind_the_time() -> None:
    text = PartitionMetadata(1, {"b": 2, "a": -1}).encode()
    entries = b"\0\0\0\x02" + b"\0\0\0\x01a" + b"\xff" * 8 + b"\0\0\0\x01b" + b"\0" * 7 + b"\x02"
    assert base64.b64decode(text) == b"\x02" + b"\0" * 7 + b"\x01" + entries


@given(LONGS, st.dictionaries(st.text(), LONGS))
def test_metadata_come_back(time: int, entries: dict[str, int]) -> None:
    assert PartitionMetadata.decode(PartitionMetadata(time, entries).encode()) == PartitionMetadata(time, entries)


@pytest.mark.parametrize("text", ["", "garbage!", "AQ==", "Ag==", "BwAAAAAAAAAB", "AgAAAAAAAAABAAAA", "Ü"])
def test_what_others_have_written_says_nothing(text: str) -> None:
    assert PartitionMetadata.decode(text) == PartitionMetadata(NO_TIMESTAMP)


def test_the_first_version_has_a_time_alone() -> None:
    assert PartitionMetadata.decode("AQAAAaIDuPUC") == PartitionMetadata(1795358782722)


def test_what_is_remembered_stands_beside_the_first_partition() -> None:
    checkpoint = TaskCheckpoint(9, {FIRST: 5, SECOND: 9}, processor_metadata={"n/clock": 7})
    offsets = offsets_of(TaskId(0, 0), {SECOND: 4, FIRST: 3}, checkpoint)
    assert offsets == {
        FIRST: OffsetAndMetadata(3, PartitionMetadata(5, {"n/clock": 7}).encode()),
        SECOND: OffsetAndMetadata(4, PartitionMetadata(9).encode()),
    }
    found = checkpoint_of(offsets, {}, {})
    assert (found.stream_time, found.partition_times) == (9, {FIRST: 5, SECOND: 9})
    assert found.processor_metadata == {"n/clock": 7}


def test_a_newer_commit_goes_before_the_base_and_a_restore_before_both() -> None:
    committed = {FIRST: OffsetAndMetadata(3, PartitionMetadata(5, {"n/clock": 7, "s/clock": 7}).encode())}
    found = checkpoint_of(committed, {"n/clock": 6, "s/clock": 6, "s/uses": 1}, {"s/clock": 8})
    assert found.processor_metadata == {"n/clock": 7, "s/clock": 8, "s/uses": 1}


def test_the_number_of_the_commit_is_in_the_metadata_and_is_not_remembered() -> None:
    checkpoint = TaskCheckpoint(processor_metadata={"n/clock": 7})
    offsets = offsets_of(TaskId(0, 0), {SECOND: 4, FIRST: 3}, checkpoint, commit=12)
    assert commit_of(offsets) == 12
    assert commit_of({SECOND: offsets[SECOND]}) == NO_COMMIT
    assert checkpoint_of(offsets, {}, {}).processor_metadata == {"n/clock": 7}
    without = offsets_of(TaskId(0, 0), {SECOND: 4, FIRST: 3}, checkpoint)
    assert commit_of(without) == commit_of({}) == NO_COMMIT
    assert PartitionMetadata.decode(without[FIRST].metadata).processor_metadata == {"n/clock": 7}


def test_the_number_of_the_commit_gives_way_to_topics_and_these_to_the_rest() -> None:
    topics = {f"{TOPIC}{number:08x}": number for number in range(1, 4)}

    def entries(remembered: int) -> tuple[int, bool]:
        checkpoint = TaskCheckpoint(processor_metadata={"n" * remembered: 1})
        (offset,) = offsets_of(TaskId(0, 0), {FIRST: 1}, checkpoint, topics, 12).values()
        assert len(offset.metadata) <= MOST_BYTES
        found = PartitionMetadata.decode(offset.metadata).processor_metadata
        return len(found.keys() & topics.keys()), commit_of({FIRST: offset}) == 12

    kept = [entries(remembered) for remembered in range(2900, 3040)]
    assert list(dict.fromkeys(kept)) == [(3, True), (3, False), (0, False)]


def test_more_than_brokers_accept_is_refused_with_the_size() -> None:
    checkpoint = TaskCheckpoint(processor_metadata={"n" * 4000: 1})
    with pytest.raises(StreamsError, match=r"0_0 cannot commit the offset of in-0: .* \d+ bytes, and brokers accept"):
        offsets_of(TaskId(0, 0), {FIRST: 1}, checkpoint)


def test_a_partition_that_another_task_has_read_is_refused() -> None:
    """A partition is read by the task of its number, unless a PartitionGrouper says otherwise."""
    third, fourth = TopicPartition("in", 2), TopicPartition("in", 3)
    offsets = offsets_of(TaskId(1, 2), {third: 7, fourth: 8}, TaskCheckpoint(processor_metadata={"n/clock": 7}))
    assert "penstock.task" not in PartitionMetadata.decode(offsets[third].metadata).processor_metadata
    assert checkpoint_of(offsets, {}, {}).processor_metadata == {"n/clock": 7}
    check_task(TaskId(1, 2), offsets)
    check_task(TaskId(0, 2), offsets)  # a sub-topology may get another number
    with pytest.raises(StreamsError, match=r"Task 1_3 cannot read in-3: task 1_2 has read it up to offset 8"):
        check_task(TaskId(1, 3), {fourth: offsets[fourth]})
    with pytest.raises(StreamsError, match=r"Task 1_1 cannot read in-2: task 1_2 has read it up to offset 7"):
        check_task(TaskId(1, 1), {third: offsets[third]})


def test_offsets_whose_state_is_on_spark_are_refused() -> None:
    first, second = TopicPartition("in", 0), TopicPartition("in", 1)
    check_has_state({first: OffsetAndMetadata(3), second: OffsetAndMetadata(3, PartitionMetadata(1).encode())})
    with pytest.raises(StreamsError, match=r"has read in-1 up to offset 4(.|\n)*penstock savepoint export"):
        check_has_state({first: OffsetAndMetadata(3), second: OffsetAndMetadata(4, STATE_ELSEWHERE)})
