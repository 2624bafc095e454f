"""The log of one partition: its segments, its offsets and its producers.

Here live appending and reading by offset, the roll of segments, and the offsets at either end and by time. Not here:
the files (segment.py) and the names of topics (topics.py). There is one replica, so the end of the log is the high
watermark.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kio.schema.errors import ErrorCode

from penstock.broker.batch import NO_TIMESTAMP, BatchHeader, assign_offset, check_produced, read_header
from penstock.broker.errors import ApiError
from penstock.broker.producer_state import AbortedTransaction, ProducerState
from penstock.broker.records import EndTransactionMarker, read_marker, record_times
from penstock.broker.segment import Segment

LEADER_EPOCH: Final = 0
"""The epoch of every partition's leader; it never changes, because there is one broker."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Limits that a topic's configuration sets on the logs of its partitions.

    Args:
        segment_bytes: size at which a new segment starts. max_message_bytes: largest accepted batch, in bytes.
    """

    segment_bytes: int
    max_message_bytes: int


class Partition:
    """The log of one partition; opening it recovers what a crash left.

    Args:
        directory: its own directory, made when the first record comes.
        topic: name of the topic, for messages.
        index: number of the partition.
        limits: limits from the topic's configuration.

    Attributes:
        topic: name of the topic.
        index: number of the partition.
        is_deleted: whether its topic is gone.

    Raises:
        BrokerError: a segment before the last one is damaged.
    """

    __slots__ = (
        "_directory",
        "_listeners",
        "_producers",
        "_read_segment",
        "_segments",
        "index",
        "is_deleted",
        "limits",
        "topic",
    )

    def __init__(self, directory: Path, topic: str, index: int, limits: LogLimits) -> None:
        self.topic = topic
        self.index = index
        self.limits = limits
        self.is_deleted = False
        self._directory = directory
        self._producers = ProducerState()
        self._listeners: set[Callable[[], None]] = set()
        self._read_segment: Segment | None = None
        self._segments = self._recover()

    def _recover(self) -> list[Segment]:
        offsets = sorted(int(path.stem) for path in self._directory.glob("*.log")) or [0]
        segments = [Segment(self._directory, offset) for offset in offsets]
        if not self._directory.exists():
            return segments
        for segment in segments[:-1]:
            for header, marker in segment.recover(is_active=False):
                self._producers.note(header, marker)
        active = segments[-1]
        path = self._directory / f"{active.base_offset:020d}.log"
        size_before = path.stat().st_size if path.exists() else 0
        if size_before:
            for header, marker in active.recover(is_active=True):
                self._producers.note(header, marker)
        if active.size < size_before:
            _log.warning(
                "%s-%d: cut %d bytes of an unfinished write from the end of the log; the next offset is %d",
                self.topic, self.index, size_before - active.size, active.next_offset,
            )  # fmt: skip
        return segments

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        return self._segments[0].base_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get."""
        return self._segments[-1].next_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which every transaction has ended: what a reader of committed records may see."""
        first_open = self._producers.first_open_offset
        return self.end_offset if first_open is None else first_open

    def append(self, records: memoryview) -> int:
        """Append the batch of a producer and wake the readers that wait.

        Args:
            records: a writable view of exactly one batch; its offset is written into it.

        Returns:
            The offset of its first record; for a repeated batch of an idempotent producer, the one it has already.

        Raises:
            ApiError: the batch is refused, or (KAFKA_STORAGE_ERROR) it could not be written; nothing was appended.
        """
        sent = check_produced(records, self.limits.max_message_bytes)
        duplicate_of = self._producers.find_duplicate(sent)
        if duplicate_of is not None:
            return duplicate_of
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
        return self._append(batch, header, read_marker(batch) if header.is_control else None)

    def _append(self, batch: memoryview, sent: BatchHeader, marker: EndTransactionMarker | None) -> int:
        header = sent._replace(base_offset=self.end_offset, leader_epoch=LEADER_EPOCH)
        assign_offset(batch, header.base_offset, header.leader_epoch)
        try:
            self._segment_for(len(batch)).append(batch, header)
        except OSError as error:
            _log.error("%s-%d: cannot write at offset %d: %s", self.topic, self.index, header.base_offset, error)
            raise ApiError(
                ErrorCode.kafka_storage_error, f"cannot write to the log of {self.topic}-{self.index}: {error.strerror}"
            ) from error
        self._producers.note(header, marker)
        for wake in tuple(self._listeners):
            wake()
        return header.base_offset

    def _segment_for(self, size: int) -> Segment:
        active = self._segments[-1]
        if active.size == 0:
            self._directory.mkdir(parents=True, exist_ok=True)
        elif active.size + size > self.limits.segment_bytes:
            active.close()
            active = Segment(self._directory, active.next_offset)
            self._segments.append(active)
        return active

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from the one that holds an offset on, of one segment.

        Args:
            offset: the first offset wanted.
            max_bytes: the most bytes to return; the first batch is returned even if it is larger.

        Returns:
            The batches; empty at the end of the log.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE where the log does not reach, KAFKA_STORAGE_ERROR where reading fails,
                UNKNOWN_TOPIC_OR_PARTITION where the topic was deleted.
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
            ApiError: OFFSET_OUT_OF_RANGE where the log does not reach, KAFKA_STORAGE_ERROR where reading fails,
                UNKNOWN_TOPIC_OR_PARTITION where the topic was deleted.
        """
        if self.is_deleted:
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"topic {self.topic!r} was deleted")
        if not self.start_offset <= offset <= self.end_offset:
            raise ApiError(
                ErrorCode.offset_out_of_range,
                f"{self.topic}-{self.index} has offsets {self.start_offset} to {self.end_offset}, not {offset}",
            )
        if offset >= before:
            return b"", offset
        at = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        try:
            return self._to_read(self._segments[at]).read(offset, max_bytes, before)
        except OSError as error:
            raise ApiError(
                ErrorCode.kafka_storage_error, f"cannot read {self.topic}-{self.index} at {offset}: {error.strerror}"
            ) from error

    def _to_read(self, segment: Segment) -> Segment:
        # At most two files of a partition are open: the one that is written and one that is read.
        last, self._read_segment = self._read_segment, segment
        if last is not None and last is not segment and last is not self._segments[-1]:
            last.close()
        return segment

    def offset_for_time(self, timestamp: int) -> tuple[int, int] | None:
        """Return offset and timestamp (ms) of the first record that is not older than a time, or None.

        Args:
            timestamp: the time in ms.
        """
        for segment in self._segments:
            if segment.max_timestamp < timestamp:
                continue
            for position, header in self._to_read(segment).headers():
                if header.max_timestamp >= timestamp:
                    batch = memoryview(segment.read_at(position, header.size))
                    for offset, record_timestamp in record_times(batch):
                        if record_timestamp >= timestamp:
                            return offset, record_timestamp
        return None

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Return offset and timestamp (ms) of the first record with the largest timestamp; None without records."""
        largest = max(segment.max_timestamp for segment in self._segments)
        return None if largest == NO_TIMESTAMP else self.offset_for_time(largest)

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
        """Close the files."""
        for segment in self._segments:
            segment.close()


def check_leader_epoch(epoch: int) -> None:
    """Check the leader's epoch that a client knows.

    Args:
        epoch: the epoch; -1 where the client knows none.

    Raises:
        ApiError: UNKNOWN_LEADER_EPOCH where it is newer than the leader's.
    """
    if epoch > LEADER_EPOCH:
        raise ApiError(ErrorCode.unknown_leader_epoch, f"the leader's epoch is {LEADER_EPOCH}, not {epoch}")
