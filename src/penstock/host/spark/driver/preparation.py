"""Prepares a start: compares topology, brokers and checkpoint, and creates the application description.

Nothing is written until all checks have passed. Only this module decides what stays fixed for a topology version
(`Metadata`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from penstock.client.api import Admin
from penstock.config import StreamsConfig, warn_without_effect
from penstock.errors import (
    IncompatibleCheckpointError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
)
from penstock.host.deployment.layout import layout_of, own_topics
from penstock.host.deployment.listed_topics import listed_topics
from penstock.host.deployment.offset_resets import offset_resets, recreated_topics_error, reset_offsets
from penstock.host.deployment.topics import (
    check_sink_topics,
    check_source_topics,
    named_topics,
    pattern_topics,
    resolve_patterns,
)
from penstock.host.spark.checkpoints import topology_versions
from penstock.host.spark.checkpoints.checkpoint import FORMAT, FORMAT_2, Checkpoint, Manifest, Metadata
from penstock.host.spark.checkpoints.evolution import Evolution, evolve
from penstock.host.spark.checkpoints.format_3 import with_headers_named
from penstock.host.spark.checkpoints.handover import check_not_replaced
from penstock.host.spark.checkpoints.kept_values import value_changes
from penstock.host.spark.checkpoints.manifests import last_manifest, planned_offset
from penstock.host.spark.checkpoints.markers import (
    Marker,
    check_commits_topic,
    check_markers,
    check_new_checkpoint,
    with_markers,
)
from penstock.host.spark.checkpoints.stored_description import StoredDescription, dump_for_checkpoint
from penstock.host.spark.driver.calling_again import calling_again
from penstock.host.spark.driver.changelogs import PositionsInStep, positions_in_step, prepare_changelogs
from penstock.host.spark.driver.prepared_histories import delete_other_histories, prepared_histories, with_histories
from penstock.host.spark.driver.task_topics import with_task_topics
from penstock.host.spark.driver.uncalled import warn_of_removed_calls
from penstock.host.spark.protocol.application_description import ApplicationDescription, check_can_be_sent
from penstock.host.spark.protocol.placement import Placement, place, shape
from penstock.host.spark.protocol.transactions import commits_topic, guarantee_of, make_commits_topic
from penstock.host.storage.sealed_files import is_sealed
from penstock.plan.dead_letters import check_dead_letters
from penstock.plan.partition_grouper import configured_grouper
from penstock.plan.serde_check import check_serdes, check_serdes_are_shared
from penstock.plan.subtopology import BuiltTopology
from penstock.record import TopicPartition
from penstock.state.open import ROCKSDB, check_installed
from penstock_broker.common.clock import Clock, SystemClock

_log = logging.getLogger(__name__)


_ATTEMPTS = 3
"""Attempts to prepare a start.

