"""The layout of an application, as shared by all parts of an instance.

It has the topology with resolved patterns, the partitions of each task, and the changelogs of its stores. It is plain
data; this module does not connect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.config import StreamsConfig
from penstock.host.deployment.topics import check_source_topics, repartition_counts, resolve_patterns
from penstock.plan.broadcast import read_broadcasts
from penstock.plan.partition_grouper import configured_grouper, partition_groups
from penstock.plan.subtopology import BuiltTopology, SubtopologySpec, TaskId
from penstock.record import TopicPartition


@dataclass(frozen=True)
class Layout:
    """The tasks of an application.

    topology: with resolved patterns. groups: the input partitions of each task, without those of task topics.
    topic_partitions: the number of partitions of each topic, including internal ones. topic_ids: the ids of these
    topics and of the global ones, if brokers have ids.
    """

    topology: BuiltTopology
    config: StreamsConfig
    groups: Mapping[TaskId, tuple[TopicPartition, ...]]
    topic_partitions: Mapping[str, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def specs(self) -> Mapping[int, SubtopologySpec]:
        """The sub-topologies by number."""
        return {spec.id: spec for spec in self.topology.subtopologies}

    @cached_property
    def readers(self) -> Mapping[TopicPartition, TaskId]:
        """The task of each partition, also of task topics."""
        return {partition: task for task in self.groups for partition in self.read_by(task)}

    @cached_property
    def global_partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that fill the global stores."""
        spec = self.topology.global_topology
        topics = () if spec is None else spec.source_topics
        return tuple(TopicPartition(topic, n) for topic in topics for n in range(self.topic_partitions[topic]))

    def spec(self, task: TaskId) -> SubtopologySpec:
        """Return the sub-topology of `task`."""
        return self.specs[task.subtopology]

    def answers(self, task: TaskId) -> dict[str, TopicPartition]:
        """Return the partition of answers of each operator of `task` with calls. Its number is that of the task."""
        topics = self.spec(task).answers_topics
        return {calls.node: TopicPartition(topic, task.partition) for topic, calls in topics.items()}

    def read_by(self, task: TaskId) -> tuple[TopicPartition, ...]:
        """Return the partitions that `task` reads: its input, its answers, and requests about parked records."""
        return (*self.groups[task], *self.task_partitions(task))

    def task_partitions(self, task: TaskId) -> tuple[TopicPartition, ...]:
        """Return the partitions of `task` that are no input: its answers, and requests about parked records."""
        return tuple(TopicPartition(topic, task.partition) for topic in self.spec(task).task_topics)

    def changelogs(self, task: TaskId) -> dict[str, TopicPartition]:
        """Return the changelog partition of each logged store of `task`. Its number is that of the task."""
        return {name: TopicPartition(topic, task.partition) for name, (topic, _) in self.spec(task).changelogs.items()}

    def written_changelogs(self, task: TaskId) -> Mapping[str, str]:
        """Return the changelog topics that `task` writes, by store."""
        return self.spec(task).written_changelogs

    def followed_changelogs(self, task: TaskId) -> dict[str, TopicPartition]:
        """Return the changelog partitions that a standby of `task` follows: those that the task writes.

        A copy must not be ahead of the task's commits, which it would be after following a source topic.
        """
        written = self.written_changelogs(task)
        return {store: partition for store, partition in self.changelogs(task).items() if store in written}

    @cached_property
    def stateful(self) -> frozenset[TaskId]:
        """The tasks that write changelogs, so that standbys can copy their state."""
        return frozenset(task for task in self.groups if self.written_changelogs(task))

    @cached_property
    def store_kinds(self) -> Mapping[int, Mapping[str, str]]:
        """The kinds of the stores with a changelog, by sub-topology and name (`StoreBuilder.kind`)."""
        return {id: {name: spec.stores[name].kind for name in spec.changelogs} for id, spec in self.specs.items()}

    @property
    def cache_bytes(self) -> int:
        """The share of each task in the record cache (bytes)."""
        return int(self.config["statestore.cache.max.bytes"]) // max(1, len(self.groups))


def layout_of(topology: BuiltTopology, config: StreamsConfig, topics: Mapping[str, int]) -> Layout:
    """Return the tasks of `topology`. topics: number of partitions of each topic on the brokers.

    Raises MissingSourceTopicError for a source topic that does not exist; TopologyError if co-partitioned topics have
    different numbers of partitions, or if `partition.grouper` omits partitions or groups partitions with different
    numbers.
    """
    resolved = resolve_patterns(topology, topics, own_topics(topology), config)
    check_source_topics(resolved, topics, str(config["bootstrap.servers"]))
    repartition = repartition_counts(resolved, topics)
    counts = {**topics, **repartition}
    grouper = configured_grouper(config)
    groups = {
        TaskId(spec.id, number): group
        for spec in resolved.subtopologies
        for number, group in enumerate(
            partition_groups(
                grouper,
                {topic: counts[topic] for topic in spec.source_topics if topic in counts},
                resolved.copartition_groups,
                read_broadcasts(spec.nodes),
            )
        )
    }
    for spec in resolved.subtopologies:
        tasks = sum(task.subtopology == spec.id for task in groups)
        counts.update(dict.fromkeys([*spec.written_changelogs.values(), *spec.task_topics], tasks))
    return Layout(resolved, config, groups, counts)


def own_topics(topology: BuiltTopology) -> frozenset[str]:
    """Return the internal topics of the application, which no pattern matches.

    These are its repartition and task topics, those between DataFrames or tables of a lake and it, and the changelog
    topics that it writes.
    """
    changelogs = [topic for spec in topology.subtopologies for topic in spec.written_changelogs.values()]
    own = (*topology.repartition_topics, *topology.task_topics, *topology.data_frame_topics, *topology.lake_topics)
    return frozenset([*own, *changelogs])
