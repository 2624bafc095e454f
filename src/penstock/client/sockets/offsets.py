"""Committed offsets of a group, with their unchanged metadata.

librdkafka does not terminate the metadata of other clients: it also returns the memory after it. confluent-kafka
appends a zero byte to metadata. In this module, reads remove that byte; `commit_offsets` and `TransactionOffsets`
commit without it, because Kafka Streams cannot parse metadata with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.client.api import GroupIdentity, OffsetAndMetadata
from penstock.client.failures import Right
from penstock.client.settings import PRODUCER
from penstock.client.sockets.cluster import GROUP, BrokerNode, Cluster
from penstock.client.sockets.connection import Api
from penstock.client.sockets.transactions import TransactionAdmin
from penstock.config import StreamsConfig
from penstock.errors import BrokerNotFoundError, TaskMigratedError, UnstableOffsetCommitError
from penstock.record import TopicPartition
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

OFFSET_FETCH: Final = Api("OffsetFetch", 9, 7, 7)
OFFSET_COMMIT: Final = Api("OffsetCommit", 8, 7, 9)
TXN_OFFSET_COMMIT: Final = Api("TxnOffsetCommit", 28, 3, 3)


def committed_offsets(
    cluster: Cluster, group: str, partitions: Sequence[TopicPartition], stable: bool = True
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group; partitions without an offset are omitted.

    Args:
        cluster: the brokers.
        group: the id of the group.
        partitions: the partitions to look up.
        stable: wait for open transactions with pending offsets (KIP-447).

    Raises:
        UnstableOffsetCommitError: a transaction was open until the timeout.
        GroupAuthorizationError: a permission is missing.
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
            one["committed_offset"], (one["metadata"] or "").removesuffix("\0"), one["committed_leader_epoch"]
        )
        for topic in cluster.repeat(ask)["topics"]
        for one in topic["partitions"]
        if one["committed_offset"] >= 0
    }


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Commit `offsets` for consumer group `group`, which must not have members.

    Raises TaskMigratedError if it has members, KafkaError if the brokers do not answer or a permission is missing.
    """
    if not offsets:
        return
    doing = f"committing offsets of the group {group!r}"
    right = Right("READ", "group", group)
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": offset_topics(offsets),
    }

    def ask() -> None:
        answer = cluster.ask(cluster.coordinator(GROUP, group, doing, right), OFFSET_COMMIT, body, doing)
        for topic in answer["topics"]:
            for one in topic["partitions"]:
                if one["error_code"] in MEMBER_FENCED:
                    raise has_members(group)
                cluster.check(one, doing, right, Right("READ", "topic", topic["name"]))

    cluster.repeat(ask)


def has_members(group: str) -> TaskMigratedError:
    """Return the error of a commit for a group with members. These commit the offsets of the group themselves."""
    return TaskMigratedError(
        f"The group {group} has members: instances of the application run on another host. Run the application on one "
        "host only."
    )


def offset_topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Sequence[Message]:
    """Return `offsets` by topic, in the format of commit requests."""
    topics: dict[str, list[Message]] = {}
    for partition, (offset, metadata, leader_epoch) in offsets.items():
        one = {
            "partition_index": partition.partition,
            "committed_offset": offset,
            "committed_leader_epoch": leader_epoch,
            "committed_metadata": metadata,
        }
        topics.setdefault(partition.topic, []).append(one)
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


class TransactionOffsets:
    """Commits offsets in the open transactions of another client, replacing those that it committed there.

    Args:
        config: the configuration of the application.
        transactional_id: the transactional id of the other client.
        timeout_ms: the timeout (ms) of one call; its last attempt may exceed it.

    Raises:
        ConfigError: a configuration key has no counterpart in Penstock's own connections, or an invalid value.
    """

    def __init__(self, config: StreamsConfig, transactional_id: str, timeout_ms: int) -> None:
        self._cluster = Cluster(config, timeout_ms, PRODUCER)
        self._transactional_id = transactional_id
        self._producer: tuple[int, int] | None = None
        self._node: BrokerNode | None = None

    def forget(self) -> None:
        """Look up producer id and epoch of the other client again before the next commit."""
        self._producer = None

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupIdentity) -> int:
        """Commit `offsets` as `member` of its group, which must already be part of the transaction.

        Returns:
            The error code of a refusal, or that of success.

        Raises:
            RetriableError: the brokers did not answer in time.
            KafkaError: the transactional id is unknown.
        """
        if self._producer is None:
            described = TransactionAdmin(self._cluster).describe(self._transactional_id)
            self._producer = described.producer_id, described.producer_epoch
        producer_id, producer_epoch = self._producer
        body = {
            "transactional_id": self._transactional_id,
            "group_id": member.group,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "generation_id_or_member_epoch": member.generation,
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "topics": offset_topics(offsets),
        }
        return self._cluster.repeat(lambda: self._commit(member.group, body))

    def _commit(self, group: str, body: Message) -> int:
        doing = f"committing offsets of the group {group!r} in a transaction"
        try:
            if self._node is None:
                self._node = self._cluster.coordinator(GROUP, group, doing, Right("READ", "group", group))
            answer = self._cluster.ask(self._node, TXN_OFFSET_COMMIT, body, doing)
        except BrokerNotFoundError:
            self._node = None
            raise
        for topic in answer["topics"]:
            for one in topic["partitions"]:
                code: int = one["error_code"]
                if code in _ELSEWHERE:
                    self._node = None
                if code in _PASSING:
                    self._cluster.check(one, doing)
                if code != ErrorCode.none:
                    return code
        return int(ErrorCode.none)

    def close(self) -> None:
        """Release the connections; idempotent."""
        self._cluster.close()


MEMBER_FENCED: Final = (
    ErrorCode.illegal_generation,
    ErrorCode.unknown_member_id,
    ErrorCode.fenced_instance_id,
    ErrorCode.stale_member_epoch,
    ErrorCode.fenced_member_epoch,
)
"""Error codes of a group for a client that is not a member."""

_ELSEWHERE: Final = (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available)
_PASSING: Final = (
    *_ELSEWHERE,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.concurrent_transactions,
    ErrorCode.rebalance_in_progress,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.request_timed_out,
)