A start is prepared again if another program committed before this one had its generation.
"""


@dataclass(frozen=True)
class PreparedQuery:
    """The result of `prepare`.

    Args:
        description: the application description.
        guarantee: the processing guarantee, in words.
        last: the last manifest.
        ends: the current ends of the inputs.
        finishes: whether the description is that of the previous program, which must run the planned epoch and no
            other; after that, everything must be prepared again.
    """

    description: ApplicationDescription
    guarantee: str
    last: Manifest
    ends: Mapping[TopicPartition, int]
    finishes: bool = False


def check(built: BuiltTopology, config: StreamsConfig, admin: Admin) -> None:
    """Run the checks that need no Spark, before a session is opened in vain.

    `prepare` repeats them.

    Raises:
        MissingSourceTopicError, TopologyError, TopicAuthorizationError: as `prepare`.
        StreamsError: a source, a sink or a store has no serde, or one that a single process can read; a sink topic does
            not exist, or a user object cannot be sent to workers.
    """
    check_serdes(built, config)
    check_serdes_are_shared(built, config, "penstock.host=spark runs the tasks in several processes")
    check_dead_letters(built, config)
    check_can_be_sent(built, config)
    made = set(built.data_frame_topics)  # the first start creates them, in the session
    topics = listed_topics(admin, named_topics(built, config) - made)
    if topics.keys() >= made:
        placed(built, config, admin, topics, parallelism=1)


def prepare(
    built: BuiltTopology,
    config: StreamsConfig,
    checkpoint: Checkpoint,
    admin: Admin,
    parallelism: int,
    control_directory: str,
    clock: Clock | None = None,
) -> PreparedQuery:
    """Run all checks before the query of `built` starts, and return its input.

    Args:
        built: the topology.
        config: of the application.
        checkpoint: where the query continues or starts.
        admin: a client of the brokers.
        parallelism: Spark partitions per level, for a new checkpoint.
        control_directory: path or URI of the mailbox that driver and source process share.
        clock: the clock for planning epochs; None for that of the machine.

    Raises:
        MissingSourceTopicError, TopologyError: see `place`.
        IncompatibleCheckpointError: the topology cannot continue with the state of the checkpoint, or an epoch is half
            committed and the program that started it is gone.
        ConfigError: exactly_once_v2 is set, and the brokers do not support transactions; a package is missing; or a
            history cannot be read with this configuration.
        TransactionalIdAuthorizationError: the brokers do not allow this user to write transactions.
        TopicAuthorizationError: they do not allow this user to see a topic that the topology reads or writes.
        StreamsError: a source, a sink or a store has no serde, a sink topic does not exist, or the restore of a
            savepoint did not finish.
        TaskCorruptedError: files of the checkpoint are damaged or missing.
        TaskMigratedError: other programs with this application.id repeatedly took over the checkpoint.
    """
    _warn_of_keys(config)
    check_serdes(built, config)
    check_dead_letters(built, config)
    check_installed(config["penstock.state.base"])
    for _ in range(_ATTEMPTS):
        try:
            prepared = _prepare(
                built, config, checkpoint, admin, parallelism, control_directory, clock or SystemClock()
            )
        except TaskCorruptedError:
            checkpoint.check_not_overtaken()  # a newer driver may be changing the files during the read
            raise
        if prepared is not None:
            if not prepared.finishes:
                warn_of_removed_calls(checkpoint, prepared.last, admin, str(config["application.id"]))
            return prepared
    raise TaskMigratedError(
        f"While {config['application.id']} was about to start from {checkpoint.uri}, another program kept committing "
        "epochs there: several programs with this application.id are running. Stop all but one."
    )


def _prepare(
    built: BuiltTopology,
    config: StreamsConfig,
    checkpoint: Checkpoint,
    admin: Admin,
    parallelism: int,
    control_directory: str,
    clock: Clock,
) -> PreparedQuery | None:
    """Return the prepared query, or None if the preparation must be repeated.

    That is so if a program that did not know yet that it was overtaken has committed or started an epoch in the
    meantime; from now on it cannot. Raises as `prepare`.
    """
    application_id = str(config.required("application.id"))
    topics = listed_topics(admin, named_topics(built, config))
    topology, placement = placed(built, config, admin, topics, parallelism)
    metadata = _existing_version(checkpoint)
    evolution = None if metadata is None else _evolution(metadata, topology, placement, config, checkpoint)
    topics = with_task_topics(topology, placement.task_topics, config, admin, topics)
    inputs = _inputs(topology, placement)
    ids, recreated = _topic_ids(metadata, topology, admin, topics.keys())
    same_topics = topics.keys() - recreated
    known = {} if metadata is None else _positions(checkpoint, metadata, same_topics)
    continuing = _continuing_version(metadata, evolution, placement, config, all(_is_known(tp, known) for tp in inputs))
    if continuing is not None:
        placement = replace(placement, partitions=continuing.partitions, sink_partitions=continuing.sink_partitions)
    transactional, guarantee = guarantee_of(config, application_id, metadata is not None and metadata.transactional)
    ends = admin.end_offsets(inputs, read_committed=True)
    past = prepared_histories(built, checkpoint, known, config)
    begin = _begin(topology, placement, config, admin, ends, clock, with_histories(known, past))
    counts = {**topics, **placement.source_partitions, **{name: topics[name] for name in placement.task_topics}}
    run = checkpoint.uri, "", "", 0, transactional, control_directory, clock
    description = ApplicationDescription(config, topology, placement, counts, {}, *run, topic_ids=ids, histories=past)
    check_not_replaced(checkpoint, metadata, description)  # before a running driver of its successor is overtaken
    generation = checkpoint.take_generation(0 if metadata is None else last_manifest(checkpoint, metadata).generation)
    if (metadata, known) != _found(checkpoint, same_topics):
        return None
    if transactional:
        metadata = _with_former_owners(checkpoint, metadata, config, admin, topics)
    if metadata is not None:
        metadata = _stored(checkpoint, metadata, generation)
        continuing = None if continuing is None else metadata
    description = replace(description, generation=generation)
    stored = dump_for_checkpoint(description)
    if metadata is not None:
        earlier = topology_versions.unfinished(checkpoint, metadata, description, stored.digest)
        if earlier is not None:
            return PreparedQuery(earlier, guarantee, last_manifest(checkpoint, metadata), {}, finishes=True)
        _check_values(checkpoint, metadata, evolution, description, stored)
    if config["penstock.changelog.topics"]:
        prepare_changelogs(layout_of(built, config, topics), admin, topics, _in_step(checkpoint, metadata, config))
    if transactional:
        make_commits_topic(admin, topics, commits_topic(application_id), placement.sink_partitions, config)
    metadata = _entered_version(checkpoint, metadata, continuing, description, evolution, begin, stored)
    checkpoint.check_generation(generation)  # before deleting files that may be a newer driver's
    checkpoint.forget_other_descriptions(metadata.plan)
    last = last_manifest(checkpoint, metadata)
    description = topology_versions.of_version(description, metadata, last, planned_offset(checkpoint, metadata, last))
    return PreparedQuery(calling_again(description, ends, metadata), guarantee, last, ends)


def _in_step(checkpoint: Checkpoint, metadata: Metadata | None, config: StreamsConfig) -> PositionsInStep | None:
    return None if metadata is None else positions_in_step(checkpoint, metadata, config)


def _with_former_owners(
    checkpoint: Checkpoint,
    metadata: Metadata | None,
    config: StreamsConfig,
    admin: Admin,
    topics: Mapping[str, int],
) -> Metadata | None:
    """Return `metadata` with the former owners according to the markers of the brokers.

    Raises as `prepare`.
    """
    if metadata is not None:
        check_commits_topic(checkpoint, metadata, last_manifest(checkpoint, metadata), topics.keys())
    check = partial(_former_owners, checkpoint, metadata, str(config.required("application.id")))
    former = with_markers(config, admin, topics, check)
    return None if metadata is None else replace(metadata, former_owners=former)


def _former_owners(
    checkpoint: Checkpoint, metadata: Metadata | None, application_id: str, markers: Sequence[Marker]
) -> tuple[str, ...]:
    """Return the former owners of the checkpoint, given the commits that Kafka knows of.

    Raises if the checkpoint cannot continue.
    """
    if metadata is None:
        check_new_checkpoint(checkpoint, application_id, markers)
        return ()
    last = last_manifest(checkpoint, metadata)
    return check_markers(checkpoint, metadata, last, planned_offset(checkpoint, metadata, last), markers)


def _stored(checkpoint: Checkpoint, metadata: Metadata, generation: int) -> Metadata:
    """Write the findings about a checkpoint, in the current format."""
    if metadata.format == FORMAT_2:
        _bring_to_format(checkpoint, metadata, generation)
    current = replace(metadata, format=FORMAT)
    if current != checkpoint.read_metadata():
        checkpoint.check_generation(generation)
        checkpoint.write_metadata(current)
    return current


def _bring_to_format(checkpoint: Checkpoint, metadata: Metadata, generation: int) -> None:
    """Write the description and the offset of a planned epoch of a checkpoint of format 2.

    Format 2 has the description without a digest, and the offset only in Spark's log.
    """
    planned = planned_offset(checkpoint, metadata, last_manifest(checkpoint, metadata))
    if planned is not None:
        checkpoint.write_offset(planned.epoch, generation, planned.to_json())
    stored = checkpoint.read_description(metadata)
    if stored is not None and not is_sealed(stored):
        checkpoint.write_description(metadata.plan, stored)


def placed(
    built: BuiltTopology, config: StreamsConfig, admin: Admin, topics: Mapping[str, int], parallelism: int
) -> tuple[BuiltTopology, Placement]:
    """Return the topology with its patterns resolved, and the places of its tasks.

    Args:
        built: the topology.
        config: of the application.
        admin: a client of the brokers.
        topics: the topics of the brokers, with their numbers of partitions.
        parallelism: as of `prepare`.

    Raises:
        The errors of `prepare`.
    """
    internal = internal_topics(built, str(config.required("application.id")))
    topology = resolve_patterns(built, topics, internal, config).without_data_frames()
    wanted = named_topics(topology, config)
    admin.topic_ids(wanted - topics.keys())  # raises for topics that this user may not see; brokers do not list them
    check_source_topics(topology, topics, str(config["bootstrap.servers"]))
    placement = place(topology, topics, parallelism, configured_grouper(config))
    if config["penstock.changelog.topics"]:  # output, changelogs and offsets of an epoch are one transaction
        placement = replace(placement, sink_partitions=1)
    check_sink_topics(topology, topics, config)
    return topology, placement


def _entered_version(
    checkpoint: Checkpoint,
    metadata: Metadata | None,
    continuing: Metadata | None,
    description: ApplicationDescription,
    evolution: Evolution | None,
    begin: dict[str, list[int]],
    stored: StoredDescription,
) -> Metadata:
    """Return the metadata of the topology version `continuing`, or of the next one if it is None."""
    if continuing is not None:
        return topology_versions.same_version(checkpoint, continuing, description, stored)
    return _new_version(checkpoint, metadata, description, evolution, begin, stored)


def _new_version(
    checkpoint: Checkpoint,
    metadata: Metadata | None,
    description: ApplicationDescription,
    evolution: Evolution | None,
    begin: Mapping[str, list[int]],
    stored: StoredDescription,
) -> Metadata:
    """Create the checkpoint, or start its next topology version, and log the consequences."""
    delete_other_histories(checkpoint, description.generation, description.histories.keys())
    now = shape(description.topology, description.placement, description.config)
    if metadata is None or evolution is None:
        return topology_versions.first_version(checkpoint, description, now, begin, stored)
    if metadata.partitions:
        lines = "\n".join(f"  {line}" for line in evolution.lines())
        _log.warning("The program has changed; it continues with the checkpoint %s:\n%s", checkpoint.uri, lines)
    return topology_versions.next_version(checkpoint, metadata, description, evolution, now, begin, stored)


def internal_topics(topology: BuiltTopology, application_id: str) -> frozenset[str]:
    """Return the application's own topics; its patterns do not match them."""
    return frozenset([*own_topics(topology), commits_topic(application_id)])


