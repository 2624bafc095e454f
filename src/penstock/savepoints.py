"""Savepoints and changes of a program, from Python: what the commands `penstock savepoint` and `penstock diff` do; and
the way to Spark and back for an application with changelog topics, of Kafka Streams or the threads host.

An application is named by its configuration, which locates its checkpoint, or by the directory of the checkpoint. A
savepoint is named by its directory: a path, or a URI of a file system that pyarrow knows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from penstock.client.api import Admin, Fetcher
from penstock.client.confluent import ConfluentFetcher, ConfluentProducer
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.deployment.layout import Layout, layout_of
from penstock.host.open import keeps_checkpoint
from penstock.host.spark.checkpoints import savepoint
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, checkpoint_of
from penstock.host.spark.checkpoints.evolution import Evolution, Shape, evolve, store_partitions, topology_shape
from penstock.host.spark.checkpoints.lock import CheckpointLock
from penstock.host.spark.checkpoints.savepoint import SavedState, SavepointDescription
from penstock.host.spark.driver.importing import ImportedTask, check_empty, make_checkpoint
from penstock.host.storage.directories import application_path
from penstock.host.threads.changelog_reader import ChangelogReader
from penstock.host.threads.clients import GroupAdmin
from penstock.host.threads.handing_over import HandingOver, SavedTask, base_for_block
from penstock.host.threads.restoring import StateOpener
from penstock.host.threads.takeover import InputOffset, Takeover, members_in_the_way, plan_takeover, state_changes
from penstock.plan.subtopology import BuiltTopology, TaskId
from penstock.plan.topology import Topology, built_topology
from penstock.record import PartitionBatch, TopicPartition
from penstock.state.lmdb import LmdbBase
from penstock_broker.common.clock import SystemClock

Application = StreamsConfig | Mapping[str, Any] | str
"""A configuration, or the directory of a checkpoint."""

_MOST_WAITING: Final = 1_000_000
"""Records between two tasks that one task may have to take after an import: they are in memory together."""


def take(application: Application, directory: str) -> SavepointDescription:
    """Copy the state of the last commit of an application, which may run, to `directory`; return what is there.

    Raises StreamsError if there is no commit to copy, or the directory is not empty.
    """
    return savepoint.take(_checkpoint(application), Checkpoint(directory))


def restore(
    directory: str, application: Application, partitions: int | Mapping[str, int] | None = None
) -> SavepointDescription:
    """Create a checkpoint from the savepoint in `directory`, from which the next start of `application` continues.

    Args:
        directory: of the savepoint.
        application: the checkpoint to create; a configuration may name another application.id.
        partitions: the new numbers of partitions (tasks), for all stores or by the name of a store; None keeps the
            present ones.

    Returns:
        what the savepoint holds.

    Raises:
        StreamsError: the savepoint does not exist, the checkpoint already exists, or the keys of a store cannot be
            re-partitioned.
    """
    source, target = Checkpoint(directory), _checkpoint(application)
    held = savepoint.inspect(source)
    config = None if isinstance(application, str) else _config(application)
    name = held.application_id if config is None else str(config.required("application.id"))
    with _locked(target, config, name):
        savepoint.restore(source, target, name, partitions)
    return held


def import_from_kafka(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> Takeover:
    """Create the checkpoint of an application from the committed offsets of its group and its changelog topics, which
    Kafka Streams or the threads host has written; the next start on Spark continues from there.

    The application with this application.id must be stopped, and nothing in Kafka is changed. The stores are restored
    one task after the other, in a temporary directory of this machine.

    Args:
        topology: of the program; its stores and operators have the names that the other application has given them.
        config: its configuration.

    Returns:
        what was taken over.

    Raises:
        StreamsError: the group has members or has committed nothing, a topic or a store does not fit, or there is a
            checkpoint already; LockError if a program runs on it.
    """
    checked, name = _config(config), str(_config(config).required("application.id"))
    built = built_topology(topology, name)
    checked = checked.overridden(built.config_overrides)
    checkpoint = _checkpoint(checked)
    check_empty(checkpoint)
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
    """Bring the changelog topics and the offsets of the group of an application to the state of a savepoint, as Kafka
    Streams has them: Kafka Streams in Java, or the threads host, continues from there.

    Topics that are missing are created; to those that exist only the differences are written. An export that failed can
    be repeated, and one that has succeeded writes nothing when it is repeated.

    Args:
        directory: of the savepoint.
        topology: of the program, the same as in the savepoint.
        config: its configuration.

    Returns:
        how many records were written.

    Raises:
        StreamsError: there is no such savepoint, it is of another program, the group has members or has read further,
            or a topic is not that of its store; LockError if the application runs on Spark.
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
        evolution = evolve(saved.metadata.shape, topology_shape(built, checked, known), saved.metadata.removed)
        different = evolution.refused or evolution.differences
        if different:
            _check(name, "exported", (*different, "Start the changed program once on Spark, then export a savepoint."))
        layout = layout_of(built, checked, topics)
        handing_over = HandingOver(layout, admin, fetcher, producer, base_for_block)
        states = {task: _saved_task(saved, built, task, group) for task, group in layout.groups.items()}
        _check(name, "exported", (*members_in_the_way(admin.describe_group(name)), *handing_over.obstacles(states)))
        return handing_over.write(states)


