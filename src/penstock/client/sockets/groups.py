"""Requests about groups that librdkafka lacks.

It cannot describe groups of Kafka Streams' protocol (KIP-1071), or remove members of classic groups.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from penstock.client.api import GroupDescription, MemberDescription
from penstock.client.failures import Right
from penstock.client.sockets.cluster import GROUP, Cluster
from penstock.client.sockets.connection import Api
from penstock.errors import UnsupportedVersionError
from penstock.record import TopicPartition
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

STREAMS_GROUP_DESCRIBE: Final = Api("StreamsGroupDescribe", 89, 0, 0)
LEAVE_GROUP: Final = Api("LeaveGroup", 13, 3, 5)


def describe_streams_group(cluster: Cluster, group: str) -> GroupDescription | None:
    """Return a Streams group and its members, None if it does not exist (Kafka class: StreamsGroupDescription).

    Args:
        cluster: the brokers.
        group: the id of the group.

    Raises:
        GroupAuthorizationError: a permission is missing.
    """
    doing, right = f"describing the group {group!r}", Right("DESCRIBE", "group", group)

    def ask() -> Message | None:
        node = cluster.coordinator(GROUP, group, doing, right)
        [found] = cluster.ask(node, STREAMS_GROUP_DESCRIBE, {"group_ids": [group]}, doing)["groups"]
        if found["error_code"] == ErrorCode.group_id_not_found:
            return None
        cluster.check(found, doing, right)
        answer: Message = found
        return answer

    try:
        found = cluster.repeat(ask)
    except UnsupportedVersionError:  # such brokers have no groups of this type
        return None
    if found is None:
        return None
    topology = found["topology"] or {}
    read = {
        one["subtopology_id"]: (*one["source_topics"], *(topic["name"] for topic in one["repartition_source_topics"]))
        for one in topology.get("subtopologies") or ()
    }
    members = tuple(_member(one, read) for one in found["members"])
    return GroupDescription(group, "Streams", found["group_state"], members=members)


def _member(answer: Message, read: dict[str, tuple[str, ...]]) -> MemberDescription:
    partitions = sorted(
        TopicPartition(topic, number)
        for tasks in answer["assignment"]["active_tasks"]
        for topic in read.get(tasks["subtopology_id"], ())
        for number in tasks["partitions"]
    )
    return MemberDescription(answer["member_id"], answer["client_id"], answer["client_host"], tuple(partitions))


def remove_members(cluster: Cluster, group: str, member_ids: Collection[str], reason: str) -> None:
    """Remove members from a classic group as if they had left (Kafka class: RemoveMembersFromConsumerGroupOptions).

    Members that have already left are skipped. A removed member that still runs notices at its next heartbeat, and
    joins again under another id.

    Args:
        cluster: the brokers.
        group: the id of the group.
        member_ids: the ids of the members, including static ones.
        reason: for the log of the broker.

    Raises:
        GroupAuthorizationError: a permission is missing.
        KafkaError: the brokers do not answer, or refuse.
    """
    if not member_ids:
        return
    doing, right = f"removing members of the group {group!r}", Right("READ", "group", group)
    members = [{"member_id": each, "group_instance_id": None, "reason": reason} for each in member_ids]

    def ask() -> None:
        node = cluster.coordinator(GROUP, group, doing, right)
        answer = cluster.ask(node, LEAVE_GROUP, {"group_id": group, "members": members}, doing)
        cluster.check(answer, doing, right)
        for one in answer["members"]:
            if one["error_code"] != ErrorCode.unknown_member_id:
                cluster.check(one, doing, right)

    cluster.repeat(ask)
