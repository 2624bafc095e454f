"""Periods of a calendar against plain arithmetic with zoneinfo, and against the answers of java.time."""

from __future__ import annotations

import json
import pickle
import sys
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.calendar_periods import CalendarPeriods, CalendarUnit
from penstock.windows import LONG_MAX

ANSWERS_OF_JAVA = Path(__file__).with_name("calendar_windows_of_java.jsonl")
"""Zone, unit, start of week, start of day, time (ms), and the start and end of its period as java.time has them."""

ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "America/Goose_Bay",  # the clock goes back from 00:01 to 23:01
    "Asia/Kathmandu",  # 15 minutes more since 1986-01-01
    "Australia/Lord_Howe",  # 30 minutes of daylight saving time
    "Africa/Casablanca",  # daylight saving time but for Ramadan
    "Pacific/Apia",  # no 2011-12-30
    "UTC",
]
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
CHANGES = [
    datetime(2024, 3, 31, 1, tzinfo=UTC),
    datetime(2024, 10, 27, 1, tzinfo=UTC),
    datetime(2010, 11, 7, 3, 1, tzinfo=UTC),
    datetime(1985, 12, 31, 18, 30, tzinfo=UTC),
    datetime(2024, 4, 6, 15, tzinfo=UTC),
    datetime(2023, 4, 23, 2, tzinfo=UTC),
    datetime(2011, 12, 30, 10, tzinfo=UTC),
]
"""Changes of the clock in these zones."""


def ms(when: datetime) -> int:
    return round(when.timestamp() * 1000)


STARTS_OF_DAY = st.sampled_from([time(), time(2, 30), time(6), time(0, 0, 30), time(23, 59, 59, 999_000)])
TIMES = st.one_of(
    st.integers(0, ms(datetime(2040, 1, 1, tzinfo=UTC))),
    st.builds(lambda change, hours: ms(change) + hours * HOUR_MS, st.sampled_from(CHANGES), st.integers(-50, 50)),
)
PERIODS = st.builds(
    CalendarPeriods.of, st.sampled_from(ZONES), st.sampled_from(CalendarUnit), st.integers(0, 6), STARTS_OF_DAY
)


def begins(periods: CalendarPeriods, day: date) -> bool:
    """Whether a period begins on `day`."""
    return {
        CalendarUnit.DAYS: True,
        CalendarUnit.WEEKS: day.weekday() == periods.start_of_week,
        CalendarUnit.MONTHS: day.day == 1,
        CalendarUnit.YEARS: (day.month, day.day) == (1, 1),
    }[periods.unit]


