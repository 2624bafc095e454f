"""The topic `__transaction_state`: the state of each transactional id, in Kafka's format.

Contains the states of a transaction, its record, and reading and writing the topic. Not here: the changes of states
(transactions.py).

Rules: the topic is created by the first write, as in Kafka, and compacted: the last record of a transactional id is its
state, and a record without a value removes it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import Final

from penstock_broker.batch import BatchHeader
from penstock_broker.errors import BrokerError
from penstock_broker.groups.offsets import TopicPartition
from penstock_broker.record_schema import (
    INT8,
    INT16,
    INT32,
    INT32S,
    INT64,
    STRING,
    VERSION,
    encode_versioned,
    nullable_array_of,
    record_schema,
)
from penstock_broker.records import LogRecord, encode_records, read_records
from penstock_broker.topics import TRANSACTIONS_TOPIC, TopicRegistry
from penstock_broker.wire.codec import Message, structure_codec
from penstock_broker.wire.primitives import Cursor, MalformedMessageError

NO_EPOCH: Final = -1
"""Epoch of a producer without an epoch."""

NO_ID: Final = -1
"""Placeholder for a missing producer id."""

_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1


class State(IntEnum):
    """States of a transaction, with their numbers in the topic (Kafka class: TransactionState)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """The name in the APIs for administrators."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, and markers may be missing."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open or ending."""
        return self not in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)


NEXT_STATES: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.ONGOING, State.PREPARE_ABORT}),
    State.ONGOING: frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
}
"""The states that may follow each state, beyond itself. A transaction without records can be aborted (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The state of a transactional id (Kafka class: TransactionMetadata).

    Args:
        transactional_id: the id.
        producer_id: its producer.
        epoch: the producer's epoch; a lower one is fenced.
        last_epoch: the epoch before the last bump, which identifies a repeated request; not stored, as in Kafka.
        previous_producer_id: its producer id before the last one.
        next_producer_id: the producer id from the end of this transaction on, if the epochs of the current id are
            exhausted.
        timeout_ms: maximum duration (ms) of a transaction.
        state: state of the transaction.
        partitions: the partitions with records of the transaction.
        started_ms: start of the transaction (ms); -1 without one.
        updated_ms: time of the last change (ms).
        version: the transaction version of its producer.
    """

    transactional_id: str
    producer_id: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1
    updated_ms: int
    version: int = 0


class TransactionLog:
    """The stored states of transactional ids.

    Args:
        topics: the topics of the broker.
    """

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics

    def write(self, transaction: Transaction) -> None:
        """Write the state of a transactional id.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR; nothing was written.
        """
        self._append(transaction.transactional_id, encode_value(transaction), transaction.updated_ms)

    def force(self) -> None:
        """Force the written states to disk.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        self._topics.internal_topic(TRANSACTIONS_TOPIC).partitions[0].force()

    def remove(self, transactional_id: str, now_ms: int) -> None:
        """Remove a transactional id.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR; nothing was written.
        """
        self._append(transactional_id, None, now_ms)

    def _append(self, transactional_id: str, value: bytes | None, now_ms: int) -> None:
        record = LogRecord(0, now_ms, encode_key(transactional_id), value)
        partition = self._topics.internal_topic(TRANSACTIONS_TOPIC).partitions[0]
        partition.append_own(memoryview(encode_records([record])))

    def read(self) -> list[Transaction]:
        """Return the last state of each transactional id; empty if the topic does not exist.

        Raises:
            BrokerError: a record cannot be read.
        """
        values: dict[bytes, LogRecord] = {}

        def take(_: BatchHeader, batch: memoryview) -> None:
            for record in read_records(batch):
                # Keeps the order of the last changes.
                values.pop(record.key or b"", None)
                if record.value is not None:
                    values[record.key or b""] = record

        self._topics.read_internal(TRANSACTIONS_TOPIC, take)
        return [_decode(record) for record in values.values()]


_VALUE: Final = structure_codec(
    record_schema(
        "TransactionLogValue",
        {
            "producer_id": INT64,
            "previous_producer_id": INT64,
            "next_producer_id": INT64,
            "producer_epoch": INT16,
            "transaction_timeout_ms": INT32,
            "transaction_status": INT8,
            "transaction_partitions": nullable_array_of(
                record_schema("PartitionsSchema", {"topic": STRING, "partition_ids": INT32S}, is_flexible=True)
            ),
            "transaction_last_update_timestamp_ms": INT64,
            "transaction_start_timestamp_ms": INT64,
            "client_transaction_version": INT16,
        },
        is_flexible=True,
        tags={"previous_producer_id": 0, "next_producer_id": 1, "client_transaction_version": 2},
    )
)


MOST_ID_BYTES: Final = 2**15 - 1
"""Maximum bytes of a transactional id in the key of a record."""


def encode_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id (TransactionLogKey, version 0)."""
    name = transactional_id.encode()
    return struct.pack(">hh", _KEY_VERSION, len(name)) + name


def encode_value(transaction: Transaction) -> bytes:
    """Return the value of a state's record (TransactionLogValue, version 1)."""
    by_topic = groupby(sorted(transaction.partitions), key=lambda partition: partition[0])
    message: Message = {
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_status": transaction.state,
        # Kafka writes null without a transaction.
        "transaction_partitions": [
            {"topic": topic, "partition_ids": [index for _, index in partitions]} for topic, partitions in by_topic
        ]
        if transaction.state != State.EMPTY
        else None,
        "transaction_last_update_timestamp_ms": transaction.updated_ms,
        "transaction_start_timestamp_ms": transaction.started_ms,
    }
    tagged = {
        "previous_producer_id": (transaction.previous_producer_id, NO_ID),
        "next_producer_id": (transaction.next_producer_id, NO_ID),
        "client_transaction_version": (transaction.version, 0),
    }
    message |= {name: value for name, (value, default) in tagged.items() if value != default}
    return encode_versioned(_VALUE_VERSION, _VALUE, message)


def _decode(record: LogRecord) -> Transaction:
    try:
        key = record.key or b""
        version = VERSION.unpack_from(key)[0]
        if version != _KEY_VERSION:
            raise MalformedMessageError(
                f"its key has version {version}; this version of the broker reads {_KEY_VERSION}"
            )
        cursor = Cursor(memoryview(record.value or b""))
        version = cursor.number(VERSION)
        if version != _VALUE_VERSION:
            raise MalformedMessageError(f"it has version {version}; this version of the broker reads {_VALUE_VERSION}")
        return _transaction(key[4:].decode(), _VALUE.decode(cursor))
    except (MalformedMessageError, struct.error, ValueError) as error:
        raise BrokerError(
            f"{TRANSACTIONS_TOPIC}-0: the record at offset {record.offset} cannot be read: {error}; use the version of "
            "the broker that wrote it, or another data directory"
        ) from error


def _transaction(transactional_id: str, message: Message) -> Transaction:
    return Transaction(
        transactional_id=transactional_id,
        producer_id=message["producer_id"],
        epoch=message["producer_epoch"],
        previous_producer_id=message.get("previous_producer_id", NO_ID),
        next_producer_id=message.get("next_producer_id", NO_ID),
        timeout_ms=message["transaction_timeout_ms"],
        state=State(message["transaction_status"]),
        partitions=frozenset(
            (topic["topic"], index)
            for topic in message["transaction_partitions"] or ()
            for index in topic["partition_ids"]
        ),
        started_ms=message["transaction_start_timestamp_ms"],
        updated_ms=message["transaction_last_update_timestamp_ms"],
        version=message.get("client_transaction_version", 0),
    )
