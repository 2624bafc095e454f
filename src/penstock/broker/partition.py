"""One partition: what is checked before a batch is appended, its producers, and the readers that wait for it.

Contains appending and reading as the APIs see it, with Kafka's error codes. Not here: the files and offsets of the log
(log.py) and the names of topics (topics.py). There is one replica, so the end of the log is the high watermark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kio.schema.errors import ErrorCode

from penstock.broker.batch import (
    BatchHeader,
    InvalidBatchError,
    assign_offset,
    check_produced,
    read_header,
    set_append_time,
)
from penstock.broker.cleaner import Cleaner, Steps
from penstock.broker.errors import ApiError, BrokerError
from penstock.broker.log import Dirtiness, Log
from penstock.broker.log_validator import check_records
from penstock.broker.producer_snapshot import read_last_snapshot, write_snapshot
from penstock.broker.producer_state import AbortedTransaction, ActiveProducer
from penstock.broker.records import EndTransactionMarker, read_marker
from penstock.broker.segment import Segment
from penstock.broker.topic_config import LogConfig
from penstock.clock import Clock
from penstock.log_limits import limit_rate

HIGH_WATERMARK: Final = -1
"""What DeleteRecords sends in place of an offset to delete all records."""

READ_COMMITTED: Final = 1
"""The isolation level of readers that see only records of committed transactions."""

_log = limit_rate(logging.getLogger(__name__), up_to=logging.ERROR)


class Partition:
    """One partition; opening it recovers what a crash left.

    Args:
        directory: its own directory, made when the first record comes.
        topic: name of the topic, for messages.
        index: number of the partition.
        config: the topic's configuration.
        clock: the time of this machine.
        leader_epoch: of the records that are appended from now on; larger than that of all records in the log.

    Attributes:
        topic: name of the topic.
        index: number of the partition.
        leader_epoch: as given.
        is_deleted: whether its topic is gone.

    Raises:
        BrokerError: a segment before the last one is damaged.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_directory",
        "_epoch_start",
        "_listeners",
        "_log",
        "_producers",
        "_snapshot_offset",
        "index",
        "is_deleted",
        "leader_epoch",
        "topic",
    )

    def __init__(
        self, directory: Path, topic: str, index: int, config: LogConfig, clock: Clock, leader_epoch: int = 0
    ) -> None:
        self.topic = topic
        self.index = index
        self.leader_epoch = leader_epoch
        self.is_deleted = False
        self._clock = clock
        self._directory = directory
        self._listeners: set[Callable[[], None]] = set()
        self._log = Log(directory, f"{topic}-{index}", config, clock.milliseconds())
        self._epoch_start = self._log.end_offset
        self._log.on_roll = self._write_snapshot
        self._producers, self._snapshot_offset = read_last_snapshot(directory, self._log.end_offset)
        try:
            # Also from records that a client has deleted, as long as the files hold them.
            for header, batch in self._log.batches(self._snapshot_offset):
                self._producers.note(header, _marker_in(header, batch))
            # The snapshot may be older than a compaction.
            aborted = self._producers.aborted_transactions(0, self._log.end_offset)
            self._producers.forget_aborted(self._log.removed({one.last_offset for one in aborted}))
        except (OSError, InvalidBatchError) as error:
            raise BrokerError(
                f"cannot read the log of {self._log.name} in {directory}: {error}; restore the files, or remove the "
                "data directory to start over"
            ) from error
        self._producers.forget_before(self._log.start_offset)
        self._write_lacking_snapshot()

    def _write_lacking_snapshot(self) -> None:
        """Write a snapshot if a kill or a full disk prevented that of the last closed segment: markers may be deleted
        with their segment, and a later start would take the transactions that they ended for open ones."""
        closed = self._log.segments_before(self.end_offset)
        if closed and closed[-1].next_offset > self._snapshot_offset:
            self._write_snapshot()

    def _write_snapshot(self) -> None:
        if self.end_offset == self._snapshot_offset:
            return
        try:
            write_snapshot(self._directory, self.end_offset, self._producers)
            self._snapshot_offset = self.end_offset
        except OSError as error:
            _log.warning("%s: cannot write the state of producers; a start will read more: %s", self.name, error)

    @property
    def name(self) -> str:
        """Topic and partition, for messages."""
        return self._log.name

    @property
    def config(self) -> LogConfig:
        """The topic's configuration."""
        return self._log.config

    def set_config(self, config: LogConfig) -> None:
        """Change the topic's configuration.

        Args:
            config: the new one.
        """
        self._log.config = config

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return self._log.size

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get."""
        return self._log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which every transaction has ended: what a reader of committed records may see."""
        return self.offsets[1]

    @property
    def offsets(self) -> tuple[int, int, int]:
        """The first offset of the log, the last stable offset, and the offset that the next record will get."""
        start, end = self._log.start_offset, self._log.end_offset
        first_open = self._producers.first_open_offset
        # A client may have deleted the first records of an open transaction.
        return start, end if first_open is None else max(first_open, start), end

    def producers(self) -> list[ActiveProducer]:
        """Return what is known of each producer of the partition."""
        return self._producers.all()

    @property
    def largest_producer_id(self) -> int:
        """The largest id of a producer that the partition knows; -1 if it knows none."""
        return self._producers.largest_id

    def knows_producer(self, producer_id: int) -> bool:
        """Return whether the partition has records or markers of a producer."""
        return self._producers.knows(producer_id)

    def check_marker(
        self, producer_id: int, producer_epoch: int, marker: EndTransactionMarker, transaction_version: int
    ) -> None:
        """Check that a marker is not of an earlier epoch of its producer or its coordinator.

        Args:
            producer_id: the producer of the transaction.
            producer_epoch: its epoch.
            marker: the marker.
            transaction_version: the version of transactions.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        self._producers.check_marker(producer_id, producer_epoch, marker, transaction_version)

    def append(self, records: memoryview) -> int:
        """Append the batch of a producer and wake the readers that wait.

        Args:
            records: a writable view of exactly one batch; its offset is written into it and, where the topic's
                timestamps are LogAppendTime, the time; for a repeated batch only the time of the first append.

        Returns:
            The offset of its first record; for a repeated batch of an idempotent producer, the one it has already.

        Raises:
            ApiError: the batch is refused, or (KAFKA_STORAGE_ERROR) it could not be written; nothing was appended.
        """
        sent = check_produced(records, self.config.max_message_bytes)
        duplicate_of = self._producers.find_duplicate(sent)
        if duplicate_of is not None:
            if self.config.is_log_append_time:
                set_append_time(records, sent, duplicate_of.max_timestamp)
            return duplicate_of.base_offset
        now = self._clock.milliseconds()
        check_records(records, sent, self.config, now)
        if self.config.is_log_append_time:
            sent = set_append_time(records, sent, now)
        return self._append(records, sent, None)

    def append_own(self, batch: memoryview) -> int:
        """Append a batch that the broker itself writes, and wake the readers that wait.

        Sequence numbers are not checked. A batch of a transaction opens it for its producer, and a marker ends it.

        Args:
            batch: a writable view of exactly one batch; its offset is written into it.

        Returns:
            The offset of its first record.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR; nothing was appended.
        """
        header = read_header(batch)
        return self._append(batch, header, _marker_in(header, batch))

    def check_leader_epoch(self, epoch: int) -> None:
        """Check the leader's epoch that a client knows.

        Args:
            epoch: the epoch; -1 if the client knows none.

        Raises:
            ApiError: UNKNOWN_LEADER_EPOCH where it is newer than the leader's; FENCED_LEADER_EPOCH where it is older.
        """
        if epoch > self.leader_epoch:
            raise ApiError(ErrorCode.unknown_leader_epoch, f"the leader's epoch is {self.leader_epoch}, not {epoch}")
        if 0 <= epoch < self.leader_epoch:
            raise ApiError(ErrorCode.fenced_leader_epoch, f"the leader's epoch is {self.leader_epoch}, not {epoch}")

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Return the last epoch with records that is not larger than `epoch`, and the offset after its last record;
        None if `epoch` is larger than the leader's (KIP-320).

        Raises:
            ApiError: KAFKA_STORAGE_ERROR if reading fails.
        """
        if epoch >= self.leader_epoch:
            return (epoch, self.end_offset) if epoch == self.leader_epoch else None
        try:
            return self._log.end_of_epoch(epoch, self._epoch_start)
        except (OSError, InvalidBatchError) as error:
            text = f"cannot read the log of {self._log.name}: {error}"
            raise ApiError(ErrorCode.kafka_storage_error, text) from error

    def _append(self, batch: memoryview, sent: BatchHeader, marker: EndTransactionMarker | None) -> int:
        header = sent._replace(base_offset=self.end_offset, leader_epoch=self.leader_epoch)
        assign_offset(batch, header.base_offset, header.leader_epoch)
        try:
            self._log.append(batch, header, self._clock.milliseconds())
        except OSError as error:
            _log.error("%s: cannot write at offset %d: %s", self._log.name, header.base_offset, error)
            raise self._storage_error("write to", error) from error
        self._producers.note(header, marker)
        for wake in tuple(self._listeners):
            wake()
        return header.base_offset

    def _storage_error(self, action: str, error: OSError) -> ApiError:
        return ApiError(ErrorCode.kafka_storage_error, f"cannot {action} the log of {self._log.name}: {error.strerror}")

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield header and bytes of each batch; the bytes are good until the next one.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR if reading fails.
        """
        try:
            yield from self._log.batches(self.start_offset)
        except OSError as error:
            raise self._storage_error("read", error) from error

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from the one that holds an offset on, of one segment.

        Args:
            offset: the first offset wanted.
            max_bytes: the most bytes to return; the first batch is returned even if it is larger.

        Returns:
            The batches; empty at the end of the log.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE if the log does not have it, KAFKA_STORAGE_ERROR if reading fails,
                CORRUPT_MESSAGE if a batch on the way to the offset is damaged, UNKNOWN_TOPIC_OR_PARTITION if the topic
                was deleted.
        """
        return self._read(offset, max_bytes, self.end_offset)[0]

    def read_committed(self, offset: int, max_bytes: int) -> tuple[bytes, list[AbortedTransaction]]:
        """Return whole batches before the last stable offset, from the one that holds an offset on, of one segment.

        Args:
            offset: the first offset wanted.
            max_bytes: the most bytes to return; the first batch is returned even if it is larger.

        Returns:
            The batches, empty from the last stable offset on, and the aborted transactions with records in them.

        Raises:
            ApiError: as read does.
        """
        records, next_offset = self._read(offset, max_bytes, self.last_stable_offset)
        return records, self._producers.aborted_transactions(offset, next_offset) if records else []

    def _read(self, offset: int, max_bytes: int, before: int) -> tuple[bytes, int]:
        """Return batches before an offset, and the offset after the last one.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE if the log does not have it, KAFKA_STORAGE_ERROR if reading fails,
                CORRUPT_MESSAGE if a batch on the way to the offset is damaged, UNKNOWN_TOPIC_OR_PARTITION if the topic
                was deleted.
        """
        if self.is_deleted:
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"topic {self.topic!r} was deleted")
        if offset == before:
            return b"", offset
        if not self.start_offset <= offset <= self.end_offset:
            raise ApiError(
                ErrorCode.offset_out_of_range,
                f"{self._log.name} has offsets {self.start_offset} to {self.end_offset}, not {offset}",
            )
        if offset >= before:
            return b"", offset
        with self._reading():
            return self._log.read(offset, max_bytes, before)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._storage_error("read", error) from error
        except InvalidBatchError as error:
            _log.error("%s: %s; restore the file", self.name, error.message)
            raise

    def offset_for_time(self, timestamp: int) -> tuple[int, int] | None:
        """Return offset and timestamp (ms) of the first record that is not older than a time, or None.

        Args:
            timestamp: the time in ms.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR if reading fails, CORRUPT_MESSAGE if a batch is damaged.
        """
        with self._reading():
            return self._log.offset_for_time(timestamp)

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Return offset and timestamp (ms) of the first record with the largest timestamp; None without records.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR if reading fails, CORRUPT_MESSAGE if a batch is damaged.
        """
        with self._reading():
            return self._log.offset_of_max_timestamp()

    def forget_silent_producers(self, before: int) -> None:
        """Forget the producers without an open transaction whose last records are older than a time.

        Args:
            before: the time (ms).
        """
        self._producers.forget_silent(before)

    def delete_old_segments(self, now: int) -> None:
        """Delete what the topic's retention does not keep.

        Args:
            now: the time (ms).
        """
        self._write_lacking_snapshot()
        self._log.delete_old_segments(now)
        self._producers.forget_before(self.start_offset)

    def remove_files_set_aside(self, now: int) -> None:
        """Remove the files that left the log long enough ago (`file.delete.delay.ms`).

        Args:
            now: the time (ms).
        """
        self._log.remove_files_set_aside(now)

    def flush_if_due(self, now: int) -> None:
        """Force the log to disk if its oldest record that is not there is older than `flush.ms`.

        Args:
            now: the time (ms).
        """
        self._log.flush_if_due(now)

    @property
    def is_forced(self) -> bool:
        """Whether a record is on disk before it is acknowledged (`flush.messages` is 1)."""
        return self.config.is_forced

    def force(self) -> None:
        """Force all records to disk.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        try:
            self._log.force()
        except OSError as error:
            _log.error("%s: cannot force the log to disk: %s", self.name, error)
            raise self._storage_error("force to disk", error) from error

    def closed_unflushed(self) -> Sequence[Segment]:
        """Return the closed segments that must be forced to disk, in this order."""
        return self._log.closed_unflushed()

    def note_flushed(self, segment: Segment) -> None:
        """Take note that it was tried to force a closed segment to disk.

        Args:
            segment: the first one of closed_unflushed.
        """
        self._log.note_flushed(segment)

    def dirtiness(self, now: int) -> Dirtiness:
        """Return how much the log needs a compaction.

        Args:
            now: the time (ms).

        Raises:
            OSError: a file cannot be looked at.
        """
        return self._log.dirtiness(self.last_stable_offset, now)

    def clean(self, most_bytes: int, now: int) -> Steps:
        """Compact the log, step by step.

        Args:
            most_bytes: bytes of memory for the map of keys.
            now: the time (ms).

        Raises:
            OSError: a file cannot be read or written, or was deleted meanwhile.
            InvalidBatchError: the log is damaged.
        """
        end_offset = self._log.first_uncleanable_offset(self.last_stable_offset, now)
        return Cleaner(self._log, self._producers, end_offset, most_bytes, now).clean()

    def delete_records(self, before: int) -> int:
        """Let the log begin at an offset, as a client asks, and return where it begins now.

        Args:
            before: the offset; HIGH_WATERMARK for the end of the log.

        Raises:
            ApiError: POLICY_VIOLATION for a topic whose records are only compacted, OFFSET_OUT_OF_RANGE, or
                KAFKA_STORAGE_ERROR; nothing was deleted.
        """
        if not self.config.delete:
            raise ApiError(
                ErrorCode.policy_violation,
                f"records of {self._log.name} cannot be deleted: cleanup.policy of its topic does not contain delete",
            )
        offset = self.end_offset if before == HIGH_WATERMARK else before
        if not 0 <= offset <= self.end_offset:
            raise ApiError(
                ErrorCode.offset_out_of_range,
                f"{self._log.name} ends at {self.end_offset}; records before {offset} cannot be deleted",
            )
        try:
            self._log.delete_before(offset, self._clock.milliseconds())
        except OSError as error:
            raise self._storage_error("delete from", error) from error
        return self.start_offset

    @property
    def listeners(self) -> int:
        """How many functions are called after each append."""
        return len(self._listeners)

    def add_listener(self, wake: Callable[[], None]) -> None:
        """Have a function called after each append and when the topic is deleted.

        Args:
            wake: the function; it must not append.
        """
        self._listeners.add(wake)

    def remove_listener(self, wake: Callable[[], None]) -> None:
        """Stop calling a function that add_listener added."""
        self._listeners.discard(wake)

    def close_deleted(self) -> None:
        """Close the files of a topic that is gone; readers that wait are woken, and get an error."""
        self.is_deleted = True
        self.close()
        for wake in tuple(self._listeners):
            wake()

    def close(self) -> None:
        """Close the files; all is forced to disk, and the next start need not read the log."""
        if not self.is_deleted:
            self._write_snapshot()
            self._log.flush()
        self._log.close()


def _marker_in(header: BatchHeader, batch: memoryview) -> EndTransactionMarker | None:
    return read_marker(batch) if header.is_control else None
