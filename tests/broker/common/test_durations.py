"""Durations and timestamps of users, as milliseconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.common.durations import LATEST_MS, milliseconds, timestamp_ms


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
