"""The records of `__consumer_offsets` in Kafka's formats."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.groups.schemas import decode_record
from penstock_broker.wire.primitives import MalformedMessageError


@given(st.binary(max_size=40), st.none() | st.binary(max_size=80), st.sampled_from([0, 1, 2, 3, 5, 6, 7, 8, 99]))
def test_a_record_of_garbage_is_read_or_refused(key: bytes, value: bytes | None, kind: int) -> None:
    with suppress(MalformedMessageError):
        found = decode_record(kind.to_bytes(2, "big") + key, value)
        assert found is None or found.kind == kind
