"""Detection of truncated logs by leader epochs (KIP-320).

A log may be truncated below a position, and then grow beyond it again. Each leader of a partition writes its records
under an epoch of its own, and brokers know the end offset of each epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.client.api import EpochPosition
from penstock.client.failures import Right
from penstock.client.sockets.cluster import BrokerNode, Cluster
from penstock.client.sockets.connection import Api
from penstock.errors import UnsupportedVersionError
from penstock.record import TopicPartition
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

OFFSET_FOR_LEADER_EPOCH: Final = Api("OffsetForLeaderEpoch", 23, 3, 4)

_CONSUMER: Final = -1
_UNKNOWN: Final = -1
_DOING: Final = "asking where the records of a leader end"


def truncated(
    cluster: Cluster, positions: Mapping[TopicPartition, EpochPosition]
) -> dict[TopicPartition, EpochPosition]:
    """Return the positions above the remaining log of their leader epoch.

    Each comes with the end of the remaining log and its epoch, both -1 if the brokers do not know it. The result is
    empty for brokers before Kafka 2.3.

    Raises:
        KafkaError: the brokers do not answer, or a permission is missing.
    """
    return cluster.repeat(lambda: _truncated(cluster, positions)) if positions else {}


def _truncated(
    cluster: Cluster, positions: Mapping[TopicPartition, EpochPosition]
) -> dict[TopicPartition, EpochPosition]:
    by_leader: dict[BrokerNode, dict[str, list[Message]]] = {}
    known: dict[TopicPartition, Message] = {}
    for topic in sorted({partition.topic for partition in positions}):
        known.update(cluster.partitions(_DOING, topic))
    nodes = cluster.nodes(_DOING)
    for partition, position in sorted(positions.items()):
        found = known.get(partition, {"error_code": ErrorCode.unknown_topic_or_partition, "leader_id": _UNKNOWN})
        if (leader := nodes.get(found["leader_id"])) is None:
            cluster.check({"error_code": found["error_code"] or ErrorCode.leader_not_available}, _DOING)
            continue
        wanted = {"partition": partition.partition, "leader_epoch": position.leader_epoch}
        by_leader.setdefault(leader, {}).setdefault(partition.topic, []).append(wanted)
    result = {}
    for leader, topics in by_leader.items():
        asked = [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]
        try:
            answer = cluster.ask(leader, OFFSET_FOR_LEADER_EPOCH, {"replica_id": _CONSUMER, "topics": asked}, _DOING)
        except UnsupportedVersionError:
            continue
        for topic in answer["topics"]:
            for one in topic["partitions"]:
                cluster.check(one, _DOING, Right("DESCRIBE", "topic", topic["topic"]))
                partition = TopicPartition(topic["topic"], one["partition"])
                if one["end_offset"] < positions[partition].offset:
                    result[partition] = EpochPosition(one["end_offset"], one["leader_epoch"])
    return result
