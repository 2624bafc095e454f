"""The state of tasks in the segments of a checkpoint: reading and writing it, and changing its clocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import TypeVar

from penstock.errors import CorruptedSegmentError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.checkpoints.documents import damaged
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.storage.task_state import TaskState
from penstock.host.storage.temporary_base import temporary_base
from penstock.record import TopicPartition
from penstock.state.api import Entries
from penstock.state.segment_log import SegmentLog, log_from_json, log_to_json, path, whole_snapshot
from penstock.state.segments import (
    EncodedSegment,
    Segment,
    SegmentHeader,
    SegmentInfo,
    decode,
    encode,
)
from penstock.task.task_checkpoint import TaskCheckpoint

_K = TypeVar("_K")

_SEGMENT_BYTES = 8 * 1024 * 1024
"""Limit of a segment of a written state."""


def read_states(checkpoint: Checkpoint, manifest: Manifest, holders: Iterable[str]) -> dict[str, TaskState]:
    """Return the state of those `holders` that have committed, as of `manifest`.

    It has entries and clocks. The entries are in a temporary base of this process while they are open.
    """
    states: dict[str, TaskState] = {}
    for holder in dict.fromkeys(holders):
        entry = manifest.entry(holder)
        if entry.head:
            clocks = _clocks(_last_commit(checkpoint, holder, entry))
            states[holder] = TaskState(clocks, partial(opened_entries, checkpoint, holder, entry), entry.head.encode())
    return states


def first_value(checkpoint: Checkpoint, manifest: Manifest, store: str, holders: Iterable[str]) -> bytes | None:
    """Return a value that an entry of `store` has, or had before, None without one; reads no more than it needs.

    holders: of the state of the store.
    """
    for holder in holders:
        entry = manifest.entry(holder)
        for info in path(log_from_json(dict(entry.segments)), None).segments if entry.head else ():
            changes = read_segment(checkpoint, holder, info, {store}).changes.get(store, {})
            if (value := next((each for each in changes.values() if each is not None), None)) is not None:
                return value
    return None


@contextmanager
def opened_entries(
    checkpoint: Checkpoint, task: str, entry: TaskEntry, stores: Collection[str] | None = None
) -> Iterator[Entries]:
    """Open the entries of a task in a temporary base: those of some stores, or of all if None."""
    with temporary_base() as base:
        for info in path(log_from_json(dict(entry.segments)), None).segments:
            changes = read_segment(checkpoint, task, info, stores).changes
            base.apply(changes, b"")  # one transaction for all needs more memory
        yield base


def write_state(checkpoint: Checkpoint, task: str, kinds: Mapping[str, str], state: TaskState) -> TaskEntry:
    """Write entries and clocks of a task: snapshots, then a commit with the clocks.

    Args:
        checkpoint: the checkpoint to write to.
        task: its directory there.
        kinds: the stores, each with its kind.
        state: of the task; its identity names the position of the snapshots.
    """
    position = blake2b(state.identity, digest_size=16).digest()
    with state.entries() as entries:
        steps = whole_snapshot(entries, kinds, position, 1, _SEGMENT_BYTES, _SEGMENT_BYTES)
        snapshots = tuple(_written(checkpoint, task, each) for step in steps for each in step)
    (commit,) = encode(SegmentHeader(position, tuple(sorted(kinds.items())), state.clocks.encode()), {})
    delta = _written(checkpoint, task, commit)._replace(sequence=1)
    log = SegmentLog((delta,), snapshots)
    return TaskEntry(delta.last.hex(), log_to_json(log), state.clocks.next_wall_clock_ms())


def _written(checkpoint: Checkpoint, task: str, segment: EncodedSegment) -> SegmentInfo:
    checkpoint.write_segment(task, segment.info.id.hex(), segment.data, lambda: None)
    return segment.info


def read_segment(
    checkpoint: Checkpoint, task: str, info: SegmentInfo, stores: Collection[str] | None = None
) -> Segment:
    """Return a live segment of a task; raises TaskCorruptedError if it is missing or incomplete.

    stores: whose changes are decoded, None for all.
    """
    name = checkpoint.segment_name(task, info.id.hex())
    data = checkpoint.read_segment(task, info.id.hex())
    if data is None:
        raise damaged(name, "it is missing, and a manifest names it")
    try:
        return decode(data, info.id, stores)
    except CorruptedSegmentError as error:
        raise damaged(name, f"it {error.why}") from error


def _last_commit(checkpoint: Checkpoint, task: str, entry: TaskEntry) -> Segment:
    return read_segment(checkpoint, task, log_from_json(dict(entry.segments)).deltas[-1])


def _clocks(commit: Segment) -> TaskCheckpoint:
    return TaskCheckpoint() if commit.checkpoint is None else TaskCheckpoint.decode(commit.checkpoint)


def with_clocks(
    checkpoint: Checkpoint, task: str, entry: TaskEntry, changed: Callable[[TaskCheckpoint], TaskCheckpoint]
) -> TaskEntry:
    """Write a commit that changes the clocks of a task and no entries; return its entry."""
    last, log = _last_commit(checkpoint, task, entry), log_from_json(dict(entry.segments))
    (commit,) = encode(SegmentHeader(log.head, last.stores, changed(_clocks(last)).encode()), {})
    log = log.append([_written(checkpoint, task, commit)])
    return replace(entry, head=commit.info.last.hex(), segments=log_to_json(log))


def merged(clocks: list[TaskCheckpoint]) -> TaskCheckpoint:
    """Return the clocks of a task that continues several tasks.

    They have the largest of each time and counter.
    """
    times: dict[TopicPartition, int] = {}
    lanes: dict[TopicPartition, int] = {}
    metadata: dict[str, int] = {}
    for each in clocks:
        _raise_to(times, each.partition_times)
        _raise_to(lanes, each.lane_offsets)
        _raise_to(metadata, each.processor_metadata)
    return TaskCheckpoint(
        max((each.stream_time for each in clocks), default=TaskCheckpoint().stream_time),
        times,
        tuple({(s.node, s.call): s for each in clocks for s in each.schedules}.values()),
        lanes,
        metadata,
    )


def _raise_to(known: dict[_K, int], values: Mapping[_K, int]) -> None:
    for key, value in values.items():
        known[key] = max(value, known.get(key, value))
