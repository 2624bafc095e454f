"""Requests about parked records: their bytes, and which records they concern."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SerializationError
from penstock.processor.parked_requests import ParkedAction, ParkedRequest, ParkedRequestSerde

SERDE = ParkedRequestSerde()
KEYS = st.none() | st.binary(max_size=8)
REQUESTS = st.builds(
    ParkedRequest,
    st.sampled_from(ParkedAction),
    st.integers(0, 2**63 - 1),
    st.none() | st.lists(KEYS, max_size=3).map(tuple),
)


@given(REQUESTS)
def test_a_request_is_read_back(request: ParkedRequest) -> None:
    assert SERDE.deserialize("requests", SERDE.serialize("requests", request)) == request


def test_a_request_concerns_records_up_to_a_number() -> None:
    every = ParkedRequest(ParkedAction.RETRY, 7)
    assert [every.concerns(7, b"a"), every.concerns(8, b"a"), every.concerns(1, None)] == [True, False, True]


def test_a_request_concerns_the_records_of_its_keys() -> None:
    request = ParkedRequest(ParkedAction.DROP, 7, (b"a", None))
    assert [request.concerns(7, key) for key in (b"a", None, b"b", b"")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "in layout of no bytes; this version reads layout 01"),
        (b"\x02\x90", "in layout 02; this version reads layout 01"),
        (b"\x01\x90", "'requests' has a damaged request"),
        (b"\x01\x93\xa4burn\x07\xc0", "'requests' has a damaged request"),
    ],
)
def test_other_bytes_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(SerializationError, match=says):
        SERDE.deserialize("requests", data)
