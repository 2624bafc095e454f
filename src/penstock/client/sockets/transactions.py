"""Administration of transactions and producers, which confluent-kafka lacks.

The API is that of Kafka's Admin (KIP-664, KIP-994). Each call is retried while its error is retriable.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

from penstock.client.failures import Right
from penstock.client.sockets.cluster import TRANSACTION, BrokerNode, Cluster
from penstock.client.sockets.connection import Api
from penstock.errors import KafkaError
from penstock.record import TopicPartition
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

LIST_TRANSACTIONS: Final = Api("ListTransactions", 66, 0, 2)
DESCRIBE_TRANSACTIONS: Final = Api("DescribeTransactions", 65, 0, 0)
DESCRIBE_PRODUCERS: Final = Api("DescribeProducers", 61, 0, 0)
INIT_PRODUCER_ID: Final = Api("InitProducerId", 22, 2, 4)
WRITE_TXN_MARKERS: Final = Api("WriteTxnMarkers", 27, 1, 2)

_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states of an open transaction. In other states, brokers still return the start of the last one."""

_FIRST_BY_DURATION: Final = 1
_FIRST_BY_PATTERN: Final = 2


class TransactionListing(NamedTuple):
    """A transactional id and the state of its transaction (Kafka class: TransactionListing)."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """The details of a transactional id (Kafka class: TransactionDescription).

    start_ms: start of the open transaction, ms since the epoch; None without an open transaction.
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


