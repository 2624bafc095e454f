"""One segment of a log: a file of record batches, with a sparse index.

Contains appending, the search by offset and by time, and reading. Not here: the order of segments (log_segments.py),
rolling (log.py), crash recovery (log_loader.py), and the entries of the index (offset_index.py).

Rules:
- The name of a file is its first offset in 20 digits, as in Kafka, and the file holds whole batches only. A failed
  write is removed immediately; a write that a crash interrupted is removed at the next start.
- The death of the process loses no acknowledged record, because the operating system already has the bytes. As in
  Kafka, a segment is forced to disk when it is closed, and earlier if the topic asks for it (`flush.messages`,
  `flush.ms`), so a power failure may cut off the end of the log.
- Compaction leaves gaps, so an offset between two batches is legal.
- The index file is written once a closed segment is on disk and at a clean stop, and removed before the next append. So
  a segment with an index file needs no recovery. Without it, the index is rebuilt from the batches' headers, at startup
  or on first use.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from penstock_broker.batch import NO_TIMESTAMP, BatchHeader, InvalidBatchError, check_intact, read_header
from penstock_broker.common.private_files import FILE_MODE
from penstock_broker.durable import sync_path, write_atomically
from penstock_broker.offset_index import NO_SEGMENT, InvalidIndexError, OffsetIndex, SegmentSummary, read_summary
from penstock_broker.segment_scan import scan
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.record_batches import HEADER_SIZE

CLEANED_SUFFIX: Final = ".cleaned"
"""File name suffix of an unfinished compaction."""

DELETED_SUFFIX: Final = ".deleted"
"""File name suffix of a file that left the log and will be removed."""

_READ_AHEAD_BYTES: Final = 64 * 1024
_NEWEST_BATCHES: Final = 8
"""Number of last batches with known positions.

