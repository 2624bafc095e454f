"""Windowed aggregations against what windows are by definition, on the test driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    EmitStrategy,
    KTable,
    Materialized,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindow,
    TimeWindows,
    Window,
    Windows,
)
from penstock.testing import TestRecord, TopologyTestDriver
from tests.support.tables import STRINGS, UNCACHED, Row, updates

MUCH = 1_000_000
"""A grace (ms) in which no record comes too late."""

ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", "z"]), st.integers(10, 60)), max_size=20
)


def counts_of(windows: Any, rows: list[Row], config: Mapping[str, Any] = UNCACHED) -> dict[str, int | None]:
    """Return the last count of each windowed key, by its text."""
    builder = StreamsBuilder()
    table = builder.stream("in").group_by_key().windowed_by(windows).count()
    table.to_stream(lambda key, count: str(key)).to("out")
    return {key: value for key, value, _ in updates(builder, rows, config, Serdes.long())}


def expected_counts(rows: list[Row], windows: Callable[[Row], list[tuple[int, int]]]) -> dict[str, int]:
    """Return the counts of the windows [start, end] (both included) that `windows` says each row has part in making."""
    spans = {(key, *span) for key, value, time in rows for span in windows((key, value, time))}
    counts = {
        (key, start, end): sum(key == other and start <= time <= end for other, _, time in rows)
        for key, start, end in spans
    }
    return {f"[{key}@{start}/{end}]": count for (key, start, end), count in counts.items() if count}


@given(ROWS, st.booleans())
def test_hopping_windows_count_the_records_that_they_hold(rows: list[Row], cached: bool) -> None:
    windows = TimeWindows.of_size_and_grace(10, MUCH).advance_by(4)
    expected = expected_counts(
        rows, lambda row: [(start, start + 9) for start in range(0, row[2] + 1, 4) if start + 10 > row[2]]
    )
    found = counts_of(windows, rows, STRINGS if cached else UNCACHED)
    assert found == {
        f"{key.rpartition('/')[0]}/{int(key[:-1].rpartition('/')[2]) + 1}]": n for key, n in expected.items()
    }


@given(ROWS, st.booleans())
def test_sliding_windows_end_with_a_record_or_begin_right_after_one(rows: list[Row], cached: bool) -> None:
    windows = SlidingWindows.of_time_difference_and_grace(10, MUCH)
    expected = expected_counts(rows, lambda row: [(row[2] - 10, row[2]), (row[2] + 1, row[2] + 11)])
    assert counts_of(windows, rows, STRINGS if cached else UNCACHED) == expected


@given(ROWS, st.booleans())
def test_sessions_are_what_no_gap_divides(rows: list[Row], cached: bool) -> None:
    def session(row: Row) -> list[tuple[int, int]]:
        start = end = row[2]
        times = sorted({time for key, _, time in rows if key == row[0]})
        for time in reversed(times):
            start = time if start - 3 <= time <= start else start
        for time in times:
            end = time if end <= time <= end + 3 else end
        return [(start, end)]

    windows = SessionWindows.of_inactivity_gap_and_grace(3, MUCH)
    found = counts_of(windows, rows, STRINGS if cached else UNCACHED)
    assert {key: count for key, count in found.items() if count is not None} == expected_counts(rows, session)


def test_an_update_after_end_and_grace_is_dropped() -> None:
    windows = TimeWindows.of_size_and_grace(10, 5)
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(windows).count().to_stream(lambda key, n: str(key)).to("out")
    rows: list[Row] = [("a", "x", 3), ("b", "x", 14), ("a", "x", 4), ("b", "x", 15), ("a", "x", 5)]
    assert updates(builder, rows, UNCACHED, Serdes.long()) == [
        ("[a@0/10]", 1, 3),
        ("[b@10/20]", 1, 14),
        ("[a@0/10]", 2, 4),
        ("[b@10/20]", 2, 15),
    ]


def test_null_values_count_in_time_windows_and_sessions_but_not_in_sliding_windows() -> None:
    rows: list[Row] = [("a", None, 20), (None, "x", 21)]
    assert counts_of(TimeWindows.of_size_with_no_grace(100), rows) == {"[a@0/100]": 1}
    assert counts_of(SessionWindows.of_inactivity_gap_with_no_grace(5), rows) == {"[a@20/20]": 1}
    assert counts_of(SlidingWindows.of_time_difference_with_no_grace(5), rows) == {}


class Night(Windows):
    """Windows of a user's own, of two lengths."""

    size_ms = 20
    grace_period_ms = 0

    def windows_for(self, timestamp: int) -> Mapping[int, Window]:
        day, hour = divmod(timestamp, 30)
        start, end = (0, 20) if hour < 20 else (20, 30)
        return {day * 30 + start: TimeWindow(day * 30 + start, day * 30 + end)}


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_a_users_own_windows_are_asked_for_every_record(execution: str) -> None:
    rows: list[Row] = [("a", "x", 1), ("a", "x", 19), ("a", "x", 21), ("a", "x", 30)]
    config = {**UNCACHED, "penstock.execution": execution}
    assert counts_of(Night(), rows, config) == {"[a@0/20]": 2, "[a@20/30]": 1, "[a@30/50]": 1}


