"""Savepoints and changes of a program, from Python: what the commands `penstock savepoint` and `penstock diff` do.

An application is named by its configuration, which locates its checkpoint, or by the directory of the checkpoint. A
savepoint is named by its directory: a path, or a URI of a file system that pyarrow knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.directories import application_path
from penstock.host.spark.checkpoints import savepoint
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, checkpoint_of
from penstock.host.spark.checkpoints.evolution import Evolution, evolve, store_partitions, topology_shape
from penstock.host.spark.checkpoints.lock import CheckpointLock
from penstock.host.spark.checkpoints.savepoint import SavepointDescription
from penstock.plan.topology import Topology, built_topology

Application = StreamsConfig | Mapping[str, Any] | str
"""A configuration, or the directory of a checkpoint."""


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

    Args:
        topology: of the changed program.
        application: the checkpoint or savepoint to continue from. config: of the changed program; its brokers, if it
            names any, give the current numbers of partitions.

    Raises:
        StreamsError: there is no checkpoint.
    """
    checkpoint = _checkpoint(application)
    metadata = checkpoint.read_metadata()
    if metadata is None:
        raise StreamsError(f"There is no checkpoint at {checkpoint.uri}, so no state could change.")
    checked = _config(config)
    built = built_topology(topology, str(checked.required("application.id")))
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
