"""Windowed aggregations against what windows are by definition, on the test driver."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Serdes, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindow, TimeWindows, Window, Windows
from tests.support.tables import STRINGS, UNCACHED, Row, updates
from tests.support.windows import MUCH, ROWS, counts_of, expected_counts


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
