"""Aggregations by sliding window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import SlidingWindows, StreamsBuilder
from tests.support.tables import STRINGS, UNCACHED, Row
from tests.support.windows import MUCH, ROWS, counts_of, expected_counts
from tests.task.topologies import output_of


@given(ROWS, st.booleans())
def test_sliding_windows_end_with_a_record_or_begin_right_after_one(rows: list[Row], cached: bool) -> None:
    windows = SlidingWindows.of_time_difference_and_grace(10, MUCH)
    expected = expected_counts(rows, lambda row: [(row[2] - 10, row[2]), (row[2] + 1, row[2] + 11)])
    assert counts_of(windows, rows, STRINGS if cached else UNCACHED) == expected


def counted(rows: list[Row], grace: int, execution: str) -> list[Row]:
    builder = StreamsBuilder()
    windows = SlidingWindows.of_time_difference_and_grace(10, grace)
    table = builder.stream("in").group_by_key().windowed_by(windows).count()
    table.to_stream(lambda key, count: str(key)).map_values(str).to("out")
    return output_of(builder.build(), rows, execution=execution)


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_records_earlier_than_the_difference_share_the_first_window(execution: str) -> None:
    rows: list[Row] = [("a", "x", 3), ("a", "x", 5), ("a", "x", 3)]
    assert counted(rows, 100, execution) == [
        ("[a@0/10]", "1", 3),
        ("[a@4/14]", "1", 5),
        ("[a@0/10]", "2", 5),
        ("[a@0/10]", "3", 5),
    ]


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_a_record_changes_the_windows_that_are_open_for_it(execution: str) -> None:
    rows: list[Row] = [("a", "x", 20), ("b", "x", 35), ("a", "x", 18), ("a", "x", 24), (None, "x", 40), ("a", None, 9)]
    assert counted(rows, 5, execution) == [
        ("[a@10/20]", "1", 20),
        ("[b@25/35]", "1", 35),
        ("[a@21/31]", "1", 24),
    ]
