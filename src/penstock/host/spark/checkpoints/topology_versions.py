"""The topology versions of a checkpoint: start, continuation, replacement, and unfinished epochs.

A topology version is one shape of the topology with one placement of its tasks. Another shape or placement starts the
next version, which takes over the state of the last manifest. The order of the steps keeps the old version complete,
whenever a crash happens:

1. If the old program left an epoch between its transactions and its manifest, the old program, as kept under `plans`,
   finishes that epoch (`unfinished`). If no transaction of the epoch is committed or can be from now on, the epoch is
   abandoned: no consumer has seen it.
2. Segments that tasks need elsewhere, or with headers or without, are copied or rewritten, then the first manifest of
   the next version is written.
3. `metadata` is replaced: from then on the next version runs.

A program with the same shape and other functions continues in the same version, after step 1.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from penstock.errors import IncompatibleCheckpointError
from penstock.host.crashpoints import crash_point
from penstock.host.spark.checkpoints.carried import RowRouting, hand_on_carried
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest, Metadata
from penstock.host.spark.checkpoints.documents import damaged
from penstock.host.spark.checkpoints.evolution import Evolution, StateOrigin
from penstock.host.spark.checkpoints.manifests import last_manifest, planned_offset, start_offset
from penstock.host.spark.checkpoints.stored_description import StoredDescription, load_from_checkpoint, of_run
from penstock.host.spark.checkpoints.task_segments import merged, read_states, write_state
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.spark.protocol.transactions import transactional_writer
from penstock.host.storage.task_state import TaskState
from penstock.plan.subtopology import TaskId
from penstock.state.api import BaseView, Entries
from penstock.state.kept_headers import HeadersView
from penstock.state.memory import MemoryBase


def of_version(
    description: ApplicationDescription, metadata: Metadata, last: Manifest, planned: EpochOffset | None
) -> ApplicationDescription:
    """Return `description` for a run in the topology version of `metadata`.

    The run continues after the manifest `last` with the epoch `planned`, if any.
    """
    return replace(
        description,
        begin=metadata.begin,
        checkpoint_id=metadata.checkpoint_id,
        query_id=metadata.query_id,
        start_epoch=metadata.start_epoch,
        start=start_offset(metadata, last),
        planned=planned,
        program=metadata.plan,
    )


def unfinished(
    checkpoint: Checkpoint, metadata: Metadata, description: ApplicationDescription, digest: str
) -> ApplicationDescription | None:
    """Return the program that must run before any other may, None if absent.

    It is the program that planned the last epoch, if a part of that epoch's output is committed and its manifest is not
    written. None also if the epoch belongs to the program whose description has `digest`, which runs it again itself.
    After None no transaction of an earlier program can be committed any more.

    Raises:
        IncompatibleCheckpointError: the program that planned the epoch cannot be loaded.
    """
    last = last_manifest(checkpoint, metadata)
    planned = planned_offset(checkpoint, metadata, last)
    if planned is None or digest == metadata.plan or not metadata.transactional:
        return None
    if not has_written_part(description, metadata, planned.epoch):
        return None
    data = checkpoint.read_description(metadata)
    try:
        stored = None if data is None else load_from_checkpoint(data)
    except Exception as error:  # any error raised by an object's own unpickling
        raise _cannot_finish(checkpoint, planned.epoch, f"cannot be loaded ({error})") from error
    if stored is None:
        raise _cannot_finish(checkpoint, planned.epoch, f"is not in {checkpoint.uri}/plans")
    return of_version(of_run(stored, description), metadata, last, planned)


def has_written_part(description: ApplicationDescription, metadata: Metadata, epoch: int) -> bool:
    """Return whether a part of the output of `epoch` is committed in transactions.

    No transaction of an earlier driver can be committed any more after that.
    """
    written = [_has_written(description, metadata, epoch, number) for number in range(metadata.sink_partitions)]
    return any(written)


def _has_written(description: ApplicationDescription, metadata: Metadata, epoch: int, sink_partition: int) -> bool:
    writer = transactional_writer(description.config, metadata.application_id, sink_partition)
    try:
        return writer.has_written(epoch, metadata.query_id)
    finally:
        writer.close()


def _cannot_finish(checkpoint: Checkpoint, epoch: int, why: str) -> IncompatibleCheckpointError:
    return IncompatibleCheckpointError(
        f"Epoch {epoch} of the checkpoint {checkpoint.uri} is half committed: some of its output is in the topics, and "
        f"it has to be finished by the program that began it, which {why}. Start that program once more with its "
        "modules, and Penstock, as they were, until it has committed an epoch; then start this one."
    )


def first_version(
    checkpoint: Checkpoint,
    description: ApplicationDescription,
    shape: Mapping[str, Any],
    begin: Mapping[str, list[int]],
    stored: StoredDescription,
) -> Metadata:
    """Create the checkpoint of a program that begins at `begin`.

    Raises TaskMigratedError if a newer driver has started meanwhile, as do the other functions here.
    """
    checkpoint.write_description(stored.digest, stored.data)
    metadata = Metadata(
        uuid.uuid4().hex,
        uuid.uuid4().hex,
        description.application_id,
        begin,
        description.placement.partitions,
        description.placement.sink_partitions,
        shape,
        stored.digest,
        description.transactional,
        topic_ids=description.topic_ids,
    )
    checkpoint.check_generation(description.generation)
    checkpoint.write_metadata(metadata)
    return metadata


def same_version(
    checkpoint: Checkpoint, metadata: Metadata, description: ApplicationDescription, stored: StoredDescription
) -> Metadata:
    """Continue in the topology version of `metadata`, perhaps with other functions.

    From now on `stored` finishes the epochs that it begins.
    """
    checkpoint.write_description(stored.digest, stored.data)
    going_on = replace(
        metadata, plan=stored.digest, transactional=description.transactional, topic_ids=description.topic_ids
    )
    if going_on != metadata:
        checkpoint.check_generation(description.generation)
        checkpoint.write_metadata(going_on)
    return going_on


def next_version(
    checkpoint: Checkpoint,
    metadata: Metadata,
    description: ApplicationDescription,
    evolution: Evolution,
    shape: Mapping[str, Any],
    begin: Mapping[str, list[int]],
    stored: StoredDescription,
) -> Metadata:
    """Start a topology version with another shape or placement.

    It takes over the state of the last manifest.

    Args:
        checkpoint: the checkpoint.
        metadata: of the topology version that ends.
        description: the program to run; its identity and begin are ignored.
        evolution: the transfer of the state.
        shape: of the new topology.
        begin: the offsets at which each source topic continues or starts.
        stored: the description as the checkpoint stores it.
    """
    checkpoint.check_generation(description.generation)  # a newer driver has deleted the file
    last = last_manifest(checkpoint, metadata)
    query_id = uuid.uuid4().hex
    start_epoch = last.epoch + 1 if last.epoch else 0
    crash_point("topology.before", start_epoch)
    if start_epoch:
        tasks, removed = _bring_over(checkpoint, last, evolution, description, metadata.shape)
        crash_point("topology.segments", start_epoch)
        manifest = _first_manifest(query_id, description, last, begin, tasks, removed)
        checkpoint.check_generation(description.generation)
        checkpoint.write_manifest(manifest, lambda: crash_point("topology.torn_manifest", start_epoch))
        crash_point("topology.manifest", start_epoch)
    checkpoint.write_description(stored.digest, stored.data)
    crash_point("topology.description", start_epoch)
    entered = replace(
        metadata,
        query_id=query_id,
        begin=begin,
        partitions=description.placement.partitions,
        sink_partitions=description.placement.sink_partitions,
        shape=shape,
        plan=stored.digest,
        transactional=description.transactional,
        start_epoch=start_epoch,
        start_ms=last.planned_ms,
        removed=evolution.removed_stores,
        topic_ids=description.topic_ids,
    )
    checkpoint.check_generation(description.generation)
    checkpoint.write_metadata(entered)
    crash_point("topology.after", start_epoch)
    return entered


def _first_manifest(
    query_id: str,
    description: ApplicationDescription,
    last: Manifest,
    begin: Mapping[str, list[int]],
    tasks: Mapping[str, TaskEntry],
    removed: Mapping[str, TaskEntry],
) -> Manifest:
    """Return the first manifest of a topology version, after the previous version's `last`."""
    return Manifest(
        query_id,
        last.epoch + 1,
        description.generation,
        last.planned_ms,
        description.clock.milliseconds(),
        tasks,
        begin,
        removed=removed,
        global_offsets=last.global_offsets,
        read_to_ms=last.read_to_ms,
        leader_epochs={t: each for t, each in last.leader_epochs.items() if begin.get(t) == last.offsets.get(t)},
    )