Most readers wait for the next batch, and need no search for it.
"""

_OPEN: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class Segment:
    """A file of batches, in the order of their offsets.

    All methods raise an OSError if the file cannot be used.

    Args:
        directory: the directory of the partition.
        base_offset: the lowest possible offset of its records.
        index_interval_bytes: minimum bytes of log between two entries of the index.
        suffix: suffix after the usual name of the file.

    Attributes:
        path: the file.
        base_offset: the lowest possible offset of its records.
        next_offset: the offset after its last record.
        size: bytes of whole batches.
        first_timestamp: the largest timestamp of its first batch (ms), -1 without batches or timestamps.
        max_timestamp: the largest timestamp in it (ms), -1 without batches or timestamps.
        followed_by: the first offset of the next segment; NO_SEGMENT if it is the last one, or unknown without an index
            file.
        has_index_file: whether its index file is valid; then all of the segment is on disk.
        is_on_disk: whether force_to_disk has succeeded.
    """

    __slots__ = (
        "_descriptor",
        "_index",
        "_index_interval_bytes",
        "_index_path",
        "_is_name_on_disk",
        "_newest",
        "base_offset",
        "first_timestamp",
        "followed_by",
        "has_index_file",
        "is_on_disk",
        "max_timestamp",
        "next_offset",
        "path",
        "size",
    )

    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int, suffix: str = "") -> None:
        self.path = directory / f"{base_offset:020d}.log{suffix}"
        self._index_path = directory / f"{base_offset:020d}.index"
        self._index_interval_bytes = index_interval_bytes
        self._index: OffsetIndex | None = OffsetIndex()
        self.has_index_file = False
        self._newest: list[tuple[int, int, int]] = []
        self._descriptor: int | None = None
        self._is_name_on_disk = False
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.followed_by = NO_SEGMENT
        self.is_on_disk = False

    def create(self) -> None:
        """Create the empty file, unless it is open already."""
        if self._descriptor is None:
            self._descriptor = os.open(self.path, _OPEN | os.O_CREAT, FILE_MODE)

    def read_index(self) -> SegmentSummary | None:
        """Restore the segment's state from its index file, if that matches the file size.

        Returns:
            The summary in the index file, or None if it is missing or damaged.
        """
        summary = read_summary(self._index_path)
        if summary is not None and summary.size == self.path.stat().st_size:
            self.size, self.next_offset, self.first_timestamp, self.max_timestamp, self.followed_by = summary
            self.has_index_file = True
            self._index = None
        return summary

    def load(self, headers: Iterable[BatchHeader]) -> None:
        """Add the batches in the file, given their headers in order."""
        for header in headers:
            self._note(header)

    def _note(self, header: BatchHeader) -> None:
        if self.size == 0:
            self.first_timestamp = header.max_timestamp
        self._add_to_index(header)
        self.size += header.size
        self.next_offset = header.next_offset
        if header.record_count:  # compaction leaves empty batches
            self.max_timestamp = max(self.max_timestamp, header.max_timestamp)

    def _add_to_index(self, header: BatchHeader) -> None:
        index = self._loaded_index
        if len(index) == 0 or self.size - index.last_position >= self._index_interval_bytes:
            index.add(header.base_offset, self.size, self.max_timestamp)

    @property
    def _loaded_index(self) -> OffsetIndex:
        if self._index is None:
            try:
                self._index = OffsetIndex.unpack(self._index_path.read_bytes())
            except (OSError, InvalidIndexError):
                self._index = self._rebuilt_index()
        return self._index

    def _rebuilt_index(self) -> OffsetIndex:
        again = Segment(self.path.parent, self.base_offset, self._index_interval_bytes)
        again.load(scan(self.path, self.size, self.base_offset, read_header))
        assert again._index is not None
        return again._index

    @property
    def index_entries(self) -> int:
        """Number of entries of the index."""
        return len(self._loaded_index)

    def write_index(self) -> None:
        """Write the index file if possible; all of the segment must be on disk."""
        if self.has_index_file:
            return
        summary = SegmentSummary(
            self.size, self.next_offset, self.first_timestamp, self.max_timestamp, self.followed_by
        )
        with suppress(OSError):
            write_atomically(self._index_path, self._loaded_index.pack(summary))
            self.has_index_file = True

    @property
    def _file(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, _OPEN)
        return self._descriptor

    def append(self, batch: memoryview, header: BatchHeader, must_flush: bool = False) -> None:
        """Write one batch at the end.

        Args:
            batch: the bytes, with their offset assigned.
            header: the header of these bytes.
            must_flush: whether it is forced to disk, with everything before it.

        Raises:
            OSError: the batch could not be written completely; the file is unchanged.
        """
        self.remove_index()
        written = 0
        try:
            while written < len(batch):
                written += os.pwrite(self._file, batch[written:], self.size + written)
            if must_flush:
                self.flush_with_name()
        except OSError:
            if self._descriptor is not None:
                os.ftruncate(self._descriptor, self.size)
            raise
        self._newest.append((header.base_offset, header.next_offset, self.size))
        if len(self._newest) > _NEWEST_BATCHES:
            del self._newest[0]
        self._note(header)

    def remove_index(self) -> None:
        """Remove the index file, because the segment is about to change."""
        if self.has_index_file:
            self._index = self._loaded_index
            self._index_path.unlink(missing_ok=True)
            self.has_index_file = False
            self.followed_by = NO_SEGMENT

    def flush(self) -> None:
        """Force the batches to disk."""
        os.fdatasync(self._file)

    def flush_with_name(self) -> None:
        """Force the batches and the name of the file to disk."""
        self.flush()
        if not self._is_name_on_disk:
            for directory in islice(self.path.parents, 3):  # of the partition, of the topic, of all topics
                sync_path(directory)
            self._is_name_on_disk = True

    def force_to_disk(self) -> None:
        """Force the file and its name to disk.

        This may run in a thread while the segment is read or leaves the log.
        """
        sync_path(self.path)
        sync_path(self.path.parent)
        self.is_on_disk = True

    def _position_of(self, offset: int) -> int:
        """Return the position of the batch with the offset, or of the next batch."""
        found = self.size
        for base_offset, next_offset, position in reversed(self._newest):
            if next_offset <= offset:
                return found
            if base_offset <= offset:
                return position
            found = position
        position = self._loaded_index.position_of_offset(offset)
        while position < self.size:
            header = self._header_at(position)
            if header.next_offset > offset:
                break
            position += header.size
        return position

    def _header_at(self, position: int) -> BatchHeader:
        return self._header_in(os.pread(self._file, HEADER_SIZE, position), position)

    def _header_in(self, data: bytes | memoryview, position: int) -> BatchHeader:
        header = read_header(data)
        if header.size < HEADER_SIZE:  # a file damaged while it was open must not cause an endless wait
            raise InvalidBatchError(ErrorCode.corrupt_message, f"{self.path} is damaged at byte {position}")
        return header

    def read(self, offset: int, max_bytes: int, before: int) -> tuple[bytes, int]:
        """Return whole batches from the one at an offset on.

        If the offset is in a gap, the next batch is the first.

        Args:
            offset: the first offset wanted; earlier records of its batch are included.
            max_bytes: maximum size in bytes; the first batch is returned even if it is larger.
            before: the offset that ends the range; its batch and later ones are not returned.

        Returns:
            The batches as stored in the log, and the offset after the last one; no bytes if the range has no batch.
        """
        start = self._position_of(offset)
        end, next_offset = self.size, self.next_offset
        if before < self.next_offset:
            end, next_offset = self._position_of(before), before
        if end - start > max_bytes:
            end, next_offset = self._loaded_index.last_before(start + max_bytes)
            if end <= start:
                first = self._header_at(start)
                end, next_offset = start + first.size, first.next_offset
        return os.pread(self._file, end - start, start), next_offset

    def batches_from(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield header and bytes of each batch, beginning with the one at an offset.

        Raises:
            InvalidBatchError: a batch is damaged; no consumer checks the batches read by the broker itself.
        """
        return self._batches(self._position_of(offset))

    def batches_from_time(self, timestamp: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield batches like `batches_from`, skipping only batches older than a time (ms)."""
        return self._batches(self._loaded_index.position_of_time(timestamp))

    def _batches(self, position: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        chunk = memoryview(b"")
        next_offset = self.base_offset
        while position < self.size:
            header = self._whole_header(chunk, position)
            if header is None:
                chunk = self._read_ahead(position)
                header = self._header_in(chunk, position)
            where = f"{self.path} is damaged at byte {position} (offset {next_offset})"
            _check_order(header, chunk, range(next_offset, self.next_offset + 1), where)
            yield header, chunk[: header.size]
            chunk = chunk[header.size :]
            position += header.size
            next_offset = header.next_offset

    def _whole_header(self, chunk: memoryview, position: int) -> BatchHeader | None:
        if len(chunk) < HEADER_SIZE:
            return None
        header = self._header_in(chunk, position)
        return header if header.size <= len(chunk) else None

    def _read_ahead(self, position: int) -> memoryview:
        size = max(self._header_at(position).size, _READ_AHEAD_BYTES)
        return memoryview(os.pread(self._file, min(size, self.size - position), position))

    def largest_timestamp(self) -> int:
        """Return the largest timestamp (ms), or the modification time of a file without timestamps."""
        return self.path.stat().st_mtime_ns // 1_000_000 if self.max_timestamp == NO_TIMESTAMP else self.max_timestamp

    def take_the_place_of(self, other: Segment) -> None:
        """Replace the file of a segment with the same offset by this one's, atomically."""
        other.close()
        # An index of the other file must not be mistaken for one of this file.
        self._index_path.unlink(missing_ok=True)
        os.replace(self.path, other.path)
        sync_path(self.path.parent)  # before the files are removed that this one replaces
        self.path = other.path

    def set_aside(self) -> Path:
        """Remove the segment from the log, and return the renamed file for later removal."""
        self.close()
        self._index_path.unlink(missing_ok=True)
        aside = self.path.with_name(self.path.name + DELETED_SUFFIX)
        os.replace(self.path, aside)
        return aside

    def close(self) -> None:
        """Close the file, and unload an index that has a file.

        Both are reopened on use.
        """
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self.has_index_file:
            self._index = None


def _check_order(header: BatchHeader, chunk: memoryview, offsets: range, where: str) -> None:
    """Check that a batch is undamaged and has offsets in a range.

    Otherwise raise an InvalidBatchError with `where` in its message.
    """
    try:
        check_intact(chunk)
    except InvalidBatchError as error:
        raise InvalidBatchError(error.code, f"{where}: {error.message}") from error
    if header.base_offset not in offsets or header.next_offset not in offsets:
        raise InvalidBatchError(ErrorCode.corrupt_message, f"{where}: it has offset {header.base_offset}")
