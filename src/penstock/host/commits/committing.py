"""The metadata of committed offsets, in the format of Kafka Streams.

It has partition times and processor metadata. Penstock and Kafka Streams can therefore continue from commits of each
other (Kafka classes: TopicPartitionMetadata, ProcessorMetadata).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from penstock.client.api import OffsetAndMetadata
from penstock.errors import StreamsError
from penstock.host.api import STATE_ELSEWHERE
from penstock.plan.subtopology import TaskId
from penstock.record import NO_TIMESTAMP, TopicPartition
from penstock.task.changelog_copy import NO_COMMIT
from penstock.task.task_checkpoint import TaskCheckpoint

_VERSION = 2
_TIME_VERSIONS = (1, 2)
_HEAD = struct.Struct(">bq")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")

_TASK = "penstock.task"
"""The entry for the task's number, if its partition has another (KIP-28)."""

TOPIC = "penstock#"
"""Prefix of the entries for the topics of an application; see `lost_topics`. A task does not remember them."""

_COMMIT = f"{TOPIC}commit"
"""The entry for the number of the commit. Earlier versions drop it at their next commit, as its prefix is `TOPIC`."""

MOST_BYTES = 4096
"""Default limit (bytes) of brokers for the metadata of an offset (offset.metadata.max.bytes)."""


class PartitionMetadata(NamedTuple):
    """The metadata of a committed offset.

    partition_time: ms, NO_TIMESTAMP if unknown. processor_metadata: values of stores and processors, by entry.
    """

    partition_time: int = NO_TIMESTAMP
    processor_metadata: Mapping[str, int] = {}

    def encode(self) -> str:
        """Return the text for a committed offset."""
        data = _HEAD.pack(_VERSION, self.partition_time)
        if self.processor_metadata:
            entries = sorted(self.processor_metadata.items())
            data += _INT.pack(len(entries)) + b"".join(
                _INT.pack(len(name)) + name + _LONG.pack(value)
                for name, value in ((text.encode(), value) for text, value in entries)
            )
        return base64.b64encode(data).decode()

    @staticmethod
    def decode(text: str) -> PartitionMetadata:
        """Return the metadata in `text`, empty for another format, as in Kafka Streams."""
        try:
            return _decoded(base64.b64decode(text, validate=True))
        except (ValueError, struct.error):  # not Base64, not ASCII, or its content is not UTF-8
            return PartitionMetadata()


def _decoded(data: bytes) -> PartitionMetadata:
    if not data or data[0] not in _TIME_VERSIONS:
        return PartitionMetadata()
    _, time = _HEAD.unpack_from(data)
    at = _HEAD.size
    if data[0] == 1 or at == len(data):
        return PartitionMetadata(time)
    entries: dict[str, int] = {}
    (count,) = _INT.unpack_from(data, at)
    at += _INT.size
    for _ in range(count):
        (size,) = _INT.unpack_from(data, at)
        at += _INT.size
        name = data[at : at + size].decode()
        (entries[name],) = _LONG.unpack_from(data, at + size)
        at += size + _LONG.size
    return PartitionMetadata(time, entries)


def committed_task(subtopology: int, partition: TopicPartition, committed: OffsetAndMetadata) -> TaskId:
    """Return the task that committed an offset of `partition`. This task has the state of its keys."""
    remembered = PartitionMetadata.decode(committed.metadata).processor_metadata
    return TaskId(subtopology, remembered.get(_TASK, partition.partition))


def check_task(task: TaskId, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Raise StreamsError if another task has committed offsets of these partitions.

    That task has the state of the keys.

    committed: the offsets of the partitions that `task` reads.
    """
    for partition, each in sorted(committed.items()):
        before = committed_task(task.subtopology, partition, each)
        if before != task:
            raise StreamsError(
                f"Task {task} cannot read {partition}: task {before} has read it up to offset {each.offset}, and has "
                "the state of its keys. partition.grouper must not move partitions between tasks with state: put it "
                "back, or process everything again with another application.id."
            )


def check_has_state(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Raise StreamsError if a host without changelog topics committed one of these offsets.

    If the application has changelog topics, they lack the state for such an offset.
    """
    for partition, each in sorted(committed.items()):
        if each.metadata == STATE_ELSEWHERE:
            raise StreamsError(
                f"The Spark host has read {partition} up to offset {each.offset}, and the state is in its checkpoint: "
                "the changelog topics are older. Export a savepoint of it first (penstock savepoint take, then "
                "penstock savepoint export --to-kafka)."
            )


def offsets_of(
    task: TaskId,
    positions: Mapping[TopicPartition, int],
    checkpoint: TaskCheckpoint,
    topics: Mapping[str, int] = MappingProxyType({}),
    commit: int = NO_COMMIT,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets that `task` commits, with their metadata.

    Only the first partition has the processor metadata and the number of the commit. A partition with another number
    than the task has an entry for the task's number. topics: the entries of the topics that the task uses. commit: the
    number of the commit. It is omitted if it would exceed the limit of brokers, and the topics too if they do. Raises
    StreamsError if the rest exceeds that limit.
    """
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    remembered, numbered = checkpoint.processor_metadata, {} if commit == NO_COMMIT else {_COMMIT: commit}
    for partition, offset in sorted(positions.items()):
        time = checkpoint.partition_times.get(partition, NO_TIMESTAMP)
        moved = {} if partition.partition == task.partition else {_TASK: task.partition}
        for optional in ({**topics, **numbered}, topics, {}):
            text = PartitionMetadata(time, {**remembered, **moved, **optional}).encode()
            if len(text) <= MOST_BYTES:
                break
        else:
            raise StreamsError(
                f"Task {task} cannot commit the offset of {partition}: its metadata has {len(text)} bytes, and "
                f"brokers accept {MOST_BYTES} (offset.metadata.max.bytes). Its processors and stores remember "
                f"{len(remembered)} values: give them shorter names."
            )
        offsets[partition] = OffsetAndMetadata(offset, text)
        remembered, numbered = {}, {}
    return offsets


def commit_of(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> int:
    """Return the number of the commit of a task, NO_COMMIT if unknown. committed: the offsets of its partitions."""
    found = (PartitionMetadata.decode(each.metadata).processor_metadata for each in committed.values())
    return max((each.get(_COMMIT, NO_COMMIT) for each in found), default=NO_COMMIT)


def checkpoint_of(
    committed: Mapping[TopicPartition, OffsetAndMetadata], base: Mapping[str, int], restored: Mapping[str, int]
) -> TaskCheckpoint:
    """Return the checkpoint from which a task continues: partition times and processor metadata.

    committed: the offsets of its partitions. base: the processor metadata of its base, which may be from an earlier
    commit. restored: the results of restoring its stores, which may be from a later commit.
    """
    found = {partition: PartitionMetadata.decode(each.metadata) for partition, each in sorted(committed.items())}
    times = {p: each.partition_time for p, each in found.items() if each.partition_time != NO_TIMESTAMP}
    remembered = dict(base)
    for each in found.values():
        entries = each.processor_metadata.items()
        remembered.update({name: value for name, value in entries if name != _TASK and not name.startswith(TOPIC)})
    remembered.update(restored)
    return TaskCheckpoint(max(times.values(), default=NO_TIMESTAMP), times, processor_metadata=remembered)
