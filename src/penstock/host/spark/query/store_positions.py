"""The progress of a checkpoint's stores in the source topics. Pure functions of a manifest's offsets.

An epoch takes the records of all topics through all levels. So a partition of a store has seen the records that the
epoch read of the topics on which it depends. If its sub-topology reads only topics of brokers, these are the partitions
that its task reads; after a repartition, they are all partitions of all upstream topics. If a partition has records
carried over to the next epoch, or its records may have led to such records, only the records read while there were no
carried ones count as seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from penstock.host.spark.checkpoints.checkpoint import Manifest
from penstock.plan.subtopology import BuiltTopology, SourceSpec, SubtopologySpec, TaskId
from penstock.record import TopicPartition
from penstock.state.query.position import Position


def source_partitions(
    built: BuiltTopology,
    store_name: str,
    partition: int,
    offsets: Mapping[str, list[int]],
    group: Collection[TopicPartition] | None = None,
) -> list[TopicPartition]:
    """Return the source partitions that a partition of a store depends on.

    Args:
        built: the topology; patterns need not be resolved.
        store_name: one of its stores.
        partition: the number of the store's partition.
        offsets: those of a manifest: the next offset to read of each partition of each source topic.
        group: the partitions that the task reads; None for those with the number of the store's partition.
    """
    (spec,) = (spec for spec in built.subtopologies if store_name in spec.stores)
    above = {topic for feeder in _upstream(spec, built) for topic in _topics(feeder, built, offsets)}
    every = {TopicPartition(topic, number) for topic in above for number in range(len(offsets[topic]))}
    return sorted(every.union(partitions_read(built, TaskId(spec.id, partition), offsets, group)))


def partitions_read(
    built: BuiltTopology,
    task: TaskId,
    offsets: Mapping[str, list[int]],
    group: Collection[TopicPartition] | None = None,
) -> list[TopicPartition]:
    """Return the partitions of source topics that a task reads; arguments as of `source_partitions`."""
    (spec,) = (spec for spec in built.subtopologies if spec.id == task.subtopology)
    own = _topics(spec, built, offsets)
    numbered = [TopicPartition(topic, task.partition) for topic in own] if group is None else group
    return sorted(each for each in numbered if each.topic in own and each.partition < len(offsets[each.topic]))


def position_of(partitions: Iterable[TopicPartition], offsets: Mapping[str, list[int]]) -> Position:
    """Return the last read offset of each of `partitions` with a position after 0."""
    position: dict[str, dict[int, int]] = {}
    for topic, number in partitions:
        if offsets[topic][number] > 0:
            position.setdefault(topic, {})[number] = offsets[topic][number] - 1
    return Position(position)


def settled_offsets(built: BuiltTopology, manifest: Manifest, before: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Return the settled offset of each partition of each source topic.

    All records before it, and all records derived from them, are in the stores.

    Args:
        built: the topology; patterns need not be resolved.
        manifest: provides the offsets that were read, and the carried records.
        before: the result for an earlier manifest of the same topology version; empty at first.
    """
    places = [entry.carried["places"] for entry in manifest.tasks.values() if entry.carried is not None]
    internal = built.repartition_topics.keys()
    carried = {(topic, place[0]) for each in places for topic in each.keys() - internal for place in each[topic]}
    repartitions = internal & {topic for each in places for topic in each}
    fed = {source for topic in repartitions for source in _sources_of(topic, built, manifest.offsets)}
    settled: dict[str, list[int]] = {}
    for topic, offsets in manifest.offsets.items():
        known = before.get(topic, [])
        settled[topic] = [
            (known[number] if number < len(known) else 0) if topic in fed or (topic, number) in carried else offset
            for number, offset in enumerate(offsets)
        ]
    return settled


def _sources_of(repartition_topic: str, built: BuiltTopology, offsets: Mapping[str, list[int]]) -> set[str]:
    """Return the topics of brokers that feed a repartition topic, directly or not."""
    writers = [spec for spec in built.subtopologies if repartition_topic in spec.sink_topics]
    feeders = [each for spec in writers for each in (spec, *_upstream(spec, built))]
    return {topic for spec in feeders for topic in _topics(spec, built, offsets)}


def _topics(spec: SubtopologySpec, built: BuiltTopology, offsets: Mapping[str, list[int]]) -> set[str]:
    """Return the topics of brokers that a sub-topology reads."""
    patterns = [node.pattern for node in spec.nodes if isinstance(node, SourceSpec) and node.pattern is not None]
    named = {topic for topic in spec.source_topics if topic not in built.repartition_topics and topic in offsets}
    return named | {topic for topic in offsets if any(pattern.fullmatch(topic) for pattern in patterns)}


def _upstream(spec: SubtopologySpec, built: BuiltTopology) -> list[SubtopologySpec]:
    """Return the sub-topologies that feed this one through repartition topics, directly or not.

    A sub-topology may feed itself.
    """
    found: dict[int, SubtopologySpec] = {}
    wanted = list(spec.source_topics)
    while wanted:
        topic = wanted.pop()
        for feeder in built.subtopologies:
            if topic in built.repartition_topics and topic in feeder.sink_topics and feeder.id not in found:
                found[feeder.id] = feeder
                wanted.extend(feeder.source_topics)
    return list(found.values())
