"""Aggregations by sliding window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock import SlidingWindows
from tests.support.tables import STRINGS, UNCACHED, Row
from tests.support.windows import MUCH, ROWS, counts_of, expected_counts


@given(ROWS, st.booleans())
def test_sliding_windows_end_with_a_record_or_begin_right_after_one(rows: list[Row], cached: bool) -> None:
    windows = SlidingWindows.of_time_difference_and_grace(10, MUCH)
    expected = expected_counts(rows, lambda row: [(row[2] - 10, row[2]), (row[2] + 1, row[2] + 11)])
    assert counts_of(windows, rows, STRINGS if cached else UNCACHED) == expected
