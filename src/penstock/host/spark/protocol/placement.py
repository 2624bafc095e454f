"""Where tasks run: sub-topologies on levels, tasks in levels, tasks and sink partitions in Spark partitions. Pure
functions over plain data.

A sub-topology that is fed by repartition topics stands one level above the highest that feeds it; all others stand on
level 0. Where sub-topologies feed one another, one of them does not wait for the others: what they send it arrives in
the next epoch (see `carried`). A level has the tasks of its sub-topologies, numbered from 0 in the order of
(sub-topology, partition); task n of a level runs in Spark partition n modulo the partitions of the level. The lane of a
task is its number over all levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple
from zlib import crc32

from penstock.errors import MissingSourceTopicError, TopologyError
from penstock.plan.copartition import enforce_copartitioning
from penstock.plan.partition_grouper import BY_NUMBER, PartitionGrouper, partition_groups
from penstock.plan.subtopology import BuiltTopology, NodeSpec, SinkSpec, SourceSpec, SubtopologySpec, TaskId
from penstock.record import TopicPartition
from penstock.serdes.format import format_of


class Place(NamedTuple):
    """Where a task stands: its level, its number there, and its lane."""

    level: int
    number: int
    lane: int


@dataclass(frozen=True)
class Placement:
    """The tasks of each level, the Spark partitions of each level and of the sink, and the partitions of each source
    topic (repartition topics too). groups: the partitions that each task reads. upstream: of each source topic the
    topics of brokers from which its records come within an epoch: itself, or those that feed a repartition topic."""

    levels: tuple[tuple[TaskId, ...], ...]
    partitions: tuple[int, ...]
    sink_partitions: int
    source_partitions: Mapping[str, int]
    groups: Mapping[TaskId, tuple[TopicPartition, ...]]
    upstream: Mapping[str, frozenset[str]]

    @cached_property
    def awaitable(self) -> Mapping[TaskId, tuple[TopicPartition, ...]]:
        """The partitions that each task may have to wait for: the task has another partition that does not advance with
        them anyway."""
        return {task: tuple(_awaitable(group, self.upstream)) for task, group in self.groups.items()}

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
        """The level of the sink: one behind the last."""
        return len(self.levels)

    def partitions_after(self, level: int) -> int:
        """Return the Spark partitions of the level after `level`, or of the sink."""
        return self.partitions[level + 1] if level + 1 < len(self.levels) else self.sink_partitions

    def consumer(self, topic: str, partition: int) -> TaskId:
        """Return the task that reads `partition` of the source topic `topic`."""
        return self.consumers[TopicPartition(topic, partition)]

    def sink_partition(self, topic: str, partition: int) -> int:
        """Return the sink partition that writes to `partition` of `topic`: all of a partition's records go through
        one."""
        return (crc32(topic.encode()) + partition) % self.sink_partitions

    def inputs_of(self, task: TaskId, repartition_topics: Mapping[str, Any]) -> list[TopicPartition]:
        """Return the partitions of topics of brokers that `task` reads."""
        return [partition for partition in self.groups[task] if partition.topic not in repartition_topics]


def resolve_patterns(topology: BuiltTopology, topics: Mapping[str, int], internal: frozenset[str]) -> BuiltTopology:
    """Return `topology` with the topics that each pattern of a source matches now, `internal` ones left out (Kafka
    Streams subscribes by pattern)."""

    def resolved(node: NodeSpec) -> NodeSpec:
        if isinstance(node, SourceSpec) and node.pattern is not None:
            matches = node.pattern.fullmatch
            names = sorted(t for t in topics if t not in internal and not t.startswith("__") and matches(t))
            return replace(node, topics=tuple(names))
        return node

    subtopologies = []
    for spec in topology.subtopologies:
        nodes = tuple(resolved(node) for node in spec.nodes)
        sources = dict.fromkeys(
            [*spec.source_topics, *(t for node in nodes if isinstance(node, SourceSpec) for t in node.topics)]
        )
        subtopologies.append(replace(spec, nodes=nodes, source_topics=tuple(sources)))
    return replace(topology, subtopologies=tuple(subtopologies))


def place(
    topology: BuiltTopology, topics: Mapping[str, int], parallelism: int, grouper: PartitionGrouper = BY_NUMBER
) -> Placement:
    """Place all tasks of `topology`; its source topics exist, see `check_source_topics`.

    Args:
        topology: with all patterns resolved.
        topics: partitions of each topic of the brokers.
        parallelism: Spark partitions of a level and of the sink, where there is that much to do.
        grouper: assigns partitions to tasks.

    Raises:
        TopologyError: co-partitioned topics differ in their partitions, or the grouper leaves partitions out.
    """
    source_partitions = {t: topics[t] for spec in topology.subtopologies for t in spec.source_topics if t in topics}
    source_partitions.update(_repartition_counts(topology, topics))
    level_of = _levels(topology)
    levels: list[list[TaskId]] = [[] for _ in range(max(level_of.values(), default=0) + 1)]
    groups: dict[TaskId, tuple[TopicPartition, ...]] = {}
    for spec in topology.subtopologies:
        counts = {topic: source_partitions[topic] for topic in spec.source_topics}
        own = enumerate(partition_groups(grouper, counts))
        tasks = {TaskId(spec.id, number): group for number, group in own}
        groups.update(tasks)
        levels[level_of[spec.id]].extend(tasks)
    return Placement(
        levels=tuple(map(tuple, levels)),
        partitions=tuple(max(1, min(parallelism, len(tasks))) for tasks in levels),
        sink_partitions=_sink_partitions(topology, topics, parallelism),
        source_partitions=source_partitions,
        groups=groups,
        upstream=_upstream_topics(topology, level_of),
    )


def source_topics(topology: BuiltTopology) -> frozenset[str]:
    """Return the topics of the brokers that a topology reads; its patterns are resolved."""
    read = [t for spec in topology.subtopologies for t in spec.source_topics if t not in topology.repartition_topics]
    return frozenset([*read, *(() if topology.global_topology is None else topology.global_topology.source_topics)])


def check_source_topics(topology: BuiltTopology, topics: Mapping[str, int], brokers: str) -> None:
    """Raise MissingSourceTopicError for source topics that are not among `topics`, the topics of `brokers`."""
    missing = sorted(source_topics(topology) - topics.keys())
    if missing:
        error = MissingSourceTopicError(
            f"Source topics that do not exist: {', '.join(missing)}. Create them first, for example with: "
            + create_command(missing, brokers)
        )
        for node in _sources(topology):
            if topic := next((topic for topic in node.topics if topic in missing), None):
                error.add_note(f"{node.name} reads {topic}{_made_at(topology, node)}.")
        raise error
    for node in _sources(topology):
        if node.pattern is not None and not node.topics:
            raise MissingSourceTopicError(
                f"Source {node.name}: no topic matches the pattern {node.pattern.pattern!r}. Create one first, for "
                f"example with: {create_command(['TOPIC'], brokers)}"
            )


def create_command(topics: Iterable[str], brokers: str) -> str:
    """Return the command that creates `topics` on `brokers`, an address as in bootstrap.servers."""
    return f"penstock topics create {' '.join(topics)} --bootstrap-servers {brokers}"


def _sources(topology: BuiltTopology) -> Iterator[SourceSpec]:
    """Yield the sources of all sub-topologies and of all global stores."""
    parts = topology.subtopologies
    for spec in parts if topology.global_topology is None else (*parts, topology.global_topology):
        yield from (node for node in spec.nodes if isinstance(node, SourceSpec))


def _made_at(topology: BuiltTopology, node: NodeSpec) -> str:
    line = topology.node_lines.get(node.name)
    return "" if line is None else f" ({line})"


def pattern_topics(topology: BuiltTopology) -> frozenset[str]:
    """Return the source topics that only patterns name, in a topology whose patterns are resolved: the application
    continues when one is deleted."""
    sources = [node for spec in topology.subtopologies for node in spec.nodes if isinstance(node, SourceSpec)]
    matched = {topic for node in sources if node.pattern is not None for topic in node.topics}
    return frozenset(matched - {topic for node in sources if node.pattern is None for topic in node.topics})


def external_sink_topics(topology: BuiltTopology) -> list[str]:
    """Return the topics of brokers that named sinks write to, in order, each once."""
    return list(
        dict.fromkeys(
            t for spec in topology.subtopologies for t in spec.sink_topics if t not in topology.repartition_topics
        )
    )


def _sink_partitions(topology: BuiltTopology, topics: Mapping[str, int], parallelism: int) -> int:
    named = external_sink_topics(topology)
    dynamic = any(
        isinstance(node, SinkSpec) and node.topic is None for spec in topology.subtopologies for node in spec.nodes
    )
    return parallelism if dynamic else max(1, min(parallelism, sum(topics.get(topic, 1) for topic in named)))


def _repartition_counts(topology: BuiltTopology, topics: Mapping[str, int]) -> dict[str, int]:
    """Return the partitions of each repartition topic: as the user fixed them, else as many as the largest topic
    upstream, co-partitioned ones alike (Kafka classes: RepartitionTopics, CopartitionedTopicsEnforcer)."""
    fixed = {
        name: topic.partitions for name, topic in topology.repartition_topics.items() if topic.partitions is not None
    }
    known = dict(fixed)
    while unknown := [name for name in topology.repartition_topics if name not in known]:
        upstream = {name: _counts_upstream(name, topology, {**topics, **known}) for name in unknown}
        ready = [name for name, counts in upstream.items() if counts and None not in counts]
        # where topics feed one another, as those of a foreign-key join do, the first that knows anything begins
        ready = ready or [name for name, counts in upstream.items() if any(counts)][:1]
        if not ready:
            raise TopologyError(
                f"the partitions of the repartition topics {', '.join(unknown)} do not follow from any source topic."
            )
        for name in ready:
            known[name] = max(filter(None, upstream[name]))
    for group in topology.copartition_groups:
        try:
            known.update(enforce_copartitioning(group, known, fixed, topics))
        except TopologyError as error:
            _explain_copartitioning(error, topology, group)
            raise
    return known


def _explain_copartitioning(error: TopologyError, topology: BuiltTopology, group: frozenset[str]) -> None:
    """Add to `error`, whose text is Kafka's, which sources read the topics of `group`, and what to do."""
    for node in _sources(topology):
        if read := [topic for topic in node.topics if topic in group]:
            error.add_note(f"{node.name} reads {', '.join(read)}{_made_at(topology, node)}.")
    error.add_note(
        "Records with equal keys meet in one task, so these topics need the same number of partitions: create them "
        "with the same number, or repartition a stream or table first, such as "
        "stream.repartition(Repartitioned.number_of_partitions(...))."
    )


