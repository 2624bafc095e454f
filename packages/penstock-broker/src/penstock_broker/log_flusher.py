"""The unflushed records of a log, and their flushes.

Not here: the flush of one file (segment.py), and the thread that forces closed segments to disk (log_manager.py).

Rules:
- A closed segment is forced to disk soon, in the order of the log, and its index file is then written.
- A failed flush of a closed segment is not retried: a retry would succeed whatever is on disk. Neither this segment nor
  a later one gets an index, so the next start verifies them.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence

from penstock_broker.log_segments import LogSegments
from penstock_broker.segment import Segment
from penstock_broker.topic_config import NEVER, LogConfig

_log = logging.getLogger(__name__)


class LogFlusher:
    """Forces the segments of one log to disk.

    Args:
        segments: the segments found at startup.
        name: topic and partition, for messages.
        now: the time (ms).
    """

    __slots__ = ("_closed", "_has_failed", "_name", "_segments", "_unflushed", "_unflushed_since_ms")

    def __init__(self, segments: LogSegments, name: str, now: int) -> None:
        self._segments = segments
        self._name = name
        self._closed = [segment for segment in segments.closed if not segment.has_index_file]
        active = segments.active
        self._unflushed = 0 if active.has_index_file else active.next_offset - active.base_offset
        self._unflushed_since_ms = now
        self._has_failed = False

    def must_flush(self, records: int, config: LogConfig, now: int) -> bool:
        """Return whether the append of a number of records must force them to disk."""
        return self._unflushed + records >= config.flush_messages or self._is_due(config, now)

    def _is_due(self, config: LogConfig, now: int) -> bool:
        return bool(self._unflushed) and now - self._unflushed_since_ms >= config.flush_ms

    def note_append(self, records: int, is_flushed: bool, now: int) -> None:
        """Record the number of appended records, and whether they are on disk."""
        if not is_flushed and not self._unflushed:
            self._unflushed_since_ms = now
        self._unflushed = 0 if is_flushed else self._unflushed + records

    def flush_if_due(self, config: LogConfig, now: int) -> None:
        """Force the log to disk if its oldest unflushed record is older than `flush.ms`."""
        if self._is_due(config, now):
            try:
                self._segments.active.flush_with_name()
                self._unflushed = 0
            except OSError as error:
                _log.warning("%s: cannot force the log to disk; it is tried again: %s", self._name, error)

    def flush_before_roll(self, config: LogConfig) -> None:
        """Force the active segment to disk before a roll, if the topic asks for flushes.

        Raises:
            OSError: the flush failed.
        """
        if self._unflushed and min(config.flush_messages, config.flush_ms) < NEVER:
            self._segments.active.flush_with_name()

    def note_roll(self, closed: Segment) -> None:
        """Record a segment that was closed by a roll."""
        self._closed.append(closed)
        self._unflushed = 0

    def closed_unflushed(self) -> Sequence[Segment]:
        """Return the closed segments that must be forced to disk, in this order."""
        return () if self._has_failed else tuple(self._closed)

    def note_flushed(self, segment: Segment) -> None:
        """Record a flush attempt of a closed segment, and write its index on success.

        Args:
            segment: the first segment of closed_unflushed.
        """
        self._closed.remove(segment)
        if segment not in self._segments.all:
            return
        if segment.is_on_disk:
            segment.write_index()
            segment.close()
        else:
            self._has_failed = True

    def force(self) -> None:
        """Force all records to disk, without marking the end for the next start like `finish`.

        Raises:
            OSError: this flush or an earlier one failed.
        """
        if self._has_failed:
            raise OSError(errno.EIO, f"a file of {self._name} could not be forced to disk before")
        try:
            for segment in self._closed:
                if segment in self._segments.all and not segment.is_on_disk:
                    segment.force_to_disk()
            if self._unflushed:
                self._segments.active.flush_with_name()
                self._unflushed = 0
        except OSError:
            self._has_failed = True
            raise

    def finish(self) -> None:
        """Force the log to disk and write the indexes.

        The next start then need not read the log.
        """
        if self._has_failed:
            return
        for segment in (*self._closed, self._segments.active):
            if not segment.size or segment.has_index_file or segment not in self._segments.all:
                continue
            try:
                segment.force_to_disk()
                segment.write_index()
            except OSError as error:
                _log.warning("%s: cannot force the log to disk; the next start verifies it: %s", self._name, error)
                break
        self._closed.clear()
