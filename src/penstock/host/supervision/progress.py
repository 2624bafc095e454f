"""Log lines about the progress of an application and its dropped records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from penstock.errors import counted
from penstock.host.api import HostStatistics
from penstock.metrics.drop_reasons import INTENDED, Dropped

_log = logging.getLogger(__name__)

_DROPPED_EVERY_SECONDS = 60


def late_end(application_id: str, limit_ms: int | None, figures: HostStatistics) -> str:
    """Return the message for a run that did not reach the end in time.

    figures: of its host.
    """
    left = figures.unread or (counted(figures.lag, "record") + " not read yet" if figures.lag else "")
    late = f"{application_id} did not reach the end of its inputs in {limit_ms} ms"
    return f"{late}: {left}." if left else f"{late}."


def progress_line(application_id: str, before: HostStatistics, now: HostStatistics, seconds: float) -> str:
    """Return a summary of the progress between two snapshots, `seconds` apart."""
    taken, written = counted(now.records_in - before.records_in, "record"), now.records_out - before.records_out
    commits, last = counted((now.commits or 0) - (before.commits or 0), "commit"), ""
    if now.epoch is not None:  # on Spark, whose commits are epochs
        commits = counted(now.epoch - (before.epoch or 0), "epoch")
        last = f"; epoch {now.epoch} took {now.epoch_ms} ms"
    return f"{application_id}: {taken} in and {written} out, in {commits} of the last {int(seconds)} s{last}"


class ProgressLog:
    """Logs the progress of an application at intervals (`log.summary.interval.ms`).

    Args:
        application_id: the application.id.
        interval_ms: time (ms) between two lines; no lines if below 1.
        snapshot: returns the statistics.
        clock: returns the seconds of a monotonic clock.
    """

    def __init__(
        self,
        application_id: str,
        interval_ms: int,
        snapshot: Callable[[], HostStatistics],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._application_id = application_id
        self._interval = interval_ms / 1000
        self._snapshot = snapshot
        self._clock = clock
        self._told_at = clock()
        self._before = snapshot()

    def look(self) -> None:
        """Write the line if it is due; may be called at any rate."""
        passed = self._clock() - self._told_at
        if self._interval <= 0 or passed < self._interval:
            return
        now = self._snapshot()
        _log.info("%s", progress_line(self._application_id, self._before, now, passed))
        self._told_at, self._before = self._clock(), now


class DroppedRecordsLog:
    """Warns of dropped records, at most once a minute and at the end, because the loss is unintended.

    It leaves out the duplicates of deduplications.

    Args:
        application_id: the application.id.
        dropped: returns the number of records dropped since the start, by node or store, and reason.
        clock: returns the seconds of a monotonic clock.
    """

    def __init__(
        self,
        application_id: str,
        dropped: Callable[[], Mapping[Dropped, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._application_id = application_id
        self._records = dropped
        self._clock = clock
        self._told = 0
        self._told_at: float | None = None

    def look(self) -> None:
        """Warn of newly dropped records, unless the last warning is under a minute ago."""
        if self._told_at is None or self._clock() - self._told_at >= _DROPPED_EVERY_SECONDS:
            self.end()

    def end(self) -> None:
        """Warn of newly dropped records, whenever the last warning was."""
        dropped = {each: records for each, records in self._records().items() if each.reason not in INTENDED}
        total = sum(dropped.values())
        if total == self._told:
            return
        _log.warning(
            "%s dropped %s, %s since its start: %s. The metric dropped-records-by-reason-total counts them.",
            self._application_id,
            counted(total - self._told, "record"),
            f"{total:,}",
            ", ".join(f"{records:,} {reason} in {place}" for (place, reason), records in sorted(dropped.items())),
        )
        self._told, self._told_at = total, self._clock()