class ProducerState(NamedTuple):
    """The state of a producer in a partition (Kafka class: ProducerState).

    coordinator_epoch: the epoch of its last marker, None without a marker. transaction_start: the first offset of its
    open transaction, None without an open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start: int | None


class OpenTransaction(NamedTuple):
    """An open transaction in a partition; transactional_id is None if the id no longer exists."""

    partition: TopicPartition
    producer: ProducerState
    transactional_id: str | None


class TransactionAdmin:
    """Lists, describes and aborts transactions.

    Args:
        cluster: the connections to use; the caller closes them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids on all brokers, in order.

        Args:
            states: only those in one of these states, such as Ongoing; empty for all.
            producer_ids: only those of these producers; empty for all.
            longer_than_ms: only those whose transaction is older than this (ms); requires Kafka 3.8.
            pattern: only ids that match this RE2 regular expression; requires Kafka 4.1.

        Raises:
            KafkaError: a broker is too old for a filter, or rejects a state or the pattern.
        """
        return self._cluster.repeat(lambda: self._list(states, producer_ids, longer_than_ms, pattern))

    def _list(
        self,
        states: Collection[str],
        producer_ids: Collection[int],
        longer_than_ms: int | None,
        pattern: str | None,
    ) -> list[TransactionListing]:
        doing = "listing transactions"
        oldest = _FIRST_BY_PATTERN if pattern else _FIRST_BY_DURATION if longer_than_ms is not None else 0
        body = {
            "state_filters": sorted(states),
            "producer_id_filters": sorted(producer_ids),
            "duration_filter": -1 if longer_than_ms is None else longer_than_ms,
            "transactional_id_pattern": pattern,
        }
        result = []
        for node in self._cluster.nodes(doing).values():
            answer = self._cluster.ask(node, LIST_TRANSACTIONS._replace(oldest=oldest), body, doing)
            self._cluster.check(answer, doing)
            if answer["unknown_state_filters"]:
                unknown = ", ".join(answer["unknown_state_filters"])
                raise KafkaError(
                    f"The brokers do not know the state {unknown}; a transaction is Empty, Ongoing, PrepareCommit, "
                    "PrepareAbort, CompleteCommit, CompleteAbort, PrepareEpochFence or Dead."
                )
            result += [
                TransactionListing(one["transactional_id"], one["producer_id"], one["transaction_state"])
                for one in answer["transaction_states"]
            ]
        return sorted(result)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Return the state of a transactional id.

        Raises:
            KafkaError: the brokers do not know the id.
        """
        found = self._cluster.repeat(lambda: self._describe(transactional_id))
        if found is None:
            raise KafkaError(
                f"There is no transactional id {transactional_id!r}; `penstock transactions list` shows them all."
            )
        return found

    def _describe(self, transactional_id: str) -> TransactionDescription | None:
        doing = f"describing the transactional id {transactional_id!r}"
        right = Right("DESCRIBE", "transactional-id", transactional_id)
        node = self._cluster.coordinator(TRANSACTION, transactional_id, doing, right)
        answer = self._cluster.ask(node, DESCRIBE_TRANSACTIONS, {"transactional_ids": [transactional_id]}, doing)
        [found] = answer["transaction_states"]
        if found["error_code"] == ErrorCode.transactional_id_not_found:
            return None
        self._cluster.check(found, doing, right)
        return TransactionDescription(
            transactional_id,
            node.id,
            found["transaction_state"],
            found["producer_id"],
            found["producer_epoch"],
            found["transaction_timeout"],
            found["transaction_start_time"] if found["transaction_state"] in _OPEN else None,
            tuple(TopicPartition(topic["topic"], index) for topic in found["topics"] for index in topic["partitions"]),
        )

    def producers(self, partition: TopicPartition, broker: int | None = None) -> list[ProducerState]:
        """Return the producers of a partition.

        Args:
            partition: the partition.
            broker: the id of the replica to query, None for the leader.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
            KafkaError: the broker does not exist.
        """
        doing = f"describing the producers of {partition}"

        def ask() -> list[ProducerState]:
            node = self._cluster.leader(partition, doing) if broker is None else self._node(broker, doing)
            return self._producers(node, [partition], doing)[partition]

        return self._cluster.repeat(ask)

    def _node(self, broker: int, doing: str) -> BrokerNode:
        nodes = self._cluster.nodes(doing)
        if broker not in nodes:
            raise KafkaError(f"There is no broker {broker}; the cluster has {', '.join(map(str, sorted(nodes)))}.")
        return nodes[broker]

    def _producers(
        self, node: BrokerNode, partitions: Sequence[TopicPartition], doing: str
    ) -> dict[TopicPartition, list[ProducerState]]:
        by_topic: dict[str, list[int]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(partition.partition)
        topics = [{"name": name, "partition_indexes": indexes} for name, indexes in by_topic.items()]
        result = {}
        for topic in self._cluster.ask(node, DESCRIBE_PRODUCERS, {"topics": topics}, doing)["topics"]:
            for found in topic["partitions"]:
                self._cluster.check(found, doing, Right("READ", "topic", topic["name"]))
                partition = TopicPartition(topic["name"], found["partition_index"])
                result[partition] = [_producer(one) for one in found["active_producers"]]
        return result

    def open_since(self, before_ms: int, broker: int | None = None, topic: str | None = None) -> list[OpenTransaction]:
        """Return open transactions whose producers have not written since a given time.

        Args:
            before_ms: the time, ms since the epoch.
            broker: only partitions with a replica on this broker, by id; None for all.
            topic: only partitions of this topic; None for all.
        """
        doing = "looking for open transactions"
        return self._cluster.repeat(lambda: self._open_since(before_ms, broker, topic, doing))

    def _open_since(self, before_ms: int, broker: int | None, topic: str | None, doing: str) -> list[OpenTransaction]:
        nodes = self._cluster.nodes(doing)
        if broker is not None:
            self._node(broker, doing)
        asked: dict[int, list[TopicPartition]] = {}
        for partition, found in self._cluster.partitions(doing, topic).items():
            at = found["leader_id"] if broker is None else broker
            if at in nodes and (broker is None or broker in found["replica_nodes"]):
                asked.setdefault(at, []).append(partition)
        producers = [
            (partition, producer)
            for at, partitions in asked.items()
            for partition, states in self._producers(nodes[at], partitions, doing).items()
            for producer in states
            if producer.transaction_start is not None and producer.last_timestamp < before_ms
        ]
        ids = {one.producer_id: one.transactional_id for one in self._ids_of({p.producer_id for _, p in producers})}
        return [
            OpenTransaction(partition, each, ids.get(each.producer_id))
            for partition, each in sorted(producers, key=lambda found: (found[0], found[1].producer_id))
        ]

    def _ids_of(self, producer_ids: Collection[int]) -> Sequence[TransactionListing]:
        return self._list((), producer_ids, None, None) if producer_ids else ()

    def hanging(self, most_ms: int, broker: int | None = None, topic: str | None = None) -> list[OpenTransaction]:
        """Return hanging transactions: open in a partition, but unknown to every coordinator (KIP-664).

        They never end by themselves, and read_committed consumers wait for them forever.

        Args:
            most_ms: `transaction.max.timeout.ms` of the brokers; younger transactions are omitted.
            broker: only partitions with a replica on this broker, by id; None for all.
            topic: only partitions of this topic; None for all.
        """
        result = []
        known: dict[str, TransactionDescription | None] = {}
        for each in self.open_since(round(time.time() * 1000) - most_ms, broker, topic):
            name = each.transactional_id
            if name is not None and name not in known:
                known[name] = self._cluster.repeat(partial(self._describe, name))
            description = None if name is None else known[name]
            if description is None or each.partition not in description.partitions:
                result.append(each)
        return result

    def terminate(self, transactional_id: str) -> TransactionDescription:
        """Abort the open transaction of a transactional id, and fence its producer.

        This is Kafka's Admin.forceTerminateTransaction; a new producer with the id has the same effect. Returns the
        state before.

        Args:
            transactional_id: the transactional id.

        Raises:
            KafkaError: the brokers do not know the id.
        """
        before = self.describe(transactional_id)
        doing = f"ending the transaction of {transactional_id!r}"
        right = Right("WRITE", "transactional-id", transactional_id)
        # No producer writes with the new epoch, so the shortest timeout is enough.
        body = {"transactional_id": transactional_id, "transaction_timeout": 1, "producer_id": -1, "producer_epoch": -1}

        def ask() -> None:
            node = self._cluster.coordinator(TRANSACTION, transactional_id, doing, right)
            self._cluster.check(self._cluster.ask(node, INIT_PRODUCER_ID, body, doing), doing, right)

        self._cluster.repeat(ask)
        return before

    def abort(self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Abort a producer's open transaction in one partition, bypassing the coordinator.

        Use it only for hanging transactions: it discards their records.

        Args:
            partition: the partition.
            producer_id: the id of the producer.
            producer_epoch: the epoch of the producer.
            coordinator_epoch: the epoch of the coordinator in the marker.

        Raises:
            KafkaError: the partition refuses the marker.
        """
        doing = f"aborting the transaction of producer {producer_id} in {partition}"
        marker = {
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "coordinator_epoch": coordinator_epoch,
            "transaction_result": False,
            "topics": [{"name": partition.topic, "partition_indexes": [partition.partition]}],
        }

        def ask() -> None:
            node = self._cluster.leader(partition, doing)
            answer = self._cluster.ask(node, WRITE_TXN_MARKERS, {"markers": [marker]}, doing)
            for written in answer["markers"]:
                for part in written["topics"]:
                    for one in part["partitions"]:
                        self._cluster.check(one, doing, Right("CLUSTER_ACTION", "cluster", ""))

        self._cluster.repeat(ask)

    def abort_from(self, partition: TopicPartition, start_offset: int) -> ProducerState:
        """Abort the open transaction at an offset of a partition, and return its producer.

        Args:
            partition: the partition.
            start_offset: the first offset of the transaction in the partition.

        Raises:
            KafkaError: no open transaction begins there, or the partition refuses the marker.
        """
        found = next((one for one in self.producers(partition) if one.transaction_start == start_offset), None)
        if found is None:
            raise KafkaError(
                f"No open transaction begins at offset {start_offset} of {partition}; `penstock transactions producers "
                f"{partition.topic} {partition.partition}` shows where they begin."
            )
        coordinator_epoch = 0 if found.coordinator_epoch is None else found.coordinator_epoch
        self.abort(partition, found.producer_id, found.producer_epoch, coordinator_epoch)
        return found


def _producer(found: Message) -> ProducerState:
    return ProducerState(
        found["producer_id"],
        found["producer_epoch"],
        found["last_sequence"],
        found["last_timestamp"],
        _or_none(found["coordinator_epoch"]),
        _or_none(found["current_txn_start_offset"]),
    )


def _or_none(number: int) -> int | None:
    return None if number < 0 else number
