"""The target assignment of a group: the assignments of members by id."""

from __future__ import annotations

from penstock_broker.groups.consumer.target import ConsumerTargetAssignment
from tests.broker.groups.consumer.test_member import partitions


def test_members_are_renamed_and_removed() -> None:
    target = ConsumerTargetAssignment(assignments={"one": partitions(0), "two": partitions(1)})
    assert target.renamed("two", "three").assignments == {"one": partitions(0), "three": partitions(1)}
    assert target.without("one").assignments == {"two": partitions(1)}
    assert target.of("three") == frozenset()
