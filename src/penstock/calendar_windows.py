"""Windows of calendar periods: days, weeks, months and years in a time zone.

Their sizes differ, so a start alone does not determine the end of a window: stores, serdes and the emission of final
results ask `CalendarWindows`.
"""

from __future__ import annotations

from calendar import MONDAY
from dataclasses import dataclass, field
from datetime import time

from penstock.calendar_periods import CalendarPeriods, CalendarUnit, Zone
from penstock.windows import TimeWindow, Window, Windows
from penstock_broker.common.durations import Duration, milliseconds

_MIDNIGHT = time()


@dataclass(frozen=True)
class CalendarWindows(Windows):
    """Days, weeks, months or years in a time zone, without gaps and overlaps.

    A day with a change of the clock has 23 or 25 hours, and months have their lengths. Java has no such class; programs
    there extend Windows. All instances of an application need the same data of time zones.

    Args:
        periods: the days, weeks, months or years.
        grace_period_ms: the time after its end during which a window accepts late records.

    Attributes:
        size_ms: the size of the largest window.
    """

    periods: CalendarPeriods
    grace_period_ms: int
    size_ms: int = field(init=False)

    def __post_init__(self) -> None:
        if self.grace_period_ms < 0:
            raise ValueError(f"Grace period must not be negative, got {self.grace_period_ms} ms.")
        object.__setattr__(self, "size_ms", self.periods.largest_ms)  # a frozen dataclass has no other way

    @staticmethod
    def days(zone: Zone, grace_ms: Duration, *, start_of_day: time = _MIDNIGHT) -> CalendarWindows:
        """Return windows of days.

        Args:
            zone: a time zone or its name, such as "Europe/Berlin".
            grace_ms: the time after its end during which a window accepts late records.
            start_of_day: the local time at which a window begins, midnight by default.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the zone is unknown, the grace period negative, or the time not of whole ms.
        """
        return _windows(zone, CalendarUnit.DAYS, grace_ms, start_of_day)

    @staticmethod
    def weeks(
        zone: Zone, grace_ms: Duration, *, start_of_week: int = MONDAY, start_of_day: time = _MIDNIGHT
    ) -> CalendarWindows:
        """Return windows of weeks.

        Args:
            zone, grace_ms, start_of_day: as for `days`.
            start_of_week: the first day of a week, such as `calendar.SUNDAY`; Monday by default.

        Raises:
            TypeError, ValueError: as for `days`, and for a start of the week that is no day.
        """
        return _windows(zone, CalendarUnit.WEEKS, grace_ms, start_of_day, start_of_week)

    @staticmethod
    def months(zone: Zone, grace_ms: Duration, *, start_of_day: time = _MIDNIGHT) -> CalendarWindows:
        """Return windows of months, from their first days on; arguments and errors are those of `days`."""
        return _windows(zone, CalendarUnit.MONTHS, grace_ms, start_of_day)

    @staticmethod
    def years(zone: Zone, grace_ms: Duration, *, start_of_day: time = _MIDNIGHT) -> CalendarWindows:
        """Return windows of years, from January 1 on; arguments and errors are those of `days`."""
        return _windows(zone, CalendarUnit.YEARS, grace_ms, start_of_day)

    def windows_for(self, timestamp: int) -> dict[int, Window]:
        """Return the window with `timestamp` (ms) by its start; empty for a time before the epoch."""
        if timestamp < 0:
            return {}
        window = self.window_at(timestamp)
        return {window.start: window}

    def window_at(self, timestamp: int) -> TimeWindow:
        """Return the window with `timestamp` (ms); raises ValueError for a time before the epoch."""
        start, end = self.periods.period_of(timestamp)
        return TimeWindow(start, end)

    def window_from(self, start: int) -> TimeWindow:
        """Return the window that begins at `start` (ms); raises ValueError for a start before the epoch.

        If the calendar has changed since, and no window begins there, it ends where the next one begins.
        """
        return TimeWindow(start, self.periods.period_of(start)[1])


def _windows(
    zone: Zone, unit: CalendarUnit, grace_ms: Duration, start_of_day: time, start_of_week: int = MONDAY
) -> CalendarWindows:
    grace = milliseconds(grace_ms, "grace")
    return CalendarWindows(CalendarPeriods.of(zone, unit, start_of_week, start_of_day), grace)
