"""Carried rows: records that a task passes to the next epoch.

They are in a file next to the task's segments. Records sent to a sub-topology on the same or an earlier level cannot
arrive in the same epoch: they are carried. So is input that has to wait for records of another partition (see
`lagging`). The file is immutable and named by the digest of epoch and content, so a replay writes the same file. The
manifest of the epoch names it, with the range of each topic partition in it. In the next epoch each consumer reads its
own ranges of all files before any new records. A file serves one epoch: rows that must be carried further are written
again.
"""

from __future__ import annotations

import logging
import marshal
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from penstock.errors import counted
from penstock.host.packing.record_blobs import decode_batch, decoded_numbers, encode_batch
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.checkpoints.documents import damaged
from penstock.host.spark.protocol.placement import Placement
from penstock.host.spark.protocol.task_entry import CarriedRange, TaskEntry
from penstock.plan.partitioning import partition_column
from penstock.plan.subtopology import TaskId
from penstock.record import PartitionBatch, RecordBatch, TopicPartition, column_of

_log = logging.getLogger(__name__)

_FRAME = struct.Struct("<iI")
_ID_BYTES = 16
_MARSHAL_TUPLE = b"("
"""The first byte of a batch in a file that Penstock wrote before batches had a version."""


def write_carried(
    checkpoint: Checkpoint,
    task: str,
    epoch: int,
    held: Iterable[PartitionBatch],
    sent: Iterable[PartitionBatch],
    row_max_bytes: int,
    before_rename: Callable[[], None] = lambda: None,
) -> Mapping[str, Any] | None:
    """Write a file of carried rows, and return its manifest entry.

    Return None if there are no rows to carry.

    Args:
        checkpoint: the checkpoint to write to.
        task: its directory there.
        epoch: the epoch that writes them.
        held: input of the task that had to wait.
        sent: output of the task.
        row_max_bytes: limit of a batch in the file; a single larger record exceeds it.
        before_rename: called when the file is durable under its temporary name.
    """
    frames: dict[tuple[str, int], list[bytes]] = {}
    _add_frames(frames, held, row_max_bytes)
    held_bytes = [[*partition, sum(map(len, parts))] for partition, parts in sorted(frames.items())]
    sends = _add_frames(frames, sent, row_max_bytes)
    if not frames:
        return None
    places: dict[str, list[list[int]]] = {}
    sections: list[bytes] = []
    offset = 0
    for (topic, partition), parts in sorted(frames.items()):
        section_bytes = b"".join(parts)
        places.setdefault(topic, []).append([partition, offset, len(section_bytes), crc32(section_bytes)])
        sections.append(section_bytes)
        offset += len(section_bytes)
    data = b"".join(sections)
    digest = blake2b(b"%d:" % epoch, digest_size=_ID_BYTES)
    digest.update(data)
    checkpoint.write_segment(task, digest.hexdigest(), data, before_rename)
    return {"id": digest.hexdigest(), "places": places, "held": held_bytes, "sends": sends}


def _add_frames(
    frames: dict[tuple[str, int], list[bytes]], inputs: Iterable[PartitionBatch], row_max_bytes: int
) -> bool:
    """Add `inputs` to the frames of each partition; return whether there were any."""
    found = False
    for topic, partition, batch, lane in inputs:
        found = True
        section = frames.setdefault((topic, partition), [])
        for blob in encode_batch(topic, partition, batch, row_max_bytes):
            section += (_FRAME.pack(lane, len(blob)), blob)
    return found


def carried_ranges(manifest: Manifest, placement: Placement) -> Mapping[TaskId, tuple[CarriedRange, ...]]:
    """Return the carried rows of each task, its own file first.

    The remaining records of a lane in a task's own file are older than those that the lane has brought since.
    """
    found: dict[TaskId, list[CarriedRange]] = {}
    for task, entry in manifest.tasks.items():
        for partition, place in entry.places(task):
            consumer = placement.consumer(*partition)
            own = found.setdefault(consumer, [])
            own.insert(0 if task == str(consumer) else len(own), place)
    return {task: tuple(ranges) for task, ranges in found.items()}


def carried_places(manifest: Manifest) -> list[tuple[TopicPartition, CarriedRange]]:
    """Return the places of all carried rows of `manifest`.

    The rows that a task holds back come first: they are the older ones of a lane.
    """
    held: list[tuple[TopicPartition, CarriedRange]] = []
    sent: list[tuple[TopicPartition, CarriedRange]] = []
    for task, entry in sorted(manifest.tasks.items()):
        own = entry.held()
        for partition, place in entry.places(task):
            (held if partition in own else sent).append((partition, place))
    return held + sent


def carried_bytes(manifest: Manifest) -> int:
    """Return the size of all rows that `manifest` has carried, in bytes."""
    return sum(file_bytes(entry.carried) for entry in manifest.tasks.values() if entry.carried is not None)


