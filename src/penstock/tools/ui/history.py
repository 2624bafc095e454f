"""Observations of an application over time, for curves.

There are points every few seconds for the last hour, and every minute for the last day. Older points are dropped, so
the memory is fixed: some 2,000 points.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple


class HistoryRange(NamedTuple):
    """The range of curves.

    Args:
        interval_ms: the least time between two points.
        kept_ms: how long a point is kept.
    """

    interval_ms: int
    kept_ms: int


RANGES: Final[Mapping[str, HistoryRange]] = {
    "hour": HistoryRange(4_000, 3_600_000),
    "day": HistoryRange(60_000, 86_400_000),
}
"""The ranges by their names in addresses; the first one is the default."""


class Point(NamedTuple):
    """Figures of one moment, None if unknown.

    Args:
        time_ms: since the epoch.
        records_in_per_second: over the last minute.
        records_out_per_second: over the last minute.
        lag: the largest since the previous point.
        output_age_p50_ms: the age at commit that 50 % of the output had at most.
        output_age_p95_ms: the same for 95 %.
        output_age_p99_ms: the same for 99 %.
    """

    time_ms: int
    records_in_per_second: float | None
    records_out_per_second: float | None
    lag: int | None
    output_age_p50_ms: float | None
    output_age_p95_ms: float | None
    output_age_p99_ms: float | None


FIGURES: Final = Point._fields[1:]
"""The names of the curves."""


class History:
    """Keeps points from one thread, for any number of reading threads.

    Args:
        ranges: the ranges by name.
    """

    def __init__(self, ranges: Mapping[str, HistoryRange]) -> None:
        self._series = {name: _Series(range) for name, range in ranges.items()}
        self._lock = threading.Lock()

    @property
    def ranges(self) -> Sequence[str]:
        """The names of the ranges, the default first."""
        return tuple(self._series)

    def take(self, elapsed_ms: int, lag: int | None, measure: Callable[[], Point]) -> None:
        """Add a point to each range whose last point is old enough.

        Args:
            elapsed_ms: the current time of a monotonic clock.
            lag: the current lag; a point has the largest since the previous point.
            measure: makes the point; it is called at most once, and only if a range keeps it.
        """
        due = [series for series in self._series.values() if series.is_due(elapsed_ms, lag)]
        if due:
            point = measure()
            with self._lock:
                for series in due:
                    series.add(elapsed_ms, point)

    def points(self, range: str, after_ms: int | None = None) -> Sequence[Point]:
        """Return points of a range, oldest first.

        Args:
            range: its name.
            after_ms: only points later than this (ms since the epoch); None for all. If the newest point is earlier,
                the clock was set back, and all points are returned.
        """
        with self._lock:
            points = list(self._series[range].points)
        if after_ms is None or not points or points[-1].time_ms < after_ms:
            return points
        return [point for point in points if point.time_ms > after_ms]

    def columns(self, range: str, after_ms: int | None = None) -> dict[str, Any]:
        """Return the same points as columns, with the `interval_ms` and `kept_ms` of the range."""
        points = self.points(range, after_ms)
        columns = {name: [getattr(point, name) for point in points] for name in FIGURES}
        return {**self._series[range].range._asdict(), "times_ms": [point.time_ms for point in points], **columns}


class _Series:
    """The points of one range."""

    def __init__(self, range: HistoryRange) -> None:
        self.range = range
        self.points: deque[Point] = deque(maxlen=range.kept_ms // range.interval_ms)
        self._last_ms: int | None = None
        self._lag: int | None = None

    def is_due(self, elapsed_ms: int, lag: int | None) -> bool:
        """Record a lag, and return whether the last point is old enough."""
        if lag is not None:
            self._lag = max(lag, self._lag or 0)
        return self._last_ms is None or elapsed_ms - self._last_ms >= self.range.interval_ms

    def add(self, elapsed_ms: int, point: Point) -> None:
        """Add a point, and drop later ones.

        Those are from before the clock was set back.
        """
        while self.points and self.points[-1].time_ms >= point.time_ms:
            self.points.pop()
        self.points.append(point._replace(lag=self._lag))
        self._last_ms, self._lag = elapsed_ms, None
