"""The bytes of a waiting update."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.api import RecordContext
from penstock.state.buffered_change import (
    BufferedChange,
    Origins,
    pack_change,
    pack_origin,
    unpack_change,
    unpack_origin,
    with_origins,
)


def test_an_update_is_laid_out_as_in_kafka() -> None:
    change = BufferedChange(b"p", b"p", None, RecordContext(1, (("h", None),), "t", 3, 2))
    data = pack_change(change)
    origin = "0000000000000001 0000000000000002 00000001 74 00000003 00000001 00000001 68 ffffffff"
    assert data == bytes.fromhex(f"{origin} 00000001 70 fffffffe ffffffff")
    assert unpack_change(data) == change


PARTS = st.none() | st.binary(max_size=4)
HEADERS = st.lists(st.tuples(st.text(max_size=3), PARTS), max_size=3).map(tuple)
NUMBERS = st.integers(-1, 2**62)
CONTEXTS = st.builds(RecordContext, NUMBERS, HEADERS, st.none() | st.text(max_size=3), st.integers(-1, 9), NUMBERS)


ORIGINS = st.none() | st.builds(Origins, PARTS, PARTS)


@given(st.builds(BufferedChange, PARTS, PARTS, PARTS, CONTEXTS, ORIGINS))
def test_an_update_comes_back(change: BufferedChange) -> None:
    assert unpack_change(pack_change(change)) == change


@given(CONTEXTS)
def test_the_origin_of_a_value_is_headers_and_timestamp(context: RecordContext) -> None:
    assert unpack_origin(pack_origin(context)) == (context.headers, context.timestamp)


def test_a_value_without_an_origin_gets_the_time_of_its_update() -> None:
    change = BufferedChange(b"p", None, b"n", RecordContext(7, (("h", b"1"),)))
    given = with_origins(change)
    assert given == with_origins(given) == change._replace(origins=Origins(bytes(8) + b"\x07", None))
    assert unpack_origin(None) == ((), -1)


def test_an_old_value_that_is_also_the_prior_one_is_stored_once() -> None:
    context = RecordContext(1, ())
    once, without, twice = (
        len(pack_change(BufferedChange(b"value", old, None, context))) for old in (b"value", None, b"other")
    )
    assert once == without == twice - 5