def _saved_task(
    saved: SavedState, built: BuiltTopology, task: TaskId, partitions: Iterable[TopicPartition]
) -> SavedTask:
    """Return the state of a task in a savepoint, with the positions of its input outside repartition topics."""
    read = [partition for partition in partitions if partition.topic not in built.repartition_topics]
    return SavedTask(
        partial(saved.entries, str(task)),
        saved.clocks(str(task)),
        {partition: saved.position(partition) for partition in read},
        {partition: saved.fetched(partition) for partition in read},
        saved.waiting,
    )


def _imported_tasks(
    layout: Layout, admin: GroupAdmin, fetcher: Fetcher, inputs: Sequence[InputOffset]
) -> Iterator[ImportedTask]:
    """Yield the state of each task as of its committed offsets; raises StreamsError if the group has members after
    it, or other offsets than in `inputs`: the tasks would have the state of different times."""
    with tempfile.TemporaryDirectory(prefix="penstock-import-") as directory:

        def open_base(task: TaskId) -> LmdbBase:
            return LmdbBase(f"{directory}/{task}")

        opener = StateOpener(layout, admin, ChangelogReader(admin, fetcher), open_base, SystemClock())
        for task in sorted(layout.groups):
            state = opener.open(task)
            try:
                waiting = {p: at for p, at in state.positions.items() if p.topic in layout.topology.repartition_topics}
                positions = {p: at for p, at in state.positions.items() if p not in waiting}
                rows = _rows(admin, fetcher, task, waiting)
                yield ImportedTask(task, state.base, state.checkpoint, positions, rows, state.stamp.encode())
            finally:
                state.base.close()
    name = str(layout.config["application.id"])
    committed = admin.committed_offsets(name, [each.partition for each in inputs])
    moved = [
        f"The group {name} has committed offset {committed[each.partition].offset} of {each.partition}, and had "
        f"committed {each.committed} before: an instance has run meanwhile. Stop all of them, and import again."
        for each in inputs
        if each.partition in committed and committed[each.partition].offset != each.committed
    ]
    _check(name, "imported", (*members_in_the_way(admin.describe_group(name)), *moved))


def _rows(admin: Admin, fetcher: Fetcher, task: TaskId, waiting: Mapping[TopicPartition, int]) -> list[PartitionBatch]:
    """Return the records of repartition topics that a task has not taken; raises StreamsError if they are too many."""
    # not the last stable offsets: behind the open transaction of an instance that was killed there may be what others
    # have committed
    ends = admin.end_offsets(list(waiting))
    count = sum(ends[partition] - start for partition, start in waiting.items())
    if count > _MOST_WAITING:
        raise StreamsError(
            f"Task {task} has up to {count:,} records of {', '.join(sorted({p.topic for p in waiting}))} still to "
            f"process; at most {_MOST_WAITING:,} can be imported. Start the other application until it has processed "
            "them (penstock groups describe shows its lag), then import."
        )
    return [
        PartitionBatch(*partition, batch)
        for partition, start in waiting.items()
        if start < ends[partition]
        for batch in fetcher.fetch(partition, start, ends[partition], read_committed=True)
    ]


