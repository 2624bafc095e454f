"""The log of one partition: appends, and deletion of its beginning.

Contains appending, rolling of segments, the offsets at both ends, and retention. Not here: the files (log_segments.py,
segment.py), recovery (log_loader.py), flushes (log_flusher.py), reading (log_reader.py), compaction (cleaner.py), and
the checks before an append (partition.py).

Rules:
- The log begins at the offset in its checkpoint or at its first segment, whichever is later. A deletion is written to
  the checkpoint before any file is removed, so deleted records never come back, and a crash leaves at most excess
  files.
- The last segment is the active one. Only it is appended to, and it is never deleted or compacted: if all of its
  records have expired, a new segment is started first, as in Kafka.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock_broker.batch import NO_TIMESTAMP, BatchHeader
from penstock_broker.log_checkpoint import Checkpoint
from penstock_broker.log_flusher import LogFlusher
from penstock_broker.log_loader import LogLoader
from penstock_broker.log_segments import LogSegments
from penstock_broker.offset_index import ENTRY_SIZE
from penstock_broker.segment import CLEANED_SUFFIX, Segment
from penstock_broker.topic_config import LogConfig

LARGEST_RELATIVE_OFFSET: Final = 2**31 - 1
"""Maximum distance of the offsets in a segment, as in Kafka."""

_log = logging.getLogger(__name__)


def make_log(directory: Path) -> None:
    """Create the directory of a partition with an empty segment, which marks its existence.

    Raises:
        OSError: it cannot be created.
    """
    directory.mkdir(parents=True, exist_ok=True)
    segment = Segment(directory, 0, 0)
    segment.create()
    segment.close()


def has_log(directory: Path) -> bool:
    """Return whether the directory of a partition has a segment; may raise an OSError."""
    return directory.exists() and any(name.endswith(".log") for name in os.listdir(directory))


class Log:
    """The files of one partition; opening them performs crash recovery.

    Args:
        directory: its own directory, created by the first append.
        name: topic and partition, for messages.
        config: the topic's configuration.
        now: the time (ms).

    Attributes:
        name: topic and partition, for messages.
        config: the topic's configuration.
        segments: its segments.
        flusher: forces them to disk.
        on_roll: called after a new segment was started.

    Raises:
        BrokerError: a segment before the last one is damaged.
    """

    __slots__ = (
        "_checkpoint",
        "_directory",
        "_jitter_ms",
        "_segment_began_ms",
        "config",
        "flusher",
        "name",
        "on_roll",
        "segments",
    )

    def __init__(self, directory: Path, name: str, config: LogConfig, now: int) -> None:
        self.name = name
        self.config = config
        self.on_roll: Callable[[], None] = lambda: None
        self._directory = directory
        self._segment_began_ms = now
        self._jitter_ms = self._new_jitter()
        found, self._checkpoint = LogLoader(directory, name, config).load()
        self.segments = LogSegments(found, name)
        self.flusher = LogFlusher(self.segments, name, now)

    def _new_jitter(self) -> int:
        # As in Kafka, so that many logs do not roll their segments at the same time.
        most = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return random.randrange(most) if most > 0 else 0

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        checkpoint.write(self._directory)
        self._checkpoint = checkpoint

    @property
    def start_offset(self) -> int:
        """First offset of the log."""
        return max(self._checkpoint.log_start_offset, self.segments.all[0].base_offset)

    @property
    def end_offset(self) -> int:
        """Offset of the next record."""
        return self.segments.active.next_offset

    @property
    def first_dirty_offset(self) -> int:
        """Offset up to which the log is compacted."""
        checkpoint = self._checkpoint.first_dirty_offset
        return checkpoint if self.start_offset <= checkpoint <= self.end_offset else self.start_offset

    @property
    def may_have_gaps(self) -> bool:
        """Whether compaction may have left gaps in the offsets."""
        return self._checkpoint.may_have_gaps(self.config)

    def append(self, batch: memoryview, header: BatchHeader, now: int) -> None:
        """Append a batch, rolling to a new segment if necessary.

        Args:
            batch: its bytes, with their offset assigned.
            header: the header of these bytes.
            now: the time (ms).

        Raises:
            OSError: the batch could not be written completely; the log is unchanged.
        """
        if self._must_roll(header, now):
            self.roll(now)
        active = self.segments.active
        if active.size == 0:
            self._directory.mkdir(parents=True, exist_ok=True)
            active.create()
        must_flush = self.flusher.must_flush(header.record_count, self.config, now)
        active.append(batch, header, must_flush)
        self.flusher.note_append(header.record_count, must_flush, now)

    def _must_roll(self, header: BatchHeader, now: int) -> bool:
        active, config = self.segments.active, self.config
        if active.size == 0:
            return False
        began_ms, latest_ms = active.first_timestamp, header.max_timestamp
        waited_ms = now - self._segment_began_ms if began_ms == NO_TIMESTAMP else latest_ms - began_ms
        return (
            active.size + header.size > config.segment_bytes
            or waited_ms > config.longest_segment_ms - self._jitter_ms
            or (active.index_entries + 1) * ENTRY_SIZE > config.segment_index_bytes
            or header.next_offset - active.base_offset > LARGEST_RELATIVE_OFFSET
        )

    def roll(self, now: int) -> None:
        """Start a new segment, unless the active one is empty.

        Args:
            now: the time (ms).

        Raises:
            OSError: the new file cannot be created; the log is unchanged.
        """
        last = self.segments.active
        if last.size == 0:
            return
        self.flusher.flush_before_roll(self.config)
        last.remove_index()  # a clean stop wrote that no segment follows
        active = Segment(self._directory, last.next_offset, self.config.index_interval_bytes)
        # The file is created at once: it preserves the next offset if all segments before it are deleted.
        active.create()
        last.followed_by = active.base_offset
        last.close()
        self.segments.append(active)
        self.flusher.note_roll(last)
        self._segment_began_ms = now
        self._jitter_ms = self._new_jitter()
        self.on_roll()

    def delete_before(self, offset: int, now: int) -> None:
        """Move the start of the log to an offset, and remove the segments before it.

        Args:
            offset: the new start, at most the log's end; without effect if the log begins later.
            now: the time (ms).

        Raises:
            OSError: the checkpoint cannot be written; nothing was deleted.
        """
        if offset > self.start_offset:
            self._write_checkpoint(self._checkpoint._replace(log_start_offset=offset))
            self._delete_first(self._count_before_start(), now)

    def delete_old_segments(self, now: int) -> None:
        """Delete segments before the log's start, and segments past their retention.

        Args:
            now: the time (ms).
        """
        self._delete_first(self._count_before_start(), now)
        if self.config.delete:
            self._delete_first(self._count_above_size(), now)
            self._delete_first(self._count_expired(now), now)

    def _count_before_start(self) -> int:
        return sum(segment.base_offset <= self.start_offset for segment in self.segments.all[1:])

    def _count_above_size(self) -> int:
        if self.config.retention_bytes < 0:
            return 0
        excess = self.segments.size - self.config.retention_bytes
        for count, segment in enumerate(self.segments.all):
            excess -= segment.size
            if excess < 0:
                return count
        return len(self.segments.all)

    def _count_expired(self, now: int) -> int:
        if self.config.retention_ms < 0:
            return 0
        for count, segment in enumerate(self.segments.all):
            is_empty = segment.size == 0 and segment is self.segments.active
            if is_empty or now - segment.largest_timestamp() <= self.config.retention_ms:
                return count
        return len(self.segments.all)

    def _delete_first(self, count: int, now: int) -> None:
        try:
            if count == len(self.segments.all):
                self.roll(now)
            count = min(count, len(self.segments.closed))
            start_offset = self.segments.all[count].base_offset
            if start_offset > self._checkpoint.log_start_offset:
                self._write_checkpoint(self._checkpoint._replace(log_start_offset=start_offset))
            self.segments.set_aside_first(count, now + self.config.file_delete_delay_ms)
        except OSError as error:
            _log.warning("%s: cannot delete old segments; the next check tries it again: %s", self.name, error)

    def begin_cleaned_segment(self, base_offset: int) -> Segment:
        """Return a new segment that replaces others once it is complete.

        Args:
            base_offset: the first offset of the first of them.

        Raises:
            OSError: its file cannot be created.
        """
        segment = Segment(self._directory, base_offset, self.config.index_interval_bytes, CLEANED_SUFFIX)
        segment.path.unlink(missing_ok=True)
        segment.create()
        return segment

    def note_cleaned(self, end_offset: int) -> None:
        """Record the offset up to which the log is compacted.

        Raises:
            OSError: the checkpoint cannot be written; the next compaction starts again where this one did.
        """
        self._write_checkpoint(self._checkpoint._replace(first_dirty_offset=end_offset))
