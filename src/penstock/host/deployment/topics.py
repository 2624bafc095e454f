"""The topics of a topology: sources, sinks, matches of patterns, and partitions of repartition topics.

The functions are pure, and work on plain data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from penstock.config import StreamsConfig
from penstock.errors import MissingSourceTopicError, StreamsError, TopologyError
from penstock.exception_handlers import DEAD_LETTER_QUEUE_TOPIC
from penstock.plan.broadcast import all_broadcasts, read_broadcasts
from penstock.plan.copartition import enforce_copartitioning
from penstock.plan.dead_letters import unread_dead_letters
from penstock.plan.subtopology import (
    BuiltTopology,
    DeadLetterSinkSpec,
    DroppedSinkSpec,
    NodeSpec,
    SinkSpec,
    SourceSpec,
    SubtopologySpec,
)


def resolve_patterns(
    topology: BuiltTopology, topics: Mapping[str, int], internal: frozenset[str], config: StreamsConfig
) -> BuiltTopology:
    """Return `topology` with the topics that the pattern of each source matches now.

    `internal` topics and the application's dead letter topic never match (Kafka Streams subscribes by pattern).
    """
    left_out = internal | unread_dead_letters(config.overridden(topology.config_overrides))

    def resolved(node: NodeSpec) -> NodeSpec:
        if isinstance(node, SourceSpec) and node.pattern is not None:
            matches = node.pattern.fullmatch
            names = sorted(t for t in topics if t not in left_out and not t.startswith("__") and matches(t))
            return replace(node, topics=tuple(names))
        return node

    subtopologies = []
    for spec in topology.subtopologies:
        nodes = tuple(resolved(node) for node in spec.nodes)
        sources = dict.fromkeys(
            [
                *spec.source_topics,
                *(t for n in nodes if isinstance(n, SourceSpec) and not n.has_task_topic for t in n.topics),
            ]
        )
        subtopologies.append(replace(spec, nodes=nodes, source_topics=tuple(sources)))
    return replace(topology, subtopologies=tuple(subtopologies))


def source_topics(topology: BuiltTopology) -> frozenset[str]:
    """Return the external topics that a topology reads; its patterns are resolved."""
    read = [t for spec in topology.subtopologies for t in spec.source_topics if t not in topology.repartition_topics]
    return frozenset([*read, *(() if topology.global_topology is None else topology.global_topology.source_topics)])


def pattern_topics(topology: BuiltTopology) -> frozenset[str]:
    """Return the source topics that only patterns name, in a topology with resolved patterns.

    The application continues if one of them is deleted.
    """
    sources = [node for spec in topology.subtopologies for node in spec.nodes if isinstance(node, SourceSpec)]
    matched = {topic for node in sources if node.pattern is not None for topic in node.topics}
    return frozenset(matched - {topic for node in sources if node.pattern is None for topic in node.topics})


def external_sink_topics(topology: BuiltTopology) -> list[str]:
    """Return the external topics of named sinks, in order, without duplicates."""
    return list(
        dict.fromkeys(
            t for spec in topology.subtopologies for t in spec.sink_topics if t not in topology.repartition_topics
        )
    )


def check_source_topics(topology: BuiltTopology, topics: Mapping[str, int], brokers: str) -> None:
    """Raise MissingSourceTopicError for source topics missing from `topics`, the topics of `brokers`."""
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


def written_topics(topology: BuiltTopology, config: StreamsConfig) -> list[str]:
    """Return the external topics written by name: those of sinks and dead letters."""
    dead_letters = config[DEAD_LETTER_QUEUE_TOPIC]
    return [*external_sink_topics(topology), *([] if dead_letters is None else [dead_letters])]


def named_topics(topology: BuiltTopology, config: StreamsConfig) -> frozenset[str]:
    """Return the external topics that must exist: those named by the application."""
    return frozenset([*source_topics(topology), *written_topics(topology, config)])


def check_sink_topics(topology: BuiltTopology, topics: Mapping[str, int], config: StreamsConfig) -> None:
    """Raise StreamsError if an output topic of the application is not in `topics`."""
    missing = [topic for topic in written_topics(topology, config) if topic not in topics]
    if missing:
        error = StreamsError(
            f"Topics that sinks write to do not exist: {', '.join(missing)}. Create them first, for example with: "
            + create_command(missing, str(config["bootstrap.servers"]))
        )
        for node in (node for spec in topology.subtopologies for node in spec.nodes if isinstance(node, SinkSpec)):
            if node.topic in missing:
                line = topology.node_lines.get(node.name) or topology.node_lines.get(node.parents[0])
                error.add_note(
                    f"{node.name} writes {_written_by(node)} to {node.topic}{'' if line is None else f' ({line})'}."
                )
        if config[DEAD_LETTER_QUEUE_TOPIC] in missing:
            error.add_note(f"{DEAD_LETTER_QUEUE_TOPIC} names {config[DEAD_LETTER_QUEUE_TOPIC]} for dead letters.")
        raise error


def _written_by(node: SinkSpec) -> str:
    parents = ", ".join(node.parents)
    match node:
        case DeadLetterSinkSpec():
            return f"what still fails in {parents} after the last attempt, by then= of Park or Calls,"
        case DroppedSinkSpec():
            return f"what {parents} drops, by late_to,"
        case _:
            return f"the records of {parents}"


def create_command(topics: Iterable[str], brokers: str) -> str:
    """Return the command that creates `topics` on `brokers`, an address as in bootstrap.servers."""
    return f"penstock topics create {' '.join(topics)} --bootstrap-servers {brokers}"


def repartition_counts(topology: BuiltTopology, topics: Mapping[str, int]) -> dict[str, int]:
    """Return the number of partitions of each repartition topic.

    It is set by the user, or that of the largest upstream topic; co-partitioned topics have equal numbers (Kafka
    classes: RepartitionTopics, CopartitionedTopicsEnforcer). A broadcast has one partition for each task that reads it.

    topics: number of partitions of each topic on the brokers. Raises TopologyError if co-partitioned topics have
    different numbers of partitions, if the number of a topic is undefined, or if a task would not get a broadcast.
    """
    fixed = {
        name: topic.partitions for name, topic in topology.repartition_topics.items() if topic.partitions is not None
    }
    known = dict(fixed)
    while unknown := [name for name in topology.repartition_topics if name not in known]:
        upstream = {name: _deciding_counts(name, topology, {**topics, **known}) for name in unknown}
        ready = [name for name, counts in upstream.items() if counts and None not in counts]
        # for topics that feed one another, as in a foreign-key join, start with the first that has a known upstream
        # topic
        ready = ready or [name for name, counts in upstream.items() if any(counts)][:1]
        if not ready:  # the other topics of its readers may follow from a broadcast
            upstream = {name: _counts_upstream(name, topology, {**topics, **known}) for name in unknown}
            ready = [name for name, counts in upstream.items() if any(counts)][:1]
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
    for spec in topology.subtopologies:
        known.update(_broadcast_counts(spec, {**topics, **known}, fixed))
    return known


def _broadcast_counts(spec: SubtopologySpec, counts: Mapping[str, int], fixed: Mapping[str, int]) -> dict[str, int]:
    """Return the number of partitions of each broadcast that `spec` reads: the number of its tasks.

    Raises TopologyError if the user fixed a smaller number.
    """
    broadcasts = read_broadcasts(spec.nodes)
    following = broadcasts - fixed.keys()
    tasks = max((counts.get(topic, 0) for topic in set(spec.source_topics) - following or following), default=0)
    for topic in sorted(broadcasts & fixed.keys()):
        if fixed[topic] < tasks:
            raise TopologyError(
                f"The broadcast {topic} has {fixed[topic]} partitions, and its sub-topology, which reads "
                f"{', '.join(sorted(spec.source_topics))}, has {tasks} tasks, which need one each: leave out "
                f"number_of_partitions in the options of broadcast(), or set it to {tasks}."
            )
    return dict.fromkeys(following, tasks)


def _explain_copartitioning(error: TopologyError, topology: BuiltTopology, group: frozenset[str]) -> None:
    """Add the sources of the topics in `group`, and a remedy, to `error`. The text of `error` is Kafka's."""
    for node in _sources(topology):
        if read := [topic for topic in node.topics if topic in group]:
            error.add_note(f"{node.name} reads {', '.join(read)}{_made_at(topology, node)}.")
    error.add_note(
        "Records with equal keys meet in one task, so these topics need the same number of partitions: create them "
        "with the same number, or repartition a stream or table first, such as "
        "stream.repartition(Repartitioned.number_of_partitions(...))."
    )


