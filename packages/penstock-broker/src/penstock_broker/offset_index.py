"""The sparse index of one segment, for searching batches by offset and by time.

Contains the index in memory and the bytes of its file. Not here: writing the index, and rebuilding it from the log
(segment.py).

Rules: an entry refers to a batch by its offset and position, with the largest timestamp of all batches before it. Kafka
has separate indexes for offsets and times; one serves both purposes here. The file begins with a summary of its
segment, the only part that is read at startup; both parts have checksums. It is written in native byte order, because a
file from another machine merely fails its checksum and is rebuilt.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final, NamedTuple, Self

from crc32c import crc32c

_VERSION: Final = 2
_SUMMARY: Final = struct.Struct("=iqqqqqqI")
_CHECKSUM: Final = struct.Struct("=I")

SUMMARY_SIZE: Final = _SUMMARY.size + _CHECKSUM.size
"""Bytes of the summary at the start of an index file."""

NO_SEGMENT: Final = -1
"""Placeholder for the first offset of a missing next segment."""

ENTRY_SIZE: Final = 8
"""Bytes of an entry as counted by Kafka, the unit of `segment.index.bytes`."""


class InvalidIndexError(ValueError):
    """The index file is damaged or of another version."""


class SegmentSummary(NamedTuple):
    """Facts about a segment that are needed at startup; sizes in bytes, times in ms.

    Args:
        size: bytes of whole batches.
        next_offset: the offset after its last record.
        first_timestamp: the largest timestamp of its first batch.
        max_timestamp: the largest timestamp of all its batches.
        followed_by: the first offset of the next segment; NO_SEGMENT for the last one.
    """

    size: int
    next_offset: int
    first_timestamp: int
    max_timestamp: int
    followed_by: int


class OffsetIndex:
    """The entries of an index, in the order of the log."""

    __slots__ = ("_max_timestamps", "_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")
        self._max_timestamps = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last_position(self) -> int:
        """Position of the last entry's batch; -1 without entries."""
        return self._positions[-1] if self._positions else -1

    def add(self, offset: int, position: int, max_timestamp: int) -> None:
        """Add an entry.

        Args:
            offset: the first offset of a batch.
            position: start of the batch, in bytes.
            max_timestamp: the largest timestamp (ms) of the batches before it.
        """
        self._offsets.append(offset)
        self._positions.append(position)
        self._max_timestamps.append(max_timestamp)

    def position_of_offset(self, offset: int) -> int:
        """Return the position of the last entry at or before an offset, or 0."""
        entry = bisect_right(self._offsets, offset) - 1
        return self._positions[entry] if entry >= 0 else 0

    def position_of_time(self, timestamp: int) -> int:
        """Return the last indexed position with only older batches than a time (ms) before it."""
        entry = bisect_left(self._max_timestamps, timestamp) - 1
        return self._positions[entry] if entry >= 0 else 0

    def last_before(self, position: int) -> tuple[int, int]:
        """Return position and offset of the last entry at or before a position.

        Such an entry must exist.
        """
        entry = bisect_right(self._positions, position) - 1
        return self._positions[entry], self._offsets[entry]

    def pack(self, summary: SegmentSummary) -> bytes:
        """Return the bytes of the index file.

        Args:
            summary: the summary of its segment.
        """
        entries = b"".join(part.tobytes() for part in (self._offsets, self._positions, self._max_timestamps))
        head = _SUMMARY.pack(_VERSION, *summary, len(self), crc32c(entries))
        return head + _CHECKSUM.pack(crc32c(head)) + entries

    @classmethod
    def unpack(cls, content: bytes) -> Self:
        """Return the index in a file.

        Args:
            content: the bytes of the file.

        Raises:
            InvalidIndexError: the file is damaged.
        """
        unpack_summary(content)
        *_, count, checksum = _SUMMARY.unpack_from(content)
        entries = memoryview(content)[SUMMARY_SIZE:]
        if len(entries) != 24 * count or crc32c(entries) != checksum:
            raise InvalidIndexError("the entries do not match their checksum")
        index = cls()
        for number, part in enumerate((index._offsets, index._positions, index._max_timestamps)):
            part.frombytes(entries[8 * count * number : 8 * count * (number + 1)])
        return index


def read_summary(path: Path) -> SegmentSummary | None:
    """Return the summary in an index file, or None if it is missing or damaged."""
    try:
        with path.open("rb") as file:
            return unpack_summary(file.read(SUMMARY_SIZE))
    except (OSError, InvalidIndexError):
        return None


def unpack_summary(content: bytes) -> SegmentSummary:
    """Return the summary at the start of an index file.

    Args:
        content: the first SUMMARY_SIZE bytes of the file, or more.

    Raises:
        InvalidIndexError: the file is damaged or of another version.
    """
    if len(content) < SUMMARY_SIZE:
        raise InvalidIndexError(f"the file has {len(content)} bytes")
    head = content[: _SUMMARY.size]
    if _CHECKSUM.unpack_from(content, _SUMMARY.size)[0] != crc32c(head):
        raise InvalidIndexError("the summary does not match its checksum")
    version, *fields, _, _ = _SUMMARY.unpack(head)
    if version != _VERSION:
        raise InvalidIndexError(f"the file has version {version}")
    return SegmentSummary(*fields)
