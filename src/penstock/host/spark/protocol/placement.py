"""The placement of tasks on levels and in Spark partitions.

Pure functions over plain data.

A sub-topology that is fed by repartition topics is one level above the highest that feeds it; all others are on level
0. If sub-topologies feed one another, one of them does not wait for the others: their records for it arrive in the next
epoch (see `carried`). A level has the tasks of its sub-topologies, numbered from 0 in the order of (sub-topology,
partition); task n of a level runs in Spark partition n modulo the partitions of the level. The lane of a task is its
number over all levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple
from zlib import crc32

from penstock.config import StreamsConfig
from penstock.host.deployment.topics import external_sink_topics, repartition_counts
from penstock.plan.broadcast import read_broadcasts
from penstock.plan.partition_grouper import BY_NUMBER, PartitionGrouper, partition_groups
from penstock.plan.subtopology import BuiltTopology, NodeSpec, SinkSpec, SourceSpec, SubtopologySpec, TaskId
from penstock.record import TopicPartition
from penstock.serdes.format import format_of
from penstock.state.kept_headers import store_layout


class Place(NamedTuple):
    """The place of a task: its level, its number there, and its lane."""

    level: int
    number: int
    lane: int


@dataclass(frozen=True)
class Placement:
    """The assignment of all tasks to levels and Spark partitions.

    Args:
        levels: the tasks of each level.
        partitions: Spark partitions of each level.
        sink_partitions: Spark partitions of the sink.
        source_partitions: partitions of each source topic (repartition topics too).
        groups: the partitions that each task reads. Those of task topics come last.
        upstream: the brokers' topics from which the records of each source topic come within an epoch: the topic
            itself, or those that feed a repartition topic.
        task_topics: the number of partitions of each topic with answers of calls, or with requests about parked
            records: one for each task that reads it.
    """

    levels: tuple[tuple[TaskId, ...], ...]
    partitions: tuple[int, ...]
    sink_partitions: int
    source_partitions: Mapping[str, int]
    groups: Mapping[TaskId, tuple[TopicPartition, ...]]
    upstream: Mapping[str, frozenset[str]]
    task_topics: Mapping[str, int] = field(default_factory=dict)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        named = dict(state)
        answers = named.pop("answers", {})  # the name between 0.2.0, which wrote neither, and this version
        self.__dict__.update({"task_topics": answers, **named})

    @cached_property
    def awaitable(self) -> Mapping[TaskId, tuple[TopicPartition, ...]]:
        """The partitions for which each task may have to wait.

        The task has another partition that does not advance with them anyway. No task waits for a task topic.
        """
        return {task: tuple(_awaitable(self.users_inputs(task), self.upstream)) for task in self.groups}

    @cached_property
    def consumers(self) -> Mapping[TopicPartition, TaskId]:
        """The task that reads each partition of the source topics."""
        return {partition: task for task, group in self.groups.items() for partition in group}

    @cached_property
    def places(self) -> Mapping[TaskId, Place]:
        """The place of each task."""
        places: dict[TaskId, Place] = {}
        for level, tasks in enumerate(self.levels):
            for number, task in enumerate(tasks):
                places[task] = Place(level, number, len(places))
        return places

    @cached_property
    def tasks(self) -> tuple[TaskId, ...]:
        """All tasks by lane."""
        return tuple(self.places)

    @property
    def sink_level(self) -> int:
        """The level of the sink: one after the last."""
        return len(self.levels)

    def partitions_after(self, level: int) -> int:
        """Return the Spark partitions of the level after `level`, or of the sink."""
        return self.partitions[level + 1] if level + 1 < len(self.levels) else self.sink_partitions

    def consumer(self, topic: str, partition: int) -> TaskId:
        """Return the task that reads `partition` of the source topic `topic`."""
        return self.consumers[TopicPartition(topic, partition)]

    def sink_partition(self, topic: str, partition: int) -> int:
        """Return the sink partition that writes to `partition` of `topic`.

        All records of a partition go through the same sink partition.
        """
        return (crc32(topic.encode()) + partition) % self.sink_partitions

    def users_inputs(self, task: TaskId) -> tuple[TopicPartition, ...]:
        """Return the partitions that `task` reads, without those of task topics."""
        return tuple(partition for partition in self.groups[task] if partition.topic not in self.task_topics)

    def inputs_of(self, task: TaskId, repartition_topics: Mapping[str, Any]) -> list[TopicPartition]:
        """Return the partitions of brokers' topics that `task` reads."""
        return [partition for partition in self.groups[task] if partition.topic not in repartition_topics]


