"""The application description: the data needed by the processes of one run.

The driver pickles it once. Source, stages and sink receive it as bytes inside their own pickles (never as an option of
Spark: options are shown in plans and may contain secrets). Functions of the user's main module are pickled by value,
those of importable modules by name (see `pickling`); so the driver's module path is sent too.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from penstock.config import StreamsConfig
from penstock.host.deployment.offset_resets import offset_resets
from penstock.host.deployment.topics import pattern_topics
from penstock.host.packing.sent_program import dump_program, load_program, parts_of
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.protocol.history_bounds import HistoryBounds
from penstock.host.spark.protocol.placement import Placement
from penstock.plan.subtopology import BuiltTopology, SubtopologySpec
from penstock.record import TopicPartition
from penstock_broker.common.clock import Clock, SystemClock

FAILURE_KEY_BYTES = 32


@dataclass(frozen=True, eq=False)
class ApplicationDescription:
    """The configuration, topology and identity of one run of one application.

    Args:
        config: the configuration of the application.
        topology: with patterns resolved.
        placement: of the tasks.
        topic_partitions: the partitions of each topic of the brokers at start, and of the repartition topics.
        begin: start offset of each partition of a source topic.
        checkpoint: the URI of the checkpoint.
        checkpoint_id: see `checkpoint`.
        query_id: see `checkpoint`.
        generation: see `checkpoint`.
        transactional: whether the sink writes in transactions.
        control_directory: path or URI of the `Mailbox` of driver and source process.
        clock: by which epochs are planned.
        start_epoch: see `checkpoint`.
        start: the offset from which this run continues; None until a topology version is chosen.
        planned: the offset of the epoch that the run must process first, because it was planned before and is not
            committed; None until a topology version is chosen.
        process_id: of the driver, drawn at random: bases of other drivers are checked (`base_directory`).
        tells_restores: whether workers report the end of each restore, for a listener.
        topic_ids: the ids of the source topics and the global topics, if brokers assign ids.
        histories: the histories of source topics, by topic.
        failure_key: signs the errors that the processes of this run send to the driver, see `failures`.
        program: the digest of the program in the checkpoint; empty until a topology version is chosen.
    """

    config: StreamsConfig
    topology: BuiltTopology
    placement: Placement
    topic_partitions: Mapping[str, int]
    begin: Mapping[str, list[int]]
    checkpoint: str
    checkpoint_id: str
    query_id: str
    generation: int
    transactional: bool
    control_directory: str
    clock: Clock = field(default_factory=SystemClock)
    start_epoch: int = 0
    start: EpochOffset | None = None
    planned: EpochOffset | None = None
    process_id: str = ""
    tells_restores: bool = False
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    histories: Mapping[str, HistoryBounds] = field(default_factory=dict)
    failure_key: bytes = field(default_factory=lambda: secrets.token_bytes(FAILURE_KEY_BYTES), repr=False)
    program: str = ""

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Return the user's objects in the description.

        Each has its name and the program line that created it.
        """
        return parts_of(self.topology, self.config)

    @property
    def application_id(self) -> str:
        """`application.id` of the configuration."""
        return str(self.config.required("application.id"))

    @cached_property
    def subtopologies(self) -> Mapping[int, SubtopologySpec]:
        """The sub-topologies by id."""
        return {spec.id: spec for spec in self.topology.subtopologies}

    @property
    def cache_bytes(self) -> int:
        """A task's share of `statestore.cache.max.bytes`.

        A level runs as many tasks at the same time as it has partitions, like threads in Kafka Streams.
        """
        total: int = self.config["statestore.cache.max.bytes"]
        return total // max(self.placement.partitions)

    @property
    def writes_changelogs(self) -> bool:
        """Whether the sink writes changelog topics and commits the offsets of the group (penstock.changelog.topics)."""
        return bool(self.config["penstock.changelog.topics"])

    def logs_results(self, spec: SubtopologySpec) -> bool:
        """Return whether the tasks of a sub-topology write their results to the result log of the checkpoint.

        Those that park records do: their functions are expected to have another outcome next time. Without
        transactions, an epoch that runs again writes all of its output again, and needs no log.
        """
        return self.transactional and bool(self.config["penstock.result.log"] or spec.requests_topics)

    @cached_property
    def topics_for_other_hosts(self) -> frozenset[str]:
        """The changelog and repartition topics, which the tasks write and do not read."""
        changelogs = (spec.written_changelogs.values() for spec in self.topology.subtopologies)
        return frozenset(self.topology.repartition_topics).union(*changelogs)

    @cached_property
    def inputs(self) -> tuple[TopicPartition, ...]:
        """All partitions of brokers' topics that the application reads."""
        return tuple(
            tp
            for task in self.placement.tasks
            for tp in self.placement.inputs_of(task, self.topology.repartition_topics)
        )

    @cached_property
    def offset_resets(self) -> Mapping[str, str]:
        """The offset reset of each source topic."""
        return offset_resets(self.topology, self.config)

    @cached_property
    def pattern_topics(self) -> frozenset[str]:
        """Source topics matched only by patterns: the application continues when one is deleted."""
        return pattern_topics(self.topology)

    @cached_property
    def global_inputs(self) -> tuple[TopicPartition, ...]:
        """All partitions of the topics of global stores."""
        spec = self.topology.global_topology
        topics = () if spec is None else sorted(spec.source_topics)
        return tuple(TopicPartition(topic, n) for topic in topics for n in range(self.topic_partitions[topic]))


def check_can_be_sent(topology: BuiltTopology, config: StreamsConfig) -> None:
    """Raise StreamsError if one of the user's objects cannot be pickled for the workers.

    For use before there is a description, which `dump_description` checks with the same message.
    """
    dump_for_workers((topology.without_data_frames(), config), parts_of(topology, config))


def dump_description(description: ApplicationDescription) -> bytes:
    """Return `description` as bytes for `load_description`.

    Raises StreamsError if one of the user's objects cannot be pickled, and names its node, store or configuration key.
    """
    return dump_for_workers(description, description.parts())


def load_description(data: bytes) -> ApplicationDescription:
    """Return the description that `dump_description` wrote; unpickled once per process."""
    description = load_in_worker(data)
    assert isinstance(description, ApplicationDescription)
    return description


def dump_for_workers(value: Any, parts: Iterable[tuple[str, Any]] = ()) -> bytes:
    """Return `value` as bytes for `load_in_worker`.

    Raises StreamsError if one of the user's objects cannot be pickled.

    Args:
        value: the object to pickle.
        parts: parts of `value` with their names; the error names the failing one.
    """
    return dump_program(value, parts, "Spark's workers")


DESCRIPTIONS_AT_HAND = 16
"""Number of descriptions for which a process keeps clients and other objects: named topologies share the workers."""


@lru_cache(maxsize=DESCRIPTIONS_AT_HAND)
def load_in_worker(data: bytes) -> Any:
    """Return the value that `dump_for_workers` wrote; unpickled once per process."""
    return load_program(data)
