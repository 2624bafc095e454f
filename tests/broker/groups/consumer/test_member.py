"""A member of a consumer group: its subscription, its epochs, and the partitions that it may own."""

from __future__ import annotations

import uuid

from penstock_broker.groups.assignment import Assignment
from penstock_broker.groups.consumer.heartbeat import HeartbeatRequest
from penstock_broker.groups.consumer.member import ConsumerGroupMember

TOPIC = uuid.UUID(int=1)
UNCHANGED = HeartbeatRequest("m", 5, None, None, None, "c", "/h", None, None, None, None)


def partitions(*numbers: int) -> Assignment:
    return frozenset((TOPIC, number) for number in numbers)


def test_a_subscription_has_names_and_a_pattern() -> None:
    member = ConsumerGroupMember("m", topic_names=("t", "missing"), topic_regex="in-.*")
    assert member.subscribed(["t", "u", "in-1"]) == {"t", "in-1"}
    assert ConsumerGroupMember("m", topic_names=("t",)).subscribed(["t", "in-1"]) == {"t"}
    assert member.has_subscription_of(ConsumerGroupMember("o", topic_names=("t", "missing"), topic_regex="in-.*"))
    assert not member.has_subscription_of(ConsumerGroupMember("o", topic_names=("t", "missing")))
    assert not member.has_subscription_of(ConsumerGroupMember("o", topic_names=("t",), topic_regex="in-.*"))


def test_a_heartbeat_changes_only_the_fields_that_it_has() -> None:
    before = ConsumerGroupMember("m", "one", "rack", "c", "/h", 1_000, ("t",), "in-.*", "range", epoch=5)
    assert before.updated(UNCHANGED) == before
    request = UNCHANGED._replace(client_host="/i", rebalance_timeout_ms=0, topic_names=("v", "u", "v"), topic_regex="")
    after = before.updated(request)
    assert (after.topic_names, after.topic_regex) == (("u", "v"), None)
    assert (after.client_host, after.rebalance_timeout_ms, after.assignor) == ("/i", 0, "range")
    assert (after.instance_id, after.rack_id, after.epoch) == ("one", "rack", 5)