def place(
    topology: BuiltTopology, topics: Mapping[str, int], parallelism: int, grouper: PartitionGrouper = BY_NUMBER
) -> Placement:
    """Place all tasks of `topology`; its source topics exist, see `check_source_topics`.

    Args:
        topology: with all patterns resolved.
        topics: partitions of each topic of the brokers.
        parallelism: most Spark partitions of a level and of the sink.
        grouper: assigns partitions to tasks.

    Raises:
        TopologyError: co-partitioned topics differ in their partitions, or the grouper omits partitions or groups
            different partitions of them together.
    """
    source_partitions = {t: topics[t] for spec in topology.subtopologies for t in spec.source_topics if t in topics}
    source_partitions.update(repartition_counts(topology, topics))
    level_of = _levels(topology)
    levels: list[list[TaskId]] = [[] for _ in range(max(level_of.values(), default=0) + 1)]
    groups: dict[TaskId, tuple[TopicPartition, ...]] = {}
    task_topics: dict[str, int] = {}
    for spec in topology.subtopologies:
        counts = {topic: source_partitions[topic] for topic in spec.source_topics}
        broadcasts = read_broadcasts(spec.nodes)
        own = enumerate(partition_groups(grouper, counts, topology.copartition_groups, broadcasts))
        tasks = {
            TaskId(spec.id, number): (*group, *(TopicPartition(topic, number) for topic in spec.task_topics))
            for number, group in own
        }
        task_topics.update(dict.fromkeys(spec.task_topics, len(tasks)))
        groups.update(tasks)
        levels[level_of[spec.id]].extend(tasks)
    return Placement(
        levels=tuple(map(tuple, levels)),
        partitions=tuple(max(1, min(parallelism, len(tasks))) for tasks in levels),
        sink_partitions=_sink_partitions(topology, topics, parallelism),
        source_partitions=source_partitions,
        groups=groups,
        upstream=_upstream_topics(topology, level_of),
        task_topics=task_topics,
    )


def _sink_partitions(topology: BuiltTopology, topics: Mapping[str, int], parallelism: int) -> int:
    named = external_sink_topics(topology)
    dynamic = any(
        isinstance(node, SinkSpec) and node.topic is None for spec in topology.subtopologies for node in spec.nodes
    )
    return parallelism if dynamic else max(1, min(parallelism, sum(topics.get(topic, 1) for topic in named)))


def _levels(topology: BuiltTopology) -> dict[int, int]:
    feeders = {spec.id: _feeders(spec, topology) for spec in topology.subtopologies}
    levels: dict[int, int] = {}
    while len(levels) < len(feeders):
        waiting = [each for each in feeders if each not in levels]
        ready = [each for each in waiting if all(feeder in levels for feeder in feeders[each])]
        for subtopology in ready or [_first_of_loop(waiting, feeders, topology)]:
            above = (levels[feeder] for feeder in feeders[subtopology] if feeder in levels)
            levels[subtopology] = 1 + max(above, default=-1)
    return levels


def _first_of_loop(waiting: list[int], feeders: Mapping[int, set[int]], topology: BuiltTopology) -> int:
    """Return the sub-topology to place next, ahead of its feeders.

    All sub-topologies in `waiting` are in or after a loop. It is in a loop that waits for no other loop, and reads a
    topic of the brokers if any candidate does.
    """
    above = {each: _upstream(each, feeders, set(waiting)) for each in waiting}
    candidates = [each for each in waiting if all(each in above[feeder] for feeder in above[each])]
    outside = {
        spec.id
        for spec in topology.subtopologies
        if any(topic not in topology.repartition_topics for topic in spec.source_topics)
    }
    return min(candidates, key=lambda each: (each not in outside, each))


