"""What happens between `start` and the first epoch: topology, brokers and checkpoint are held against each other, and
the recipe is made.

Nothing is written before all checks have passed. What is fixed for the life of a checkpoint (`Metadata`) is fixed here,
once.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.client.api import Admin, NewTopic
from penstock.client.confluent.transactions import transactions_refused
from penstock.clock import Clock, SystemClock
from penstock.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2, StreamsConfig, warn_without_meaning
from penstock.errors import ConfigError, IncompatibleCheckpointError, StreamsError, TaskCorruptedError
from penstock.exception_handlers import DEAD_LETTER_QUEUE_TOPIC
from penstock.host.spark.checkpoint import Checkpoint, Manifest, Metadata
from penstock.host.spark.offset_resets import offset_resets, reset_offsets
from penstock.host.spark.placement import Placement, differences, external_sink_topics, place, resolve_patterns, shape
from penstock.host.spark.recipe import Recipe
from penstock.host.spark.sink import commits_topic
from penstock.plan.partition_grouper import configured_grouper
from penstock.plan.subtopology import BuiltTopology
from penstock.record import TopicPartition
from penstock.state.open import ROCKSDB, check_installed

_WITHOUT_MEANING = ("partition.pause.threshold.ms",)
"""Keys with a row that change nothing on Spark: an epoch is planned as a whole, so that a task neither waits nor reads
ahead."""


@dataclass(frozen=True)
class Prepared:
    """What `prepare` found: the recipe, the guarantee in words, the last manifest, and the ends of the inputs now."""

    recipe: Recipe
    guarantee: str
    last: Manifest
    ends: Mapping[TopicPartition, int]


def prepare(
    built: BuiltTopology,
    config: StreamsConfig,
    checkpoint: Checkpoint,
    admin: Admin,
    parallelism: int,
    control_directory: str,
    clock: Clock | None = None,
) -> Prepared:
    """Check everything that can be checked before the query starts, and return what it needs.

    Args:
        built: the topology.
        config: the application's configuration.
        checkpoint: where it is to go on, or to begin.
        admin: a client of its brokers.
        parallelism: Spark partitions of a level, for a new checkpoint.
        control_directory: a local directory that driver and source process share.
        clock: by which epochs are planned; None for that of the machine.

    Raises:
        MissingSourceTopicError, TopologyError: see `place`.
        IncompatibleCheckpointError: the checkpoint was made by another topology.
        ConfigError: exactly_once_v2 is asked for, and the brokers do not serve transactions; or a package is missing.
        StreamsError: a topic that a sink writes to does not exist.
    """
    clock = clock or SystemClock()
    _warn_of_keys(config)
    check_installed(config["penstock.state.base"])
    application_id = str(config.required("application.id"))
    topics = admin.topics()
    topology = resolve_patterns(built, topics, internal_topics(built, application_id))
    placement = place(topology, topics, parallelism, configured_grouper(config))
    _check_sink_topics(topology, topics, config)
    metadata = checkpoint.read_metadata()
    if metadata is not None:
        _check_same(metadata, topology, placement, checkpoint)
        placement = replace(placement, partitions=metadata.partitions, sink_partitions=metadata.sink_partitions)
    transactional, guarantee = _guarantee(config, application_id)
    ends = admin.end_offsets(_inputs(topology, placement), read_committed=True)
    if metadata is None:
        metadata = _new_metadata(
            application_id, topology, placement, _begin(topology, placement, config, admin, ends, clock)
        )
        checkpoint.write_metadata(metadata)
    if transactional:
        _make_commits_topic(admin, topics, commits_topic(application_id), placement.sink_partitions, config)
    recipe = Recipe(
        config=config,
        topology=topology,
        placement=placement,
        topic_partitions={**topics, **placement.source_partitions},
        begin=metadata.begin,
        checkpoint=checkpoint.uri,
        query_id=metadata.query_id,
        generation=checkpoint.take_generation(),
        transactional=transactional,
        control_directory=control_directory,
        clock=clock,
    )
    last = _last_manifest(checkpoint, metadata)
    checkpoint.forget_unfinished_start()
    return Prepared(recipe, guarantee, last, ends)


def internal_topics(topology: BuiltTopology, application_id: str) -> frozenset[str]:
    """Return the topics that are the application's own, and that no pattern of it matches."""
    return frozenset([*topology.repartition_topics, commits_topic(application_id)])


def _new_metadata(
    application_id: str, topology: BuiltTopology, placement: Placement, begin: dict[str, list[int]]
) -> Metadata:
    return Metadata(
        uuid.uuid4().hex,
        application_id,
        begin,
        placement.partitions,
        placement.sink_partitions,
        shape(topology, placement),
    )


