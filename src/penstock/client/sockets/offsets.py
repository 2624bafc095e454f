"""Committed offsets of a group, with the text beside them as it was committed.

librdkafka gives that text without its end when another client has committed it: what follows in memory is read too. And
confluent-kafka commits it with a zero byte at its end, which is left out here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from penstock.client.api import OffsetAndMetadata
from penstock.client.failures import Right
from penstock.client.sockets.cluster import GROUP, Cluster
from penstock.client.sockets.connection import Api
from penstock.errors import UnstableOffsetCommitError
from penstock.record import TopicPartition
from penstock.wire.codec import Message

OFFSET_FETCH: Final = Api("OffsetFetch", 9, 7, 7)


def committed_offsets(
    cluster: Cluster, group: str, partitions: Sequence[TopicPartition], stable: bool = True
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return what a group has committed; partitions without are left out.

    Args:
        cluster: the brokers.
        group: the id of the group.
        partitions: of which to ask.
        stable: wait for open transactions that are about to commit others (KIP-447).

    Raises:
        UnstableOffsetCommitError: a transaction was open all the time that a call may take.
        GroupAuthorizationError: a right is missing.
    """
    if not partitions:
        return {}
    doing = f"asking for the offsets of the group {group!r}"
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    asked = [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]
    right = Right("DESCRIBE", "group", group)

    def ask() -> Message:
        node = cluster.coordinator(GROUP, group, doing, right)
        body = {"group_id": group, "topics": asked, "require_stable": stable}
        answer = cluster.ask(node, OFFSET_FETCH, body, doing)
        cluster.check(answer, doing, right)
        for topic in answer["topics"]:
            for one in topic["partitions"]:
                if one["error_code"] == ErrorCode.unstable_offset_commit:
                    raise UnstableOffsetCommitError(f"A transaction of the group {group!r} is open; ask again.")
                cluster.check(one, doing, Right("DESCRIBE", "topic", topic["name"]))
        return answer

    return {
        TopicPartition(topic["name"], one["partition_index"]): OffsetAndMetadata(
            one["committed_offset"], (one["metadata"] or "").removesuffix("\0")
        )
        for topic in cluster.repeat(ask)["topics"]
        for one in topic["partitions"]
        if one["committed_offset"] >= 0
    }
