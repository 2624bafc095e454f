"""Transfers the state of one topology version of a checkpoint to the next.

Entries are kept; segments are copied to another task, or rewritten if stores are combined differently. The files become
visible only when the metadata names the new topology version; each is named by its content, so a second attempt after a
crash writes the same files.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import numpy as np
import orjson

from penstock.errors import CorruptedSegmentError, counted
from penstock.host.spark.checkpoints.carried import carried_places, read_carried, write_carried
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.checkpoints.documents import damaged
from penstock.host.spark.checkpoints.evolution import Evolution, StateOrigin
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.storage.task_state import TaskState
from penstock.host.storage.temporary_base import temporary_base
from penstock.plan.partitioning import partition_column
from penstock.plan.subtopology import TaskId
from penstock.record import PartitionBatch, TopicPartition
from penstock.state.api import BaseView, Changes, Entries
from penstock.state.memory import MemoryBase
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

_log = logging.getLogger(__name__)

_SEGMENT_BYTES = 8 * 1024 * 1024
"""Limit of a segment of a written state."""


def bring_over(
    checkpoint: Checkpoint,
    last: Manifest,
    evolution: Evolution,
    description: ApplicationDescription,
    before: Mapping[str, Any],
) -> tuple[dict[str, TaskEntry], dict[str, TaskEntry]]:
    """Write the state of the next topology version.

    Return the entries of its tasks, and those of removed state by holder. Every task with state is due immediately, so
    its processors are initialised in the first epoch even without input.

    Args:
        checkpoint: the checkpoint.
        last: the last manifest of the previous topology version.
        evolution: the transfer of the state.
        description: the program of the next topology version.
        before: the shape of the program of the previous topology version.
    """
    stores = kinds_of_stores(description)
    tasks: dict[str, TaskEntry] = {}
    for task, origin in evolution.origins.items():
        entry = _entry(checkpoint, last, task, origin, stores[task])
        if entry.head:
            tasks[task] = replace(entry, due_ms=0, carried=None)
    placement = description.placement
    routing = RowRouting(
        before["partitions of source topics"],
        placement.source_partitions,
        lambda topic, partition: str(placement.consumer(topic, partition)),
        description.config["penstock.row.max.bytes"],
    )
    tasks = hand_on_carried(checkpoint, checkpoint, last, routing, tasks)
    removed: dict[str, TaskEntry] = {}
    for holder, origin in evolution.removals.items():
        (name,) = origin.stores
        entry = _entry(checkpoint, last, holder, origin, {name: evolution.removed_stores[name].kind})
        if entry.head:
            removed[holder] = replace(entry, due_ms=None)
    for name in evolution.still_removed:
        for holder in evolution.removed_stores[name].holders(name):
            if holder in last.removed:
                removed[holder] = last.removed[holder]
    return tasks, removed


def kinds_of_stores(description: ApplicationDescription) -> dict[str, dict[str, str]]:
    """Return the kind of each store of each task."""

    def of_task(task: TaskId) -> dict[str, str]:
        return {name: builder.kind for name, builder in description.subtopologies[task.subtopology].stores.items()}

    return {str(task): of_task(task) for task in description.placement.tasks}


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


def _entry(
    checkpoint: Checkpoint, last: Manifest, target: str, origin: StateOrigin, kinds: Mapping[str, str]
) -> TaskEntry:
    if origin.whole is not None:
        entry = last.entry(origin.whole)
        if origin.whole != target:
            for segment in sorted(replace(entry, carried=None).ids()):
                _copy(checkpoint, origin.whole, segment, target)
        return entry
    states = read_states(checkpoint, last, [*origin.clocks, *origin.stores.values()])
    if not states:
        return TaskEntry()
    stores = {name: holder for name, holder in origin.stores.items() if holder in states}
    clocks = merged([states[holder].clocks for holder in origin.clocks if holder in states])
    identity = [[name, holder, states[holder].identity.decode()] for name, holder in sorted(stores.items())]
    gathered = TaskState(clocks, partial(_gathered, states, stores), orjson.dumps(identity))
    return write_state(checkpoint, target, kinds, gathered)


@contextmanager
def _gathered(states: Mapping[str, TaskState], stores: Mapping[str, str]) -> Iterator[Entries]:
    """Open `stores`, each as its holder in `states` has it."""
    with ExitStack() as opened:
        bases = {holder: opened.enter_context(states[holder].entries()) for holder in dict.fromkeys(stores.values())}
        yield _Gathered({name: bases[holder] for name, holder in stores.items()})


def _copy(checkpoint: Checkpoint, task: str, segment: str, target: str) -> None:
    data = checkpoint.read_segment(task, segment)
    if data is None:
        raise damaged(checkpoint.segment_name(task, segment), "it is missing, and the last manifest names it")
    checkpoint.write_segment(target, segment, data, lambda: None)


def read_states(checkpoint: Checkpoint, manifest: Manifest, holders: Iterable[str]) -> dict[str, TaskState]:
    """Return the state of those `holders` that have committed, as of `manifest`.

    It has entries and clocks. The entries are in a temporary base of this process while they are open.
    """
    states: dict[str, TaskState] = {}
    for holder in dict.fromkeys(holders):
        entry = manifest.entry(holder)
        if entry.head:
            clocks = _clocks(_last_commit(checkpoint, holder, entry))
            states[holder] = TaskState(clocks, partial(_entries, checkpoint, holder, entry), entry.head.encode())
    return states


@contextmanager
def _entries(checkpoint: Checkpoint, task: str, entry: TaskEntry) -> Iterator[Entries]:
    log = log_from_json(dict(entry.segments))

    def commits() -> Iterator[Changes]:
        for info in path(log, None).segments:
            yield read_segment(checkpoint, task, info).changes

    with temporary_base() as base:
        base.rebuild(commits, log.head or b"")
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


def read_segment(checkpoint: Checkpoint, task: str, info: SegmentInfo) -> Segment:
    """Return a live segment of a task; raises TaskCorruptedError if it is missing or incomplete."""
    name = checkpoint.segment_name(task, info.id.hex())
    data = checkpoint.read_segment(task, info.id.hex())
    if data is None:
        raise damaged(name, "it is missing, and a manifest names it")
    try:
        return decode(data, info.id)
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


class _Gathered:
    """Combines stores of several tasks (implements Entries); a store without a base is empty."""

    def __init__(self, bases: Mapping[str, Entries]) -> None:
        self._bases = bases
        self._nothing = MemoryBase()

    def view(self, store_name: str) -> BaseView:
        return self._bases.get(store_name, self._nothing).view(store_name)
