"""The commands `penstock savepoint` and `penstock diff` as Python functions.

Also the way to Spark and back for an application with changelog topics, of Kafka Streams or the threads host.

An application is identified by its configuration, which locates its checkpoint, or by the directory of the checkpoint.
A savepoint is identified by its directory: a path, or a URI of a file system supported by pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from penstock.client.api import Admin, Fetcher
from penstock.client.confluent import ConfluentFetcher, ConfluentProducer
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.api import AsOf
from penstock.host.deployment.layout import Layout, layout_of
from penstock.host.open import keeps_checkpoint
from penstock.host.spark.checkpoints import savepoint
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, checkpoint_of
from penstock.host.spark.checkpoints.entry_map import MapFunction, MappedStore
from penstock.host.spark.checkpoints.evolution import Evolution, Shape, evolve, store_partitions, topology_shape
from penstock.host.spark.checkpoints.format_3 import with_headers_named
from penstock.host.spark.checkpoints.kept_values import value_changes
from penstock.host.spark.checkpoints.lock import CheckpointLock
from penstock.host.spark.checkpoints.manifests import check_absent, last_manifest
from penstock.host.spark.checkpoints.mapping import StoreMaps
from penstock.host.spark.checkpoints.savepoint import SavedState, SavepointDescription
from penstock.host.spark.checkpoints.state_difference import StateCommit, StoreDifference, state_differences
from penstock.host.spark.driver.importing import make_checkpoint
from penstock.host.storage.directories import application_path
from penstock.host.storage.task_state import TaskState, already_open
from penstock.host.storage.temporary_base import temporary_base
from penstock.host.threads.changelog_reader import ChangelogReader
from penstock.host.threads.clients import GroupAdmin
from penstock.host.threads.handing_over import HandingOver
from penstock.host.threads.restoring import StateOpener
from penstock.host.threads.takeover import InputOffset, Takeover, members_in_the_way, plan_takeover, state_changes
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import Topology, built_topology
from penstock.record import RecordBatch, TopicPartition
from penstock.state.api import Base
from penstock_broker.common.clock import SystemClock

Application = StreamsConfig | Mapping[str, Any] | str
"""A configuration, or the directory of a checkpoint."""

_MOST_WAITING: Final = 1_000_000
"""The limit of imported records between two tasks; one task holds them all in memory."""


def take(application: Application, directory: str) -> SavepointDescription:
    """Copy the state of an application's last commit to `directory`, and return its description.

    The application may run. Raises StreamsError if there is no commit, or the directory is not empty.
    """
    return savepoint.take(_checkpoint(application), Checkpoint(directory))


def restore(
    directory: str,
    application: Application,
    partitions: int | Mapping[str, int] | None = None,
    *,
    maps: Mapping[str, MapFunction] | None = None,
    topology: Topology | None = None,
) -> SavepointDescription:
    """Create a checkpoint from the savepoint in `directory`, for the next start of `application`.

    Args:
        directory: of the savepoint.
        application: the checkpoint to create; a configuration may name another application.id.
        partitions: the new numbers of partitions (tasks), for all stores or by the name of a store; None keeps the
            present ones.
        maps: by the name of a store, a function that rewrites its entries: it takes key and value, and returns the new
            ones, or None to delete the entry. Windows, sessions, timestamps and headers stay.
        topology: of the program that continues: the serdes of its stores write the entries of `maps`. Without it, the
            serdes of the savepoint do.

    Returns:
        The description of the savepoint, with the results of `maps`.

    Raises:
        StreamsError: the savepoint does not exist, the checkpoint already exists, the keys of a store cannot be
            re-partitioned, or a function of `maps` fails for an entry; then nothing is restored.
    """
    source, target = Checkpoint(directory), _checkpoint(application)
    held = savepoint.inspect(source)
    config = None if isinstance(application, str) else _config(application)
    name = held.application_id if config is None else str(config.required("application.id"))
    with _locked(target, config, name):
        return savepoint.restore(source, target, name, partitions, _store_maps(maps or {}, topology, config))


def try_maps(
    directory: str,
    maps: Mapping[str, MapFunction],
    topology: Topology | None = None,
    config: StreamsConfig | Mapping[str, Any] | None = None,
) -> tuple[MappedStore, ...]:
    """Apply the functions for `restore` to all entries of a savepoint, and write nothing.

    Args:
        directory: of the savepoint.
        maps: the functions by the name of the store.
        topology: of the program that continues.
        config: its configuration.

    Returns:
        For each store the numbers of entries, and the first failures.

    Raises:
        StreamsError: the savepoint or a store does not exist, or the store is of another kind.
    """
    checked = None if config is None else _config(config)
    return savepoint.try_maps(Checkpoint(directory), _store_maps(maps, topology, checked))


def _store_maps(maps: Mapping[str, MapFunction], topology: Topology | None, config: StreamsConfig | None) -> StoreMaps:
    if topology is None or config is None:
        return StoreMaps(maps)
    built = built_topology(topology, str(config.required("application.id")))
    return StoreMaps(maps, (built, config.overridden(built.config_overrides)))


def import_from_kafka(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> Takeover:
    """Create the checkpoint of an application from its committed offsets and changelog topics.

    The offsets and changelogs come from Kafka Streams or the threads host; the next start on Spark continues from
    there.

    The application with this application.id must be stopped. Nothing in Kafka is changed. The stores are restored one
    task after the other, in a local temporary directory.

    Args:
        topology: of the program; its stores and operators have the same names as in the other application.
        config: its configuration.

    Returns:
        The imported offsets and stores.

    Raises:
        StreamsError: the group has members or no committed offsets, a topic or a store does not fit, or a checkpoint
            already exists; LockError if a program runs on it.
    """
    checked, name = _config(config), str(_config(config).required("application.id"))
    built = built_topology(topology, name)
    checked = checked.overridden(built.config_overrides)
    checkpoint = _checkpoint(checked)
    check_absent(checkpoint, "Import")
    plan = plan_takeover(built, checked)
    if not plan.obstacles and all(each.committed is None for each in plan.inputs):
        raise StreamsError(
            f"The group {name} has committed no offset, so there is nothing to import. Is application.id that of the "
            "other application, and bootstrap.servers its brokers?"
        )
    _check(name, "imported", plan.obstacles)
    with ExitStack() as opened:
        opened.enter_context(_locked(checkpoint, checked, name))
        admin, fetcher = GroupAdmin(checked), ConfluentFetcher(checked)
        opened.callback(admin.close)
        opened.callback(fetcher.close)
        layout = layout_of(built, checked, admin.topics())
        make_checkpoint(built, checked, checkpoint, admin, _imported_tasks(layout, admin, fetcher, plan.inputs))
    return plan


def export_to_kafka(directory: str, topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> int:
    """Write the state of a savepoint to the changelog topics and group offsets.

    The format is that of Kafka Streams: Kafka Streams in Java, or the threads host, continues from there.

    Missing topics are created; for existing ones only the differences are written. A failed export can be repeated;
    repeating a successful one writes nothing.

    Args:
        directory: of the savepoint.
        topology: of the program, the same as in the savepoint.
        config: its configuration.

    Returns:
        The number of written records.

    Raises:
        StreamsError: the savepoint is missing or of another program, the group has members or has read further, or a
            topic is not that of its store; LockError if the application runs on Spark.
    """
    checked, name = _config(config), str(_config(config).required("application.id"))
    built = built_topology(topology, name)
    checked = checked.overridden(built.config_overrides)
    saved = SavedState(Checkpoint(directory))
    if saved.metadata.application_id != name:
        raise StreamsError(
            f"The savepoint {directory} is of {saved.metadata.application_id}, and the topics would be those of {name}:"
            " restore it for that application (penstock savepoint restore), start it once, and export its savepoint."
        )
    with ExitStack() as opened:
        checkpoint = _checkpoint(checked)
        if checkpoint.read_metadata() is not None:
            opened.enter_context(_locked(checkpoint, checked, name))
        admin, fetcher, producer = GroupAdmin(checked), ConfluentFetcher(checked), ConfluentProducer(checked)
        for client in (admin, fetcher, producer):
            opened.callback(client.close)
        topics = admin.topics()
        known = {topic: count for topic, count in topics.items() if topic not in built.repartition_topics}
        metadata = with_headers_named(Checkpoint(directory), saved.metadata)
        evolution = evolve(metadata.shape, topology_shape(built, checked, known), metadata.removed)
        different = evolution.refused or evolution.differences
        if different:
            _check(name, "exported", (*different, "Start the changed program once on Spark, then export a savepoint."))
        layout = layout_of(built, checked, topics)
        handing_over = HandingOver(layout, admin, fetcher, producer)
        internal = built.repartition_topics.keys()
        states = {task: saved.task(str(task), group, internal) for task, group in layout.groups.items()}
        _check(name, "exported", (*members_in_the_way(admin.describe_group(name)), *handing_over.blockers(states)))
        return handing_over.write(states)


def _imported_tasks(
    layout: Layout, admin: GroupAdmin, fetcher: Fetcher, inputs: Sequence[InputOffset]
) -> Iterator[tuple[TaskId, TaskState]]:
    """Yield the state of each task as of its committed offsets.

    Raises StreamsError if afterwards the group has members or other offsets than `inputs`: the states of the tasks
    would be from different times.
    """
    for task in sorted(layout.groups):
        with temporary_base() as base:
            yield task, _imported_task(layout, admin, fetcher, task, base)
    name = str(layout.config["application.id"])
    committed = admin.committed_offsets(name, [each.partition for each in inputs])
    moved = [
        f"The group {name} has committed offset {committed[each.partition].offset} of {each.partition}, and had "
        f"committed {each.committed} before: an instance has run meanwhile. Stop all of them, and import again."
        for each in inputs
        if each.partition in committed and committed[each.partition].offset != each.committed
    ]
    _check(name, "imported", (*members_in_the_way(admin.describe_group(name)), *moved))


def _imported_task(layout: Layout, admin: GroupAdmin, fetcher: Fetcher, task: TaskId, base: Base) -> TaskState:
    opened = StateOpener(layout, admin, ChangelogReader(admin, fetcher), lambda _: base, SystemClock()).open(task)
    starts = {p: at for p, at in opened.positions.items() if p.topic in layout.topology.repartition_topics}
    positions = {p: at for p, at in opened.positions.items() if p not in starts}
    waiting, identity = _waiting(admin, fetcher, task, starts), opened.stamp.encode()
    return TaskState(opened.checkpoint, already_open(base), identity, positions, positions, waiting)


def _waiting(
    admin: Admin, fetcher: Fetcher, task: TaskId, starts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Callable[[], Iterator[RecordBatch]]]:
    """Return the unprocessed records of a task's repartition topics; raises StreamsError for too many."""
    # not the last stable offsets: an open transaction of a killed instance may precede committed records of others
    ends = admin.end_offsets(list(starts))
    count = sum(ends[partition] - start for partition, start in starts.items())
    if count > _MOST_WAITING:
        raise StreamsError(
            f"Task {task} has up to {count:,} records of {', '.join(sorted({p.topic for p in starts}))} still to "
            f"process; at most {_MOST_WAITING:,} can be imported. Start the other application until it has processed "
            "them (penstock groups describe shows its lag), then import."
        )
    return {
        partition: partial(fetcher.fetch, partition, start, ends[partition], read_committed=True)
        for partition, start in starts.items()
        if start < ends[partition]
    }


