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
- The file of the index is written when nothing more will be appended and at a clean stop. It counts only if it
  describes a file of this size; otherwise the index is rebuilt from the batches' headers, at start or when it is
  used.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.broker.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, InvalidBatchError, check_batch, read_header
from penstock.broker.errors import BrokerError
from penstock.broker.offset_index import SUMMARY_SIZE, InvalidIndexError, OffsetIndex, SegmentSummary, unpack_summary
from penstock.private_files import FILE_MODE

CLEANED_SUFFIX: Final = ".cleaned"
"""What follows the name of a file that a compaction has not finished."""

DELETED_SUFFIX: Final = ".deleted"
"""What follows the name of a file that is no longer part of the log and waits to be removed."""

_READ_AHEAD_BYTES: Final = 64 * 1024
_NEWEST_BATCHES: Final = 8
"""Batches at the end whose positions are known: most readers wait for the next one, and need no search for it."""

_OPEN: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


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
    """

    __slots__ = (
        "_descriptor",
        "_has_index_file",
        "_index",
        "_index_interval_bytes",
        "_index_path",
        "_newest",
        "base_offset",
        "first_timestamp",
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
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP

    def create(self) -> None:
        """Make the empty file.

        Raises:
            OSError: it cannot be made.
        """
        self._descriptor = os.open(self.path, _OPEN | os.O_CREAT, FILE_MODE)

    def recover(self, is_active: bool) -> int:
        """Learn what the file holds, from the file of its index or else from its batches.

        Args:
            is_active: whether this is the last segment, the only one a crash can have torn: its checksums are
                verified and it is cut after its last whole batch.

        Returns:
            The number of bytes that were cut.

        Raises:
            BrokerError: a segment before the last one is damaged.
        """
        file_size = self.path.stat().st_size
        summary = self._read_summary()
        if summary is not None and summary.size == file_size:
            self.size, self.next_offset, self.first_timestamp, self.max_timestamp = summary
            self._has_index_file = True
            self._index = None
            return 0
        self._read_headers(file_size, verify=is_active)
        cut = file_size - self.size
        if cut:
            if not is_active:
                raise BrokerError(
                    f"the log segment {self.path} is damaged at byte {self.size} of {file_size} (offset "
                    f"{self.next_offset}), which no crash of the broker can cause; restore the file, or remove the "
                    "data directory to start over"
                )
            os.truncate(self.path, self.size)
        if not is_active:
            self.write_index()
            self.close()
        return cut

    def _read_summary(self) -> SegmentSummary | None:
        try:
            with self._index_path.open("rb") as file:
                return unpack_summary(file.read(SUMMARY_SIZE))
        except (OSError, InvalidIndexError):
            return None

    def _read_headers(self, file_size: int, verify: bool) -> None:
        if not file_size:
            return
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            view = memoryview(content)
            try:
                while (header := self._next_header(view[self.size : file_size], verify)) is not None:
                    self._note(header)
            finally:
                view.release()

    def _next_header(self, rest: memoryview, verify: bool) -> BatchHeader | None:
        """Return the header of the batch at the start of the view; None if it is no whole batch of this segment."""
        try:
            header = check_batch(rest) if verify else read_header(rest)
            in_file = HEADER_SIZE <= header.size <= len(rest)
        except InvalidBatchError:
            return None
        finally:
            rest.release()
        # The checksum does not cover the offset. The active segment was never compacted and has no gaps.
        gap = header.base_offset - self.next_offset
        follows = (gap == 0 if verify else gap >= 0) and header.last_offset_delta >= 0
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
        """Write the file of the index, if it can be written; without it the next start reads the segment's headers."""
        if self._has_index_file:
            return
        summary = SegmentSummary(self.size, self.next_offset, self.first_timestamp, self.max_timestamp)
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
        written = 0
        try:
            while written < len(batch):
                written += os.pwrite(self._file, batch[written:], self.size + written)
            if must_flush:
                os.fdatasync(self._file)
        except OSError:
            if self._descriptor is not None:
                os.ftruncate(self._descriptor, self.size)
            raise
        self._has_index_file = False
        self._newest.append((header.base_offset, header.next_offset, self.size))
        if len(self._newest) > _NEWEST_BATCHES:
            del self._newest[0]
        self._note(header)

    def flush(self) -> None:
        """Force the batches to disk.

        Raises:
            OSError: that failed.
        """
        os.fdatasync(self._file)

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
        return self._header_in(os.pread(self._file, HEADER_SIZE, position))

    def _header_in(self, data: bytes | memoryview) -> BatchHeader:
        header = read_header(data)
        if header.size < HEADER_SIZE:  # nobody may wait for the end of a file that was damaged while it was open
            raise OSError(errno.EIO, f"{self.path} is damaged")
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
        """Yield header and bytes of each batch from the one that holds an offset on."""
        return self._batches(self._position_of(offset))

    def batches_from_time(self, timestamp: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield header and bytes of batches; all that are left out are older than a time (ms)."""
        return self._batches(self._loaded_index.position_of_time(timestamp))

    def _batches(self, position: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        chunk = memoryview(b"")
        while position < self.size:
            header = self._whole_header(chunk)
            if header is None:
                chunk = self._read_ahead(position)
                header = self._header_in(chunk)
            yield header, chunk[: header.size]
            chunk = chunk[header.size :]
            position += header.size

    def _whole_header(self, chunk: memoryview) -> BatchHeader | None:
        if len(chunk) < HEADER_SIZE:
            return None
        header = self._header_in(chunk)
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


def flush_closed(path: Path) -> None:
    """Force the file of a closed segment to disk, and its name.

    Args:
        path: the file.

    Raises:
        OSError: that failed, or there is no such file any more.
    """
    for each, flags in ((path, os.O_NOFOLLOW), (path.parent, os.O_DIRECTORY)):
        descriptor = os.open(each, os.O_RDONLY | os.O_CLOEXEC | flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that another start finds as it was before or complete.

    Args:
        path: the file.
        content: its bytes.

    Raises:
        OSError: it cannot be written; the file is as before.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