def _bring_over(
    checkpoint: Checkpoint,
    last: Manifest,
    evolution: Evolution,
    description: ApplicationDescription,
    before: Mapping[str, Any],
) -> tuple[dict[str, TaskEntry], dict[str, TaskEntry]]:
    """Write the state of the next topology version.

    Return the entries of its tasks, and those of removed state by holder. Every task with state is due immediately, so
    its processors are initialised in the first epoch even without input.

    Segments are copied to another task, or rewritten if stores are combined differently. They become visible only when
    the metadata names the next version; each is named by its content, so a second attempt after a crash writes the same
    files.

    Args:
        checkpoint: the checkpoint.
        last: the last manifest of the previous topology version.
        evolution: the transfer of the state.
        description: the program of the next topology version.
        before: the shape of the program of the previous topology version.
    """
    tasks: dict[str, TaskEntry] = {}
    for task, origin in evolution.origins.items():
        kinds = description.subtopologies[TaskId.parse(task).subtopology].store_kinds
        entry = _entry(checkpoint, last, task, origin, kinds)
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
    identity = [
        [name, holder, states[holder].identity.decode(), *([origin.headers[name]] if name in origin.headers else [])]
        for name, holder in sorted(stores.items())
    ]
    gathered = TaskState(clocks, partial(_gathered, states, stores, origin.headers), orjson.dumps(identity))
    return write_state(checkpoint, target, kinds, gathered)


