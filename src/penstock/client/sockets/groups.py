"""Groups of the protocol of Kafka Streams (KIP-1071), which librdkafka does not describe."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from penstock.client.api import GroupDescription, GroupMember
from penstock.client.failures import Right
from penstock.client.sockets.cluster import GROUP, Cluster
from penstock.client.sockets.connection import Api
from penstock.errors import UnsupportedVersionError
from penstock.record import TopicPartition
from penstock.wire.codec import Message

STREAMS_GROUP_DESCRIBE: Final = Api("StreamsGroupDescribe", 89, 0, 0)


def describe_streams_group(cluster: Cluster, group: str) -> GroupDescription | None:
    """Return a group of Kafka Streams and its members, None if there is none of this type (Kafka class:
    StreamsGroupDescription).

    Args:
        cluster: the brokers.
        group: the id of the group.

    Raises:
        GroupAuthorizationError: a right is missing.
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
    except UnsupportedVersionError:  # such brokers have no group of this type
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


def _member(answer: Message, read: dict[str, tuple[str, ...]]) -> GroupMember:
    partitions = sorted(
        TopicPartition(topic, number)
        for tasks in answer["assignment"]["active_tasks"]
        for topic in read.get(tasks["subtopology_id"], ())
        for number in tasks["partitions"]
    )
    return GroupMember(answer["member_id"], answer["client_id"], answer["client_host"], tuple(partitions))
