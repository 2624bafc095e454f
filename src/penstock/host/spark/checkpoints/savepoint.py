"""Savepoints: self-contained copies of the state of an application.

    <savepoint>/
      savepoint              the time at which it was taken; written last: a directory without it is incomplete
      metadata, plans/<digest>, manifests/<epoch>, state/<task>/<id>      as in a checkpoint, of one manifest

A savepoint contains the last commit, whether the application runs or not. A restore makes it the first manifest of a
new checkpoint: of the same application or of another one, for the same program or a changed one. It does not contain
the output of an uncommitted epoch: if an application was killed in the middle of an epoch and the savepoint is restored
with the same output topics, records of that epoch may be written twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock.errors import IncompatibleCheckpointError, StreamsError, TaskCorruptedError
from penstock.host.crashpoints import crash_point
from penstock.host.spark.checkpoints.carried import (
    RowRouting,
    carried_places,
    hand_on_carried,
    read_carried,
)
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest, Metadata
from penstock.host.spark.checkpoints.entry_map import MappedStore
from penstock.host.spark.checkpoints.internal_names import ROW_BYTES, new_names, renamed_entry, renamed_shape
from penstock.host.spark.checkpoints.manifests import check_absent, existing_metadata, last_manifest, planned_offset
from penstock.host.spark.checkpoints.mapping import StoreMapping, StoreMaps
from penstock.host.spark.checkpoints.rescaling import Rescaling, rescaled_shape, tasks_of, wanted_counts
from penstock.host.spark.checkpoints.stored_description import dump_for_checkpoint, load_from_checkpoint
from penstock.host.spark.checkpoints.stored_history import stored_histories, unread_histories
from penstock.host.spark.checkpoints.task_segments import read_states
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.task_entry import CarriedRange, TaskEntry
from penstock.host.storage.task_state import TaskState
from penstock.record import RecordBatch, TopicPartition
from penstock_broker.common.clock import SystemClock

_TRIES = 8
"""Most attempts to take a savepoint while a running application deletes files that are being copied."""


@dataclass(frozen=True)
class StoreFigures:
    """A store in a savepoint.

    Args:
        name: of the store.
        layout: of the store.
        partitions: number of partitions (tasks) of its keys.
        in_program: whether the program still had the store when the savepoint was taken.
    """

    name: str
    layout: str
    partitions: int
    in_program: bool


@dataclass(frozen=True)
class SavepointDescription:
    """The content of a savepoint.

    Args:
        epoch: whose commit it contains.
        taken_ms: time at which it was taken.
        committed_ms: time at which the epoch was committed.
        offsets: the position in each topic.
        segments: number of files of state.
        bytes: their size.
        mapped: after a restore, the stores that functions have rewritten.
    """

    location: str
    application_id: str
    epoch: int
    taken_ms: int
    committed_ms: int
    offsets: Mapping[str, list[int]]
    stores: tuple[StoreFigures, ...]
    segments: int
    bytes: int
    mapped: tuple[MappedStore, ...] = ()


def take(checkpoint: Checkpoint, target: Checkpoint) -> SavepointDescription:
    """Copy the last commit of `checkpoint` to `target`, which must be empty.

    Raises:
        StreamsError: there is no checkpoint, it has no commit yet, a history is not read to its end, or `target`
            already has files.
        TaskCorruptedError: the checkpoint is incomplete.
    """
    _check_empty(target)
    for attempt in range(1, _TRIES + 1):
        metadata = existing_metadata(checkpoint, StreamsError)
        manifest = last_manifest(checkpoint, metadata)
        if manifest.epoch == 0:
            raise StreamsError(
                f"The application {metadata.application_id} has committed nothing yet at {checkpoint.uri}; there is "
                "nothing to save."
            )
        _check_histories(checkpoint, manifest)
        try:
            copy_files(checkpoint, manifest.segments(), target)
            break
        except FileNotFoundError as error:
            if attempt == _TRIES:
                raise TaskCorruptedError(
                    f"{error} The last manifest of {checkpoint.uri} names it: the checkpoint is incomplete, or the "
                    "application deletes files faster than they can be copied (penstock.manifests.retained)."
                ) from error
    stored = checkpoint.read_description(metadata)
    if stored is not None:
        target.write_description(metadata.plan, stored)
    target.write_manifest(manifest, lambda: None)
    target.write_metadata(metadata)
    target.write_savepoint({"taken_ms": SystemClock().milliseconds(), "epoch": manifest.epoch})
    return inspect(target)


def _check_histories(checkpoint: Checkpoint, manifest: Manifest) -> None:
    unread = unread_histories(stored_histories(checkpoint.uri), manifest.offsets)
    if unread:
        raise StreamsError(
            f"The history of topic {unread[0]} is not read to its end yet, and a savepoint does not contain histories: "
            "take it after that. Or copy the checkpoint directory while the application is stopped."
        )


def inspect(savepoint: Checkpoint) -> SavepointDescription:
    """Return the content of a savepoint; raises StreamsError if it is missing or incomplete."""
    described, metadata, manifest = _opened(savepoint)
    stores = [
        StoreFigures(name, layout, len(tasks_of(metadata.shape, subtopology)), True)
        for subtopology, layouts in metadata.shape["stores"].items()
        for name, layout in layouts.items()
    ]
    stores += [StoreFigures(name, kept.layout, kept.partitions, False) for name, kept in metadata.removed.items()]
    entries = (*manifest.tasks.values(), *manifest.removed.values())
    infos = [info for entry in entries for kind in ("deltas", "snapshots") for info in entry.segments[kind]]
    return SavepointDescription(
        savepoint.uri,
        metadata.application_id,
        manifest.epoch,
        described["taken_ms"],
        manifest.committed_ms,
        manifest.offsets,
        tuple(sorted(stores, key=lambda store: store.name)),
        len(infos),
        sum(info["bytes"] for info in infos),
    )


class SavedState:
    """The state of the tasks in a savepoint, for export to another host.

    Args:
        savepoint: its location; StreamsError is raised if it is missing or incomplete.
    """

    def __init__(self, savepoint: Checkpoint) -> None:
        self._savepoint = savepoint
        _, self.metadata, self._manifest = _opened(savepoint)
        self._offsets = {**self.metadata.begin, **self._manifest.offsets}
        self._carried: dict[TopicPartition, list[CarriedRange]] = {}
        for partition, place in carried_places(self._manifest):
            self._carried.setdefault(partition, []).append(place)

    def task(
        self, task: str, inputs: Collection[TopicPartition] = (), repartition_topics: Collection[str] = ()
    ) -> TaskState:
        """Return the state of a task.

        Args:
            task: its id.
            inputs: its partitions, whose positions or waiting records are returned.
            repartition_topics: the topics of those with waiting records.
        """
        state = read_states(self._savepoint, self._manifest, [task]).get(task, TaskState())
        read = [each for each in inputs if each.topic not in repartition_topics]
        fetched = {each: self._offsets[each.topic][each.partition] for each in read}
        held = {each: next(self._waiting(each), None) for each in fetched}
        positions = {**fetched, **{each: int(first.offsets[0]) for each, first in held.items() if first is not None}}
        waiting = {each: partial(self._waiting, each) for each in inputs if each.topic in repartition_topics}
        return replace(state, positions=positions, fetched=fetched, waiting=waiting)

    def _waiting(self, partition: TopicPartition) -> Iterator[RecordBatch]:
        """Yield the carried records of a partition.

        Those that a task holds back come before those in transit.
        """
        yield from (row.batch for row in read_carried(self._savepoint, self._carried.get(partition, ())))


def restore(
    savepoint: Checkpoint,
    checkpoint: Checkpoint,
    application_id: str,
    partitions: int | Mapping[str, int] | None,
    maps: StoreMaps,
) -> SavepointDescription:
    """Create a checkpoint of the application `application_id` from a savepoint; return what was restored.

    The next start of the application continues from there. `partitions` is the new number of partitions (tasks) of all
    stores, or of some by name; None keeps their numbers.

    Raises:
        StreamsError: there is no complete savepoint, a checkpoint already exists, the keys cannot be redistributed, or
            a function of `maps` fails.
    """
    check_absent(checkpoint, "Restore")
    _, metadata, manifest = _opened(savepoint)
    crash_point("restore.before", manifest.epoch)
    checkpoint.delete_manifests()  # of an interrupted restore
    counts = {} if partitions is None else wanted_counts(metadata.shape, partitions)
    begin = {**metadata.begin, **manifest.offsets}
    restored = replace(
        manifest,
        query_id=uuid.uuid4().hex,
        generation=0,
        offsets=begin,
        input={},
        printed="",
        leader_epochs={},  # the topics may be copies, on other brokers
    )
    stored = savepoint.read_description(metadata)
    entered = replace(metadata, shape=rescaled_shape(metadata.shape, counts))
    mapping = None
    source = savepoint
    try:
        if counts:
            tasks = _rescaled(savepoint, checkpoint, metadata, manifest, entered.shape, counts)
            restored = replace(restored, tasks=tasks)
            copy_files(savepoint, restored.segments() & manifest.segments(), checkpoint)
            source = checkpoint
        if maps.functions:
            mapping = StoreMapping(source, restored, entered.shape, _program(savepoint, metadata), maps)
            restored = replace(restored, tasks={**restored.tasks, **mapping.tasks(checkpoint)})
            described = dump_for_checkpoint(mapping.description())
            entered, stored = replace(entered, shape=mapping.shape(), plan=described.digest), described.data
        copy_files(savepoint, restored.segments() & manifest.segments(), checkpoint)
    except FileNotFoundError as error:
        raise TaskCorruptedError(f"{error} The savepoint {savepoint.uri} is incomplete: take another one.") from error
    crash_point("restore.segments", manifest.epoch)
    entered = replace(entered, query_id=restored.query_id, application_id=application_id, begin=begin)
    _enter(checkpoint, metadata, entered, restored, stored)
    return replace(inspect(savepoint), mapped=() if mapping is None else mapping.results)


def try_maps(savepoint: Checkpoint, maps: StoreMaps) -> tuple[MappedStore, ...]:
    """Apply the functions of `maps` to the entries of a savepoint, and return the results; writes nothing.

    Raises StreamsError if there is no complete savepoint, or a store is missing or of another kind.
    """
    _, metadata, manifest = _opened(savepoint)
    mapping = StoreMapping(savepoint, manifest, metadata.shape, _program(savepoint, metadata), maps)
    mapping.try_all()
    return mapping.results


def _enter(
    checkpoint: Checkpoint, metadata: Metadata, entered: Metadata, restored: Manifest, stored: bytes | None
) -> None:
    """Write the manifest `restored`, then the metadata.

    Only a checkpoint with metadata exists for a start, or for the next attempt.

    Args:
        checkpoint: has the segments.
        metadata: of the savepoint.
        entered: of the checkpoint, but for the names of its internal topics and the identities of this start.
        restored: the manifest, but for these names.
        stored: the description of the program.
    """
    names = new_names(metadata, entered.application_id)
    tasks = {
        task: renamed_entry(checkpoint, task, entry, names, restored.epoch) for task, entry in restored.tasks.items()
    }
    torn = partial(crash_point, "restore.torn_manifest", restored.epoch)
    checkpoint.write_manifest(replace(restored, tasks=tasks), torn)
    crash_point("restore.manifest", restored.epoch)
    if stored is not None:
        checkpoint.write_description(entered.plan, stored)
    crash_point("restore.description", restored.epoch)
    entered = replace(
        entered,
        checkpoint_id=uuid.uuid4().hex,
        shape=renamed_shape(entered.shape, names),
        start_epoch=restored.epoch,
        start_ms=restored.planned_ms,
        topic_ids={},  # the topics may be copies, on other brokers
        former_owners=None,  # the output since the savepoint is to be written again
        replaced=None,
    )
    checkpoint.write_metadata(entered)
    crash_point("restore.after", restored.epoch)


def _rescaled(
    savepoint: Checkpoint,
    checkpoint: Checkpoint,
    metadata: Metadata,
    manifest: Manifest,
    shape: Mapping[str, Any],
    counts: Mapping[str, int],
) -> dict[str, TaskEntry]:
    """Write the state of the sub-topologies of `counts` with their new numbers of tasks.

    Return the entries of all tasks.
    """
    description = _program(savepoint, metadata)
    rescaling = Rescaling(savepoint, checkpoint, manifest, shape, description)
    answering = {sub: len(tasks_of(metadata.shape, sub)) for sub in rescaling.answering_elsewhere(metadata.shape)}
    divided = {**answering, **counts}
    tasks = {task: entry for task, entry in manifest.tasks.items() if task.partition("_")[0] not in divided}
    for subtopology, count in divided.items():
        tasks.update(rescaling.tasks(subtopology, tasks_of(metadata.shape, subtopology), count))
    tasks = {task: replace(entry, carried=None) for task, entry in tasks.items()}
    routing = _row_routing(metadata, shape, description)
    return hand_on_carried(savepoint, checkpoint, manifest, routing, tasks)


def _program(savepoint: Checkpoint, metadata: Metadata) -> ApplicationDescription:
    """Return the description of the program of a savepoint."""
    data = savepoint.read_description(metadata)
    if data is None:
        raise TaskCorruptedError(
            f"The savepoint {savepoint.uri} is incomplete: the file plans/{metadata.plan} is missing. Take another one."
        )
    try:
        return load_from_checkpoint(data)
    except Exception as error:  # any error raised by an object's own unpickling
        raise StreamsError(
            f"The program of the savepoint {savepoint.uri} cannot be loaded ({error}), and its stores define how "
            "entries are read and keys are partitioned: run this where the modules of the program are installed."
        ) from error


def _row_routing(metadata: Metadata, shape: Mapping[str, Any], description: ApplicationDescription) -> RowRouting:
    """Return the assignment of carried rows to tasks of other numbers."""
    reading = {topic: subtopology for subtopology, topics in shape["topics"].items() for topic in topics}

    def consumer(topic: str, partition: int) -> str:
        if topic in description.topology.repartition_topics:
            raise StreamsError(
                f"Rows of {topic} are in transit between tasks in this savepoint, and cannot be re-partitioned. Run "
                "the application to the end of its input (penstock run --until-end) and take another one."
            )
        return f"{reading[topic]}_{partition}"

    counts = "partitions of source topics"
    return RowRouting(metadata.shape[counts], shape[counts], consumer, ROW_BYTES)


def drop(checkpoint: Checkpoint, store: str) -> None:
    """Delete the state of a store that the program no longer has.

    The application must not run.

    Raises:
        StreamsError: there is no such state, or the program still has the store.
        IncompatibleCheckpointError: an epoch is not finished.
        TaskMigratedError: a program has started in the meantime.
    """
    _check_droppable(checkpoint, store)
    generation = checkpoint.take_generation()  # from now on no program elsewhere can commit
    metadata = _check_droppable(checkpoint, store)
    last = last_manifest(checkpoint, metadata)
    query_id = uuid.uuid4().hex
    dropped = set(metadata.removed[store].holders(store))
    removed = {holder: entry for holder, entry in last.removed.items() if holder not in dropped}
    begin = {**metadata.begin, **last.offsets}  # before the first commit, no file has the positions of topics
    epoch = last.epoch + 1
    crash_point("drop.before", epoch)
    manifest = replace(last, query_id=query_id, epoch=epoch, offsets=begin, removed=removed, input={}, printed="")
    checkpoint.write_manifest(manifest, partial(crash_point, "drop.torn_manifest", epoch))
    crash_point("drop.manifest", epoch)
    checkpoint.check_generation(generation)
    checkpoint.write_metadata(
        replace(
            metadata,
            query_id=query_id,
            begin=begin,
            start_epoch=epoch,
            start_ms=last.planned_ms,
            removed={name: kept for name, kept in metadata.removed.items() if name != store},
        )
    )
    crash_point("drop.after", epoch)


def _check_droppable(checkpoint: Checkpoint, store: str) -> Metadata:
    """Return the metadata of a checkpoint that can continue without `store`; raises as `drop`."""
    metadata = existing_metadata(checkpoint, StreamsError)
    if store not in metadata.removed:
        in_program = any(store in stores for stores in metadata.shape["stores"].values())
        kept = ", ".join(metadata.removed) or "none"
        raise StreamsError(
            f"The program that last ran on the checkpoint {checkpoint.uri} still has the store {store}: run one "
            "without it first, then drop it."
            if in_program
            else f"The checkpoint {checkpoint.uri} has no state of a removed store {store}; it has state of: {kept}."
        )
    planned = planned_offset(checkpoint, metadata, last_manifest(checkpoint, metadata))
    if planned is not None:
        raise IncompatibleCheckpointError(
            f"Epoch {planned.epoch} of the checkpoint {checkpoint.uri} is not finished: start the application once and "
            "stop it."
        )
    return metadata


def _check_empty(target: Checkpoint) -> None:
    if target.read_savepoint() is not None or target.read_metadata() is not None:
        raise StreamsError(f"A savepoint or a checkpoint already exists at {target.uri}; name another directory.")


def _opened(savepoint: Checkpoint) -> tuple[dict[str, Any], Metadata, Manifest]:
    described, metadata = savepoint.read_savepoint(), savepoint.read_metadata()
    if described is None or metadata is None:
        raise StreamsError(
            f"There is no savepoint at {savepoint.uri}, or taking it did not finish; take one with: penstock savepoint "
            "take"
        )
    manifest = savepoint.read_manifest(described["epoch"], metadata.query_id)
    if manifest is None:
        raise TaskCorruptedError(
            f"The savepoint {savepoint.uri} is incomplete: its manifest is missing. Take another one."
        )
    return described, metadata, manifest


def copy_files(source: Checkpoint, segments: set[tuple[str, str]], target: Checkpoint) -> None:
    """Copy segments and files of carried rows, given as (task, id)."""
    for task, segment in sorted(segments):
        target.write_segment(task, segment, source.whole_segment(task, segment), lambda: None)


def savepoints_in(directory: Checkpoint) -> Iterator[SavepointDescription]:
    """Yield the content of each savepoint below a directory, sorted by name."""
    for location in directory.directories():
        savepoint = Checkpoint(location)
        if savepoint.read_savepoint() is not None:
            yield inspect(savepoint)