def file_bytes(carried: Mapping[str, Any]) -> int:
    """Return the size in bytes of a file of carried rows; carried: its manifest entry."""
    return sum(length for places in carried["places"].values() for _, _, length, _ in places)


def first_held(checkpoint: Checkpoint, manifest: Manifest) -> dict[TopicPartition, int]:
    """Return the offset of the first record of each partition that `manifest` has held back.

    Raises TaskCorruptedError as `read_carried` does.
    """
    found: dict[TopicPartition, int] = {}
    for task, entry in manifest.tasks.items():
        places = dict(entry.places(task))
        for partition in entry.held():
            first = next(read_carried(checkpoint, [places[partition]]))
            found[partition] = int(first.batch.offsets[0])
    return found


def read_carried(checkpoint: Checkpoint, ranges: Iterable[CarriedRange]) -> Iterator[PartitionBatch]:
    """Yield the rows of `ranges`, in order.

    Raises TaskCorruptedError if a file is missing or damaged.
    """
    for each in ranges:
        data = checkpoint.read_segment_range(each.task, each.file, each.offset, each.length)
        name = checkpoint.segment_name(each.task, each.file)
        if data is None:
            raise damaged(name, "it is missing, and the last manifest names it")
        if crc32(data) != each.checksum:
            raise damaged(name, f"it is torn or was changed: bytes {each.offset} to {each.offset + each.length}")
        view = memoryview(data)
        at = 0
        while at < len(view):
            lane, length = _FRAME.unpack_from(view, at)
            at += _FRAME.size
            yield _decoded(view[at : at + length])._replace(lane=lane)
            at += length


def _decoded(blob: memoryview) -> PartitionBatch:
    """Return topic, partition and records of a blob."""
    return _decoded_marshal(blob) if blob[:1] == _MARSHAL_TUPLE else decode_batch(blob)


def _decoded_marshal(blob: memoryview) -> PartitionBatch:
    """Return the topic, partition and records of a blob from before batches had a version."""
    topic, partition, keys, values, timestamps, offsets, headers = marshal.loads(blob)

    def column(encoded: Any) -> Sequence[bytes | None]:
        if isinstance(encoded, list):
            return encoded
        entries, kind, places = encoded
        return column_of(entries, np.frombuffer(places, kind).astype(np.int32))

    decoded = column(keys)
    rows = len(decoded)
    numbers = decoded_numbers(timestamps, rows), decoded_numbers(offsets, rows)
    batch = RecordBatch(decoded, decoded if values is None else column(values), *numbers, headers)
    return PartitionBatch(topic, partition, batch)


class RowRouting(NamedTuple):
    """The assignment of carried rows to tasks.

    Args:
        before: former number of partitions of each topic.
        now: current number of partitions of each topic.
        consumer: returns the task that now reads a partition.
        row_max_bytes: limit of a batch.
    """

    before: Mapping[str, int]
    now: Mapping[str, int]
    consumer: Callable[[str, int], str]
    row_max_bytes: int


def hand_on_carried(
    source: Checkpoint, target: Checkpoint, last: Manifest, routing: RowRouting, tasks: Mapping[str, TaskEntry]
) -> dict[str, TaskEntry]:
    """Write the rows carried by the manifest `last` of `source` into `target`; return `tasks` with them.

    Each row is stored with the task that now reads it. Rows of topics that the program no longer reads are discarded,
    with a warning.
    """
    found: dict[str, list[PartitionBatch]] = {}
    left_behind: Counter[str] = Counter()
    for row in read_carried(source, (place for _, place in carried_places(last))):
        if row.topic not in routing.now:
            left_behind[row.topic] += len(row.batch)
        for part in _partitioned(row, routing):
            found.setdefault(routing.consumer(part.topic, part.partition), []).append(part)
    for topic, count in sorted(left_behind.items()):
        _log.warning(
            "Discarding %s of topic %s, still waiting or in transit between tasks: the program no longer reads that "
            "topic. A repartition topic keeps its name if its operator is named.",
            counted(count, "record"),
            topic,
        )
    entries = dict(tasks)
    for consumer, inputs in found.items():
        carried = write_carried(target, consumer, last.epoch + 1, (), inputs, routing.row_max_bytes)
        entries[consumer] = replace(tasks.get(consumer, TaskEntry()), carried=carried)
    return entries


def _partitioned(row: PartitionBatch, routing: RowRouting) -> Iterator[PartitionBatch]:
    """Yield `row` for the current partitions of its topic.

    Yields nothing if the topic is no longer read. If the number of partitions has changed, the keys of the records
    decide.
    """
    count = routing.now.get(row.topic)
    if count is None or count == routing.before.get(row.topic):
        yield from () if count is None else (row,)
        return
    partitions = partition_column(row.batch.keys, count, row.partition % count)
    for partition in np.unique(partitions).tolist():
        yield row._replace(partition=partition, batch=row.batch.take(np.flatnonzero(partitions == partition)))
