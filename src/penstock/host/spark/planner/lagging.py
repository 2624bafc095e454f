"""The inputs that tasks wait for in an epoch, and the partitions left unread meanwhile.

Pure functions of the placement, positions and the manifest.

A partition lags if an epoch stops reading it before its known end. A repartition topic lags if one of the broker topics
that feed it in the same epoch lags. Tasks never wait for records that come back in a loop, because the wait itself
might delay them. Records that wait are carried. If those of a partition outgrow the limit, the partition is not read
until they shrink, and the task waits for no repartition topic, because that might get its records only from this
partition. Partitions that a task waits for are always read, so waits end, and come first if an epoch cannot read
everything. A partition that is ahead of others of its task by `partition.pause.threshold.ms` is not read either, as
long as one of those has more to read.

The answers of calls are no input that tasks wait for. They are always read, and first. A task with a full store of
waiting records takes nothing else, so its other partitions are not read meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from penstock.host.spark.checkpoints.checkpoint import Manifest
from penstock.host.spark.protocol.placement import Placement
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition


def held_bytes(manifest: Manifest) -> dict[TopicPartition, int]:
    """Return the size of each partition's records that wait in its task, in bytes."""
    return {partition: size for entry in manifest.tasks.values() for partition, size in entry.held().items()}


def lagging_partitions(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """Return the partitions with a position before their end.

    Partitions without a known end count as lagging: no broker answered for them, and they may have more records.
    """
    return {partition for partition, position in positions.items() if position < ends.get(partition, position + 1)}


def unread_partitions(
    placement: Placement,
    inputs: Collection[TopicPartition],
    manifest: Manifest,
    lagging: Set[TopicPartition],
    bound: int,
    full: Set[TaskId],
) -> Set[TopicPartition]:
    """Return the partitions of `inputs` that are not read now.

    More than `bound` bytes of their records wait, or they are ahead of another partition of their task by more than the
    threshold, and the other partition lags and is read, or their task is in `full`: it takes only answers.
    """
    held = [partition for partition, size in held_bytes(manifest).items() if size > bound]
    topics = {topic for each in held if each not in inputs for topic in placement.upstream[each.topic]}
    unread = {each for each in inputs if each in held or each.topic in topics}
    others = set(inputs) - answers_of(placement, inputs)
    for task in full:
        unread.update(others.intersection(placement.groups[task]))
    read_on = (lagging & others) - unread
    for task, group in placement.groups.items():
        ahead = manifest.entry(str(task)).ahead
        if ahead and not read_on.isdisjoint(frozenset(group).difference(ahead)):
            unread.update(each for each in ahead if each in inputs)
    return unread


def answers_of(placement: Placement, inputs: Collection[TopicPartition]) -> Set[TopicPartition]:
    """Return the partitions of `inputs` that have answers of calls, or requests about parked records."""
    return {each for each in inputs if each.topic in placement.task_topics}


def waited_partitions(
    placement: Placement, inputs: Collection[TopicPartition], manifest: Manifest
) -> tuple[Set[TopicPartition], Set[TopicPartition]]:
    """Return the partitions of `inputs` that tasks with waiting records need, in two sets.

    The first has the partitions that the tasks wait for, the second those that may feed them.
    """
    held = held_bytes(manifest)
    missing = {
        each
        for task, group in placement.groups.items()
        if not held.keys().isdisjoint(group)
        for each in placement.awaitable[task]
        if each not in held
    }
    topics = {topic for each in missing if each not in inputs for topic in placement.upstream[each.topic]}
    return missing.intersection(inputs), {each for each in inputs if each.topic in topics}


def lagging_inputs(
    placement: Placement,
    task: TaskId,
    lagging: Set[TopicPartition],
    held: Mapping[TopicPartition, int],
    bound: int,
) -> tuple[TopicPartition, ...]:
    """Return the inputs of `task` that it must wait for.

    Args:
        placement: of the tasks.
        task: the task.
        lagging: the lagging partitions of broker topics.
        held: bytes of waiting records by partition.
        bound: limit of those bytes; a task with more for one partition waits for no repartition topic.
    """
    if not lagging:
        return ()
    full = any(held.get(partition, 0) > bound for partition in placement.groups[task])
    topics = {partition.topic for partition in lagging}

    def lags(partition: TopicPartition) -> bool:
        upstream = placement.upstream[partition.topic]
        if upstream == {partition.topic}:
            return partition in lagging
        return not full and not topics.isdisjoint(upstream)

    return tuple(partition for partition in placement.awaitable[task] if lags(partition))
