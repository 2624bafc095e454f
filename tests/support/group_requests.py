"""Requests of members of groups, of all protocols, and the answers that tests wait for."""

from __future__ import annotations

import time

from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import (
    CONSUMER_GROUP_HEARTBEAT,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    STREAMS_GROUP_HEARTBEAT,
)
from tests.support.protocol_client import ProtocolClient

WAIT = 60
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
"""Of a consumer that reads the topic `t`: Kafka's coordinator does not answer where it cannot read it."""


def await_coordinator(client: ProtocolClient, group: str) -> None:
    """Kafka creates its topic for groups with the first request for a coordinator, and then loads the group."""
    deadline = time.monotonic() + WAIT
    code = ErrorCode.coordinator_not_available
    while code != ErrorCode.unknown_member_id:
        assert time.monotonic() < deadline, code
        client.call(FIND_COORDINATOR, 3, {"key": group, "key_type": 0})
        identity = {"group_id": group, "generation_id": 1, "member_id": "m", "group_instance_id": None}
        code = ErrorCode(client.call(HEARTBEAT, 4, identity)["error_code"])


def join_body(group: str, member_id: str = "", **settings: object) -> Message:
    """Return a JoinGroup."""
    return {
        "group_id": group,
        "session_timeout": 60_000,
        "rebalance_timeout": 60_000,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        "reason": "test",
    } | settings


def join(client: ProtocolClient, version: int, group: str) -> Message:
    """Join a group, also where the member has to ask again with its new id, and return the answer."""
    answer = client.call(JOIN_GROUP, version, join_body(group))
    if version >= 4:
        assert answer["error_code"] == ErrorCode.member_id_required
        answer = client.call(JOIN_GROUP, version, join_body(group, answer["member_id"]))
    assert answer["error_code"] == ErrorCode.none
    return answer


def sync_body(group: str, joined: Message, **settings: object) -> Message:
    """Return a SyncGroup; the leader assigns everything to itself."""
    assignment = {"member_id": joined["member_id"], "assignment": b"all"}
    return (
        member_body(group, joined)
        | {
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [assignment] if joined["leader"] == joined["member_id"] else [],
        }
        | settings
    )


def member_body(group: str, joined: Message) -> Message:
    """Return the fields that name a member and its generation."""
    return {
        "group_id": group,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "group_instance_id": None,
    }


def beat_body(group: str, member_id: str, epoch: int, **settings: object) -> Message:
    """Return a ConsumerGroupHeartbeat; epoch 0 joins."""
    return {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": epoch,
        "rebalance_timeout": 60_000 if epoch == 0 else -1,
        "subscribed_topic_names": None,
        "topic_partitions": [] if epoch == 0 else None,
    } | settings


def enter(client: ProtocolClient, version: int, group: str, member_id: str, topic: str) -> Message:
    """Join a consumer group and return the answer with an assignment; Kafka learns later of a topic that is new."""
    body = beat_body(group, member_id, 0, subscribed_topic_names=[topic])
    answer = client.call(CONSUMER_GROUP_HEARTBEAT, version, body)
    deadline = time.monotonic() + WAIT
    while answer["assignment"] is None or not answer["assignment"]["topic_partitions"]:
        assert (answer["error_code"], time.monotonic() < deadline) == (ErrorCode.none, True)
        body = beat_body(group, answer["member_id"], answer["member_epoch"])
        answer = client.call(CONSUMER_GROUP_HEARTBEAT, version, body)
    return answer


def streams_body(group: str, member_id: str, epoch: int, **settings: object) -> Message:
    """Return a StreamsGroupHeartbeat; epoch 0 joins."""
    return {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": epoch,
        "endpoint_information_epoch": -1,
        "rebalance_timeout": 60_000 if epoch == 0 else -1,
        "active_tasks": [] if epoch == 0 else None,
        "standby_tasks": [] if epoch == 0 else None,
        "warmup_tasks": [] if epoch == 0 else None,
    } | settings


def enter_streams(client: ProtocolClient, version: int, group: str, member_id: str, topic: str) -> Message:
    """Join a streams group that reads a topic, and return the answer with tasks; Kafka learns later of a new topic."""
    topology = {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": [topic]}]}
    body = streams_body(group, member_id, 0, topology=topology, process_id="p", client_tags=[])
    answer = client.call(STREAMS_GROUP_HEARTBEAT, version, body)
    deadline = time.monotonic() + WAIT
    while not answer["active_tasks"]:
        assert (answer["error_code"], time.monotonic() < deadline) == (ErrorCode.none, True)
        body = streams_body(group, member_id, answer["member_epoch"])
        answer = client.call(STREAMS_GROUP_HEARTBEAT, version, body)
    return answer
