"""How far into the source topics the stores of a checkpoint have seen: by the offsets of a manifest. Pure functions.

An epoch takes the records of all topics through all levels. So a partition of a store has seen what the epoch has read
of the topics on which it depends: where its sub-topology reads topics of brokers alone, of the partitions that its task
reads; behind a repartition, of all partitions of all topics upstream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.plan.subtopology import BuiltTopology, SourceSpec, SubtopologySpec
from penstock.record import TopicPartition
from penstock.state.query.position import Position


def source_partitions(
    built: BuiltTopology, store_name: str, partition: int, offsets: Mapping[str, list[int]]
) -> list[TopicPartition]:
    """Return the partitions of source topics on which a partition of a store depends.

    Args:
        built: the topology; patterns need not be resolved.
        store_name: one of its stores.
        partition: the number of the store's partition.
        offsets: those of a manifest: of each partition of each source topic, the offset to be read next.
    """
    (spec,) = (spec for spec in built.subtopologies if store_name in spec.stores)
    own = _topics(spec, built, offsets)
    above = {topic for feeder in _upstream(spec, built) for topic in _topics(feeder, built, offsets)}
    every = {TopicPartition(topic, number) for topic in above for number in range(len(offsets[topic]))}
    read = {TopicPartition(topic, partition) for topic in own if partition < len(offsets[topic])}
    return sorted(every | read)


def position_of(partitions: Iterable[TopicPartition], offsets: Mapping[str, list[int]]) -> Position:
    """Return the offset before the next one for each of `partitions` of which something was read."""
    position: dict[str, dict[int, int]] = {}
    for topic, number in partitions:
        if offsets[topic][number] > 0:
            position.setdefault(topic, {})[number] = offsets[topic][number] - 1
    return Position(position)


def _topics(spec: SubtopologySpec, built: BuiltTopology, offsets: Mapping[str, list[int]]) -> set[str]:
    """Return the topics of brokers that a sub-topology reads."""
    patterns = [node.pattern for node in spec.nodes if isinstance(node, SourceSpec) and node.pattern is not None]
    named = {topic for topic in spec.source_topics if topic not in built.repartition_topics and topic in offsets}
    return named | {topic for topic in offsets if any(pattern.fullmatch(topic) for pattern in patterns)}


def _upstream(spec: SubtopologySpec, built: BuiltTopology) -> list[SubtopologySpec]:
    """Return the sub-topologies that feed this one through repartition topics, near or far; one may feed itself."""
    found: dict[int, SubtopologySpec] = {}
    wanted = list(spec.source_topics)
    while wanted:
        topic = wanted.pop()
        for feeder in built.subtopologies:
            if topic in built.repartition_topics and topic in feeder.sink_topics and feeder.id not in found:
                found[feeder.id] = feeder
                wanted.extend(feeder.source_topics)
    return list(found.values())