def _check(application_id: str, what: str, obstacles: tuple[str, ...]) -> None:
    if obstacles:
        lines = "\n".join(f"  - {line}" for line in obstacles)
        raise StreamsError(f"The state of {application_id} cannot be {what}:\n{lines}\nNothing was changed.")


def list_savepoints(directory: str) -> list[SavepointDescription]:
    """Return what each savepoint below `directory` holds, by name."""
    return list(savepoint.savepoints_in(Checkpoint(directory)))


def inspect(directory: str) -> SavepointDescription:
    """Return what the savepoint in `directory` holds; raises StreamsError if there is none."""
    return savepoint.inspect(Checkpoint(directory))


def drop(application: Application, store: str) -> None:
    """Forget the state of a store that the program of an application has no longer; the application must not run.

    Raises StreamsError if there is no such state, or the program still has the store; LockError if it runs.
    """
    checkpoint = _checkpoint(application)
    config = None if isinstance(application, str) else _config(application)
    with _locked(checkpoint, config, str(application) if config is None else config.required("application.id")):
        savepoint.drop(checkpoint, store)


def diff(topology: Topology, application: Application, config: StreamsConfig | Mapping[str, Any]) -> Evolution:
    """Return what a changed program means for the state of an application, before it is started.

    On the threads host the state is in changelog topics and the offsets of the group, so it is compared with them.

    Args:
        topology: of the changed program.
        application: the checkpoint or savepoint to continue from.
        config: of the changed program; its brokers, if it names any, give the current numbers of partitions.

    Raises:
        StreamsError: there is no checkpoint.
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
    return evolve(metadata.shape, topology_shape(built, checked, known), metadata.removed)


def diff_programs(
    old: tuple[Topology, StreamsConfig | Mapping[str, Any]], new: tuple[Topology, StreamsConfig | Mapping[str, Any]]
) -> Evolution:
    """Return what becomes of the state of one program under another, each with its configuration."""
    (before, old_config), (after, new_config) = (old[0], _config(old[1])), (new[0], _config(new[1]))
    topics = {**topics_of(old_config), **topics_of(new_config)}
    name = str(new_config.required("application.id"))
    shapes = [
        topology_shape(each.build(name), config, topics) for each, config in ((before, old_config), (after, new_config))
    ]
    return evolve(shapes[0], shapes[1], {})


def shape_of(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> Shape:
    """Return the shape of a program with the topics that its brokers have now: what `changes` compares."""
    checked = _config(config)
    built = built_topology(topology, str(checked.required("application.id")))
    return topology_shape(built, checked, topics_of(checked))


def changes(topology: Topology, config: StreamsConfig | Mapping[str, Any], before: Shape | None) -> Evolution:
    """Return what a changed program means for the state of the application that has run until now.

    On Spark that is the state in its checkpoint; elsewhere stores are found by the names of their changelogs.

    Args:
        topology: of the changed program.
        config: its configuration, with the same application.id.
        before: the shape of the program that has run until now, None if none has.
    """
    checked = _config(config)
    if checked["penstock.host"] == "spark" and checkpoint_of(checked).read_metadata() is not None:
        return diff(topology, checked, checked)
    return Evolution() if before is None else evolve(before, shape_of(topology, checked), {})


def partitions_of_stores(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> dict[str, int]:
    """Return in how many partitions (tasks) each store of a program has its keys, as the topics of its brokers are
    now."""
    checked = _config(config)
    built = built_topology(topology, str(checked.required("application.id")))
    return store_partitions(built, checked, topics_of(checked))


def topics_of(config: StreamsConfig) -> dict[str, int]:
    """Return the topics that the brokers of `config` have, and their partitions; none where it names no brokers."""
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
    """Keep programs from running on `checkpoint` during the block."""
    directory = None if config is None else application_path(config)
    with CheckpointLock(checkpoint, directory, application_id):
        yield
