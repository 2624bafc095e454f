"""Writes records with Penstock's own codec, alone or in the open transaction of another client.

librdkafka cannot write timestamp 0, which it treats as a missing timestamp. Rules:
- The sequence numbers of a partition start at 0 for each producer id and epoch. Therefore no other client writes to a
  partition under the same id and epoch.
- A repeated request has the same sequence numbers: the broker appends its records once.
"""

from __future__ import annotations

from typing import Final

from penstock.client.failures import FORBIDDEN, Right
from penstock.client.settings import PRODUCER
from penstock.client.sockets.cluster import TRANSACTION, BrokerNode, Cluster
from penstock.client.sockets.connection import Api
from penstock.client.sockets.transactions import INIT_PRODUCER_ID
from penstock.config import StreamsConfig
from penstock.errors import RetriableError
from penstock.record import RecordBatch, TopicPartition
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.record_batches import TRANSACTIONAL, encode_batch, encode_record

PRODUCE: Final = Api("Produce", 0, 3, 11)
ADD_PARTITIONS_TO_TXN: Final = Api("AddPartitionsToTxn", 24, 0, 3)
END_TXN: Final = Api("EndTxn", 26, 0, 4)

_ALL_REPLICAS: Final = -1
_SEQUENCES: Final = 2**31
_CODES: Final = frozenset(map(int, ErrorCode))


