"""The target assignment of a consumer group: the topics that it covers, its epochs, and its assignor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_broker.groups.consumer.member import ConsumerGroupMember
from penstock_broker.groups.consumer.target import ConsumerTargetAssignment, SubscribedTopics, preferred_assignor
from tests.broker.groups.support import GroupBroker

MEMBERS = [
    ConsumerGroupMember("one", topic_names=("t",)),
    ConsumerGroupMember("two", topic_names=("t", "u", "missing")),
    ConsumerGroupMember("three", topic_regex="u.*"),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GroupBroker]:
    opened = GroupBroker(tmp_path)
    opened.create_topic("t", 4)
    opened.create_topic("u", 2)
    opened.create_topic("unread", 1)
    yield opened
    opened.close()


def test_subscriptions_are_resolved_to_existing_topics(broker: GroupBroker) -> None:
    topics = SubscribedTopics(MEMBERS, broker.topics)
    t, u, unread = (broker.topics.by_name(name).topic_id for name in ("t", "u", "unread"))
    assert topics.by_member == {"one": {t}, "two": {t, u}, "three": {u, unread}}
    assert topics.partitions == {t: 4, u: 2, unread: 1}


def test_the_hash_changes_with_the_topics_that_members_read(broker: GroupBroker) -> None:
    def found() -> int:
        return SubscribedTopics(MEMBERS[:2], broker.topics).metadata_hash

    before = found()
    broker.create_topic("other")
    assert found() == before
    broker.topics.grow(broker.topics.by_name("u"), 3)
    grown = found()
    assert grown != before
    broker.create_topic("missing")
    assert found() not in (before, grown)
    assert SubscribedTopics([], broker.topics).metadata_hash == 0


def test_an_epoch_is_outdated_until_it_is_assigned(broker: GroupBroker) -> None:
    topics = SubscribedTopics(MEMBERS, broker.topics)
    assert not ConsumerTargetAssignment().is_outdated
    target = ConsumerTargetAssignment().next_epoch(topics)
    assert (target.epoch, target.metadata_hash, target.assignment_epoch) == (1, topics.metadata_hash, 0)
    assert target.is_outdated
    assigned = target.assigned(MEMBERS, topics)
    assert (assigned.epoch, assigned.assignment_epoch, assigned.is_outdated) == (1, 1, False)
    shares = [assigned.of(member.member_id) for member in MEMBERS]
    assert sum(map(len, shares)) == len(frozenset().union(*shares)) == 7


def test_an_assignment_changes_as_little_as_possible(broker: GroupBroker) -> None:
    topics = SubscribedTopics(MEMBERS, broker.topics)
    target = ConsumerTargetAssignment().next_epoch(topics).assigned(MEMBERS, topics)
    assert target.next_epoch(topics).assigned(MEMBERS, topics).assignments == target.assignments


@pytest.mark.parametrize(
    ("wanted", "assignor"), [([], "uniform"), ([None], "uniform"), (["range", None, "range", "uniform"], "range")]
)
def test_most_members_prefer_the_assignor(wanted: list[str | None], assignor: str) -> None:
    assert preferred_assignor(ConsumerGroupMember("m", assignor=each) for each in wanted) == assignor
