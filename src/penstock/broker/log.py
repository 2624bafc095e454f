"""The log of one partition as files: its segments, the offsets at both ends, and what is deleted from its start.

Contains the roll of segments, recovery, reading by offset and time, and retention. Not here: one file (segment.py),
what is checked before a batch is appended, and who waits for it (partition.py), and compaction (cleaner.py).

Rules:
- The log begins at the offset in its checkpoint or at its first segment, whichever is later. What is deleted is written
  to the checkpoint before any file goes; so it never comes back, and a crash leaves at most files too many.
- Recovery is Kafka's. A closed segment is forced to disk soon, in the order of the log, and gets the file of its index
  then: the recovery point is the end of the last closed segment that has one. Damage before it is an error. Segments
  behind it may be torn by a power failure, so their checksums are verified, and the log ends before the first batch
  that is damaged.
- An index names the segment that follows, so a segment that is missing is noticed. The log is read on without it, and
  each start says what is missing.
- A file that leaves the log is renamed, and removed after `file.delete.delay.ms` or at the next start. A reader reads
  in one turn of the event loop, so it never meets a file that is half gone.
- The last segment is the active one. Only it is appended to, and it is never deleted or compacted: where all of its
  records have expired, a new one begins first, as in Kafka.
"""

from __future__ import annotations

import errno
import logging
import os
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, NamedTuple

from penstock.broker.batch import NO_TIMESTAMP, BatchHeader
from penstock.broker.log_checkpoint import CHECKPOINT, Checkpoint
from penstock.broker.offset_index import ENTRY_SIZE, NO_SEGMENT
from penstock.broker.producer_snapshot import newest_snapshot
from penstock.broker.records import record_times
from penstock.broker.segment import CLEANED_SUFFIX, DELETED_SUFFIX, Cut, Segment
from penstock.broker.topic_config import NEVER, LogConfig

_MOST_READ: Final = 2

LARGEST_RELATIVE_OFFSET: Final = 2**31 - 1
"""How far the offsets of a segment may be apart, as in Kafka."""

_log = logging.getLogger(__name__)


def make_log(directory: Path) -> None:
    """Make the directory of a partition, with an empty segment, so that a start knows that there was one.

    Args:
        directory: its own directory.

    Raises:
        OSError: it cannot be made.
    """
    directory.mkdir(parents=True, exist_ok=True)
    segment = Segment(directory, 0, 0)
    segment.create()
    segment.close()


def has_log(directory: Path) -> bool:
    """Return whether the directory of a partition has a segment.

    Args:
        directory: its own directory.

    Raises:
        OSError: it cannot be read.
    """
    return directory.exists() and any(name.endswith(".log") for name in os.listdir(directory))


class Dirtiness(NamedTuple):
    """How much a log needs a compaction.

    Args:
        ratio: the share of the log's bytes, up to where it may be compacted, that was not compacted yet.
        is_due: whether a compaction should begin.
    """

    ratio: float
    is_due: bool


