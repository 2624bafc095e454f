"""Dirtiness of a log, and its cleanable part (Kafka class: LogToClean).

Not here: the compaction (cleaner.py), and the order of the logs (log_manager.py).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from penstock_broker.log import Log


class Dirtiness(NamedTuple):
    """The need of a log for compaction.

    Args:
        ratio: the uncompacted share of the cleanable bytes.
        is_due: whether a compaction should begin.
    """

    ratio: float
    is_due: bool


def dirtiness(log: Log, last_stable_offset: int, now: int) -> Dirtiness:
    """Return the need of a log for compaction.

    Args:
        log: the log.
        last_stable_offset: the offset before which every transaction has ended.
        now: the time (ms).

    Raises:
        OSError: the size or time of a file cannot be read.
    """
    segments = log.segments.before(first_uncleanable_offset(log, last_stable_offset, now))
    dirty = [segment for segment in segments if segment.next_offset > log.first_dirty_offset]
    dirty_bytes = sum(segment.size for segment in dirty)
    if not dirty_bytes:
        return Dirtiness(0.0, is_due=False)
    ratio = dirty_bytes / sum(segment.size for segment in segments)
    times = [segment.first_timestamp for segment in dirty if segment.first_timestamp > 0]
    is_overdue = min(times, default=now) < now - log.config.max_compaction_lag_ms
    return Dirtiness(ratio, is_overdue or ratio > log.config.min_cleanable_dirty_ratio)


def first_uncleanable_offset(log: Log, last_stable_offset: int, now: int) -> int:
    """Return the start of the first segment that must not be compacted yet.

    Arguments and errors are those of `dirtiness`.
    """
    lag_ms = log.config.min_compaction_lag_ms
    for segment, following in pairwise(log.segments.all):
        is_stable = following.base_offset <= last_stable_offset
        is_dirty = segment.next_offset > log.first_dirty_offset
        is_young = is_dirty and lag_ms and segment.largest_timestamp() > now - lag_ms
        if not is_stable or is_young:
            return segment.base_offset
    return log.segments.active.base_offset