def _counts_upstream(name: str, topology: BuiltTopology, known: Mapping[str, int]) -> list[int | None]:
    """Return the partitions of each source topic of the sub-topologies that write to `name`, None for those not yet
    known."""
    return [
        known.get(topic)
        for spec in topology.subtopologies
        if name in spec.sink_topics
        for topic in spec.source_topics
        if topic != name
    ]


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
    """Return which of the sub-topologies `waiting`, all behind a loop or in one, goes before those that feed it: one in
    a loop that waits for no other loop, and if there is one it reads a topic of the brokers."""
    above = {each: _upstream(each, feeders, set(waiting)) for each in waiting}
    candidates = [each for each in waiting if all(each in above[feeder] for feeder in above[each])]
    outside = {
        spec.id
        for spec in topology.subtopologies
        if any(topic not in topology.repartition_topics for topic in spec.source_topics)
    }
    return min(candidates, key=lambda each: (each not in outside, each))


def _upstream(subtopology: int, feeders: Mapping[int, set[int]], within: set[int]) -> set[int]:
    """Return the sub-topologies of `within` whose records come to `subtopology`, over any number of others."""
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


# ---------------------------------------- the shape that a checkpoint is compared with


def shape(topology: BuiltTopology, placement: Placement) -> dict[str, Any]:
    """Return what a checkpoint depends on, as plain data: tasks, levels, topics, nodes and stores."""
    own_groups = {
        str(task): ", ".join(map(str, group))
        for task, group in placement.groups.items()
        if any(partition.partition != task.partition for partition in group)
    }
    return {
        "tasks of each level": [[str(task) for task in tasks] for tasks in placement.levels],
        "partitions of source topics": dict(sorted(placement.source_partitions.items())),
        **({"partitions of tasks": own_groups} if own_groups else {}),
        "topics": {str(spec.id): sorted(spec.source_topics) for spec in topology.subtopologies},
        "nodes": {str(spec.id): [_node_text(node) for node in spec.nodes] for spec in topology.subtopologies},
        "stores": {
            str(spec.id): {name: store.layout for name, store in sorted(spec.stores.items())}
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