class Log:
    """The files of one partition; opening them recovers what a crash left.

    Args:
        directory: its own directory, made when the first record comes.
        name: topic and partition, for messages.
        config: the topic's configuration.
        now: the time (ms).

    Attributes:
        name: topic and partition, for messages.
        config: the topic's configuration.
        on_roll: called when a new segment has begun.

    Raises:
        BrokerError: a segment before the last one is damaged.
    """

    __slots__ = (
        "_aside",
        "_checkpoint",
        "_closed_unflushed",
        "_directory",
        "_has_flush_failed",
        "_jitter_ms",
        "_read_segments",
        "_segment_began_ms",
        "_segments",
        "_unflushed",
        "_unflushed_since_ms",
        "config",
        "name",
        "on_roll",
    )

    def __init__(self, directory: Path, name: str, config: LogConfig, now: int) -> None:
        self.name = name
        self.config = config
        self.on_roll: Callable[[], None] = lambda: None
        self._directory = directory
        self._read_segments: list[Segment] = []
        self._aside: list[tuple[int, Path]] = []
        self._segment_began_ms = now
        self._jitter_ms = self._new_jitter()
        self._unflushed, self._unflushed_since_ms = 0, now
        self._closed_unflushed: list[Segment] = []
        self._has_flush_failed, self._checkpoint = False, Checkpoint()
        self._segments = [self._segment(0)]
        names = os.listdir(directory) if directory.exists() else ()
        if names:
            self._recover(names)

    def _segment(self, base_offset: int) -> Segment:
        return Segment(self._directory, base_offset, self.config.index_interval_bytes)

    def _new_jitter(self) -> int:
        # As in Kafka, so that the segments of many logs do not end at the same time.
        most = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return random.randrange(most) if most > 0 else 0

    def _recover(self, names: Sequence[str]) -> None:
        for name in names:
            if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")):
                (self._directory / name).unlink()
        if CHECKPOINT in names:
            self._checkpoint = Checkpoint.read(self._directory, self.name)
        offsets = (int(name.removesuffix(".log")) for name in names if name.endswith(".log"))
        found = [self._segment(offset) for offset in sorted(offsets)]
        if found:
            self._segments = self._recovered(found)
        newest = newest_snapshot(names)
        if not found:
            # Everything was deleted by hand: what follows must not get an offset again.
            self._segments = [self._segment(max(*self._checkpoint, newest))]
        self._report_missing(newest)
        if self.end_offset < self._checkpoint.log_start_offset:
            # Clients have deleted all that the files hold, and more that a power failure took.
            for segment in self._segments if found else ():
                segment.set_aside().unlink()
            self._segments = [self._segment(self._checkpoint.log_start_offset)]
            self._closed_unflushed, self._unflushed = [], 0

    def _recovered(self, found: Sequence[Segment]) -> list[Segment]:
        """Return the segments of the log, with what is known of each.

        Args:
            found: the segments that have a file; one at least.

        Raises:
            BrokerError: one is damaged that was on disk.
        """
        summaries = [segment.read_index() for segment in found]
        closed = [number for number, one in enumerate(summaries) if one and one.followed_by != NO_SEGMENT]
        recovery_point = max(closed, default=-1) + 1
        segments: list[Segment] = []
        for number, (segment, summary) in enumerate(zip(found, summaries, strict=True)):
            is_last = number == len(found) - 1
            before = segments[-1] if segments else None
            if before and not is_last and segment.base_offset < max(before.next_offset, before.followed_by):
                if not self._may_have_gaps:
                    raise before.damaged(f"has offsets of {segment.path}")
                # A compaction was killed after its new file had taken the place of the first of several.
                segment.set_aside().unlink()
                continue
            segments.append(segment)
            if segment.has_index_file:
                continue
            if number < recovery_point and not is_last:
                segment.verify()
                if summary is not None:
                    raise segment.damaged(f"has {segment.size} bytes instead of {summary.size}")
            elif cut := segment.recover(is_last or not self._may_have_gaps, found[-1].base_offset):
                _report_cut(self.name, segment, cut, [after.take_out() for after in found[number + 1 :]])
                break
        self._closed_unflushed = [segment for segment in segments[:-1] if not segment.has_index_file]
        if not segments[-1].has_index_file:
            self._unflushed = segments[-1].next_offset - segments[-1].base_offset
        for segment, following in pairwise(segments):
            if not segment.has_index_file:
                segment.followed_by = following.base_offset if self._may_have_gaps else segment.next_offset
        return segments

    @property
    def _may_have_gaps(self) -> bool:
        return self.config.compact or self._checkpoint.first_dirty_offset > 0

    def _report_missing(self, newest_snapshot: int) -> None:
        """Log which records the log has lost with files that are gone.

        Args:
            newest_snapshot: an offset that the log had reached.
        """
        first, last, start = self._segments[0], self._segments[-1], self._checkpoint.log_start_offset
        gaps = [(segment.followed_by, following.base_offset) for segment, following in pairwise(self._segments)]
        for begin, end in [(start, first.base_offset), *gaps]:
            if begin < end:
                _log.error(
                    "%s: the records from offset %d to %d are missing, because files are gone from %s; readers go on "
                    "at offset %d. To have them back, stop the broker and restore the files from %020d.log on",
                    self.name, begin, end - 1, self._directory, end, begin,
                )  # fmt: skip
        lost = max(start, self.end_offset)
        if last.followed_by != NO_SEGMENT or lost < newest_snapshot:
            _log.error(
                "%s: the records from offset %d on are missing, at least to offset %d: the end of the log is gone from "
                "%s. To have them back, stop the broker and restore its files; otherwise new records get these offsets",
                self.name, lost, max(lost, newest_snapshot - 1), self._directory,
            )  # fmt: skip

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        checkpoint.write(self._directory)
        self._checkpoint = checkpoint

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        return max(self._checkpoint.log_start_offset, self._segments[0].base_offset)

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get."""
        return self._segments[-1].next_offset

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def first_dirty_offset(self) -> int:
        """The offset up to which the log was compacted."""
        checkpoint = self._checkpoint.first_dirty_offset
        return checkpoint if self.start_offset <= checkpoint <= self.end_offset else self.start_offset

    def append(self, batch: memoryview, header: BatchHeader, now: int) -> None:
        """Append a batch, to a new segment where it is time for one.

        Args:
            batch: its bytes, with their offset assigned.
            header: the header of these bytes.
            now: the time (ms).

        Raises:
            OSError: the batch could not be written whole; the log is as before.
        """
        if self._must_roll(header, now):
            self.roll(now)
        active = self._segments[-1]
        if active.size == 0:
            self._directory.mkdir(parents=True, exist_ok=True)
            active.create()
        unflushed = self._unflushed + header.record_count
        must_flush = unflushed >= self.config.flush_messages or self._is_flush_due(now)
        active.append(batch, header, must_flush)
        if must_flush:
            self._unflushed = 0
        else:
            self._unflushed_since_ms = self._unflushed_since_ms if self._unflushed else now
            self._unflushed = unflushed

    def force(self) -> None:
        """Force all records to disk; unlike `flush`, it leaves no mark for the next start.

        Raises:
            OSError: that failed now or before; another try would succeed whatever is on disk.
        """
        if self._has_flush_failed:
            raise OSError(errno.EIO, f"a file of {self.name} could not be forced to disk before")
        try:
            for segment in self._closed_unflushed:
                if not segment.is_on_disk:
                    segment.force_to_disk()
            if self._unflushed:
                self._segments[-1].flush_with_name()
                self._unflushed = 0
        except OSError:
            self._has_flush_failed = True
            raise

    def _is_flush_due(self, now: int) -> bool:
        return bool(self._unflushed) and now - self._unflushed_since_ms >= self.config.flush_ms

    def flush_if_due(self, now: int) -> None:
        """Force the log to disk if its oldest record that is not there is older than `flush.ms`.

        Args:
            now: the time (ms).
        """
        if self._is_flush_due(now):
            try:
                self._segments[-1].flush_with_name()
                self._unflushed = 0
            except OSError as error:
                _log.warning("%s: cannot force the log to disk; it is tried again: %s", self.name, error)

    def _must_roll(self, header: BatchHeader, now: int) -> bool:
        active, config = self._segments[-1], self.config
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
        """Begin a new segment, unless the active one is empty.

        Args:
            now: the time (ms).

        Raises:
            OSError: the new file cannot be made; the log is as before.
        """
        last = self._segments[-1]
        if last.size == 0:
            return
        must_flush = min(self.config.flush_messages, self.config.flush_ms) < NEVER
        if self._unflushed and must_flush:
            last.flush_with_name()
        last.remove_index()  # a clean stop wrote that no segment follows
        active = self._segment(last.next_offset)
        # The file is made at once: it is what keeps the next offset if all segments before it are deleted.
        active.create()
        last.followed_by = active.base_offset
        last.close()
        self._segments.append(active)
        self._closed_unflushed.append(last)
        self._unflushed = 0
        self._segment_began_ms = now
        self._jitter_ms = self._new_jitter()
        self.on_roll()

    def closed_unflushed(self) -> Sequence[Segment]:
        """Return the closed segments that must be forced to disk, in this order."""
        return () if self._has_flush_failed else tuple(self._closed_unflushed)

    def note_flushed(self, segment: Segment) -> None:
        """Take note that it was tried to force a closed segment to disk, and write its index if that succeeded.

        Args:
            segment: the first one of closed_unflushed.
        """
        self._closed_unflushed.remove(segment)
        if segment not in self._segments:
            return
        if segment.is_on_disk:
            segment.write_index()
            segment.close()
        else:
            # Another try would succeed whatever is on disk. What follows gets no index, so the next start verifies it.
            self._has_flush_failed = True

    def flush(self) -> None:
        """Force the log to disk and write the indexes, so that the next start need not read it."""
        if self._has_flush_failed:
            return
        for segment in (*self._closed_unflushed, self._segments[-1]):
            if not segment.size or segment.has_index_file or segment not in self._segments:
                continue
            try:
                segment.force_to_disk()
                segment.write_index()
            except OSError as error:
                _log.warning("%s: cannot force the log to disk; the next start verifies it: %s", self.name, error)
                break
        self._closed_unflushed.clear()

    def read(self, offset: int, max_bytes: int, before: int) -> tuple[bytes, int]:
        """Return whole batches from the one that holds an offset on, of one segment.

        Args:
            offset: the first offset wanted, not before the log's start; where compaction left a gap, the next batch
                follows.
            max_bytes: the most bytes to return; the first batch is returned even if it is larger.
            before: the offset that ends the range, not beyond the log's end.

        Returns:
            The batches, and the offset after the last one; no bytes if the range has no batch.

        Raises:
            OSError: reading fails.
        """
        next_offset = offset
        first = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        for segment in self._segments[first:]:
            if next_offset >= before:
                break
            records, next_offset = self._to_read(segment).read(offset, max_bytes, before)
            if records:
                return records, next_offset
        return b"", next_offset

    def batches(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield header and bytes of each batch from the one that holds an offset on.

        Args:
            offset: the first offset wanted.

        Raises:
            OSError: reading fails.
        """
        for segment in tuple(self._segments):
            if segment.next_offset > offset:
                yield from self._to_read(segment).batches_from(offset)

    def end_of_epoch(self, epoch: int, last_start: int) -> tuple[int, int]:
        """Return the last epoch of a leader that is not larger than `epoch`, and the offset of the first record of a
        later one; `epoch` itself if the log has no record of an earlier one.

        Args:
            epoch: one before that of the present leader.
            last_start: the first offset of the present leader, to which most of those that ask have read.

        Raises:
            OSError: reading fails.
            InvalidBatchError: a batch is damaged.
        """
        newest = next((header for header, _ in self.batches(last_start - 1)), None)
        if newest is None or newest.leader_epoch <= epoch:
            return (epoch if newest is None else newest.leader_epoch), last_start
        begins = [
            segment.base_offset
            for segment in self._segments
            for header, _ in islice(self._to_read(segment).batches_from(segment.base_offset), 1)
            if header.leader_epoch <= epoch
        ]
        if not begins:
            return epoch, self._segments[0].base_offset
        found = epoch
        for header, _ in self.batches(begins[-1]):
            if header.leader_epoch > epoch:
                return found, header.base_offset
            found = header.leader_epoch
        return found, last_start

    def removed(self, offsets: Set[int]) -> Set[int]:
        """Return those of the offsets whose records a compaction has removed.

        Args:
            offsets: offsets of the log.

        Raises:
            OSError: reading fails.
        """
        if not self.config.compact and not self._checkpoint.first_dirty_offset:
            return frozenset()
        return {offset for offset in offsets if not self._has_records_at(offset)}

    def _has_records_at(self, offset: int) -> bool:
        header, _ = next(self.batches(offset), (None, None))
        return header is not None and header.base_offset <= offset and header.record_count > 0

    def _to_read(self, segment: Segment) -> Segment:
        # Few files of a log are open: the one that is written and those that were read last.
        if segment not in self._read_segments:
            self._read_segments.append(segment)
            if len(self._read_segments) > _MOST_READ:
                last = self._read_segments.pop(0)
                if last is not self._segments[-1]:
                    last.close()
        return segment

    def offset_for_time(self, timestamp: int) -> tuple[int, int] | None:
        """Return offset and timestamp (ms) of the first record that is not older than a time, or None.

        Args:
            timestamp: the time in ms.

        Raises:
            OSError: reading fails.
        """
        for segment in self._segments:
            if segment.max_timestamp < timestamp:
                continue
            for header, batch in self._to_read(segment).batches_from_time(timestamp):
                if header.max_timestamp >= timestamp and header.next_offset > self.start_offset:
                    for offset, record_timestamp in record_times(batch):
                        if record_timestamp >= timestamp and offset >= self.start_offset:
                            return offset, record_timestamp
        return None

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Return offset and timestamp (ms) of the first record with the largest timestamp; None without records."""
        first, *others = self._segments
        largest = max((segment.max_timestamp for segment in others), default=NO_TIMESTAMP)
        if self.start_offset == first.base_offset:
            largest = max(largest, first.max_timestamp)
        else:  # its largest timestamp may be that of a deleted record
            for header, batch in self._to_read(first).batches_from(self.start_offset):
                if header.base_offset < self.start_offset:
                    times = [time for offset, time in record_times(batch) if offset >= self.start_offset]
                    largest = max([largest, *times])
                elif header.record_count:
                    largest = max(largest, header.max_timestamp)
        return None if largest == NO_TIMESTAMP else self.offset_for_time(largest)

    def delete_before(self, offset: int, now: int) -> None:
        """Let the log begin at an offset, and remove the segments that are wholly before it.

        Args:
            offset: the new start, not beyond the log's end; nothing changes where the log begins later.
            now: the time (ms).

        Raises:
            OSError: the checkpoint cannot be written; nothing was deleted.
        """
        if offset > self.start_offset:
            self._write_checkpoint(self._checkpoint._replace(log_start_offset=offset))
            self._delete_first(self._count_before_start(), now)

    def delete_old_segments(self, now: int) -> None:
        """Delete the segments before the log's start, and those that the topic's retention does not keep.

        Args:
            now: the time (ms).
        """
        counts = [self._count_before_start]
        if self.config.delete:
            counts += [self._count_above_size, partial(self._count_expired, now)]
        for count in counts:
            self._delete_first(count(), now)

    def _count_before_start(self) -> int:
        return sum(segment.base_offset <= self.start_offset for segment in self._segments[1:])

    def _count_above_size(self) -> int:
        excess = self.size - self.config.retention_bytes
        if self.config.retention_bytes < 0:
            return 0
        for count, segment in enumerate(self._segments):
            excess -= segment.size
            if excess < 0:
                return count
        return len(self._segments)

    def _count_expired(self, now: int) -> int:
        if self.config.retention_ms < 0:
            return 0
        for count, segment in enumerate(self._segments):
            is_empty = segment.size == 0 and segment is self._segments[-1]
            if is_empty or now - segment.largest_timestamp() <= self.config.retention_ms:
                return count
        return len(self._segments)

    def _delete_first(self, count: int, now: int) -> None:
        try:
            if count == len(self._segments):
                self.roll(now)
            count = min(count, len(self._segments) - 1)
            start_offset = self._segments[count].base_offset
            if start_offset > self._checkpoint.log_start_offset:
                self._write_checkpoint(self._checkpoint._replace(log_start_offset=start_offset))
            for _ in range(count):
                self._aside.append((now + self.config.file_delete_delay_ms, self._segments[0].set_aside()))
                del self._segments[0]
        except OSError as error:
            _log.warning("%s: cannot delete old segments; the next check tries it again: %s", self.name, error)

    def segments_before(self, offset: int) -> list[Segment]:
        """Return the segments that begin before an offset, without the active one."""
        return [segment for segment in self._segments[:-1] if segment.base_offset < offset]

    def first_uncleanable_offset(self, last_stable_offset: int, now: int) -> int:
        """Return the start of the first segment that must not be compacted yet.

        Args:
            last_stable_offset: the offset up to which every transaction has ended.
            now: the time (ms).
        """
        youngest = now - self.config.min_compaction_lag_ms
        for segment, following in zip(self._segments, self._segments[1:], strict=False):
            is_stable = following.base_offset <= last_stable_offset
            is_dirty = segment.next_offset > self.first_dirty_offset
            is_young = is_dirty and self.config.min_compaction_lag_ms and segment.largest_timestamp() > youngest
            if not is_stable or is_young:
                return segment.base_offset
        return self._segments[-1].base_offset

    def dirtiness(self, last_stable_offset: int, now: int) -> Dirtiness:
        """Return how much the log needs a compaction.

        Args:
            last_stable_offset: the offset up to which every transaction has ended.
            now: the time (ms).

        Raises:
            OSError: a file cannot be looked at.
        """
        segments = self.segments_before(self.first_uncleanable_offset(last_stable_offset, now))
        dirty = [segment for segment in segments if segment.next_offset > self.first_dirty_offset]
        dirty_bytes = sum(segment.size for segment in dirty)
        if not dirty_bytes:
            return Dirtiness(0.0, is_due=False)
        ratio = dirty_bytes / sum(segment.size for segment in segments)
        times = [segment.first_timestamp for segment in dirty if segment.first_timestamp > 0]
        is_overdue = min(times, default=now) < now - self.config.max_compaction_lag_ms
        return Dirtiness(ratio, is_overdue or ratio > self.config.min_cleanable_dirty_ratio)

    def begin_cleaned_segment(self, base_offset: int) -> Segment:
        """Return a new segment that replaces others when it is complete.

        Args:
            base_offset: the first offset of the first of them.

        Raises:
            OSError: its file cannot be made.
        """
        segment = Segment(self._directory, base_offset, self.config.index_interval_bytes, CLEANED_SUFFIX)
        segment.path.unlink(missing_ok=True)
        segment.create()
        return segment

    def replace(self, old: Sequence[Segment], cleaned: Segment, now: int) -> None:
        """Let a cleaned segment take the place of those that it was made from.

        Args:
            old: the segments, one after the other.
            cleaned: the segment with what is kept of them.
            now: the time (ms).

        Raises:
            OSError: that failed, or one of them was deleted meanwhile.
        """
        at = bisect_left(self._segments, old[0].base_offset, key=lambda segment: segment.base_offset)
        if self._segments[at : at + len(old)] != list(old):
            raise OSError(errno.ENOENT, f"segments of {self.name} were deleted while they were compacted")
        modified_ns = old[-1].path.stat().st_mtime_ns
        cleaned.followed_by = self._segments[at + len(old)].base_offset
        cleaned.take_the_place_of(old[0])
        os.utime(cleaned.path, ns=(modified_ns, modified_ns))
        self._segments[at : at + len(old)] = [cleaned]
        cleaned.write_index()
        cleaned.close()
        for segment in old[1:]:
            self._aside.append((now + self.config.file_delete_delay_ms, segment.set_aside()))

    def remove_unfinished(self, cleaned: Segment) -> None:
        """Remove the file of a cleaned segment that took no other's place."""
        if cleaned not in self._segments:
            cleaned.close()
            cleaned.path.unlink(missing_ok=True)

    def note_cleaned(self, end_offset: int) -> None:
        """Remember that the log is compacted up to an offset.

        Args:
            end_offset: the offset.

        Raises:
            OSError: the checkpoint cannot be written; the next compaction begins where this one did.
        """
        self._write_checkpoint(self._checkpoint._replace(first_dirty_offset=end_offset))

    def remove_files_set_aside(self, now: int) -> None:
        """Remove the files that left the log long enough ago (`file.delete.delay.ms`).

        Args:
            now: the time (ms).
        """
        if not self._aside:
            return
        due = [path for due_ms, path in self._aside if due_ms <= now]
        self._aside = [each for each in self._aside if each[0] > now]
        for path in due:
            with suppress(OSError):  # the next start tries it again
                path.unlink()

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments:
            segment.close()


def _report_cut(name: str, segment: Segment, cut: Cut, later: Sequence[Cut]) -> None:
    kept = [one for one in (cut, *later) if one.path is not None]
    size = sum(one.size for one in (cut, *later))
    if not kept:
        _log.warning(
            "%s: the batch at byte %d of %s is unfinished or damaged: cut %d bytes from there to the end of the "
            "log; the next offset is %d",
            name, segment.size, segment.path, size, segment.next_offset,
        )  # fmt: skip
        return
    _log.error(
        "%s: the batch at byte %d of %s is damaged: cut %d bytes from there to the end of the log; the next offset "
        "is %d. Lost with them are %d records that are whole, from offset %d to %d; they are kept in %s, which you "
        "may delete",
        name, segment.size, segment.path, size, segment.next_offset, sum(one.records for one in kept),
        kept[0].first_offset, kept[-1].next_offset - 1, ", ".join(str(one.path) for one in kept),
    )  # fmt: skip