def _existing_version(checkpoint: Checkpoint) -> Metadata | None:
    """Return the topology version of the checkpoint, or None if the checkpoint is new.

    Raises StreamsError if the checkpoint is incomplete, and as `with_headers_named`.
    """
    metadata = checkpoint.read_metadata()
    if metadata is None and checkpoint.has_remains():
        raise StreamsError(
            f"The checkpoint {checkpoint.uri} is incomplete: it has state, but the file {checkpoint.uri}/metadata is "
            "missing. Either the import or the restore of a savepoint did not finish: run it again. Or files were "
            "deleted: restore the whole directory from one copy, or start over without its state (penstock reset)."
        )
    return None if metadata is None else with_headers_named(checkpoint, metadata)


def _evolution(
    metadata: Metadata, topology: BuiltTopology, placement: Placement, config: StreamsConfig, checkpoint: Checkpoint
) -> Evolution:
    """Return the consequences of the topology for the existing state.

    Raises IncompatibleCheckpointError if the topology cannot continue with it.
    """
    evolution = evolve(metadata.shape, shape(topology, placement, config), metadata.removed)
    _check(checkpoint, evolution.refused)
    return evolution


def _check_values(
    checkpoint: Checkpoint,
    metadata: Metadata,
    evolution: Evolution | None,
    description: ApplicationDescription,
    stored: StoredDescription,
) -> None:
    """Log the changes of the values of stores by a changed program.

    Raises IncompatibleCheckpointError if it cannot read them.
    """
    if evolution is None or stored.digest == metadata.plan:
        return
    last = last_manifest(checkpoint, metadata)
    changes = value_changes(checkpoint, metadata, last, evolution, description.topology, description.config)
    _check(checkpoint, changes.refused)
    for line in changes.differences:
        _log.warning("The program has changed: %s", line)


