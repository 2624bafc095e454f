"""The parser of record batches: what is whole is taken, what is not is refused with an error and nothing worse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.batch import InvalidBatchError, check_batch, check_produced
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.record_batches import BatchRecord, encode_batch

MAX = 1 << 20
timestamps = st.integers(0, 2**41)
payloads = st.none() | st.binary(max_size=200)
records = st.lists(st.builds(BatchRecord, timestamps, payloads, payloads), min_size=1, max_size=20)
one_record = [BatchRecord(5, b"key", b"value")]


def code_of(batch: bytes | bytearray, max_bytes: int = MAX) -> ErrorCode:
    with pytest.raises(InvalidBatchError) as caught:
        check_produced(memoryview(batch), max_bytes)
    assert caught.value.message
    return caught.value.code


@given(records, st.data())
def test_a_flipped_bit_after_the_checksum_is_found(wanted: list[BatchRecord], data: st.DataObject) -> None:
    batch = encode_batch(wanted)
    at = data.draw(st.integers(17, len(batch) - 1))
    batch[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(InvalidBatchError):
        check_batch(memoryview(batch))


@given(records, st.data())
def test_a_batch_cut_anywhere_is_refused(wanted: list[BatchRecord], data: st.DataObject) -> None:
    batch = encode_batch(wanted)
    cut = batch[: data.draw(st.integers(0, len(batch) - 1))]
    with pytest.raises(InvalidBatchError):
        check_batch(memoryview(cut))


@given(st.binary(max_size=300))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(InvalidBatchError):
        check_batch(memoryview(garbage))


def test_each_fault_of_a_produced_batch_has_its_error() -> None:
    batch = encode_batch(one_record)
    assert code_of(batch, max_bytes=10) == ErrorCode.message_too_large
    assert code_of(batch + b"x") == ErrorCode.invalid_record
    assert code_of(batch + batch) == ErrorCode.invalid_record
    assert code_of(encode_batch(one_record, attributes=0x20)) == ErrorCode.invalid_record
    assert code_of(encode_batch(one_record, attributes=0x10)) == ErrorCode.invalid_record
    sequenced = encode_batch(one_record, producer_id=7, producer_epoch=0, base_sequence=-1)
    assert code_of(sequenced) == ErrorCode.invalid_record
    assert code_of(encode_batch(one_record, attributes=0x07)) == ErrorCode.unsupported_compression_type
    old = bytearray(batch)
    old[16] = 1
    assert code_of(old) == ErrorCode.invalid_record
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    assert code_of(damaged) == ErrorCode.corrupt_message
    assert code_of(b"") == ErrorCode.corrupt_message
