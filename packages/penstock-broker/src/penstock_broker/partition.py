"""One partition: the checks before an append, its producers, and its waiting readers.

Contains appending and reading for the APIs, with Kafka's error codes. Not here: the files and offsets of the log
(log.py), its maintenance (log_manager.py), and the names of topics (topics.py). There is one replica, so the end of the
log is the high watermark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock_broker.batch import (
    BatchHeader,
    InvalidBatchError,
    assign_offset,
    check_produced,
    read_header,
    set_append_time,
)
from penstock_broker.cleaner import Cleaner, Steps
from penstock_broker.common.clock import Clock
from penstock_broker.common.log_limits import limit_rate
from penstock_broker.dirtiness import Dirtiness, dirtiness, first_uncleanable_offset
from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.leader_epochs import LeaderEpochs
from penstock_broker.log import Log
from penstock_broker.log_reader import LogReader
from penstock_broker.log_validator import check_records
from penstock_broker.producer_snapshot import ProducerSnapshots
from penstock_broker.producer_state import AbortedTransaction
from penstock_broker.records import EndTransactionMarker, read_marker
from penstock_broker.topic_config import LogConfig
from penstock_broker.wire.error_codes import ErrorCode

HIGH_WATERMARK: Final = -1
"""Special offset in DeleteRecords for the deletion of all records."""

READ_COMMITTED: Final = 1
"""Isolation level of readers that see only records of committed transactions."""

_log = limit_rate(logging.getLogger(__name__), up_to=logging.ERROR)


class Partition:
    """One partition; opening it performs crash recovery.

    Args:
        directory: its own directory, created by the first append.
        topic: name of the topic, for messages.
        index: number of the partition.
        config: the topic's configuration.
        clock: the machine's clock.
        leader_epoch: epoch of new records; larger than that of all records in the log.

    Attributes:
        topic: name of the topic.
        index: number of the partition.
        log: its log.
        leader_epochs: the epochs of its leaders.
        producers: the state of its producers.
        is_deleted: whether its topic was deleted.

    Raises:
        BrokerError: a segment before the last one is damaged.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_listeners",
        "_reader",
        "_snapshots",
        "index",
        "is_deleted",
        "leader_epochs",
        "log",
        "producers",
        "topic",
    )

    def __init__(
        self, directory: Path, topic: str, index: int, config: LogConfig, clock: Clock, leader_epoch: int = 0
    ) -> None:
        self.topic = topic
        self.index = index
        self.is_deleted = False
        self._clock = clock
        self._listeners: set[Callable[[], None]] = set()
        self.log = Log(directory, f"{topic}-{index}", config, clock.milliseconds())
        self.log.on_roll = self._write_snapshot
        self._reader = LogReader(self.log)
        self.leader_epochs = LeaderEpochs(leader_epoch, self.log, self._reader)
        self._snapshots = ProducerSnapshots(directory, self.name)
        self.producers = self._snapshots.read_last(self.end_offset)
        try:
            # Includes records that a client has deleted, as long as the files contain them.
            for header, batch in self._reader.batches(self._snapshots.offset):
                self.producers.note(header, _marker_in(header, batch))
            # The snapshot may be older than a compaction.
            aborted = self.producers.aborted_transactions(0, self.end_offset)
            self.producers.forget_aborted(self._reader.removed({one.last_offset for one in aborted}))
        except (OSError, InvalidBatchError) as error:
            raise BrokerError(
                f"cannot read the log of {self.name} in {directory}: {error}; restore the files, or remove the "
                "data directory to start over"
            ) from error
        self.producers.forget_before(self.start_offset)
        self._write_lacking_snapshot()

    def _write_lacking_snapshot(self) -> None:
        """Write the snapshot of the last closed segment if it is missing.

        A kill or a full disk may have prevented it. Markers may be deleted with their segment, and a later start would
        then take the transactions that they ended for open ones.
        """
        closed = self.log.segments.closed
        if closed and closed[-1].next_offset > self._snapshots.offset:
            self._write_snapshot()

    def _write_snapshot(self) -> None:
        self._snapshots.write(self.end_offset, self.producers)

    @property
    def name(self) -> str:
        """Topic and partition, for messages."""
        return self.log.name

    @property
    def config(self) -> LogConfig:
        """The topic's configuration."""
        return self.log.config

    @property
    def start_offset(self) -> int:
        """First offset of the log."""
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        """Offset of the next record."""
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Offset up to which every transaction has ended, the limit of readers of committed records."""
        return self.offsets[1]

    @property
    def offsets(self) -> tuple[int, int, int]:
        """The start offset of the log, the last stable offset, and the end offset."""
        start, end = self.log.start_offset, self.log.end_offset
        first_open = self.producers.first_open_offset
        # A client may have deleted the first records of an open transaction.
        return start, end if first_open is None else max(first_open, start), end

    def append(self, records: memoryview) -> int:
        """Append a producer's batch and wake the waiting readers.

        Args:
            records: a writable view of exactly one batch. Its offset is written into it, and for a topic with
                LogAppendTime its time; for a repeated batch only the time of the first append.

        Returns:
            The offset of its first record; for a repeated batch of an idempotent producer, the existing one.

        Raises:
            ApiError: the batch is rejected, or (KAFKA_STORAGE_ERROR) it could not be written; nothing was appended.
        """
        sent = check_produced(records, self.config.max_message_bytes)
        duplicate_of = self.producers.find_duplicate(sent)
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
        """Append a batch written by the broker itself, and wake the waiting readers.

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

    def _append(self, batch: memoryview, sent: BatchHeader, marker: EndTransactionMarker | None) -> int:
        header = sent._replace(base_offset=self.end_offset, leader_epoch=self.leader_epochs.current)
        assign_offset(batch, header.base_offset, header.leader_epoch)
        try:
            self.log.append(batch, header, self._clock.milliseconds())
        except OSError as error:
            _log.error("%s: cannot write at offset %d: %s", self.name, header.base_offset, error)
            raise self._storage_error("write to", error) from error
        self.producers.note(header, marker)
        for wake in tuple(self._listeners):
            wake()
        return header.base_offset

    def _storage_error(self, action: str, error: OSError) -> ApiError:
        return ApiError(ErrorCode.kafka_storage_error, f"cannot {action} the log of {self.name}: {error.strerror}")

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield header and bytes of each batch; the bytes are valid until the next one.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR if reading fails.
        """
        try:
            yield from self._reader.batches(self.start_offset)
        except OSError as error:
            raise self._storage_error("read", error) from error

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches of one segment, beginning with the one at an offset.

        Args:
            offset: the first offset wanted.
            max_bytes: maximum size in bytes; the first batch is returned even if it is larger.

        Returns:
            The batches; empty at the end of the log.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE if the log does not have it, KAFKA_STORAGE_ERROR if reading fails,
                CORRUPT_MESSAGE if a batch before or at the offset is damaged, UNKNOWN_TOPIC_OR_PARTITION if the topic
                was deleted.
        """
        return self._read(offset, max_bytes, self.end_offset)[0]

    def read_committed(self, offset: int, max_bytes: int) -> tuple[bytes, list[AbortedTransaction]]:
        """Return whole batches like `read`, but only before the last stable offset.

        Returns:
            The batches, empty from the last stable offset on, and the aborted transactions with records in them.

        Raises:
            ApiError: like `read`.
        """
        records, next_offset = self._read(offset, max_bytes, self.last_stable_offset)
        return records, self.producers.aborted_transactions(offset, next_offset) if records else []

    def _read(self, offset: int, max_bytes: int, before: int) -> tuple[bytes, int]:
        """Return batches before an offset, and the offset after the last one."""
        if self.is_deleted:
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"topic {self.topic!r} was deleted")
        if offset == before:
            return b"", offset
        if not self.start_offset <= offset <= self.end_offset:
            raise ApiError(
                ErrorCode.offset_out_of_range,
                f"{self.name} has offsets {self.start_offset} to {self.end_offset}, not {offset}",
            )
        if offset >= before:
            return b"", offset
        with self._reading():
            return self._reader.read(offset, max_bytes, before)

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
        """Return offset and timestamp of the first record from a time (ms) on, or None.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR if reading fails, CORRUPT_MESSAGE if a batch is damaged.
        """
        with self._reading():
            return self._reader.offset_for_time(timestamp)

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Return offset and timestamp (ms) of the first record with the largest timestamp, or None.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR if reading fails, CORRUPT_MESSAGE if a batch is damaged.
        """
        with self._reading():
            return self._reader.offset_of_max_timestamp()

    def delete_old_segments(self, now: int) -> None:
        """Delete records past the topic's retention.

        Args:
            now: the time (ms).
        """
        self._write_lacking_snapshot()
        self.log.delete_old_segments(now)
        self.producers.forget_before(self.start_offset)

    def force(self) -> None:
        """Force all records to disk.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        try:
            self.log.flusher.force()
        except OSError as error:
            _log.error("%s: cannot force the log to disk: %s", self.name, error)
            raise self._storage_error("force to disk", error) from error

    def dirtiness(self, now: int) -> Dirtiness:
        """Return the need of the log for compaction.

        Args:
            now: the time (ms).

        Raises:
            OSError: the size or time of a file cannot be read.
        """
        return dirtiness(self.log, self.last_stable_offset, now)

    def clean(self, most_bytes: int, now: int) -> Steps:
        """Compact the log step by step.

        Args:
            most_bytes: maximum memory for the map of keys, in bytes.
            now: the time (ms).

        Raises:
            OSError: a file cannot be read or written, or was deleted meanwhile.
            InvalidBatchError: the log is damaged.
        """
        end_offset = first_uncleanable_offset(self.log, self.last_stable_offset, now)
        return Cleaner(self.log, self.producers, end_offset, most_bytes, now).clean()

    def delete_records(self, before: int) -> int:
        """Move the log's start to an offset for a client, and return the actual start.

        Args:
            before: the offset; HIGH_WATERMARK for the end of the log.

        Raises:
            ApiError: POLICY_VIOLATION for a topic that is only compacted, OFFSET_OUT_OF_RANGE, or KAFKA_STORAGE_ERROR;
                nothing was deleted.
        """
        if not self.config.delete:
            raise ApiError(
                ErrorCode.policy_violation,
                f"records of {self.name} cannot be deleted: cleanup.policy of its topic does not contain delete",
            )
        offset = self.end_offset if before == HIGH_WATERMARK else before
        if not 0 <= offset <= self.end_offset:
            raise ApiError(
                ErrorCode.offset_out_of_range,
                f"{self.name} ends at {self.end_offset}; records before {offset} cannot be deleted",
            )
        try:
            self.log.delete_before(offset, self._clock.milliseconds())
        except OSError as error:
            raise self._storage_error("delete from", error) from error
        return self.start_offset

    @property
    def listeners(self) -> int:
        """Number of functions that are called after each append."""
        return len(self._listeners)

    def add_listener(self, wake: Callable[[], None]) -> None:
        """Call a function after each append and at deletion; it must not append."""
        self._listeners.add(wake)

    def remove_listener(self, wake: Callable[[], None]) -> None:
        """Remove a function added by add_listener."""
        self._listeners.discard(wake)

    def close_deleted(self) -> None:
        """Close the files of a deleted topic; waiting readers wake up and get an error."""
        self.is_deleted = True
        self.close()
        for wake in tuple(self._listeners):
            wake()

    def close(self) -> None:
        """Force the logs to disk and close the files.

        The next start then need not read the log.
        """
        if not self.is_deleted:
            self._write_snapshot()
            self.log.flusher.finish()
        self.log.segments.close()


def _marker_in(header: BatchHeader, batch: memoryview) -> EndTransactionMarker | None:
    return read_marker(batch) if header.is_control else None
