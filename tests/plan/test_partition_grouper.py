"""Which partitions make one task: those of one number, or as the user groups them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from penstock.errors import TopologyError
from penstock.plan.partition_grouper import PartitionGrouper, partition_groups
from penstock.record import TopicPartition


class Pairs(PartitionGrouper):
    """Two partitions of a topic in each group."""

    def group(self, topics: Mapping[str, int]) -> Sequence[Collection[TopicPartition]]:
        return [
            {TopicPartition(topic, number) for topic, count in topics.items() for number in (first, first + 1)}
            for first in range(0, max(topics.values()), 2)
        ]


class Fixed(PartitionGrouper):
    """Whatever it was given."""

    def __init__(self, *groups: set[TopicPartition]) -> None:
        self._groups = groups

    def group(self, topics: Mapping[str, int]) -> Sequence[Collection[TopicPartition]]:
        return self._groups


A, B = TopicPartition("a", 0), TopicPartition("a", 1)


def test_partitions_of_one_number_make_a_group() -> None:
    groups = partition_groups(PartitionGrouper(), {"a": 3, "b": 1})
    assert groups == ((A, TopicPartition("b", 0)), (B,), (TopicPartition("a", 2),))


def test_a_user_groups_several_partitions_of_one_topic() -> None:
    groups = partition_groups(Pairs(), {"a": 4})
    assert [sorted(each.partition for each in group) for group in groups] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("groups", "wrong"),
    [
        (({A},), "a-1 is in no group"),
        (({A}, {A, B}), "a-0 is in several groups"),
        (({A}, {B, TopicPartition("x", 0)}), "x-0 does not exist"),
    ],
)
def test_each_partition_must_be_in_one_group(groups: tuple[set[TopicPartition], ...], wrong: str) -> None:
    with pytest.raises(TopologyError, match=f"Fixed must put each partition into one group: {wrong}"):
        partition_groups(Fixed(*groups), {"a": 2})


@pytest.mark.parametrize(
    "groups",
    [
        ({A, TopicPartition("b", 1)}, {B, TopicPartition("b", 0)}),
        ({A, B, TopicPartition("b", 0)}, {TopicPartition("b", 1)}),
    ],
)
def test_a_group_has_the_same_partitions_of_topics_that_are_joined(groups: tuple[set[TopicPartition], ...]) -> None:
    topics = {"a": 2, "b": 2, "c": 1}
    grouper = Fixed(*groups, {TopicPartition("c", 0)})
    assert len(partition_groups(grouper, topics, [frozenset({"a"})])) == 3
    with pytest.raises(TopologyError, match=r"Fixed puts the partitions .* of a and .* of b into one group"):
        partition_groups(grouper, topics, [frozenset({"a", "b"}), frozenset({"of", "another", "sub-topology"})])


def test_each_task_needs_one_partition_of_a_broadcast() -> None:
    assert len(partition_groups(PartitionGrouper(), {"a": 4, "b": 4}, broadcasts=("b",))) == 4
    with pytest.raises(TopologyError, match=r"Pairs puts the partitions \[0, 1\] of b into one group: .* exactly one"):
        partition_groups(Pairs(), {"a": 4, "b": 4}, broadcasts=("b",))