def by_arithmetic(periods: CalendarPeriods, timestamp: int) -> tuple[int, int]:
    """Return the last start at or before `timestamp`, and the first after it, among all days of two years."""
    around = datetime.fromtimestamp(timestamp // 1000, UTC).date()
    days = (around + timedelta(days=number) for number in range(-370, 371))
    starts = [
        max(0, ms(datetime.combine(day, periods.start_of_day, periods.zone))) for day in days if begins(periods, day)
    ]
    started = [start for start in starts if start <= timestamp]
    return max(started, default=0), min(start for start in starts if start > timestamp)


@given(PERIODS, TIMES)
def test_a_period_is_the_one_of_plain_arithmetic(periods: CalendarPeriods, timestamp: int) -> None:
    assert periods.period_of(timestamp) == by_arithmetic(periods, timestamp)


@given(PERIODS, st.lists(TIMES, max_size=20))
def test_columns_have_the_period_of_each_time(periods: CalendarPeriods, timestamps: list[int]) -> None:
    starts, ends = periods.period_columns(np.array(timestamps, np.int64))
    found = list(zip(starts.tolist(), ends.tolist(), strict=True))
    assert found == [periods.period_of(timestamp) for timestamp in timestamps]


@given(PERIODS, st.integers(0, LONG_MAX))
def test_periods_follow_each_other_up_to_the_largest_time(periods: CalendarPeriods, timestamp: int) -> None:
    start, end = periods.period_of(timestamp)
    assert 0 <= start <= timestamp <= end <= LONG_MAX
    assert periods.period_of(start) == (start, end)
    assert periods.period_of(end - 1) == (start, end)
    if end < LONG_MAX:
        assert periods.period_of(end)[0] == end


@given(st.sampled_from(ZONES), st.sampled_from(CalendarUnit), TIMES)
def test_no_period_is_larger_than_the_largest(zone: str, unit: CalendarUnit, timestamp: int) -> None:
    periods = CalendarPeriods.of(zone, unit, 0, time())
    start, end = periods.period_of(timestamp)
    assert end - start <= periods.largest_ms


@given(PERIODS, st.integers(ms(datetime(2500, 1, 1, tzinfo=UTC)), ms(datetime(2900, 1, 1, tzinfo=UTC))))
def test_the_calendar_repeats_after_400_years(periods: CalendarPeriods, timestamp: int) -> None:
    start, end = periods.period_of(timestamp)
    shift = 146_097 * DAY_MS
    assert (start, end) == by_arithmetic(periods, timestamp)
    assert periods.period_of(timestamp + 20 * shift) == (start + 20 * shift, end + 20 * shift)  # beyond year 9999


@cache
def periods_of(zone: str, unit: str, start_of_week: int, start_of_day: str) -> CalendarPeriods:
    return CalendarPeriods.of(zone, CalendarUnit(unit), start_of_week, time.fromisoformat(start_of_day))


def test_periods_are_those_of_java() -> None:
    rows = [json.loads(line) for line in ANSWERS_OF_JAVA.read_text().splitlines()]
    assert len(rows) > 150
    wrong = [row for row in rows if periods_of(*row[:4]).period_of(row[4]) != (row[5], row[6])]
    assert wrong == []


@pytest.mark.parametrize(
    ("zone", "unit", "hours"),
    [
        ("Europe/Berlin", CalendarUnit.DAYS, 25),
        ("Europe/Berlin", CalendarUnit.WEEKS, 7 * 24 + 1),
        ("Europe/Berlin", CalendarUnit.MONTHS, 31 * 24 + 1),
        ("Europe/Berlin", CalendarUnit.YEARS, 366 * 24),
        ("UTC", CalendarUnit.DAYS, 24),
        ("UTC", CalendarUnit.MONTHS, 31 * 24),
    ],
)
def test_the_largest_period_has_an_hour_more_if_the_clock_goes_back(zone: str, unit: CalendarUnit, hours: int) -> None:
    assert CalendarPeriods.of(zone, unit, 0, time()).largest_ms == hours * HOUR_MS


def local_day(zone: str, year: int, month: int, day: int, start: time = time()) -> tuple[datetime, datetime]:
    """Return start and end of the period with noon of a day."""
    periods = CalendarPeriods.of(zone, CalendarUnit.DAYS, 0, start)
    noon = datetime(year, month, day, 12, tzinfo=ZoneInfo(zone))
    start_ms, end_ms = periods.period_of(ms(noon))
    return datetime.fromtimestamp(start_ms / 1000, UTC), datetime.fromtimestamp(end_ms / 1000, UTC)


def test_a_start_that_the_clock_skips_is_as_much_later() -> None:
    start, end = local_day("Europe/Berlin", 2024, 3, 31, start=time(2, 30))
    assert (start, end) == (datetime(2024, 3, 31, 1, 30, tzinfo=UTC), datetime(2024, 4, 1, 0, 30, tzinfo=UTC))


def test_a_start_that_the_clock_shows_twice_is_the_first() -> None:
    start, end = local_day("Europe/Berlin", 2024, 10, 27, start=time(2, 30))
    assert (start, end) == (datetime(2024, 10, 27, 0, 30, tzinfo=UTC), datetime(2024, 10, 28, 1, 30, tzinfo=UTC))


def test_a_day_that_the_clock_skips_has_no_period() -> None:
    before, after = local_day("Pacific/Apia", 2011, 12, 29), local_day("Pacific/Apia", 2011, 12, 31)
    assert before[1] == after[0]
    assert [end - start for start, end in (before, after)] == [timedelta(days=1)] * 2


@pytest.mark.parametrize("zone", [ZoneInfo("Europe/Berlin"), "Europe/Berlin", UTC, timezone(timedelta(hours=-3))])
def test_periods_come_back_equal_from_a_pickle_after_use(zone: Any) -> None:
    periods = CalendarPeriods.of(zone, CalendarUnit.DAYS, 0, time(6))
    unused = pickle.dumps(periods)
    periods.period_of(10**12)
    assert pickle.dumps(periods) == unused
    found = pickle.loads(unused)
    assert (found, hash(found)) == (periods, hash(periods))
    assert found.period_of(10**12) == periods.period_of(10**12)


def test_a_zone_is_the_same_by_name_and_as_object() -> None:
    one, other = (
        CalendarPeriods.of(zone, CalendarUnit.DAYS, 0, time())
        for zone in ("Asia/Kathmandu", ZoneInfo.no_cache("Asia/Kathmandu"))
    )
    assert one == other


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("Europe/Berln", 0, time()), ValueError, "'Europe/Berln' was not found: use a name of the IANA database"),
        (("../secret", 0, time()), ValueError, "'../secret' was not found"),
        (
            (3600, 0, time()),
            TypeError,
            "Expected zone as a zoneinfo.ZoneInfo, its name or a datetime.timezone, got 3600",
        ),
        (("UTC", 7, time()), ValueError, "Expected start_of_week from 0 .Monday. to 6 .Sunday., got 7"),
        (("UTC", "monday", time()), TypeError, "Expected start_of_week as a day such as calendar.MONDAY"),
        (("UTC", 0, 6), TypeError, "Expected start_of_day as a datetime.time, got 6: write time.6."),
        (("UTC", 0, time(6, tzinfo=UTC)), ValueError, "Expected start_of_day as a time of whole milliseconds"),
        (("UTC", 0, time(6, 0, 0, 1)), ValueError, "Expected start_of_day as a time of whole milliseconds"),
    ],
)
def test_wrong_arguments_are_errors_with_the_remedy(
    arguments: tuple[Any, int, Any], error: type[Exception], message: str
) -> None:
    zone, week, day = arguments
    with pytest.raises(error, match=message):
        CalendarPeriods.of(zone, CalendarUnit.WEEKS, week, day)


def test_a_zone_without_a_name_cannot_be_sent_to_other_processes() -> None:
    name = "Europe/Berlin"
    found = next(Path(path, name) for path in zoneinfo.TZPATH if Path(path, name).exists())
    with found.open("rb") as file, pytest.raises(ValueError, match="has no name"):
        CalendarPeriods.of(ZoneInfo.from_file(file), CalendarUnit.DAYS, 0, time())


def test_a_machine_without_time_zones_gets_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    path = zoneinfo.TZPATH
    for name in [name for name in sys.modules if name.partition(".")[0] == "tzdata"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tzdata", None)
    zoneinfo.reset_tzpath(to=())
    try:
        with pytest.raises(ValueError, match=r"Pacific/Nauru.*no data of time zones: run `pip install tzdata`"):
            CalendarPeriods.of("Pacific/Nauru", CalendarUnit.DAYS, 0, time())  # a zone that no test has loaded
    finally:
        zoneinfo.reset_tzpath(to=path)