def _warn_of_keys(config: StreamsConfig) -> None:
    base = config["penstock.state.base"]
    for key in _WITHOUT_MEANING if base == ROCKSDB else (*_WITHOUT_MEANING, "rocksdb.config.setter"):
        if key in config.given():
            warn_without_meaning(key)


def _check_sink_topics(topology: BuiltTopology, topics: Mapping[str, int], config: StreamsConfig) -> None:
    dead_letters = config[DEAD_LETTER_QUEUE_TOPIC]
    written = [*external_sink_topics(topology), *([] if dead_letters is None else [dead_letters])]
    missing = [topic for topic in written if topic not in topics]
    if missing:
        raise StreamsError(
            f"Topics that sinks write to do not exist: {', '.join(missing)}. Create them first, for example with: "
            f"penstock topics create {' '.join(missing)}"
        )


def _check_same(metadata: Metadata, topology: BuiltTopology, placement: Placement, checkpoint: Checkpoint) -> None:
    found = differences(metadata.shape, shape(topology, placement))
    if found:
        lines = "\n".join(f"  - {line}" for line in found)
        raise IncompatibleCheckpointError(
            f"The checkpoint {checkpoint.uri} was made by another topology or other numbers of partitions. What is "
            f"different now:\n{lines}\n"
            "Run the program that made it, or start anew: with another application.id, or after deleting the "
            "checkpoint (its state is lost, and the input "
            "is read from where auto.offset.reset says)."
        )


def _guarantee(config: StreamsConfig, application_id: str) -> tuple[bool, str]:
    """Return whether the sink writes transactions, and the guarantee in words."""
    wanted = config["processing.guarantee"]
    if wanted == AT_LEAST_ONCE:
        return False, AT_LEAST_ONCE
    refused = transactions_refused(config, f"{application_id}-penstock-probe")
    if refused is None:
        return True, EXACTLY_ONCE_V2
    if wanted == EXACTLY_ONCE_V2:
        raise ConfigError(
            f"processing.guarantee={EXACTLY_ONCE_V2} needs transactions, and the brokers at "
            f"{config['bootstrap.servers']} do not serve them for this "
            f"application: {refused.rstrip('.')}. Use other brokers, allow the transactional ids that begin with "
            f"{application_id}-, or set "
            f"processing.guarantee={AT_LEAST_ONCE}."
        )
    return False, f"{AT_LEAST_ONCE} (the broker serves no transactions)"


def _inputs(topology: BuiltTopology, placement: Placement) -> list[TopicPartition]:
    return [tp for task in placement.tasks for tp in placement.inputs_of(task, topology.repartition_topics)]


def _begin(
    topology: BuiltTopology,
    placement: Placement,
    config: StreamsConfig,
    admin: Admin,
    ends: Mapping[TopicPartition, int],
    clock: Clock,
) -> dict[str, list[int]]:
    """Return where each source topic is begun: as its source or the configuration says; raises StreamsError where that
    is nowhere."""
    resets = offset_resets(topology, config)
    inputs = sorted(_inputs(topology, placement))
    offsets = reset_offsets(admin, {tp: resets[tp.topic] for tp in inputs}, ends, clock.milliseconds())
    begin: dict[str, list[int]] = {}
    for tp in inputs:
        begin.setdefault(tp.topic, []).append(offsets[tp])
    return begin


def _make_commits_topic(
    admin: Admin, topics: Mapping[str, int], name: str, partitions: int, config: StreamsConfig
) -> None:
    """Make the commits topic: an offset for a partition that does not exist would hang until its time-out."""
    if name not in topics:
        replication = config["replication.factor"]
        admin.create_topics([NewTopic(name, partitions, replication, {"cleanup.policy": "compact"})])
    elif topics[name] < partitions:
        admin.create_partitions(name, partitions)


def _last_manifest(checkpoint: Checkpoint, metadata: Metadata) -> Manifest:
    epoch = checkpoint.last_epoch()
    manifest = checkpoint.read_manifest(epoch, metadata.query_id)
    if manifest is None or manifest.query_id != metadata.query_id or (epoch > 0 and not checkpoint.has_spark_offsets()):
        raise TaskCorruptedError(
            f"The checkpoint {checkpoint.uri} is not whole: manifests, metadata and Spark's own checkpoint do not "
            "belong together. Restore the whole "
            "directory from one copy, or delete it to start anew."
        )
    return manifest