def _upstream(subtopology: int, feeders: Mapping[int, set[int]], within: set[int]) -> set[int]:
    """Return the sub-topologies of `within` whose records reach `subtopology`, through any number of others."""
    found: set[int] = set()
    open_ends = [subtopology]
    while open_ends:
        new = (feeders[open_ends.pop()] & within) - found
        found |= new
        open_ends.extend(new)
    return found


def _upstream_topics(topology: BuiltTopology, levels: Mapping[int, int]) -> dict[str, frozenset[str]]:
    by_level = sorted(topology.subtopologies, key=lambda spec: levels[spec.id])
    found = {
        topic: frozenset([topic] if topic not in topology.repartition_topics else ())
        for spec in by_level
        for topic in spec.source_topics
    }
    reader = {topic: spec.id for spec in by_level for topic in spec.source_topics}
    for spec in by_level:
        sources = frozenset[str]().union(*(found[topic] for topic in spec.source_topics))
        for topic in spec.sink_topics:
            if topic in topology.repartition_topics and levels[reader[topic]] > levels[spec.id]:
                found[topic] |= sources
    return found


def _awaitable(group: tuple[TopicPartition, ...], upstream: Mapping[str, frozenset[str]]) -> Iterator[TopicPartition]:
    def sources(partition: TopicPartition) -> frozenset[str | TopicPartition]:
        topics = upstream[partition.topic]
        return frozenset([partition]) if topics == {partition.topic} else topics

    kinds = {sources(partition) for partition in group}
    for partition in group:
        if upstream[partition.topic] and len(kinds - {frozenset()}) > 1:
            yield partition


def _feeders(spec: SubtopologySpec, topology: BuiltTopology) -> set[int]:
    wanted = {topic for topic in spec.source_topics if topic in topology.repartition_topics}
    return {other.id for other in topology.subtopologies if wanted.intersection(other.sink_topics)}


# ---------------------------------------- the shape to compare with that of a checkpoint


def shape(topology: BuiltTopology, placement: Placement, config: StreamsConfig) -> dict[str, Any]:
    """Return a checkpoint's dependencies as plain data: tasks, levels, topics, nodes, stores."""
    own_groups = {
        str(task): ", ".join(map(str, group))
        for task in placement.groups
        for group in [placement.users_inputs(task)]
        if any(partition.partition != task.partition for partition in group)
    }
    return {
        "tasks of each level": [[str(task) for task in tasks] for tasks in placement.levels],
        "partitions of source topics": dict(sorted(placement.source_partitions.items())),
        **({"partitions of tasks": own_groups} if own_groups else {}),
        "topics": {str(spec.id): sorted(spec.source_topics) for spec in topology.subtopologies},
        "nodes": {str(spec.id): [_node_text(node) for node in spec.nodes] for spec in topology.subtopologies},
        "stores": {
            str(spec.id): {name: store_layout(store, config) for name, store in sorted(spec.stores.items())}
            for spec in topology.subtopologies
        },
        "formats": {
            name: [format_of(store.key_serde), format_of(store.value_serde)]
            for spec in topology.subtopologies
            for name, store in sorted(spec.stores.items())
        },
    }


def _node_text(node: NodeSpec) -> str:
    kind = type(node).__name__.removesuffix("Spec").lower()
    return f"{kind} {node.name}" + ("" if isinstance(node, SourceSpec) else f" after {', '.join(node.parents)}")


def differences(before: Mapping[str, Any], now: Mapping[str, Any], path: str = "") -> list[str]:
    """Return the differences between two shapes, one line each."""
    lines: list[str] = []
    for key in dict.fromkeys([*before, *now]):
        old, new = before.get(key), now.get(key)
        where = f"{path}{key}"
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines.extend(differences(old, new, f"{where} / "))
        elif isinstance(old, list) and isinstance(new, list):
            gone, added = [x for x in old if x not in new], [x for x in new if x not in old]
            lines.append(
                f"{where}: {_listed('no longer', gone)}{_listed('new', added)}".rstrip()
                if gone or added
                else f"{where}: another order"
            )
        else:
            lines.append(f"{where}: was {'absent' if old is None else old}, is {'absent' if new is None else new}")
    return lines


def _listed(what: str, items: list[Any]) -> str:
    return f"{what}: {', '.join(map(str, items))}; " if items else ""
