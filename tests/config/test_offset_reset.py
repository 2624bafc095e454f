"""The values of auto.offset.reset, and their durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import StreamsConfig
from penstock.config.offset_reset import duration_of, offset_reset
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT24H", 86_400_000),
        ("P7D", 604_800_000),
        ("P1DT2H3M4.005S", 93_784_005),
        ("PT0S", 0),
        ("250", 250),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("-PT1H", None),
        ("24h", None),
    ],
)
def test_a_duration_of_the_configuration_is_that_of_iso_8601(text: str, ms: int | None) -> None:
    value = f"by_duration:{text}"
    assert duration_of(value) == ms
    if ms is None:
        with pytest.raises(ConfigError, match=r"such as by_duration:PT24H\.$"):
            StreamsConfig({"auto.offset.reset": value})
    else:
        assert StreamsConfig({"auto.offset.reset": value})["auto.offset.reset"] == value


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99_999))
def test_the_parts_of_a_duration_are_added_up(days: int, hours: int, minutes: int, ms: int) -> None:
    text = f"by_duration:P{days}DT{hours}H{minutes}M{ms // 1000}.{ms % 1000:03}S"
    assert duration_of(text) == ((days * 24 + hours) * 60 + minutes) * 60_000 + ms


@pytest.mark.parametrize(("value", "read"), [("Earliest", "earliest"), ("LATEST", "latest"), ("none", "none")])
def test_names_are_read_in_small_letters(value: str, read: str) -> None:
    assert offset_reset("k", value) == read
    assert duration_of(value) is None


@pytest.mark.parametrize("value", ["first", "by_duration:", "by_duration:PT", 5])
def test_other_values_are_refused_with_those_that_are_taken(value: object) -> None:
    with pytest.raises(ConfigError, match=r"configuration k: expected one of earliest, latest, none, or by_duration:D"):
        offset_reset("k", value)
