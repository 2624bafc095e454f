"""One segment of a partition's log: a file of record batches, with a sparse index of offsets and times.

Contains appending, the search by offset and by time, reading, and the recovery of a file after a crash. Not here:
which segment an offset belongs to and when a new one begins (log.py), and the entries of the index (offset_index.py).

Rules:
- A file is named after its first offset, in 20 digits, as Kafka names it, and holds whole batches only. A failed write
  is removed immediately; a write that a crash interrupted is removed at the next start.
- A process that dies loses nothing that was acknowledged, because the operating system has the bytes by then. As in
  Kafka a segment is forced to disk when it is closed, and before that if the topic asks for it (`flush.messages`,
  `flush.ms`), so a power failure may cut the end of the log.
- Compaction leaves gaps, so an offset between two batches is legal.
- The file of the index is written when a closed segment is on disk and at a clean stop, and removed before the next
  append. So a segment that has one needs no recovery. Without one, the index is rebuilt from the batches' headers, at
  start or when it is used.
- Whole batches that recovery cuts off are kept in a file beside the log.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.broker.batch import NO_TIMESTAMP, BatchHeader, InvalidBatchError, check_intact, read_header
from penstock.broker.durable import sync_path, write_atomically
from penstock.broker.errors import BrokerError
from penstock.broker.offset_index import (
    NO_SEGMENT,
    SUMMARY_SIZE,
    InvalidIndexError,
    OffsetIndex,
    SegmentSummary,
    unpack_summary,
)
from penstock.private_files import FILE_MODE, open_private
from penstock.wire.record_batches import HEADER_SIZE

CLEANED_SUFFIX: Final = ".cleaned"
"""What follows the name of a file that a compaction has not finished."""

DELETED_SUFFIX: Final = ".deleted"
"""What follows the name of a file that is no longer part of the log and waits to be removed."""

CUT_SUFFIX: Final = ".cut"
"""What follows the name of a file with whole batches that recovery took out of the log; a number may come after it."""

# The leader's epoch, which is a small number, and the number of the format.
_BATCH_MARK: Final = re.compile(rb"\x00\x00..\x02", re.DOTALL)
_BATCH_MARK_AT: Final = 12

_READ_AHEAD_BYTES: Final = 64 * 1024
_NEWEST_BATCHES: Final = 8
"""Batches at the end whose positions are known: most readers wait for the next one, and need no search for it."""

_OPEN: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class Cut(NamedTuple):
    """What recovery cut off the end of a segment.

    Args:
        size: bytes.
        path: the file that keeps them; None where they hold no whole batch.
        records: the number of records in the whole batches among them.
        first_offset: the first offset of these batches; -1 without any.
        next_offset: the offset after the last of these batches; -1 without any.
    """

    size: int
    path: Path | None = None
    records: int = 0
    first_offset: int = -1
    next_offset: int = -1


class Segment:
    """A file of batches, in the order of their offsets.

    Args:
        directory: the directory of the partition.
        base_offset: offset of the first record the segment may hold.
        index_interval_bytes: bytes of log between two entries of the index, at least.
        suffix: what follows the usual name of the file.

    Attributes:
        path: the file.
        base_offset: offset of the first record the segment may hold.
        next_offset: the offset after its last record.
        size: bytes of whole batches.
        first_timestamp: the largest timestamp of its first batch (ms), -1 where it is empty or has none.
        max_timestamp: the largest timestamp in it (ms), -1 where it is empty or has none.
        followed_by: the first offset of the segment after it; NO_SEGMENT if it is the last one, or if a file without an
            index does not tell.
        is_on_disk: whether force_to_disk has succeeded.
    """

    __slots__ = (
        "_descriptor",
        "_has_index_file",
        "_index",
        "_index_interval_bytes",
        "_index_path",
        "_is_name_on_disk",
        "_newest",
        "base_offset",
        "first_timestamp",
        "followed_by",
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
        self._has_index_file = False
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
        """Make the empty file, unless it is open already.

        Raises:
            OSError: it cannot be made.
        """
        if self._descriptor is None:
            self._descriptor = os.open(self.path, _OPEN | os.O_CREAT, FILE_MODE)

    @property
    def has_index_file(self) -> bool:
        """Whether the file of its index counts; then all of the segment is on disk."""
        return self._has_index_file

    def read_index(self) -> SegmentSummary | None:
        """Learn what the file holds from the file of its index, if that describes a file of this size.

        Returns:
            What the index says; None if it is missing or damaged.

        Raises:
            OSError: the file cannot be looked at.
        """
        summary = self._read_summary()
        if summary is not None and summary.size == self.path.stat().st_size:
            self.size, self.next_offset, self.first_timestamp, self.max_timestamp, self.followed_by = summary
            self._has_index_file = True
            self._index = None
        return summary

    def verify(self) -> None:
        """Learn from its batches what a file holds that was on disk before the broker ended.

        Raises:
            OSError: it cannot be read.
            BrokerError: it is damaged.
        """
        file_size = self.path.stat().st_size
        self._read_headers(file_size, verify=True)
        if self.size < file_size:
            raise self.damaged(f"is damaged at byte {self.size} of {file_size} (offset {self.next_offset})")

    def damaged(self, how: str) -> BrokerError:
        """Return the error for a segment that was on disk and is not as it was.

        Args:
            how: what is wrong; it follows the name of the file.
        """
        return BrokerError(
            f"the log segment {self.path} {how}, which no crash can cause, because it was on disk before; restore the "
            "file, or remove the data directory to start over"
        )

    def recover(self, is_gapless: bool, last_base_offset: int) -> Cut | None:
        """Learn what a file holds that may be torn: its checksums are verified, and it is cut before the first batch
        that is not as it was appended. Whole batches behind that one are kept in another file.

        Args:
            is_gapless: whether each batch begins where the one before it ends, for no compaction was there.
            last_base_offset: the first offset of the last segment, which the batches of others do not reach.

        Returns:
            What was cut, or None.

        Raises:
            OSError: it cannot be read or cut.
        """
        file_size = self.path.stat().st_size
        end = None if self.base_offset == last_base_offset else last_base_offset
        self._read_headers(file_size, verify=True, is_gapless=is_gapless, end_offset=end)
        if self.size == file_size:
            return None
        cut = self._keep_batches(self.size)
        os.truncate(self.path, self.size)
        return cut

    def take_out(self) -> Cut:
        """Take the files out of the log, because recovery cut an earlier segment; whole batches are kept.

        Returns:
            What is kept.

        Raises:
            OSError: that failed.
        """
        cut = self._keep_batches(0)
        self.set_aside().unlink()
        return cut

    def _keep_batches(self, position: int) -> Cut:
        size = self.path.stat().st_size - position
        found = list(self._whole_batches(position))
        if not found:
            return Cut(size)
        path = next(
            path
            for number in count()
            if not (path := self.path.with_name(f"{self.path.name}{CUT_SUFFIX}{number or ''}")).exists()
        )
        with self.path.open("rb") as file, open_private(path, "wb") as kept:
            file.seek(position)
            shutil.copyfileobj(file, kept)
            kept.flush()
            os.fsync(kept.fileno())
        records = sum(header.record_count for header in found)
        return Cut(size, path, records, found[0].base_offset, found[-1].next_offset)

    def _whole_batches(self, position: int) -> Iterator[BatchHeader]:
        """Yield the headers of undamaged batches, wherever they begin from a position on."""
        if self.path.stat().st_size <= position:
            return
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            while (mark := _BATCH_MARK.search(content, position + _BATCH_MARK_AT)) is not None:
                position = mark.start() - _BATCH_MARK_AT
                with memoryview(content) as view, view[position:] as rest:
                    header = _intact_header(rest, self.next_offset)
                if header is not None:
                    yield header
                position += 1 if header is None else header.size

    def _read_summary(self) -> SegmentSummary | None:
        try:
            with self._index_path.open("rb") as file:
                return unpack_summary(file.read(SUMMARY_SIZE))
        except (OSError, InvalidIndexError):
            return None

    def _read_headers(
        self, file_size: int, verify: bool, is_gapless: bool = False, end_offset: int | None = None
    ) -> None:
        if not file_size:
            return
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            view = memoryview(content)
            try:
                while (header := self._next_header(view[self.size : file_size], verify, is_gapless)) is not None:
                    if end_offset is not None and header.next_offset > end_offset:
                        break
                    self._note(header)
            finally:
                view.release()

    def _next_header(self, rest: memoryview, verify: bool, is_gapless: bool) -> BatchHeader | None:
        """Return the header of the batch at the start of the view; None if it is no whole batch of this segment."""
        try:
            header = check_intact(rest) if verify else read_header(rest)
            in_file = HEADER_SIZE <= header.size <= len(rest)
        except InvalidBatchError:
            return None
        finally:
            rest.release()
        gap = header.base_offset - self.next_offset  # the checksum does not cover the offset
        follows = (gap == 0 if is_gapless else gap >= 0) and header.last_offset_delta >= 0
        return header if in_file and follows else None

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
        again._read_headers(self.size, verify=False)
        assert again._index is not None
        return again._index

    @property
    def index_entries(self) -> int:
        """Number of entries of the index."""
        return len(self._loaded_index)

    def write_index(self) -> None:
        """Write the file of the index, if it can be written; all of the segment must be on disk."""
        if self._has_index_file:
            return
        summary = SegmentSummary(
            self.size, self.next_offset, self.first_timestamp, self.max_timestamp, self.followed_by
        )
        with suppress(OSError):
            write_atomically(self._index_path, self._loaded_index.pack(summary))
            self._has_index_file = True

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
            must_flush: whether it is forced to disk, with all before it.

        Raises:
            OSError: the batch could not be written whole; the file is as before.
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
        """Remove the file of the index, because what it says is about to change.

        Raises:
            OSError: that failed.
        """
        if self._has_index_file:
            self._index = self._loaded_index
            self._index_path.unlink(missing_ok=True)
            self._has_index_file = False
            self.followed_by = NO_SEGMENT

    def flush(self) -> None:
        """Force the batches to disk.

        Raises:
            OSError: that failed.
        """
        os.fdatasync(self._file)

    def flush_with_name(self) -> None:
        """Force the batches to disk, and the name of the file.

        Raises:
            OSError: that failed.
        """
        self.flush()
        if not self._is_name_on_disk:
            for directory in islice(self.path.parents, 3):  # of the partition, of the topic, of all topics
                sync_path(directory)
            self._is_name_on_disk = True

    def force_to_disk(self) -> None:
        """Force the file to disk, and its name. This may run in a thread while the segment is read or leaves the log.

        Raises:
            OSError: that failed, or the file has left the log.
        """
        sync_path(self.path)
        sync_path(self.path.parent)
        self.is_on_disk = True

    def _position_of(self, offset: int) -> int:
        """Return where the batch begins that holds the offset or, where no batch does, the next one."""
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
        if header.size < HEADER_SIZE:  # nobody may wait for the end of a file that was damaged while it was open
            raise InvalidBatchError(ErrorCode.corrupt_message, f"{self.path} is damaged at byte {position}")
        return header

    def read(self, offset: int, max_bytes: int, before: int) -> tuple[bytes, int]:
        """Return whole batches from the one that holds an offset on, or from the next one where no batch holds it.

        Args:
            offset: the first offset wanted; earlier records of its batch come along.
            max_bytes: the most bytes to return; the first batch is returned even if it is larger.
            before: the offset that ends the range; a batch that holds it, and later ones, are not returned.

        Returns:
            The batches as they are in the log, and the offset after the last one; no bytes if the range has no
            batch.
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
        """Yield header and bytes of each batch from the one that holds an offset on.

        Raises:
            OSError: reading fails.
            InvalidBatchError: a batch is damaged; what the broker itself reads is not checked by a consumer.
        """
        return self._batches(self._position_of(offset))

    def batches_from_time(self, timestamp: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield header and bytes of batches; all that are left out are older than a time (ms).

        Raises:
            OSError: reading fails.
            InvalidBatchError: a batch is damaged.
        """
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
        """Return the largest timestamp (ms) in it or, where its records have none, when the file was last changed."""
        return self.path.stat().st_mtime_ns // 1_000_000 if self.max_timestamp == NO_TIMESTAMP else self.max_timestamp

    def take_the_place_of(self, other: Segment) -> None:
        """Replace the file of another segment of the same offset by this one's, in one step.

        Args:
            other: the segment; it is closed.

        Raises:
            OSError: that failed; the other file is as it was.
        """
        other.close()
        # An index of the other file must not be taken for one of this file.
        self._index_path.unlink(missing_ok=True)
        os.replace(self.path, other.path)
        sync_path(self.path.parent)  # before files go that this one replaces
        self.path = other.path

    def set_aside(self) -> Path:
        """Take the files out of the log, and return the one that is left to be removed.

        Raises:
            OSError: that failed.
        """
        self.close()
        self._index_path.unlink(missing_ok=True)
        aside = self.path.with_name(self.path.name + DELETED_SUFFIX)
        os.replace(self.path, aside)
        return aside

    def close(self) -> None:
        """Close the file, and forget the index if it has a file; the next use opens them again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._has_index_file:
            self._index = None


def _intact_header(rest: memoryview, first_offset: int) -> BatchHeader | None:
    """Return the header of the batch at the start of the view, if it is undamaged and not before an offset."""
    try:
        header = check_intact(rest)
    except InvalidBatchError:
        return None
    return header if header.base_offset >= first_offset else None


def _check_order(header: BatchHeader, chunk: memoryview, offsets: range, where: str) -> None:
    """Check that a batch is undamaged and has offsets in a range; else raise InvalidBatchError, which says where."""
    try:
        check_intact(chunk)
    except InvalidBatchError as error:
        raise InvalidBatchError(error.code, f"{where}: {error.message}") from error
    if header.base_offset not in offsets or header.next_offset not in offsets:
        raise InvalidBatchError(ErrorCode.corrupt_message, f"{where}: it has offset {header.base_offset}")
