"""The bytes of keys and values: their parts come back, and bounds hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.layouts import (
    MAX_SEQUENCE,
    SESSION_SUFFIX_SIZE,
    WINDOW_SUFFIX_SIZE,
    after,
    after_last,
    after_prefix,
    join_timestamps,
    pack_segment,
    pack_session,
    pack_version,
    pack_window,
    sequence_of,
    session_keys,
    session_of,
    split_timestamps,
    times_of,
    timestamp_of,
    version_of,
    window_keys,
    window_start_of,
)

KEYS = st.text("\x00\x01a\xff", max_size=4).map(lambda text: text.encode("latin-1"))
TIMES = st.integers(0, 2**62)
INTERVAL = 60_000


@given(st.lists(st.tuples(st.integers(-1, 2**62), st.none() | st.binary(max_size=5)), max_size=5))
def test_values_and_timestamps_come_back(rows: list[tuple[int, bytes | None]]) -> None:
    joined = join_timestamps(np.array([time for time, _ in rows], np.int64), [value for _, value in rows])
    assert [each is None for each in joined] == [value is None for _, value in rows]
    values, times = split_timestamps([each for each in joined if each is not None])
    present = [(time, value) for time, value in rows if value is not None]
    assert list(zip(times.tolist(), values, strict=True)) == present
    assert [timestamp_of(each) for each in joined if each is not None] == [time for time, _ in present]


@given(KEYS, KEYS)
def test_the_bound_after_a_prefix_parts_its_keys_from_all_others(prefix: bytes, key: bytes) -> None:
    bound = after_prefix(prefix)
    assert key.startswith(prefix) == (prefix <= key and (bound is None or key < bound))


@pytest.mark.parametrize(("prefix", "bound"), [(b"", None), (b"\xff\xff", None), (b"a\xff", b"b"), (b"a", b"b")])
def test_a_prefix_of_highest_bytes_has_no_bound(prefix: bytes, bound: bytes | None) -> None:
    assert after_prefix(prefix) == bound


@given(KEYS, KEYS)
def test_no_key_lies_between_a_key_and_the_next(key: bytes, other: bytes) -> None:
    assert (other <= key) == (other < after(key))


@given(KEYS, KEYS, TIMES, TIMES)
def test_the_last_bound_is_above_all_entries_up_to_its_key(key: bytes, other: bytes, time: int, earlier: int) -> None:
    low, high = sorted((key, other))
    first, last = sorted((time, earlier))
    assert low + pack_window(first, MAX_SEQUENCE) < after_last(high, pack_window(last, MAX_SEQUENCE))


@given(st.lists(st.tuples(KEYS, TIMES, TIMES), min_size=1, max_size=4))
def test_entry_keys_of_a_column_are_those_of_single_calls(rows: list[tuple[bytes, int, int]]) -> None:
    keys, starts, ends = ([row[part] for row in rows] for part in range(3))
    windows = window_keys(keys, np.array(starts, np.int64), INTERVAL)
    assert windows == [pack_segment(start // INTERVAL) + key + pack_window(start, 0) for key, start, _ in rows]
    assert [window_start_of(entry) for entry in windows] == times_of(windows, WINDOW_SUFFIX_SIZE).tolist() == starts
    sessions = session_keys(keys, np.array(starts, np.int64), np.array(ends, np.int64), INTERVAL)
    assert sessions == [pack_segment(end // INTERVAL) + key + pack_session(end, start) for key, start, end in rows]
    assert [session_of(entry) for entry in sessions] == [(end, start) for _, start, end in rows]
    assert times_of(sessions, SESSION_SUFFIX_SIZE).tolist() == ends


@given(KEYS, TIMES, TIMES, st.integers(0, MAX_SEQUENCE))
def test_suffixes_are_read_from_the_end_of_a_key(key: bytes, one: int, other: int, sequence: int) -> None:
    assert version_of(key + pack_version(one, other)) == (one, other)
    assert sequence_of(key + pack_window(one, sequence)) == sequence


@given(TIMES, TIMES)
def test_segments_sort_by_their_bytes(one: int, other: int) -> None:
    assert (pack_segment(one) < pack_segment(other)) == (one < other)