@contextmanager
def _gathered(
    states: Mapping[str, TaskState], stores: Mapping[str, str], headers: Mapping[str, bool]
) -> Iterator[Entries]:
    """Open `stores`, each as its holder in `states` has it, but for the `headers` of its values."""
    with ExitStack() as opened:
        bases = {holder: opened.enter_context(states[holder].entries()) for holder in dict.fromkeys(stores.values())}
        yield _Gathered({name: bases[holder] for name, holder in stores.items()}, headers)


def _copy(checkpoint: Checkpoint, task: str, segment: str, target: str) -> None:
    data = checkpoint.read_segment(task, segment)
    if data is None:
        raise damaged(checkpoint.segment_name(task, segment), "it is missing, and the last manifest names it")
    checkpoint.write_segment(target, segment, data, lambda: None)


class _Gathered:
    """Combines stores of several tasks (implements Entries); a store without a base is empty.

    Args:
        bases: of the stores by name.
        headers: the stores whose values get headers or lose them.
    """

    def __init__(self, bases: Mapping[str, Entries], headers: Mapping[str, bool]) -> None:
        self._bases = bases
        self._headers = headers
        self._nothing = MemoryBase()

    def view(self, store_name: str) -> BaseView:
        view = self._bases.get(store_name, self._nothing).view(store_name)
        given = self._headers.get(store_name)
        return view if given is None else HeadersView(view, given)
