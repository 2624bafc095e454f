"""Writing of record batches, compared with another encoder and with the format's documentation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.batch import check_intact
from penstock_broker.wire.record_batches import HEADER_SIZE, encode_batch, encode_record, encode_varint
from tests.support.record_batches import BatchRecord
from tests.support.record_batches import encode_batch as encode_independently

BYTES = st.none() | st.binary(max_size=100)
RECORDS = st.builds(
    BatchRecord, st.integers(0, 10**13), BYTES, BYTES, st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3)
)


@given(st.lists(RECORDS, min_size=1, max_size=5))
def test_a_batch_is_that_of_another_encoder(records: list[BatchRecord]) -> None:
    expected = encode_independently(records)
    first = records[0].timestamp
    written = b"".join(
        encode_record(number, one.timestamp - first, one.key, one.value, one.headers)
        for number, one in enumerate(records)
    )
    header = check_intact(memoryview(expected))
    assert encode_batch(header._replace(length=0, magic=0, checksum=0), written) == expected


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**63), "ff" * 9 + "01"),
    ],
)
def test_a_signed_number_near_zero_is_short(value: int, content: str) -> None:
    assert encode_varint(value).hex() == content


def test_null_is_not_empty() -> None:
    null = encode_record(0, 0, None, None, [("h", None)])
    empty = encode_record(0, 0, b"", b"", [("h", b"")])
    assert null.hex(" ") == "12 00 00 00 01 01 02 02 68 01"
    assert empty.hex(" ") == "12 00 00 00 00 00 02 02 68 00"


def test_a_batch_without_records_is_intact() -> None:
    empty = encode_batch([7, 0, 3, 0, 0, 0, 4, 10, 20, -1, -1, -1, 0], b"")
    header = check_intact(memoryview(empty))
    assert (header.size, header.base_offset, header.next_offset, header.leader_epoch) == (HEADER_SIZE, 7, 12, 3)
