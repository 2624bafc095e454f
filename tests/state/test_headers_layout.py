"""The bytes of headers kept with a value."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.record import Headers
from penstock.state.headers_layout import pack_headers, unpack_headers, without_headers

HEADERS: Headers = (("h", b"1"), ("none", None))


@given(st.lists(st.tuples(st.text(max_size=200), st.none() | st.binary(max_size=200)), max_size=4), st.binary())
def test_headers_come_back(given_headers: list[tuple[str, bytes | None]], rest: bytes) -> None:
    headers = tuple(given_headers)
    data = pack_headers(headers) + rest
    found, at = unpack_headers(data)
    assert (found, data[at:], without_headers(data)) == (headers, rest, rest)


def test_headers_are_laid_out_as_in_kafka() -> None:
    assert pack_headers(()) == b"\x00"
    assert pack_headers(HEADERS) == b"\x16\x04\x02h\x021\x08none\x01"
