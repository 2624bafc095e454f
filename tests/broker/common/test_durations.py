"""Durations and timestamps of users, as milliseconds."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.common.durations import LATEST_MS, milliseconds, moment_ms, timestamp_ms


@given(st.integers(-(10**15), 10**15))
def test_a_timedelta_is_truncated_to_milliseconds(microseconds: int) -> None:
    assert milliseconds(timedelta(microseconds=microseconds), "it") == microseconds // 1000
    assert milliseconds(microseconds, "it") == microseconds


@pytest.mark.parametrize(
    ("given_value", "example"), [(1.5, "timedelta(seconds=1.5)"), (True, "minutes=5"), ("5", "minutes=5"), (None, "")]
)
def test_a_duration_of_another_type_is_refused_with_its_name(given_value: Any, example: str) -> None:
    with pytest.raises(TypeError, match=f"Expected grace as a timedelta .* got {given_value!r}") as refused:
        milliseconds(given_value, "grace")
    assert example in str(refused.value)


@pytest.mark.parametrize("time", [0, -1, LATEST_MS, -LATEST_MS - 1, np.int64(LATEST_MS), np.int32(-5)])
def test_a_timestamp_is_a_plain_int_of_64_bits(time: Any) -> None:
    found = timestamp_ms(time, "it")
    assert (found, type(found)) == (int(time), int)


@pytest.mark.parametrize("time", [LATEST_MS + 1, -LATEST_MS - 2])
def test_a_timestamp_of_more_than_64_bits_is_refused(time: int) -> None:
    with pytest.raises(ValueError, match=f"Expected start .* of 64 bits, got {time}"):
        timestamp_ms(time, "start")


@pytest.mark.parametrize("time", [1.0, True, "1", None])
def test_a_timestamp_of_another_type_is_refused_with_a_hint_for_seconds(time: Any) -> None:
    with pytest.raises(TypeError, match=f"Expected start as a whole number of ms .* got {time!r}") as refused:
        timestamp_ms(time, "start")
    assert ("write int(1000 * seconds)" in str(refused.value)) == isinstance(time, float)


@given(st.datetimes(timezones=st.timezones()))
def test_a_datetime_is_its_moment_truncated_to_milliseconds(moment: datetime) -> None:
    found = moment_ms(moment, "it")
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert timedelta(0) <= since - timedelta(milliseconds=found) < timedelta(milliseconds=1)
    assert found == moment_ms(found, "it")


def test_a_pandas_timestamp_is_a_datetime() -> None:
    found = moment_ms(pd.Timestamp("2026-01-01T00:00:00.001999", tz=timezone(timedelta(hours=1))), "it")
    assert (found, type(found)) == (1_767_222_000_001, int)


class _NoZone(tzinfo):
    """A zone that does not know its difference to UTC."""

    def utcoffset(self, dt: datetime | None) -> None: ...


@pytest.mark.parametrize("zone", [None, _NoZone()])
def test_a_datetime_without_a_time_zone_is_refused(zone: tzinfo | None) -> None:
    with pytest.raises(ValueError, match=r"Expected start as a datetime with a time zone, got .*astimezone\(\)"):
        moment_ms(datetime(2026, 1, 1, tzinfo=zone), "start")


@pytest.mark.parametrize("time", [1.0, True, "2026-01-01", None, date(2026, 1, 1), np.datetime64("2026-01-01")])
def test_a_moment_of_another_type_is_refused(time: Any) -> None:
    expected = "Expected start as a datetime with a time zone, or as a whole number of ms since the epoch, got"
    with pytest.raises(TypeError, match=expected):
        moment_ms(time, "start")
