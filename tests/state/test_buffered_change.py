"""The bytes of a waiting update."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.api import RecordContext
from penstock.state.buffered_change import BufferedChange, pack_change, unpack_change


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


@given(st.builds(BufferedChange, PARTS, PARTS, PARTS, CONTEXTS))
def test_an_update_comes_back(change: BufferedChange) -> None:
    assert unpack_change(pack_change(change)) == change


def test_an_old_value_that_is_also_the_prior_one_is_stored_once() -> None:
    context = RecordContext(1, ())
    once, without, twice = (
        len(pack_change(BufferedChange(b"value", old, None, context))) for old in (b"value", None, b"other")
    )
    assert once == without == twice - 5
