"""Loading of a log, with recovery after a crash.

Not here: the scan of one file (segment_scan.py), the file that keeps a cut (cut.py), and the log in use (log.py).

Rules:
- Recovery works as in Kafka. The recovery point is the end of the last closed segment with an index. Damage before it
  is an error. Segments after it may be torn by a power failure, so their checksums are verified, and the log is
  truncated before the first damaged batch. Whole batches in the truncated part are kept in a separate file.
- An index names the next segment, so a missing segment is noticed. The log is used without it, and each start reports
  the missing offsets.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from penstock_broker.batch import check_intact
from penstock_broker.cut import Cut, keep_cut
from penstock_broker.errors import BrokerError
from penstock_broker.log_checkpoint import CHECKPOINT, Checkpoint
from penstock_broker.offset_index import NO_SEGMENT
from penstock_broker.producer_snapshot import newest_snapshot
from penstock_broker.segment import CLEANED_SUFFIX, DELETED_SUFFIX, Segment
from penstock_broker.segment_scan import scan
from penstock_broker.topic_config import LogConfig

_log = logging.getLogger(__name__)


class LogLoader:
    """Loads one log (Kafka class: LogLoader).

    Args:
        directory: the directory of the partition.
        name: topic and partition, for messages.
        config: the topic's configuration.
    """

    def __init__(self, directory: Path, name: str, config: LogConfig) -> None:
        self._directory = directory
        self._name = name
        self._config = config

    def load(self) -> tuple[list[Segment], Checkpoint]:
        """Recover the log, and return its segments, at least one, and its checkpoint.

        Raises:
            BrokerError: a segment is damaged that was on disk.
            OSError: a file cannot be read or changed.
        """
        names = os.listdir(self._directory) if self._directory.exists() else ()
        for name in names:
            if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")):
                (self._directory / name).unlink()
        checkpoint = Checkpoint.read(self._directory, self._name) if CHECKPOINT in names else Checkpoint()
        offsets = (int(name.removesuffix(".log")) for name in names if name.endswith(".log"))
        found = [self._segment(offset) for offset in sorted(offsets)]
        reached = newest_snapshot(names)
        if found:
            segments = self._recovered(found, checkpoint.may_have_gaps(self._config))
        else:
            # All files were deleted by hand: new records must not reuse an offset.
            segments = [self._segment(max(*checkpoint, reached))]
        self._report_missing(segments, checkpoint.log_start_offset, reached)
        if segments[-1].next_offset < checkpoint.log_start_offset:
            # Clients have deleted all records in the files, and more that were lost in a power failure.
            for segment in segments:
                segment.set_aside().unlink()
            segments = [self._segment(checkpoint.log_start_offset)]
        return segments, checkpoint

    def _segment(self, base_offset: int) -> Segment:
        return Segment(self._directory, base_offset, self._config.index_interval_bytes)

    def _recovered(self, found: Sequence[Segment], may_have_gaps: bool) -> list[Segment]:
        """Return the segments of the log, at least one; all are loaded."""
        summaries = [segment.read_index() for segment in found]
        closed = [number for number, one in enumerate(summaries) if one and one.followed_by != NO_SEGMENT]
        recovery_point = max(closed, default=-1) + 1
        segments: list[Segment] = []
        for number, (segment, summary) in enumerate(zip(found, summaries, strict=True)):
            is_last = number == len(found) - 1
            before = segments[-1] if segments else None
            if before and not is_last and segment.base_offset < max(before.next_offset, before.followed_by):
                if not may_have_gaps:
                    raise _damaged(before, f"has offsets of {segment.path}")
                # A compaction was killed after its new file had replaced the first of several.
                segment.set_aside().unlink()
                continue
            segments.append(segment)
            if segment.has_index_file:
                continue
            if number < recovery_point and not is_last:
                _verify(segment)
                if summary is not None:
                    raise _damaged(segment, f"has {segment.size} bytes instead of {summary.size}")
            elif cut := _recover(segment, is_last or not may_have_gaps, found[-1].base_offset):
                self._report_cut(segment, cut, [_take_out(after) for after in found[number + 1 :]])
                break
        for segment, following in pairwise(segments):
            if not segment.has_index_file:
                segment.followed_by = following.base_offset if may_have_gaps else segment.next_offset
        return segments

    def _report_cut(self, segment: Segment, cut: Cut, later: Sequence[Cut]) -> None:
        kept = [one for one in (cut, *later) if one.path is not None]
        size = sum(one.size for one in (cut, *later))
        if not kept:
            _log.warning(
                "%s: the batch at byte %d of %s is unfinished or damaged: cut %d bytes from there to the end of the "
                "log; the next offset is %d",
                self._name, segment.size, segment.path, size, segment.next_offset,
            )  # fmt: skip
            return
        _log.error(
            "%s: the batch at byte %d of %s is damaged: cut %d bytes from there to the end of the log; the next "
            "offset is %d. Lost with them are %d records that are whole, from offset %d to %d; they are kept in %s, "
            "which you may delete",
            self._name, segment.size, segment.path, size, segment.next_offset, sum(one.records for one in kept),
            kept[0].first_offset, kept[-1].next_offset - 1, ", ".join(str(one.path) for one in kept),
        )  # fmt: skip

    def _report_missing(self, segments: Sequence[Segment], start: int, reached: int) -> None:
        """Report the records that were lost with missing files.

        Args:
            segments: the segments of the log.
            start: the start offset of the log set by clients.
            reached: an offset that the log had reached.
        """
        first, last = segments[0], segments[-1]
        gaps = [(segment.followed_by, following.base_offset) for segment, following in pairwise(segments)]
        for begin, end in [(start, first.base_offset), *gaps]:
            if begin < end:
                _log.error(
                    "%s: the records from offset %d to %d are missing, because files are gone from %s; readers go on "
                    "at offset %d. To have them back, stop the broker and restore the files from %020d.log on",
                    self._name, begin, end - 1, self._directory, end, begin,
                )  # fmt: skip
        lost = max(start, last.next_offset)
        if last.followed_by != NO_SEGMENT or lost < reached:
            _log.error(
                "%s: the records from offset %d on are missing, at least to offset %d: the end of the log is gone from "
                "%s. To have them back, stop the broker and restore its files; otherwise new records get these offsets",
                self._name, lost, max(lost, reached - 1), self._directory,
            )  # fmt: skip


def _verify(segment: Segment) -> None:
    """Load a segment that was on disk before the broker ended, and must be undamaged."""
    file_size = segment.path.stat().st_size
    segment.load(scan(segment.path, file_size, segment.base_offset, check_intact))
    if segment.size < file_size:
        raise _damaged(segment, f"is damaged at byte {segment.size} of {file_size} (offset {segment.next_offset})")


def _damaged(segment: Segment, how: str) -> BrokerError:
    return BrokerError(
        f"the log segment {segment.path} {how}, which no crash can cause, because it was on disk before; restore the "
        "file, or remove the data directory to start over"
    )


def _recover(segment: Segment, is_gapless: bool, last_base_offset: int) -> Cut | None:
    """Load a segment that may be torn, and truncate it before the first damaged batch.

    Args:
        segment: the segment.
        is_gapless: whether each batch begins at the end of the previous one, because the segment was not compacted.
        last_base_offset: the first offset of the last segment, an upper bound for the batches of others.
    """
    file_size = segment.path.stat().st_size
    end = None if segment.base_offset == last_base_offset else last_base_offset
    segment.load(scan(segment.path, file_size, segment.base_offset, check_intact, is_gapless, end))
    if segment.size == file_size:
        return None
    cut = keep_cut(segment.path, segment.size, segment.next_offset)
    os.truncate(segment.path, segment.size)
    return cut


def _take_out(segment: Segment) -> Cut:
    """Remove a segment after a truncated one from the log, keeping its whole batches."""
    cut = keep_cut(segment.path, 0, segment.next_offset)
    segment.set_aside().unlink()
    return cut
