"""One segment of a partition's log: a file of record batches and its sparse index of offsets in memory.

Here live appending, the search by offset, reading, and the recovery of a file after a crash. Not here: which segment
an offset belongs to and when a new one begins (partition.py).

Rules:
- A file is named after its first offset, in 20 digits, as Kafka names it, and holds whole batches only. A failed write
  is removed immediately; a write that a crash interrupted is removed at the next start.
- A process that dies loses nothing that was acknowledged, because the operating system has the bytes by then. As in
  Kafka nothing is forced to disk, so a power failure may cut the end of the log.
- The index has an entry for a batch at least every INDEX_INTERVAL bytes and is rebuilt from the batches' headers at
  start; there is no index file that could disagree with the log.
"""

from __future__ import annotations

import mmap
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.broker.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, InvalidBatchError, check_batch, read_header
from penstock.broker.errors import BrokerError
from penstock.broker.records import EndTransactionMarker, read_marker
from penstock.private_files import FILE_MODE

INDEX_INTERVAL: Final = 4096
"""Bytes of log between two entries of the index, at least."""


class Segment:
    """A file of batches, in the order of their offsets.

    Args:
        directory: the directory of the partition.
        base_offset: offset of the first record the segment may hold.

    Attributes:
        base_offset: offset of the first record the segment may hold.
        next_offset: the offset after its last record.
        size: bytes of whole batches.
        max_timestamp: the largest timestamp in it (ms), -1 where it is empty.
    """

    __slots__ = (
        "_descriptor",
        "_offsets",
        "_path",
        "_positions",
        "base_offset",
        "max_timestamp",
        "next_offset",
        "size",
    )

    def __init__(self, directory: Path, base_offset: int) -> None:
        self._path = directory / f"{base_offset:020d}.log"
        self._descriptor: int | None = None
        self._offsets = array("q")
        self._positions = array("q")
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP

    def recover(self, is_active: bool) -> Iterator[tuple[BatchHeader, EndTransactionMarker | None]]:
        """Read the file's batches, make the index, and yield the header of every batch, and the marker in it.

        Args:
            is_active: whether this is the last segment, the only one a crash can have torn: its checksums are
                verified and it is cut after its last whole batch.

        Raises:
            BrokerError: a segment before the last one is damaged.
        """
        file_size = self._path.stat().st_size
        if file_size:
            with self._path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                view = memoryview(content)
                try:
                    yield from self._recover_batches(view, is_active)
                finally:
                    view.release()
        if self.size < file_size:
            if not is_active:
                raise BrokerError(
                    f"the log segment {self._path} is damaged at byte {self.size} of {file_size} (offset "
                    f"{self.next_offset}), which no crash of the broker can cause; restore the file, or remove the "
                    "data directory to start over"
                )
            os.truncate(self._path, self.size)

    def _recover_batches(
        self, view: memoryview, verify: bool
    ) -> Iterator[tuple[BatchHeader, EndTransactionMarker | None]]:
        position = 0
        while len(view) - position >= HEADER_SIZE:
            rest = view[position:]
            try:
                header = check_batch(rest) if verify else read_header(rest)
                in_file = HEADER_SIZE <= header.size <= len(rest)
                # The checksum does not cover the offset; without compaction it always follows the batch before.
                if not in_file or header.last_offset_delta < 0 or header.base_offset != self.next_offset:
                    return
                marker = read_marker(rest) if header.is_control else None
            except InvalidBatchError:
                return
            finally:
                rest.release()
            self._note(header)
            position += header.size
            yield header, marker

    def _note(self, header: BatchHeader) -> None:
        if not self._positions or self.size - self._positions[-1] >= INDEX_INTERVAL:
            self._offsets.append(header.base_offset)
            self._positions.append(self.size)
        self.size += header.size
        self.next_offset = header.next_offset
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)

    @property
    def _file(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        return self._descriptor

    def append(self, batch: memoryview, header: BatchHeader) -> None:
        """Write one batch at the end.

        Args:
            batch: the bytes, with their offset assigned.
            header: the header of these bytes.

        Raises:
            OSError: the batch could not be written whole; the file is as before.
        """
        written = 0
        try:
            while written < len(batch):
                written += os.pwrite(self._file, batch[written:], self.size + written)
        except OSError:
            if self._descriptor is not None:
                os.ftruncate(self._descriptor, self.size)
            raise
        self._note(header)

    def _position_of(self, offset: int) -> int:
        """Return where the batch begins that holds the offset or, where no batch does, the next one."""
        entry = bisect_right(self._offsets, offset) - 1
        position = self._positions[entry] if entry >= 0 else 0
        while position < self.size:
            header = self._header_at(position)
            if header.next_offset > offset:
                break
            position += header.size
        return position

    def _header_at(self, position: int) -> BatchHeader:
        return read_header(os.pread(self._file, HEADER_SIZE, position))

    def read(self, offset: int, max_bytes: int, before: int) -> tuple[bytes, int]:
        """Return whole batches from the one that holds an offset on.

        Args:
            offset: the first offset wanted; earlier records of its batch come along.
            max_bytes: the most bytes to return; the first batch is returned even if it is larger.
            before: the offset that ends the range; a batch that holds it, and later ones, are not returned.

        Returns:
            The batches as they are in the log, and the offset after the last one; no bytes where the range has no
            batch.
        """
        start = self._position_of(offset)
        end, next_offset = self.size, self.next_offset
        if before < self.next_offset:
            end, next_offset = self._position_of(before), before
        if end - start > max_bytes:
            entry = bisect_right(self._positions, start + max_bytes) - 1
            end, next_offset = self._positions[entry], self._offsets[entry]
            if end <= start:
                first = self._header_at(start)
                end, next_offset = start + first.size, first.next_offset
        return os.pread(self._file, end - start, start), next_offset

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position (bytes) and header of each batch."""
        position = 0
        while position < self.size:
            header = self._header_at(position)
            yield position, header
            position += header.size

    def read_at(self, position: int, size: int) -> bytes:
        """Return bytes of the file.

        Args:
            position: where they begin, in bytes.
            size: how many.
        """
        return os.pread(self._file, size, position)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