# ---------------------------------------- final results


def final(windows: Any, aggregate: Callable[[Any], KTable] = lambda stream: stream.count()) -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream("in").group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.on_window_close())
    aggregate(stream).to_stream(lambda key, value: str(key)).to("out")
    return builder


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (TimeWindows.of_size_with_no_grace(10), [("[a@10/20]", 2, 15), ("[b@20/30]", 1, 21)]),
        (SessionWindows.of_inactivity_gap_with_no_grace(5), [("[a@11/15]", 2, 15), ("[b@21/21]", 1, 21)]),
        (
            SlidingWindows.of_time_difference_with_no_grace(8),
            [("[a@3/11]", 1, 11), ("[a@7/15]", 2, 15), ("[a@12/20]", 1, 15), ("[b@13/21]", 1, 21)],
        ),
    ],
    ids=["tumbling", "session", "sliding"],
)
def test_each_window_has_one_final_result_in_the_order_of_time(windows: Any, expected: list[Any]) -> None:
    rows: list[Row] = [("a", "x", 11), ("a", "x", 15), ("b", "x", 21), ("c", "x", 35)]
    config = {**UNCACHED, "penstock.emit.interval.ms": 0}
    assert updates(final(windows), rows, config, Serdes.long()) == expected


def test_final_results_wait_for_the_interval_of_wall_clock_time() -> None:
    builder, serde = final(TimeWindows.of_size_with_no_grace(10)), Serdes.string()
    config = {"application.id": "app", **STRINGS, "penstock.emit.interval.ms": 1000}
    with TopologyTestDriver(builder.build(), config, 5000) as driver:
        source = driver.create_input_topic("in", serde, serde)
        output = driver.create_output_topic("out", serde, Serdes.long())

        def emitted(time: int) -> list[str]:
            source.pipe_input(TestRecord("a", "x", timestamp=time))
            return [record.key for record in output.read_records_to_list()]

        assert emitted(3) == []  # the first look, which finds nothing closed
        driver.advance_wall_clock_time(999)
        assert emitted(12) == []
        driver.advance_wall_clock_time(1)
        assert emitted(13) == ["[a@0/10]"]
        driver.advance_wall_clock_time(1000)
        assert emitted(14) == []  # no further window is closed
        driver.advance_wall_clock_time(1000)
        assert emitted(35) == ["[a@10/20]"]


def test_final_results_carry_the_headers_of_the_record_that_closed_the_window() -> None:
    builder, serde = final(TimeWindows.of_size_with_no_grace(10)), Serdes.string()
    config = {"application.id": "app", **STRINGS, "penstock.emit.interval.ms": 0}
    with TopologyTestDriver(builder.build(), config) as driver:
        source = driver.create_input_topic("in", serde, serde)
        source.pipe_input(TestRecord("a", "x", headers=(("h", b"1"),), timestamp=1))
        source.pipe_input(TestRecord("b", "x", headers=(("h", b"2"),), timestamp=10))
        (record,) = driver.create_output_topic("out", serde, Serdes.long()).read_records_to_list()
    assert (record.key, record.headers) == ("[a@0/10]", (("h", b"2"),))


# ---------------------------------------- cogroups


def test_a_cogroup_aggregates_each_stream_by_its_own_function() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    xs = stream.filter(lambda key, value: value == "x").group_by_key()
    others = stream.filter(lambda key, value: value != "x").group_by_key()
    table = (
        xs.cogroup(lambda key, value, aggregate: aggregate + "X")
        .cogroup(others, lambda key, value, aggregate: aggregate + "-")
        .windowed_by(TimeWindows.of_size_and_grace(10, 0))
        .aggregate(lambda: "", Materialized.with_(key_serde=Serdes.string(), value_serde=Serdes.string()))
    )
    table.to_stream(lambda key, value: str(key)).to("out")
    rows: list[Row] = [("a", "x", 1), ("a", "y", 2), ("b", "y", 3), ("a", "x", 11)]
    assert updates(builder, rows) == [
        ("[a@0/10]", "X", 1),
        ("[a@0/10]", "X-", 2),
        ("[b@0/10]", "-", 3),
        ("[a@10/20]", "X", 11),
    ]