def _check(checkpoint: Checkpoint, refused: Sequence[str]) -> None:
    """Raise IncompatibleCheckpointError if there are reasons to refuse the program."""
    if refused:
        lines = "\n".join(f"  - {line}" for line in refused)
        raise IncompatibleCheckpointError(
            f"The program cannot continue with the state of the checkpoint {checkpoint.uri}:\n{lines}\nNothing was "
            "changed. You can also start over: with another application.id, or after penstock reset (the state is "
            "lost, and the input is read from the position that auto.offset.reset gives)."
        )


def _continuing_version(
    metadata: Metadata | None, evolution: Evolution | None, placement: Placement, config: StreamsConfig, knows_all: bool
) -> Metadata | None:
    """Return the topology version of `metadata` if the program can continue in it, otherwise None.

    It can if it has the same shape, and the configuration does not set another number of partitions. An imported
    version has no partitions yet.

    Args:
        metadata: of the checkpoint; None if it is new.
        evolution: its result for the program.
        placement: of the program's tasks.
        config: of the application.
        knows_all: whether every input has a position and no topic was created again. In a re-partitioned savepoint, not
            all inputs have one.
    """
    if metadata is None or evolution is None or evolution.differences or not knows_all or not metadata.partitions:
        return None
    if config["penstock.changelog.topics"] and metadata.sink_partitions != placement.sink_partitions:
        return None
    asked = config["penstock.spark.partitions"] is not None
    counts = placement.partitions, placement.sink_partitions
    return metadata if not asked or counts == (metadata.partitions, metadata.sink_partitions) else None


