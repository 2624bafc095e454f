"""The windows of a batch's rows, as columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from penstock.calendar_windows import CalendarWindows
from penstock.record import Int64Array
from penstock.windows import LONG_MAX, TimeWindow, TimeWindows, UnlimitedWindow, UnlimitedWindows, Window, Windows


class WindowColumns(NamedTuple):
    """One entry for each window of each row.

    The rows are ascending, and the windows of a row are in the order of `Windows.windows_for`.

    Args:
        rows: the row of each entry, an int64 array.
        starts: the start (ms) of each entry's window, an int64 array.
        ends: the end (ms) of each entry's window, an int64 array.
        window_at: returns the window with a given start.
    """

    rows: Int64Array
    starts: Int64Array
    ends: Int64Array
    window_at: Callable[[int], Window]

    def take(self, chosen: Int64Array) -> WindowColumns:
        """Return the entries at `chosen` (ascending)."""
        return WindowColumns(self.rows[chosen], self.starts[chosen], self.ends[chosen], self.window_at)


def window_columns(windows: Windows, timestamps: Int64Array) -> WindowColumns:
    """Return the windows of rows with `timestamps` (ms).

    They are the results of `windows.windows_for`.
    """
    match windows:
        case TimeWindows():
            return _time_windows(windows, timestamps)
        case CalendarWindows():
            rows = np.flatnonzero(timestamps >= 0)
            return WindowColumns(rows, *windows.periods.period_columns(timestamps[rows]), windows.window_from)
        case UnlimitedWindows():
            rows = np.flatnonzero(timestamps >= windows.start_ms)
            starts = np.full(len(rows), windows.start_ms, np.int64)
            return WindowColumns(rows, starts, np.full(len(rows), LONG_MAX, np.int64), UnlimitedWindow)
        case _:
            return _other_windows(windows, timestamps)


def _time_windows(windows: TimeWindows, timestamps: Int64Array) -> WindowColumns:
    size, advance = windows.size_ms, windows.advance_ms
    last = timestamps - timestamps % advance
    if size == advance:
        rows, starts = np.arange(len(timestamps), dtype=np.int64), last
    else:
        first = np.maximum(0, timestamps - size + advance) // advance * advance
        counts = (last - first) // advance + 1
        rows = np.repeat(np.arange(len(timestamps), dtype=np.int64), counts)
        place = np.arange(len(rows), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = first[rows] + place * advance
    ends = np.where(starts > LONG_MAX - size, LONG_MAX, starts + size)
    return WindowColumns(rows, starts, ends, lambda start: TimeWindow.of_size(start, size))


def _other_windows(windows: Windows, timestamps: Int64Array) -> WindowColumns:
    found = [
        (row, start, window)
        for row, timestamp in enumerate(timestamps.tolist())
        for start, window in windows.windows_for(timestamp).items()
    ]
    known = {start: window for _, start, window in found}
    return WindowColumns(
        np.fromiter((row for row, _, _ in found), np.int64, len(found)),
        np.fromiter((start for _, start, _ in found), np.int64, len(found)),
        np.fromiter((window.end for _, _, window in found), np.int64, len(found)),
        known.__getitem__,
    )


def grouped(key_places: Int64Array, starts: Int64Array, key_count: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Group entries by key and start.

    Args:
        key_places: the index of each entry's key.
        starts: the start (ms) of each entry's window.
        key_count: the number of distinct keys.

    Returns:
        The number of each entry's group, the index of each group's key, and each group's start.
    """
    if not len(starts):
        return starts, starts, starts
    distinct_starts, start_places = _distinct(starts)
    codes = key_places * len(distinct_starts) + start_places
    possible = key_count * len(distinct_starts)
    if possible <= 4 * len(codes):  # a table of all possible codes is cheaper than sorting
        present = np.zeros(possible, np.bool_)
        present[codes] = True
        group_codes = np.flatnonzero(present)
        numbers = (np.cumsum(present) - 1)[codes]
    else:
        group_codes, numbers = np.unique(codes, return_inverse=True)
    return numbers, group_codes // len(distinct_starts), distinct_starts[group_codes % len(distinct_starts)]


def _distinct(starts: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the distinct starts, and the index of each entry's start among them.

    Most batches have runs of equal starts.
    """
    changes = np.flatnonzero(starts[1:] != starts[:-1]) + 1
    if len(changes) * 8 > len(starts):
        found, places = np.unique(starts, return_inverse=True)
        return found, places.astype(np.int64)
    firsts = np.concatenate([np.zeros(1, np.int64), changes])
    found, run_places = np.unique(starts[firsts], return_inverse=True)
    return found, np.repeat(run_places.astype(np.int64), np.diff(np.append(firsts, len(starts))))
