"""Reading of one log across its segments, by offset and by time.

Not here: the search within one segment (segment.py), and Kafka's error codes (partition.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import islice
from typing import Final

from penstock_broker.batch import NO_TIMESTAMP, BatchHeader
from penstock_broker.log import Log
from penstock_broker.records import record_times
from penstock_broker.segment import Segment

_MOST_READ: Final = 2


class LogReader:
    """The reads of one log.

    All methods raise an OSError if reading fails, and an InvalidBatchError for a damaged batch.

    Args:
        log: the log.
    """

    __slots__ = ("_log", "_opened")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._opened: list[Segment] = []

    def _open(self, segment: Segment) -> Segment:
        # Only a few files of a log are open: the active one and the most recently read ones.
        if segment not in self._opened:
            self._opened.append(segment)
            if len(self._opened) > _MOST_READ:
                last = self._opened.pop(0)
                if last is not self._log.segments.active:
                    last.close()
        return segment

    def read(self, offset: int, max_bytes: int, before: int) -> tuple[bytes, int]:
        """Return whole batches of one segment, beginning with the one at an offset.

        Args:
            offset: the first offset wanted, not before the log's start; in a gap left by compaction, the next batch
                follows.
            max_bytes: maximum size in bytes; the first batch is returned even if it is larger.
            before: the offset that ends the range, not after the log's end.

        Returns:
            The batches, and the offset after the last one; no bytes if the range has no batch.
        """
        next_offset = offset
        for segment in self._log.segments.reaching(offset):
            if next_offset >= before:
                break
            records, next_offset = self._open(segment).read(offset, max_bytes, before)
            if records:
                return records, next_offset
        return b"", next_offset

    def batches(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield header and bytes of each batch, beginning with the one at an offset."""
        for segment in tuple(self._log.segments.all):
            if segment.next_offset > offset:
                yield from self._open(segment).batches_from(offset)

    def first_headers(self) -> Iterator[tuple[Segment, BatchHeader]]:
        """Yield each segment with batches, and the header of its first batch."""
        for segment in self._log.segments.all:
            for header, _ in islice(self._open(segment).batches_from(segment.base_offset), 1):
                yield segment, header

    def removed(self, offsets: Set[int]) -> Set[int]:
        """Return those of the offsets whose records were removed by compaction."""
        if not self._log.may_have_gaps:
            return frozenset()
        return {offset for offset in offsets if not self._has_records_at(offset)}

    def _has_records_at(self, offset: int) -> bool:
        header, _ = next(self.batches(offset), (None, None))
        return header is not None and header.base_offset <= offset and header.record_count > 0

    def offset_for_time(self, timestamp: int) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record from a time (ms) on, or None."""
        start_offset = self._log.start_offset
        for segment in self._log.segments.all:
            if segment.max_timestamp < timestamp:
                continue
            for header, batch in self._open(segment).batches_from_time(timestamp):
                if header.max_timestamp >= timestamp and header.next_offset > start_offset:
                    for offset, record_timestamp in record_times(batch):
                        if record_timestamp >= timestamp and offset >= start_offset:
                            return offset, record_timestamp
        return None

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Return offset and timestamp (ms) of the first record with the largest timestamp, or None."""
        start_offset = self._log.start_offset
        first, *others = self._log.segments.all
        largest = max((segment.max_timestamp for segment in others), default=NO_TIMESTAMP)
        if start_offset == first.base_offset:
            largest = max(largest, first.max_timestamp)
        else:  # its largest timestamp may be that of a deleted record
            for header, batch in self._open(first).batches_from(start_offset):
                if header.base_offset < start_offset:
                    times = [time for offset, time in record_times(batch) if offset >= start_offset]
                    largest = max([largest, *times])
                elif header.record_count:
                    largest = max(largest, header.max_timestamp)
        return None if largest == NO_TIMESTAMP else self.offset_for_time(largest)
