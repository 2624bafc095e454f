"""Windows as columns equal windows one by one; groups are by key and start."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import CalendarWindows, TimeWindow, TimeWindows, UnlimitedWindows, Window, Windows
from penstock.processor.window_columns import grouped, window_columns


class Decades(Windows):
    """Windows of a user's own: the ten ms that hold a time, and the ten before."""

    size_ms = 10
    grace_period_ms = 0

    def windows_for(self, timestamp: int) -> Mapping[int, Window]:
        first = timestamp // 10 * 10
        return {start: TimeWindow(start, start + 10) for start in (first, first - 10) if start >= 0}


TIMES = st.lists(st.integers(0, 100), max_size=30)


@pytest.mark.parametrize(
    "windows",
    [
        TimeWindows.of_size_with_no_grace(7),
        TimeWindows.of_size_with_no_grace(10).advance_by(3),
        TimeWindows.of_size_with_no_grace((1 << 63) - 1),
        UnlimitedWindows.of().start_on(40),
        Decades(),
        CalendarWindows.days("Europe/Berlin", 0),
    ],
    ids=["tumbling", "hopping", "all of time", "unlimited", "users' own", "calendar"],
)
@given(TIMES)
def test_columns_have_the_windows_of_each_row(windows: Windows, times: list[int]) -> None:
    columns = window_columns(windows, np.array(times, np.int64))
    expected = [(row, window) for row, time in enumerate(times) for window in windows.windows_for(time).values()]
    assert columns.rows.tolist() == [row for row, _ in expected]
    assert [columns.window_at(start) for start in columns.starts.tolist()] == [window for _, window in expected]
    assert columns.ends.tolist() == [window.end for _, window in expected]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0, 10, 20, 700])), max_size=60), st.integers(6, 500))
def test_groups_are_the_distinct_pairs_of_key_and_start(pairs: list[tuple[int, int]], key_count: int) -> None:
    places, starts = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    numbers, group_places, group_starts = grouped(places, starts, key_count)
    groups = list(zip(group_places.tolist(), group_starts.tolist(), strict=True))
    assert len(set(groups)) == len(groups) == len(set(pairs))
    assert [groups[number] for number in numbers.tolist()] == pairs
