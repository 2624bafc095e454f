"""Stored keys of a base: digests of long keys, bounds and order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.lmdb.stored_keys import (
    LONGEST_KEY,
    bounds,
    in_order,
    long_key,
    long_value,
    may_share,
    same_group,
    value_after_key,
)

NUMBER = b"\x00\x07"
LONG = b"p" * 480
KEYS = st.one_of(
    st.binary(max_size=3),
    st.builds(lambda tail: LONG + tail, st.binary(max_size=2)),
    st.builds(lambda tail, size: LONG + tail * size, st.binary(min_size=1, max_size=1), st.integers(15, 40)),
)
BOUNDS = st.none() | KEYS


def stored(key: bytes) -> bytes:
    return long_key(NUMBER, key) if len(key) > LONGEST_KEY else NUMBER + key


def test_the_longest_key_of_lmdb_is_not_exceeded() -> None:
    assert len(stored(b"k" * 10_000)) == 511 > len(stored(b"k" * LONGEST_KEY))
    assert len({stored(LONG + b"x" * size) for size in range(100)}) == 100


@pytest.mark.parametrize("size", [0, LONGEST_KEY, LONGEST_KEY + 1])
def test_a_long_key_precedes_its_value(size: int) -> None:
    key = b"k" * size
    assert long_value(key, None) is None
    data = long_value(key, b"v")
    assert data is not None
    if size > LONGEST_KEY:
        assert key in data
        assert value_after_key(key, data) == b"v"
    else:
        assert data == b"v"


@given(st.dictionaries(KEYS, st.binary(max_size=2), min_size=1, max_size=8), BOUNDS, BOUNDS, st.booleans())
def test_entries_within_bounds_come_in_the_order_of_complete_keys(
    content: dict[bytes, bytes], low: bytes | None, high: bytes | None, reverse: bool
) -> None:
    first, last = bounds(NUMBER, low, high)
    rows = sorted((stored(key), long_value(key, value) or b"") for key, value in content.items())
    chunk = [row for row in rows if row[0] >= first and (last is None or row[0] < last)]
    wanted = [
        entry
        for entry in sorted(content.items(), reverse=reverse)
        if (low is None or entry[0] >= low) and (high is None or entry[0] < high)
    ]
    found = list(in_order(chunk[::-1] if reverse else chunk, low, high, reverse)) if chunk else []
    assert found == wanted


@given(KEYS, KEYS)
def test_only_keys_with_equal_first_bytes_form_a_group(one: bytes, other: bytes) -> None:
    together = one[:480] == other[:480] and len(one) >= 480
    assert same_group(stored(one), stored(other)) == together
    assert may_share(stored(one)) == (len(one) >= 480)
