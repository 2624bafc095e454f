"""Days, weeks, months and years of a time zone, as spans of time between boundaries in ms since the epoch.

The boundaries come from `zoneinfo` and are kept in blocks, so no record needs a datetime. A block is computed on its
first use. Times before the epoch have no period.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np

from penstock.record import Int64Array
from penstock.windows import LONG_MAX

Zone: TypeAlias = ZoneInfo | timezone | str
"""A time zone, or its name in the IANA database."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY = _EPOCH.date()
_MILLISECOND = timedelta(milliseconds=1)
_DAYS_OF_WEEK = 7

_DAYS_OF_BLOCK = 773
_BLOCK_MS = _DAYS_OF_BLOCK * 24 * 60 * 60 * 1000
_BLOCKS_OF_CYCLE = 189
"""The calendar repeats after 400 years: 146,097 days, or 20,871 weeks, or 189 blocks."""
_BLOCKS_OF_DATETIME = 2 * _BLOCKS_OF_CYCLE
"""Later blocks repeat the second cycle, since a datetime ends with the year 9999 and timestamps do not."""
_KEPT_BLOCKS = 64
_BLOCKS_WITH_CHANGES = 62
"""The blocks up to the year 2101. After them, every zone follows a yearly rule."""

# A period begins at most a day before and two days after 00:00 UTC of its first day: by its offset and start of day.
_MARGIN = timedelta(days=3)


class CalendarUnit(Enum):
    """The length of a calendar's periods (Java class: ChronoUnit)."""

    DAYS = "days"
    WEEKS = "weeks"
    MONTHS = "months"
    YEARS = "years"


class _Block(NamedTuple):
    """The boundaries of the periods from `begin` up to `end`, in ms.

    Args:
        boundaries: ascending; the first is at or before `begin`, the last at or after `end`.
        column: the same as an array.
    """

    begin: int
    end: int
    boundaries: list[int]
    column: Int64Array


class _LastUse:
    """The block of the last look-up: most records have almost the same time."""

    def __init__(self) -> None:
        self.block = _Block(0, 0, [], np.empty(0, np.int64))


