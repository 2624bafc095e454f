"""The join of two streams against models of a few lines, which see all records at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import JoinWindows, StreamsBuilder
from penstock.testing import TestRecord, TopologyTestDriver
from tests.support.joins import KEYS, LEFT, OUT, RIGHT, STRING, Row, Shape, ordered_rows, pair, run


def met(windows: JoinWindows, left: Row, right: Row) -> bool:
    return left[1] == right[1] and left[3] - windows.before_ms <= right[3] <= left[3] + windows.after_ms


def stream_join(type: str, windows: JoinWindows) -> Shape:
    def shape(builder: StreamsBuilder) -> None:
        left, right = builder.stream(LEFT), builder.stream(RIGHT)
        getattr(left, type)(right, pair, windows).to(OUT)

    return shape


WINDOWS = st.builds(
    lambda before, after, grace: JoinWindows(before, after, grace), st.integers(0, 9), st.integers(0, 9), st.just(3)
)


@given(ordered_rows(), WINDOWS, st.sampled_from(["rocksdb", "in_memory"]))
@settings(max_examples=60, deadline=None)
def test_an_inner_join_finds_every_pair_that_is_near_enough(rows: list[Row], windows: JoinWindows, kind: str) -> None:
    sides = [[row for row in rows if row[0] == topic] for topic in (LEFT, RIGHT)]
    expected = sorted(
        (one[1], pair(one[2], other[2]), max(one[3], other[3]))
        for one in sides[0]
        for other in sides[1]
        if met(windows, one, other)
    )
    got = run(stream_join("join", windows), rows, **{"dsl.store.suppliers.class": kind})
    assert sorted((key or "", value or "", time) for key, value, time in got) == expected
    assert [time for *_, time in got] == sorted(time for *_, time in got)


@st.composite
def late_rows(draw: st.DrawFn) -> list[Row]:
    """Rows of both topics in any order, none later than a grace period of 100 ms; every value is there once."""
    drawn = draw(st.lists(st.tuples(st.sampled_from([LEFT, RIGHT]), KEYS, st.integers(0, 60)), max_size=25))
    return [(topic, key, f"{topic[0]}{number}", time) for number, (topic, key, time) in enumerate(drawn)]


@given(late_rows(), st.builds(JoinWindows, st.integers(0, 9), st.integers(0, 9), st.just(100)), st.booleans())
@settings(max_examples=60, deadline=None)
def test_within_the_grace_period_a_record_that_meets_one_has_no_result_without(
    rows: list[Row], windows: JoinWindows, outer: bool
) -> None:
    left, right = ([row for row in rows if row[0] == topic] for topic in (LEFT, RIGHT))
    pairs = [(one[2], other[2]) for one in left for other in right if met(windows, one, other)]
    alone = {row[2] for row in [*left, *(right if outer else [])]} - {value for each in pairs for value in each}
    expected = [pair(*each) for each in pairs] + [pair(v, None) if v and v[0] == "l" else pair(None, v) for v in alone]
    flush = [(topic, "flush", f"{topic[0]}!", 1000) for topic in (LEFT, RIGHT)]
    got = run(stream_join("outer_join" if outer else "left_join", windows), [*rows, *flush])
    assert sorted(value or "" for key, value, _ in got if key != "flush") == sorted(expected)


@given(ordered_rows(), WINDOWS, st.sampled_from(["left_join", "outer_join"]))
@settings(max_examples=60, deadline=None)
def test_an_outer_join_has_each_record_that_meets_none_once_when_its_window_is_over(
    rows: list[Row], windows: JoinWindows, type: str
) -> None:
    end = max((row[3] for row in rows), default=0) + 1000
    flush = [(topic, "flush", f"{topic[0]}!", end) for topic in (LEFT, RIGHT)]
    got = [value for key, value, _ in run(stream_join(type, windows), [*rows, *flush]) if key != "flush"]
    alone = {
        topic: [
            row
            for row in rows
            if row[0] == topic
            and not any(met(windows, *((row, o) if topic == LEFT else (o, row))) for o in rows if o[0] != topic)
        ]
        for topic in (LEFT, RIGHT)
    }
    expected = [pair(row[2], None) for row in alone[LEFT]]
    expected += [pair(None, row[2]) for row in alone[RIGHT] if type == "outer_join"]
    assert sorted(value or "" for value in got if "-" in (value or "")) == sorted(expected)


@given(ordered_rows(), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_a_self_join_by_one_store_finds_what_two_find(rows: list[Row], difference: int) -> None:
    windows = JoinWindows.of_time_difference_and_grace(difference, 100)

    def shape(builder: StreamsBuilder) -> None:
        stream = builder.stream(LEFT)
        stream.join(stream, pair, windows).to(OUT)

    own = [row for row in rows if row[0] == LEFT]
    two = run(shape, own)
    assert run(shape, own, **{"topology.optimization": "single.store.self.join"}) == two
    assert len(two) >= len(own)


def test_both_sides_of_an_outer_join_share_their_clock_over_a_restart_of_the_interval() -> None:
    windows = JoinWindows.of_time_difference_with_no_grace(10)
    rows = [(LEFT, "a", "1", 0), (RIGHT, "b", "2", 11), (LEFT, "c", "3", 30)]
    assert run(stream_join("outer_join", windows), rows) == [("a", "1-", 0), ("b", "-2", 11)]
    throttled = run(stream_join("outer_join", windows), rows, **{"penstock.emit.interval.ms": 1000})
    assert throttled == []  # the first record begins the interval, and wall-clock time stands still


@pytest.mark.parametrize(("type", "expected"), [("join", []), ("left_join", [("1-", 5)])])
def test_a_record_without_key_has_a_result_only_if_it_may_stand_alone(type: str, expected: list[Any]) -> None:
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    getattr(builder.stream(LEFT), type)(builder.stream(RIGHT), pair, windows).to(OUT)
    defaults = {"default.key.serde": STRING, "default.value.serde": STRING}
    with TopologyTestDriver(builder.build(), defaults) as driver:
        driver.create_input_topic(LEFT, STRING, STRING).pipe_record_list([TestRecord(None, "1", 5)])
        records = driver.create_output_topic(OUT, STRING, STRING).read_records_to_list()
        assert [(record.value, record.timestamp) for record in records] == expected
