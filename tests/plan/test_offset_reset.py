"""Where a source begins without a position."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import AutoOffsetReset, Consumed, StreamsBuilder, StreamsConfig
from penstock.config.offset_reset import duration_of
from penstock.errors import ConfigError, TopologyError
from penstock.plan.offset_reset import check_offset_reset


def test_every_value_of_auto_offset_reset_is_taken() -> None:
    values = [AutoOffsetReset.earliest(), AutoOffsetReset.latest(), AutoOffsetReset.none()]
    for value in [*values, AutoOffsetReset.by_duration(5), None]:
        check_offset_reset(value)
    assert [duration_of(value) for value in values] == [None] * 3
    assert duration_of(AutoOffsetReset.by_duration(60_000)) == 60_000
    assert AutoOffsetReset.by_duration(timedelta(minutes=1)) == AutoOffsetReset.by_duration(60_000)


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


@pytest.mark.parametrize("value", ["first", "by_duration:", "by_duration:-1", "5"])
def test_other_texts_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="Unknown offset reset"):
        check_offset_reset(value)


def test_a_duration_is_not_negative() -> None:
    with pytest.raises(ValueError, match=r"^Duration cannot be negative$"):
        AutoOffsetReset.by_duration(-1)


def test_sources_of_one_topic_begin_at_one_place() -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(offset_reset=AutoOffsetReset.by_duration(5)))
    builder.stream("in", Consumed.with_(offset_reset=AutoOffsetReset.by_duration(6)))
    with pytest.raises(TopologyError):
        builder.build()