def _deciding_counts(name: str, topology: BuiltTopology, known: Mapping[str, int]) -> list[int | None]:
    """Return the partition counts that decide the one of `name`, None for unknown counts.

    They are those of its upstream topics. A broadcast takes those of the topics that its readers also read, if any.
    """
    broadcasts = all_broadcasts(topology)
    read_too = (
        topic
        for spec in topology.subtopologies
        if name in broadcasts and name in spec.source_topics
        for topic in spec.source_topics
        if topic not in broadcasts
    )
    return [known.get(topic) for topic in read_too] or _counts_upstream(name, topology, known)


def _counts_upstream(name: str, topology: BuiltTopology, known: Mapping[str, int]) -> list[int | None]:
    """Return the partition counts of the topics upstream of `name`, None for unknown counts."""
    return [
        known.get(topic)
        for spec in topology.subtopologies
        if name in spec.sink_topics
        for topic in spec.source_topics
        if topic != name
    ]


def _sources(topology: BuiltTopology) -> Iterator[SourceSpec]:
    """Yield the sources of all sub-topologies and global stores."""
    parts = topology.subtopologies
    for spec in parts if topology.global_topology is None else (*parts, topology.global_topology):
        yield from (node for node in spec.nodes if isinstance(node, SourceSpec))


def _made_at(topology: BuiltTopology, node: NodeSpec) -> str:
    line = topology.node_lines.get(node.name)
    return "" if line is None else f" ({line})"
