"""PartitionGrouper: the grouping of input partitions into tasks (KIP-28)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from penstock.errors import ConfigError, TopologyError
from penstock.record import TopicPartition


class PartitionGrouper:
    """Groups the input partitions of one sub-topology; one task reads each group.

    Set your own as `partition.grouper`. All records of a key must be in one group, whatever their topic: a group with
    different partition numbers of joined topics is refused. The groups of a checkpoint cannot change.
    """

    def group(self, topics: Mapping[str, int]) -> Sequence[Collection[TopicPartition]]:
        """Return the groups, each partition in exactly one of them.

        By default, each partition number has a group with the partitions of that number.

        Args:
            topics: the number of partitions of each topic.
        """
        return [
            [TopicPartition(topic, number) for topic, count in topics.items() if number < count]
            for number in range(max(topics.values(), default=0))
        ]


BY_NUMBER = PartitionGrouper()
"""The default: partitions with the same number make a task."""


def configured_grouper(config: Mapping[str, Any]) -> PartitionGrouper:
    """Return the grouper configured as `partition.grouper`, an object or its class, else the default.

    Raises ConfigError for any other value.
    """
    given = config["partition.grouper"]
    grouper = BY_NUMBER if given is None else given() if isinstance(given, type) else given
    if not isinstance(grouper, PartitionGrouper):
        raise ConfigError(
            f"Invalid value {given!r} for configuration partition.grouper: expected a PartitionGrouper or its class."
        )
    return grouper


def partition_groups(
    grouper: PartitionGrouper,
    topics: Mapping[str, int],
    copartitioned: Iterable[Collection[str]] = (),
    broadcasts: Collection[str] = (),
) -> tuple[tuple[TopicPartition, ...], ...]:
    """Return the groups of `topics` according to `grouper`.

    Args:
        grouper: assigns partitions to tasks.
        topics: the number of partitions of each topic.
        copartitioned: sets of topics of any sub-topology that are joined with each other.
        broadcasts: the topics among `topics` with each record in every partition.

    Raises:
        TopologyError: a partition is in no group or in several, or a group has different partitions of joined topics
            (KIP-28: "their represented partition lists have to match each other"), or not one of each broadcast.
    """
    groups = tuple(tuple(TopicPartition(*each) for each in group) for group in grouper.group(topics))
    placed = [partition for group in groups for partition in group]
    wanted = {TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)}
    wrong = [f"{each} is in no group" for each in sorted(wanted - set(placed))]
    wrong += [f"{each} does not exist" for each in sorted(set(placed) - wanted)]
    wrong += [f"{each} is in several groups" for each in sorted({each for each in placed if placed.count(each) > 1})]
    if wrong:
        raise TopologyError(f"{type(grouper).__name__} must put each partition into one group: {'; '.join(wrong)}.")
    for joined in copartitioned:
        _check_lists(grouper, groups, sorted(topics.keys() & joined))
    for broadcast in sorted(broadcasts):
        for group in groups:
            numbers = sorted(each.partition for each in group if each.topic == broadcast)
            if len(numbers) != 1:
                raise TopologyError(
                    f"{type(grouper).__name__} puts the partitions {numbers} of {broadcast} into one group: each has "
                    "all records of the broadcast, so a group needs exactly one of them. Without partition.grouper, "
                    "each task has one."
                )
    return groups


def _check_lists(
    grouper: PartitionGrouper, groups: Sequence[Collection[TopicPartition]], joined: Sequence[str]
) -> None:
    """Raise TopologyError unless each group has the same partitions of all topics of `joined`."""
    for group in groups:
        lists = {topic: sorted(each.partition for each in group if each.topic == topic) for topic in joined}
        if any(numbers != lists[joined[0]] for numbers in lists.values()):
            found = " and ".join(f"{numbers} of {topic}" for topic, numbers in lists.items())
            raise TopologyError(
                f"{type(grouper).__name__} puts the partitions {found} into one group, and these topics are joined: "
                "records of one key would not meet. Put the same partitions of both into one group."
            )
