"""Calendar windows: which times they hold, what cannot be, and that they can be sent to other processes."""

from __future__ import annotations

import calendar
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import CalendarWindows, TimeWindow, TimeWindows
from penstock.windows import LONG_MAX

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_MS = 3_600_000


def berlin(*parts: int) -> int:
    """Return a local time of Berlin in ms since the epoch."""
    return round(datetime(*parts, tzinfo=BERLIN).timestamp()) * 1000  # type: ignore[arg-type, misc]  # parts are numbers


def window_of(windows: CalendarWindows, timestamp: int) -> TimeWindow:
    ((start, window),) = windows.windows_for(timestamp).items()
    assert isinstance(window, TimeWindow)
    assert window.start == start
    return window


@pytest.mark.parametrize(
    ("windows", "start", "end"),
    [
        (CalendarWindows.days(BERLIN, 0), (2024, 3, 31), (2024, 4, 1)),
        (CalendarWindows.days(BERLIN, 0, start_of_day=time(6)), (2024, 3, 31, 6), (2024, 4, 1, 6)),
        (CalendarWindows.weeks(BERLIN, 0), (2024, 3, 25), (2024, 4, 1)),
        (CalendarWindows.weeks(BERLIN, 0, start_of_week=calendar.SUNDAY), (2024, 3, 31), (2024, 4, 7)),
        (CalendarWindows.months(BERLIN, 0), (2024, 3, 1), (2024, 4, 1)),
        (CalendarWindows.months(BERLIN, 0, start_of_day=time(6)), (2024, 3, 1, 6), (2024, 4, 1, 6)),
        (CalendarWindows.years(BERLIN, 0), (2024, 1, 1), (2025, 1, 1)),
    ],
)
def test_a_time_is_in_the_period_of_its_zone(
    windows: CalendarWindows, start: tuple[int, ...], end: tuple[int, ...]
) -> None:
    assert window_of(windows, berlin(2024, 3, 31, 12)) == TimeWindow(berlin(*start), berlin(*end))


def test_days_have_23_24_and_25_hours() -> None:
    windows = CalendarWindows.days(BERLIN, 0)
    days = [(2024, 3, 30), (2024, 3, 31), (2024, 10, 27)]
    found = [window_of(windows, berlin(*day, 12)) for day in days]
    assert [(window.end - window.start) // HOUR_MS for window in found] == [24, 23, 25]
    assert windows.size_ms == 25 * HOUR_MS


def test_the_grace_period_is_required_and_may_be_a_timedelta() -> None:
    assert CalendarWindows.days(BERLIN, timedelta(hours=2)).grace_period_ms == 2 * HOUR_MS
    with pytest.raises(TypeError, match="grace_ms"):
        CalendarWindows.days(BERLIN)  # type: ignore[call-arg]  # the error


@given(st.integers(0, LONG_MAX // HOUR_MS))
def test_days_in_utc_are_time_windows_of_a_day(hour: int) -> None:
    days, same = CalendarWindows.days("UTC", 0), TimeWindows.of_size_with_no_grace(timedelta(days=1))
    assert days.windows_for(hour * HOUR_MS) == same.windows_for(hour * HOUR_MS)


def test_windows_begin_with_the_epoch_and_end_with_the_largest_time() -> None:
    windows = CalendarWindows.years(BERLIN, 0)
    assert windows.windows_for(-1) == {}
    assert window_of(windows, 0) == TimeWindow(0, berlin(1971, 1, 1))
    assert window_of(windows, LONG_MAX).end == LONG_MAX


def test_a_window_from_a_start_of_another_calendar_ends_with_the_next_of_this_one() -> None:
    windows = CalendarWindows.days(BERLIN, 0)
    start = berlin(2024, 5, 5, 6)
    assert windows.window_from(start) == TimeWindow(start, berlin(2024, 5, 6))
    assert windows.window_from(berlin(2024, 5, 5)) == TimeWindow(berlin(2024, 5, 5), berlin(2024, 5, 6))


@pytest.mark.parametrize("time", [-1, -LONG_MAX - 1])
def test_no_window_holds_a_time_before_the_epoch(time: int) -> None:
    windows = CalendarWindows.days(BERLIN, 0)
    for find in (windows.window_at, windows.window_from):
        with pytest.raises(ValueError, match=f"Expected a time from the epoch on, got {time} ms."):
            find(time)


def test_windows_come_back_equal_from_a_pickle() -> None:
    windows = CalendarWindows.months(BERLIN, 5, start_of_day=time(6))
    window_of(windows, berlin(2024, 5, 5))
    found = pickle.loads(pickle.dumps(windows))
    assert (found, hash(found)) == (windows, hash(windows))
    assert found != CalendarWindows.months(BERLIN, 6, start_of_day=time(6))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: CalendarWindows.days("Europe/Berln", 0), ValueError, "Time zone 'Europe/Berln' was not found"),
        (lambda: CalendarWindows.days("+02:00", 0), ValueError, r"write timezone\(timedelta\(hours=2\)\)"),
        (lambda: CalendarWindows.days("UTC-0530", 0), ValueError, r"timezone\(timedelta\(hours=-5, minutes=-30\)\)"),
        (lambda: CalendarWindows.days(BERLIN, -1), ValueError, "Grace period must not be negative, got -1 ms."),
        (lambda: CalendarWindows.days(BERLIN, 1.5), TypeError, "Expected grace as a timedelta or a whole number"),  # type: ignore[arg-type]  # the error
        (lambda: CalendarWindows.days(datetime.now(UTC), 0), TypeError, "Expected zone as a zoneinfo.ZoneInfo"),  # type: ignore[arg-type]  # the error
        (lambda: CalendarWindows.weeks(BERLIN, 0, start_of_week=7), ValueError, "Expected start_of_week from 0"),
        (lambda: CalendarWindows.years(BERLIN, 0, start_of_day=6), TypeError, "Expected start_of_day"),  # type: ignore[arg-type]  # the error
    ],
)
def test_wrong_arguments_are_errors(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