@dataclass(frozen=True)
class CalendarPeriods:
    """The periods of one length in a time zone.

    A period begins on its first day at `start_of_day` and ends when the next one begins. If the clock skips that time,
    it begins as much later as the clock moves forward; if the clock shows it twice, at the first of them (Java:
    ZonedDateTime.of). A period of a day that the clock skips completely does not exist.

    Created by `of`.

    Args:
        zone: the time zone; zones of the same name are the same object.
        unit: the length of a period.
        start_of_week: the first day of a week, 0 for Monday to 6 for Sunday, as `calendar.MONDAY`.
        start_of_day: the time at which a day begins, in whole ms.
    """

    zone: ZoneInfo | timezone
    unit: CalendarUnit
    start_of_week: int
    start_of_day: time
    _last: _LastUse = field(default_factory=_LastUse, init=False, repr=False, compare=False)

    @staticmethod
    def of(zone: Zone, unit: CalendarUnit, start_of_week: int, start_of_day: time) -> CalendarPeriods:
        """Return the periods of these arguments, checked.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the zone is unknown, or another argument is out of range.
        """
        _check_start_of_week(start_of_week)
        _check_start_of_day(start_of_day)
        return CalendarPeriods(_checked_zone(zone), unit, int(start_of_week), start_of_day)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the zone by its name, so the machine that reads the pickle checks it."""
        zone = self.zone.key if isinstance(self.zone, ZoneInfo) else self.zone
        return CalendarPeriods.of, (zone, self.unit, self.start_of_week, self.start_of_day)

    def period_of(self, timestamp: int) -> tuple[int, int]:
        """Return start and end (ms) of the period with `timestamp` (ms).

        The first period begins at 0, and the last one ends with the largest time. Raises ValueError for a time before
        the epoch.
        """
        block = self._last.block
        if not block.begin <= timestamp < block.end:
            if timestamp < 0:
                raise ValueError(f"Expected a time from the epoch on, got {timestamp} ms.")
            block = self._last.block = _block(self, timestamp // _BLOCK_MS)
        boundaries = block.boundaries
        place = min(bisect_right(boundaries, timestamp), len(boundaries) - 1)
        return boundaries[place - 1], boundaries[place]

    def period_columns(self, timestamps: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return start and end (ms) of the period of each of `timestamps` (ms, 0 or more), as int64 arrays."""
        starts, ends = np.empty_like(timestamps), np.empty_like(timestamps)
        if not len(timestamps):
            return starts, ends
        numbers = timestamps // _BLOCK_MS
        first, last = int(numbers.min()), int(numbers.max())
        for number in [first] if first == last else np.unique(numbers).tolist():
            rows = slice(None) if first == last else np.flatnonzero(numbers == number)
            column = _block(self, number).column
            places = np.minimum(np.searchsorted(column, timestamps[rows], "right"), len(column) - 1)
            starts[rows], ends[rows] = column[places - 1], column[places]
        return starts, ends

    @property
    def largest_ms(self) -> int:
        """The size (ms) of the largest period, such as 25 hours for days of a zone with daylight saving time."""
        return _largest_ms(self)

    def _first_days(self, first: date, last: date) -> Iterator[date]:
        """Yield the first days of the periods, from the period with `first` to the one after `last`."""
        day = self._first_day(first)
        while day <= last:
            yield day
            day = self._next_first_day(day)
        yield day

    def _first_day(self, day: date) -> date:
        """Return the first day of the period with `day`."""
        match self.unit:
            case CalendarUnit.DAYS:
                return day
            case CalendarUnit.WEEKS:
                return day - timedelta(days=(day.weekday() - self.start_of_week) % _DAYS_OF_WEEK)
            case CalendarUnit.MONTHS:
                return day.replace(day=1)
            case CalendarUnit.YEARS:
                return day.replace(month=1, day=1)

    def _next_first_day(self, day: date) -> date:
        """Return the first day of the next period."""
        match self.unit:
            case CalendarUnit.DAYS:
                return day + timedelta(days=1)
            case CalendarUnit.WEEKS:
                return day + timedelta(days=_DAYS_OF_WEEK)
            case CalendarUnit.MONTHS:
                return date(day.year + day.month // 12, day.month % 12 + 1, 1)
            case CalendarUnit.YEARS:
                return day.replace(year=day.year + 1)


@lru_cache(maxsize=_KEPT_BLOCKS)
def _block(periods: CalendarPeriods, number: int) -> _Block:
    """Return the boundaries from `number` blocks after the epoch on."""
    if number < _BLOCKS_OF_DATETIME:
        same, shift = number, 0
    else:
        same = _BLOCKS_OF_CYCLE + number % _BLOCKS_OF_CYCLE
        shift = (number - same) * _BLOCK_MS
    first = _FIRST_DAY + timedelta(days=same * _DAYS_OF_BLOCK)
    days = periods._first_days(first - _MARGIN, first + timedelta(days=_DAYS_OF_BLOCK) + _MARGIN)
    boundaries = [-1]
    for day in days:
        boundary = min(max(0, _time_of(periods, day) + shift), LONG_MAX)
        if boundary > boundaries[-1]:  # otherwise the clock skips the day, or the limits of time leave nothing of it
            boundaries.append(boundary)
    del boundaries[0]
    begin = number * _BLOCK_MS
    return _Block(begin, min(begin + _BLOCK_MS, LONG_MAX), boundaries, np.array(boundaries, np.int64))


def _time_of(periods: CalendarPeriods, day: date) -> int:
    """Return the time (ms) at which `day` begins.

    With fold 0, `datetime` resolves times that the clock skips or repeats as Java does.
    """
    return (datetime.combine(day, periods.start_of_day, periods.zone) - _EPOCH) // _MILLISECOND


@lru_cache(maxsize=_KEPT_BLOCKS)
def _largest_ms(periods: CalendarPeriods) -> int:
    return max(int(np.diff(_block(periods, number).column).max()) for number in range(_BLOCKS_WITH_CHANGES))


def _checked_zone(given: object) -> ZoneInfo | timezone:
    """Return the zone that `given` is or names; zones of the same name are the same object."""
    match given:
        case timezone():
            return given
        case ZoneInfo() if given.key is not None:
            return _zone_named(given.key)
        case str():
            return _zone_named(given)
        case ZoneInfo():
            raise ValueError(
                f"Time zone {given!r} has no name, so other processes cannot find it: write "
                'ZoneInfo("Europe/Berlin"), for example.'
            )
        case _:
            raise TypeError(
                f"Expected zone as a zoneinfo.ZoneInfo, its name or a datetime.timezone, got {given!r}: write "
                'ZoneInfo("Europe/Berlin"), for example.'
            )


def _zone_named(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # the last two for names that are not of a file
        todo = (
            _offset_hint(name) or "use a name of the IANA database, such as Europe/Berlin"
            if available_timezones()
            else "this machine has no data of time zones: run `pip install tzdata`"
        )
        raise ValueError(f"Time zone {name!r} was not found: {todo}.") from error


def _offset_hint(name: str) -> str | None:
    """Return what to write in place of an offset such as +02:00; None for any other name."""
    found = re.fullmatch(r"(?:UTC|GMT)?([+-]\d{1,2})(?::?(\d{2}))?", name)
    if found is None:
        return None
    hours, minutes = int(found[1]), int(found[2] or 0) * (-1 if found[1].startswith("-") else 1)
    span = f"hours={hours}" + (f", minutes={minutes}" if minutes else "")
    return f"an offset is no name of a zone; write timezone(timedelta({span})) of datetime"


def _check_start_of_week(given: object) -> None:
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"Expected start_of_week as a day such as calendar.MONDAY, got {given!r}.")
    if not 0 <= given < _DAYS_OF_WEEK:
        raise ValueError(f"Expected start_of_week from 0 (Monday) to 6 (Sunday), got {given!r}.")


def _check_start_of_day(given: object) -> None:
    if not isinstance(given, time):
        raise TypeError(f"Expected start_of_day as a datetime.time, got {given!r}: write time(6), for example.")
    if given.tzinfo is not None or given.fold or given.microsecond % 1000:
        raise ValueError(
            f"Expected start_of_day as a time of whole milliseconds without time zone and fold, got {given!r}."
        )
