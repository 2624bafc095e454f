"""The records of a batch: what clients write is read, what the broker writes reads back, garbage is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.batch import (
    InvalidBatchError,
    assign_offset,
    check_batch,
    check_produced,
    read_header,
)
from penstock_broker.records import (
    EndTransactionMarker,
    LogRecord,
    encode_marker,
    encode_records,
    read_marker,
    read_records,
    record_times,
)
from penstock_broker.wire.record_batches import HEADER_SIZE
from tests.support.record_batches import BatchRecord, Compression, encode_batch

MAX = 1 << 20
timestamps = st.integers(0, 2**41)
payloads = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), payloads), max_size=3).map(tuple)
records = st.lists(st.builds(BatchRecord, timestamps, payloads, payloads, headers), min_size=1, max_size=20)


@given(records, st.sampled_from(Compression), st.booleans(), st.integers(0, 2**50))
def test_the_records_of_a_producer_are_read(
    wanted: list[BatchRecord], compression: Compression, framed: bool, base_offset: int
) -> None:
    batch = memoryview(encode_batch(wanted, compression=compression, framed_snappy=framed))
    header = check_produced(batch, MAX)
    assert header.record_count == len(wanted)
    assert header.max_timestamp == max(record.timestamp for record in wanted)
    assign_offset(batch, base_offset, 0)
    assert check_batch(batch).next_offset == base_offset + len(wanted)
    expected = [
        LogRecord(base_offset + number, one.timestamp, one.key, one.value, one.headers)
        for number, one in enumerate(wanted)
    ]
    assert list(read_records(batch)) == expected
    assert list(record_times(batch)) == [(one.offset, one.timestamp) for one in expected]


@given(records, st.integers(0, 2**50))
def test_what_the_broker_writes_reads_back(wanted: list[BatchRecord], base_offset: int) -> None:
    written = [
        LogRecord(base_offset + number, one.timestamp, one.key, one.value, one.headers)
        for number, one in enumerate(wanted)
    ]
    batch = memoryview(encode_records(written))
    assert check_produced(batch, MAX).next_offset == base_offset + len(written)
    assert list(read_records(batch)) == written


@given(st.booleans(), st.integers(0, 2**31 - 1), st.integers(0, 2**62), st.integers(0, 2**15 - 1), timestamps)
def test_a_marker_reads_back(is_commit: bool, coordinator_epoch: int, producer: int, epoch: int, time: int) -> None:
    marker = EndTransactionMarker(is_commit, coordinator_epoch)
    batch = memoryview(encode_marker(marker, producer, epoch, time))
    header = check_batch(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.max_timestamp) == (producer, epoch, time)
    assert read_marker(batch) == marker


@given(st.binary(max_size=200), st.sampled_from(Compression), st.integers(1, 2**31 - 1))
def test_garbage_behind_a_right_checksum_is_refused(garbage: bytes, compression: Compression, count: int) -> None:
    batch = encode_batch([BatchRecord(5, b"key", b"value")])[:HEADER_SIZE] + garbage
    batch[21:23] = int(compression).to_bytes(2, "big")
    batch[57:61] = count.to_bytes(4, "big")
    view = memoryview(batch)
    try:
        read = list(read_records(view))
    except InvalidBatchError:
        return
    assert len(read) == read_header(view).record_count


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_a_marker_of_garbage_is_refused_or_of_another_kind(key: bytes, value: bytes) -> None:
    batch = encode_batch([BatchRecord(5, key, value)])
    try:
        marker = read_marker(memoryview(batch))
    except InvalidBatchError:
        return
    assert marker is None or key[2:4] in (b"\0\0", b"\0\1")


def test_no_records_are_read_beyond_the_batch() -> None:
    batch = encode_batch([BatchRecord(5, b"key", b"value")])
    batch[57:61] = (2).to_bytes(4, "big")
    with pytest.raises(InvalidBatchError, match="cannot be read"):
        list(read_records(memoryview(batch)))