class RecordWriter:
    """Writes records, under a producer id of its own unless in transactions.

    Args:
        config: the configuration of the application.
        timeout_ms: the timeout (ms) of one call; its last attempt may exceed it.
        transactional_id: the transactional id of a client in whose open transactions to write, None for no
            transactions. `continue_as` then sets the producer id and the epoch of that client. They must not be
            requested from the brokers, which know only those of the newest client: an older client must be fenced.

    Raises:
        ConfigError: a configuration key has no counterpart in Penstock's own connections, or an invalid value.
    """

    def __init__(self, config: StreamsConfig, timeout_ms: int, transactional_id: str | None = None) -> None:
        self._cluster = Cluster(config, timeout_ms, PRODUCER)
        self._timeout_ms = timeout_ms
        self._transactional_id = transactional_id
        self._rights = [] if transactional_id is None else [Right("WRITE", "transactional-id", transactional_id)]
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        self._leaders: dict[TopicPartition, BrokerNode] = {}

    @property
    def has_written(self) -> bool:
        """Whether it has written to a partition under the current producer id and epoch."""
        return bool(self._sequences)

    def write(self, partition: TopicPartition, batch: RecordBatch) -> tuple[int, int]:
        """Append `batch` as one batch of the log.

        Returns:
            The error code of a refusal, or that of success; and the offset after its last record.

        Raises:
            RetriableError: the brokers did not answer in time; it is unknown whether the records were written.
            UnknownTopicOrPartitionError: the partition does not exist.
            KafkaError: the transactional id is unknown, or a permission is missing.
        """
        producer = self._producer = self._producer or self._cluster.repeat(self._new_producer)
        sequence = self._sequences.setdefault(partition, 0)
        if self._transactional_id is not None and partition not in self._added:
            code = self._cluster.repeat(lambda: self._add(partition, producer))
            if code:
                return code, -1
        records = _encoded(batch, producer, sequence, is_transactional=self._transactional_id is not None)
        code, first = self._cluster.repeat(lambda: self._append(partition, records))
        if code == ErrorCode.none:
            self._sequences[partition] = (sequence + len(batch)) % _SEQUENCES
        return code, first + len(batch)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; raises UnknownTopicOrPartitionError."""
        return len(self._cluster.partitions(f"writing to {topic!r}", topic))

    def end(self, is_commit: bool) -> int:
        """Commit or abort a transaction without records or offsets of the other client.

        The other client does not know of such a transaction. Returns the error code of a refusal, or that of success.
        """
        if self._producer is None or not self._added:
            return int(ErrorCode.none)
        producer_id, epoch = self._producer
        doing = f"ending the transaction of {self._transactional_id}"
        body = {"producer_id": producer_id, "producer_epoch": epoch, "committed": is_commit}
        return self._cluster.repeat(lambda: self._refusal(self._ask_coordinator(END_TXN, body, doing), doing))

    def ended(self) -> None:
        """Reset the state of the transaction after its end."""
        self._added.clear()

    def continue_as(self, producer: tuple[int, int]) -> None:
        """Use another producer id and epoch from now on."""
        self._producer = producer
        self._sequences.clear()
        self._added.clear()

    def close(self) -> None:
        """Release the connections; idempotent."""
        self._cluster.close()

    def _new_producer(self) -> tuple[int, int]:
        doing = "getting a producer id"
        body = {"transactional_id": None, "transaction_timeout": 0, "producer_id": -1, "producer_epoch": -1}
        answer = self._cluster.ask_any(INIT_PRODUCER_ID, body, doing)
        self._cluster.check(answer, doing, Right("IDEMPOTENT_WRITE", "cluster", ""))
        return answer["producer_id"], answer["producer_epoch"]

    def _add(self, partition: TopicPartition, producer: tuple[int, int]) -> int:
        doing = f"adding {partition} to the transaction of {self._transactional_id}"
        topics = [{"name": partition.topic, "partitions": [partition.partition]}]
        fields = {"producer_id": producer[0], "producer_epoch": producer[1], "topics": topics}
        answer = self._ask_coordinator(ADD_PARTITIONS_TO_TXN, fields, doing, "v3_and_below_")
        [topic] = answer["results_by_topic_v3_and_below"]
        [found] = topic["results_by_partition"]
        right = Right("WRITE", "topic", partition.topic)
        code = self._refusal({"error_code": found["partition_error_code"]}, doing, right)
        if code == ErrorCode.none:
            self._added.add(partition)
        return code

    def _ask_coordinator(self, api: Api, fields: Message, doing: str, prefix: str = "") -> Message:
        assert self._transactional_id is not None
        node = self._cluster.coordinator(TRANSACTION, self._transactional_id, doing, *self._rights)
        named = {"transactional_id": self._transactional_id, **fields}
        return self._cluster.ask(node, api, {f"{prefix}{name}": value for name, value in named.items()}, doing)

    def _append(self, partition: TopicPartition, records: bytes) -> tuple[int, int]:
        doing = f"writing to {partition}"
        node = self._leaders.get(partition)
        if node is None:
            node = self._leaders[partition] = self._cluster.leader(partition, doing)
        body = {
            "transactional_id": self._transactional_id,
            "acks": _ALL_REPLICAS,
            "timeout": self._timeout_ms,
            "topic_data": [
                {"name": partition.topic, "partition_data": [{"index": partition.partition, "records": records}]}
            ],
        }
        try:
            [topic] = self._cluster.ask(node, PRODUCE, body, doing)["responses"]
            [found] = topic["partition_responses"]
            code = self._refusal(found, doing, Right("WRITE", "topic", partition.topic))
        except RetriableError:
            self._leaders.pop(partition, None)  # the leader may have changed
            raise
        is_there = code == ErrorCode.duplicate_sequence_number
        return int(ErrorCode.none) if is_there else code, found["base_offset"]

    def _refusal(self, answer: Message, doing: str, *rights: Right) -> int:
        """Return the error code of a response for the caller.

        Raises retriable errors, and those of missing permissions.
        """
        code: int = answer["error_code"]
        if code in FORBIDDEN or (code in _CODES and ErrorCode(code).retriable):
            self._cluster.check(answer, doing, *self._rights, *rights)
        return code


def _encoded(batch: RecordBatch, producer: tuple[int, int], sequence: int, is_transactional: bool) -> bytes:
    times = batch.timestamps.tolist()
    base, count = times[0], len(batch)
    records = b"".join(
        encode_record(row, time - base, key, value, batch.headers_at(row))
        for row, (time, key, value) in enumerate(zip(times, batch.keys, batch.values, strict=True))
    )
    attributes = TRANSACTIONAL if is_transactional else 0
    header = (0, 0, -1, 0, 0, attributes, count - 1, base, max(times), *producer, sequence, count)
    return bytes(encode_batch(header, records))
