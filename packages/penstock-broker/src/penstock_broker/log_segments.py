"""The segments of one log in offset order, and the files that left it.

Not here: one file (segment.py), rolling and deletion of segments (log.py), and recovery (log_loader.py).

Rule: a file that leaves the log is renamed, and removed after `file.delete.delay.ms` or at the next start. A reader
reads in one turn of the event loop, so it never meets a partly removed file.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from penstock_broker.segment import Segment


class LogSegments:
    """The segments of one log (Kafka class: LogSegments).

    Args:
        found: the segments found at startup, at least one.
        name: topic and partition, for messages.

    Attributes:
        active: the last segment, the only one that is appended to.
    """

    __slots__ = ("_aside", "_name", "_segments", "active")

    def __init__(self, found: Sequence[Segment], name: str) -> None:
        self._segments = list(found)
        self._name = name
        self._aside: list[tuple[int, Path]] = []
        self.active = self._segments[-1]

    @property
    def all(self) -> Sequence[Segment]:
        """All segments."""
        return self._segments

    @property
    def closed(self) -> Sequence[Segment]:
        """All segments but the active one."""
        return self._segments[:-1]

    @property
    def size(self) -> int:
        """Size of all segments in bytes."""
        return sum(segment.size for segment in self._segments)

    def before(self, offset: int) -> list[Segment]:
        """Return the segments that begin before an offset, without the active one."""
        return [segment for segment in self.closed if segment.base_offset < offset]

    def reaching(self, offset: int) -> Sequence[Segment]:
        """Return the segments from the last one that begins at or before an offset."""
        return self._segments[bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1 :]

    def append(self, segment: Segment) -> None:
        """Add a segment and make it the active one."""
        self._segments.append(segment)
        self.active = segment

    def set_aside_first(self, count: int, removed_ms: int) -> None:
        """Remove the first segments from the log; their files are removed at a time (ms).

        Raises:
            OSError: the removal of one failed; those before it have left the log.
        """
        for _ in range(count):
            self._aside.append((removed_ms, self._segments[0].set_aside()))
            del self._segments[0]

    def replace(self, old: Sequence[Segment], cleaned: Segment, removed_ms: int) -> None:
        """Replace segments by the cleaned segment made from them.

        Args:
            old: consecutive segments, without the active one.
            cleaned: the segment with their retained records.
            removed_ms: the time (ms) at which their files are removed.

        Raises:
            OSError: a file cannot be replaced, or one of them was deleted meanwhile.
        """
        at = bisect_left(self._segments, old[0].base_offset, key=lambda segment: segment.base_offset)
        if self._segments[at : at + len(old)] != list(old):
            raise OSError(errno.ENOENT, f"segments of {self._name} were deleted while they were compacted")
        modified_ns = old[-1].path.stat().st_mtime_ns
        cleaned.followed_by = self._segments[at + len(old)].base_offset
        cleaned.take_the_place_of(old[0])
        os.utime(cleaned.path, ns=(modified_ns, modified_ns))
        self._segments[at : at + len(old)] = [cleaned]
        cleaned.write_index()
        cleaned.close()
        for segment in old[1:]:
            self._aside.append((removed_ms, segment.set_aside()))

    def remove_unfinished(self, cleaned: Segment) -> None:
        """Remove the file of a cleaned segment that replaced no other."""
        if cleaned not in self._segments:
            cleaned.close()
            cleaned.path.unlink(missing_ok=True)

    def remove_files_set_aside(self, now: int) -> None:
        """Remove the files that left the log long enough ago (`file.delete.delay.ms`)."""
        if not self._aside:
            return
        due = [path for removed_ms, path in self._aside if removed_ms <= now]
        self._aside = [each for each in self._aside if each[0] > now]
        for path in due:
            with suppress(OSError):  # the next start tries it again
                path.unlink()

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments:
            segment.close()
