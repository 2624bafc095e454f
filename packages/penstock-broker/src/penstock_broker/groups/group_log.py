"""The topic `__consumer_offsets`: writing the records of groups, and restoring their state.

Rules: the records of one change form one batch, so a crash leaves all of them or no record. The topic is created by the
first write, as in Kafka. Only the last record of a key counts, so the topic is compacted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock_broker.batch import NO_PRODUCER_ID, BatchHeader
from penstock_broker.common.clock import Clock
from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.groups.schemas import GroupRecord, RecordKind, decode_record, encode_key, encode_value
from penstock_broker.records import (
    LogRecord,
    encode_records,
    encode_transactional_records,
    read_marker,
    read_records,
)
from penstock_broker.topics import OFFSETS_TOPIC, TopicRegistry
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.primitives import MalformedMessageError

_log = logging.getLogger(__name__)


class StoredGroupRecord(NamedTuple):
    """The latest record of its key, and its offset in the topic."""

    offset: int
    record: GroupRecord


class StoredGroups(NamedTuple):
    """The contents of the topic.

    Args:
        records: the last record of each key, in the order of the topic.
        pending: records of transactions that have not ended, by producer id.
    """

    records: list[StoredGroupRecord]
    pending: Mapping[int, list[StoredGroupRecord]]


class _State:
    """The last values by key, while the topic is read.

    Only these are decoded, regardless of the number of records.
    """

    def __init__(self) -> None:
        self.values: dict[bytes, tuple[int, bytes]] = {}
        self.pending: dict[int, dict[bytes, tuple[int, bytes]]] = {}

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None:
                ended = self.pending.pop(header.producer_id, {})
                if marker.is_commit:
                    self._commit(ended)
            return
        for record in read_records(batch):
            key = record.key or b""
            if record.value is None:
                self.values.pop(key, None)
                for open_transaction in self.pending.values():
                    open_transaction.pop(key, None)
            elif header.producer_id == NO_PRODUCER_ID:
                self.values[key] = (record.offset, record.value)
            else:
                self.pending.setdefault(header.producer_id, {})[key] = (record.offset, record.value)

    def _commit(self, ended: Mapping[bytes, tuple[int, bytes]]) -> None:
        for key, (offset, value) in ended.items():
            # A later commit outside of the transaction takes precedence.
            if key not in self.values or self.values[key][0] < offset:
                self.values[key] = (offset, value)


class GroupLog:
    """The records of groups on disk.

    Args:
        topics: the topics of the broker.
        clock: the source of the records' timestamps.
    """

    def __init__(self, topics: TopicRegistry, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock

    def append(self, records: Sequence[GroupRecord]) -> int:
        """Write records atomically.

        Returns:
            The offset of the first one.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE; nothing was written.
        """
        return self._append(encode_records(self._encoded(records)))

    def append_in_transaction(self, records: Sequence[GroupRecord], producer_id: int, producer_epoch: int) -> int:
        """Write records that take effect when the producer's transaction is committed.

        Returns:
            The offset of the first one.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE; nothing was written.
        """
        return self._append(encode_transactional_records(self._encoded(records), producer_id, producer_epoch))

    def _encoded(self, records: Sequence[GroupRecord]) -> list[LogRecord]:
        now_ms = self._clock.milliseconds()
        return [
            LogRecord(
                number,
                now_ms,
                encode_key(record.kind, record.key),
                None if record.value is None else encode_value(record.kind, record.value),
            )
            for number, record in enumerate(records)
        ]

    def _append(self, batch: bytearray) -> int:
        try:
            return self._topics.internal_topic(OFFSETS_TOPIC).partitions[0].append_own(memoryview(batch))
        except ApiError as error:
            # Clients retry after this error, but not after a storage error.
            raise ApiError(ErrorCode.coordinator_not_available, str(error)) from error

    def read(self) -> StoredGroups:
        """Return the contents of the topic, which are empty if it does not exist.

        Raises:
            BrokerError: a record cannot be read.
        """
        state = _State()
        self._topics.read_internal(OFFSETS_TOPIC, state.add)
        return StoredGroups(
            _decoded(state.values), {producer: _decoded(pending) for producer, pending in state.pending.items()}
        )


def offset_record(group: str, topic: str, partition: int, value: Mapping[str, object] | None) -> GroupRecord:
    """Return the record of a committed offset, or of its removal for None."""
    key = {"group": group, "topic": topic, "partition": partition}
    return GroupRecord(RecordKind.OFFSET_COMMIT, key, None if value is None else dict(value))


def _decoded(values: Mapping[bytes, tuple[int, bytes]]) -> list[StoredGroupRecord]:
    found: list[StoredGroupRecord] = []
    for key, (offset, value) in sorted(values.items(), key=lambda item: item[1][0]):
        try:
            record = decode_record(key, value)
        except MalformedMessageError as error:
            raise BrokerError(
                f"{OFFSETS_TOPIC}-0: the record at offset {offset} cannot be read: {error}; use the version of the "
                "broker that wrote it, or another data directory"
            ) from error
        if record is None:
            _log.warning("%s-0: the record at offset %d is of an unknown kind and has no effect", OFFSETS_TOPIC, offset)
        else:
            found.append(StoredGroupRecord(offset, record))
    return found
