"""Where a source begins without a position."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import AutoOffsetReset, Consumed, StreamsBuilder
from penstock.config.offset_reset import duration_of
from penstock.errors import TopologyError
from penstock.plan.offset_reset import check_offset_reset


def test_every_value_of_auto_offset_reset_is_taken() -> None:
    values = [AutoOffsetReset.earliest(), AutoOffsetReset.latest(), AutoOffsetReset.none()]
    for value in [*values, AutoOffsetReset.by_duration(5), None]:
        check_offset_reset(value)
    assert [duration_of(value) for value in values] == [None] * 3
    assert duration_of(AutoOffsetReset.by_duration(60_000)) == 60_000
    assert AutoOffsetReset.by_duration(timedelta(minutes=1)) == AutoOffsetReset.by_duration(60_000)


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