def _positions(checkpoint: Checkpoint, metadata: Metadata, topics: Set[str]) -> dict[str, list[int]]:
    """Return the positions of those of `topics` that the checkpoint has ever read.

    A deleted topic has no position: if it is created again, it is another topic.
    """
    positions = {**metadata.begin, **last_manifest(checkpoint, metadata).offsets}
    return {topic: offsets for topic, offsets in positions.items() if topic in topics}


def _found(checkpoint: Checkpoint, topics: Set[str]) -> tuple[Metadata | None, dict[str, list[int]]]:
    """Return the existing topology version and its positions."""
    metadata = _existing_version(checkpoint)
    return metadata, {} if metadata is None else _positions(checkpoint, metadata, topics)


def _topic_ids(
    metadata: Metadata | None, topology: BuiltTopology, admin: Admin, topics: Set[str]
) -> tuple[dict[str, str], frozenset[str]]:
    """Return the ids of the `topics` that are or were read, and the recreated topics.

    Recreated topics have been deleted and created again since they were read; they have no position.

    Raises StreamsError if the topology reads one of them by name.
    """
    before = {} if metadata is None else metadata.topic_ids
    known = () if metadata is None else metadata.begin
    read = {topic for spec in topology.subtopologies for topic in spec.source_topics}
    from_there = {*known, *read, *topology.task_topics} & topics
    global_topics = () if topology.global_topology is None else topology.global_topology.source_topics
    ids = admin.topic_ids(from_there | topics & set(global_topics))
    changed = frozenset(topic for topic, topic_id in ids.items() if before.get(topic, topic_id) != topic_id)
    recreated = changed & from_there
    named = sorted(recreated & read - pattern_topics(topology))
    if named:
        raise recreated_topics_error(named)
    if recreated:
        _log.warning(
            "Topics were deleted and created again, and are read from their start: %s.", ", ".join(sorted(recreated))
        )
    return ids, recreated


def _warn_of_keys(config: StreamsConfig) -> None:
    setter = "rocksdb.config.setter"
    if config["penstock.state.base"] != ROCKSDB and setter in config.given():
        warn_without_effect(setter, "the stores do not use RocksDB; set penstock.state.base=rocksdb too")


def _inputs(topology: BuiltTopology, placement: Placement) -> list[TopicPartition]:
    return [tp for task in placement.tasks for tp in placement.inputs_of(task, topology.repartition_topics)]


def _begin(
    topology: BuiltTopology,
    placement: Placement,
    config: StreamsConfig,
    admin: Admin,
    ends: Mapping[TopicPartition, int],
    clock: Clock,
    known: Mapping[str, list[int]],
) -> dict[str, list[int]]:
    """Return the start position of each source topic.

    It is the position in `known`, or else the one that the source or the configuration specifies. Positions of topics
    that are not read now are kept.

    Raises StreamsError if the offset reset is `none`.
    """
    resets = offset_resets(topology, config)
    inputs = sorted(_inputs(topology, placement))
    unknown = {tp: resets[tp.topic] for tp in inputs if not _is_known(tp, known)}
    offsets = reset_offsets(admin, unknown, ends, clock.milliseconds())
    begin: dict[str, list[int]] = {topic: [] for topic in {tp.topic for tp in inputs}}
    for tp in inputs:
        begin[tp.topic].append(offsets[tp] if tp in offsets else known[tp.topic][tp.partition])
    return {**known, **begin}


def _is_known(partition: TopicPartition, known: Mapping[str, list[int]]) -> bool:
    """Return whether `known` has a position of `partition`."""
    return partition.partition < len(known.get(partition.topic, ()))
