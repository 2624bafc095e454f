"""Aggregations by session."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock import SessionWindows
from tests.support.tables import STRINGS, UNCACHED, Row
from tests.support.windows import MUCH, ROWS, counts_of, expected_counts


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