def _check(application_id: str, what: str, blockers: tuple[str, ...]) -> None:
    if blockers:
        lines = "\n".join(f"  - {line}" for line in blockers)
        raise StreamsError(f"The state of {application_id} cannot be {what}:\n{lines}\nNothing was changed.")


def list_savepoints(directory: str) -> list[SavepointDescription]:
    """Return the descriptions of the savepoints below `directory`, by name."""
    return list(savepoint.savepoints_in(Checkpoint(directory)))


def inspect(directory: str) -> SavepointDescription:
    """Return the description of the savepoint in `directory`; raises StreamsError if absent."""
    return savepoint.inspect(Checkpoint(directory))


def drop(application: Application, store: str) -> None:
    """Forget the state of a store that the program no longer has.

    The application must not run. Raises StreamsError if the state is missing, or the program still has the store;
    LockError if it runs.
    """
    checkpoint = _checkpoint(application)
    config = None if isinstance(application, str) else _config(application)
    with _locked(checkpoint, config, str(application) if config is None else config.required("application.id")):
        savepoint.drop(checkpoint, store)


def diff(topology: Topology, application: Application, config: StreamsConfig | Mapping[str, Any]) -> Evolution:
    """Return the effect of a changed program on an application's state, before its start.

    On the threads host the state is in changelog topics and group offsets, so the program is compared with those.

    Args:
        topology: of the changed program.
        application: the checkpoint or savepoint to continue from.
        config: of the changed program; its brokers, if any, give the current numbers of partitions.

    Raises:
        StreamsError: the checkpoint is missing.
        KafkaError: on the threads host, if brokers do not answer.
    """
    checkpoint = _checkpoint(application)
    metadata = checkpoint.read_metadata()
    checked = _config(config)
    built = built_topology(topology, str(checked.required("application.id")))
    if metadata is None and not isinstance(application, str) and not keeps_checkpoint(checked):
        found = state_changes(built, checked.overridden(built.config_overrides))
        differences = (*found.refused, *found.differences, *(f"stores / {store} is new" for store in found.new))
        return Evolution(kept=found.kept, new=found.new, refused=found.refused, differences=differences)
    if metadata is None:
        raise StreamsError(f"There is no checkpoint at {checkpoint.uri}, so no state could change.")
    known = {**metadata.shape["partitions of source topics"], **topics_of(checked)}
    known = {topic: count for topic, count in known.items() if topic not in built.repartition_topics}
    metadata = with_headers_named(checkpoint, metadata)
    evolution = evolve(metadata.shape, topology_shape(built, checked, known), metadata.removed)
    last, own = last_manifest(checkpoint, metadata), checked.overridden(built.config_overrides)
    values = value_changes(checkpoint, metadata, last, evolution, built, own)
    return replace(
        evolution,
        refused=(*evolution.refused, *values.refused),
        differences=(*evolution.differences, *values.differences),
    )


