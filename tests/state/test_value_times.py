"""The timestamp in the bytes of a value, with and without headers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.headers_layout import pack_headers
from penstock.state.layouts import pack_timestamp
from penstock.state.value_times import AFTER_HEADERS, AT_START

TIMES = st.integers(-1, 2**63 - 1)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=3).map(tuple)


@given(TIMES, TIMES, st.binary())
def test_the_timestamp_is_at_the_start(time: int, other: int, data: bytes) -> None:
    value = pack_timestamp(time) + data
    assert AT_START.timestamp_of(value) == time
    assert AT_START.with_timestamp(value, other) == pack_timestamp(other) + data


@given(HEADERS, TIMES, TIMES, st.binary())
def test_headers_stay_before_the_timestamp(
    headers: tuple[tuple[str, bytes | None], ...], time: int, other: int, data: bytes
) -> None:
    value = pack_headers(headers) + pack_timestamp(time) + data
    assert AFTER_HEADERS.timestamp_of(value) == time
    assert AFTER_HEADERS.with_timestamp(value, other) == pack_headers(headers) + pack_timestamp(other) + data
