"""Streams of the papers: windows for joins, retention, and serdes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import SessionWindows, TimeWindows
from penstock.kip28 import KStreamBuilder, Window, until
from penstock.testing import TopologyTestDriver
from tests.kip28.support import CONFIG, LONG, STRING


@pytest.mark.parametrize(
    "windows", [TimeWindows.of_size_with_no_grace(50), SessionWindows.of_inactivity_gap_with_no_grace(50)]
)
def test_until_is_a_grace_period(windows: Any) -> None:
    assert until(windows, 80).grace_period_ms == 30
    assert until(windows).grace_period_ms == 24 * 60 * 60 * 1000 - 50
    with pytest.raises(ValueError, match="cannot be smaller than the window"):
        until(windows, 49)


@given(
    spans=st.tuples(st.integers(0, 5), st.integers(1, 5)),
    events=st.lists(st.tuples(st.sampled_from(["left", "right"]), st.integers(1, 20)), max_size=12),
)
def test_windowed_joins_pair_elements_as_in_the_papers(spans: tuple[int, int], events: list[tuple[str, int]]) -> None:
    builder = KStreamBuilder()
    left = builder.from_("left").with_window(Window(spans[0]))
    right = builder.from_("right").with_window(Window(spans[1]))
    left.join(right, lambda one, other: f"{one} {other}").send_to("around")
    left.join_prior(right, lambda one, other: f"{one} {other}").send_to("prior")
    numbered = [(side, f"{time}:{number}", time) for number, (side, time) in enumerate(events)]
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        topics = {side: driver.create_input_topic(side, STRING, STRING) for side in ("left", "right")}
        for side, value, time in numbered:
            topics[side].pipe_input("key", value, time)
        found = {name: driver.create_output_topic(name, STRING, STRING) for name in ("around", "prior")}
        around, prior = (sorted(found[name].read_values_to_list()) for name in ("around", "prior"))
    pairs = [
        (one, other, time, other_time)
        for side, one, time in numbered
        for other_side, other, other_time in numbered
        if (side, other_side) == ("left", "right") and time - spans[1] <= other_time <= time + spans[0]
    ]
    assert around == sorted(f"{one} {other}" for one, other, _, _ in pairs)
    assert prior == sorted(f"{one} {other}" for one, other, time, other_time in pairs if other_time < time)


def test_streams_keep_their_serdes_through_topics_and_take_others() -> None:
    builder = KStreamBuilder()
    numbers = builder.from_("in", STRING, LONG)
    numbers.through("between").filter(lambda key, value: value > 1).send_to("out")
    numbers.map_values(str).through("texts", value_serde=STRING).send_to("copies")
    with TopologyTestDriver(builder.build(), {}) as driver:
        driver.create_input_topic("in", STRING, LONG).pipe_key_value_list([("a", 1), ("b", 2)])
        assert driver.create_output_topic("out", STRING, LONG).read_key_values_to_list() == [("b", 2)]
        copies = driver.create_output_topic("copies", STRING, STRING).read_key_values_to_list()
        assert copies == [("a", "1"), ("b", "2")]


def test_a_join_without_a_window_is_refused_in_the_words_of_the_papers() -> None:
    builder = KStreamBuilder()
    left, right = builder.from_("a"), builder.from_("b")
    windowed = left.with_window(Window(10))
    for method in ("join", "join_prior"):
        with pytest.raises(TypeError, match=rf"needs a window before {method}: call with_window first"):
            getattr(left, method)(windowed, lambda one, other: one)
    for join in (windowed.join, windowed.join_prior):
        with pytest.raises(TypeError, match=r"Expected a stream with a window.*join\(other.with_window\("):
            join(right, lambda one, other: one)  # type: ignore[arg-type]  # which is what is refused
    with pytest.raises(TypeError, match=r"Expected a Window for a join.*windows of aggregations"):
        left.with_window(TimeWindows.of_size_with_no_grace(10))  # type: ignore[arg-type]  # as above