def diff_state(
    before: str, after: str, before_as_of: AsOf | None = None, after_as_of: AsOf | None = None
) -> list[StoreDifference]:
    """Return the differences of the entries of each store between two commits.

    Args:
        before: the directory of a checkpoint or a savepoint.
        after: likewise, or the same checkpoint.
        before_as_of: the commit of the first: its epoch, or a datetime; None for the last one.
        after_as_of: the commit of the second.

    Raises:
        StreamsError: a checkpoint is missing, a commit is not retained, or a store has another layout.
    """
    sides = StateCommit(Checkpoint(before), before_as_of), StateCommit(Checkpoint(after), after_as_of)
    return list(state_differences(*sides))


def diff_programs(
    old: tuple[Topology, StreamsConfig | Mapping[str, Any]], new: tuple[Topology, StreamsConfig | Mapping[str, Any]]
) -> Evolution:
    """Return the effect of a new program on the state of an old one.

    Each program is a topology with its configuration.
    """
    (before, old_config), (after, new_config) = (old[0], _config(old[1])), (new[0], _config(new[1]))
    topics = {**topics_of(old_config), **topics_of(new_config)}
    name = str(new_config.required("application.id"))
    shapes = [
        topology_shape(each.build(name), config, topics) for each, config in ((before, old_config), (after, new_config))
    ]
    return evolve(shapes[0], shapes[1], {})


def shape_of(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> Shape:
    """Return the shape of a program with its brokers' current topics, for `changes`."""
    checked = _config(config)
    built = built_topology(topology, str(checked.required("application.id")))
    return topology_shape(built, checked, topics_of(checked))


def changes(topology: Topology, config: StreamsConfig | Mapping[str, Any], before: Shape | None) -> Evolution:
    """Return the effect of a changed program on the state of its application.

    On Spark that is the state in its checkpoint; elsewhere stores are found by the names of their changelogs.

    Args:
        topology: of the changed program.
        config: its configuration, with the same application.id.
        before: the shape of the previous program; None on the first run.
    """
    checked = _config(config)
    if checked["penstock.host"] == "spark" and checkpoint_of(checked).read_metadata() is not None:
        return diff(topology, checked, checked)
    return Evolution() if before is None else evolve(before, shape_of(topology, checked), {})


def partitions_of_stores(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> dict[str, int]:
    """Return the number of partitions (tasks) of each store, from the brokers' current topics."""
    checked = _config(config)
    built = built_topology(topology, str(checked.required("application.id")))
    return store_partitions(built, checked, topics_of(checked))


def topics_of(config: StreamsConfig) -> dict[str, int]:
    """Return the topics of the brokers and their numbers of partitions; empty without bootstrap.servers."""
    if config["bootstrap.servers"] is None:
        return {}
    admin = ConfluentAdmin(config)
    try:
        return dict(admin.topics())
    finally:
        admin.close()


def _config(config: StreamsConfig | Mapping[str, Any]) -> StreamsConfig:
    return config if isinstance(config, StreamsConfig) else StreamsConfig(config)


def _checkpoint(application: Application) -> Checkpoint:
    return Checkpoint(application) if isinstance(application, str) else checkpoint_of(_config(application))


@contextmanager
def _locked(checkpoint: Checkpoint, config: StreamsConfig | None, application_id: str) -> Iterator[None]:
    """Keep other programs from running on `checkpoint` during the block."""
    directory = None if config is None else application_path(config)
    with CheckpointLock(checkpoint, directory, application_id):
        yield
