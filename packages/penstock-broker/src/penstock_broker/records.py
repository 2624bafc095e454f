"""The records of a batch: decoding and encoding.

Records are decoded if the broker must inspect them, and encoded if it is the producer itself. Contains the format of
single records, compression, and the records of control batches (the markers that end transactions). Not here: the
header of a batch (batch.py).

Rule: a batch of a few bytes may announce gigabytes, so at most MOST_DECOMPRESSED bytes are decompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import cramjam

from penstock_broker.batch import (
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    InvalidBatchError,
    read_header,
)
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.record_batches import HEADER_SIZE, TRANSACTIONAL, encode_batch, encode_record, encode_varint

Headers = tuple[tuple[str, bytes | None], ...]
"""Record headers: (name, value) pairs; a name may occur twice (Kafka class: Headers)."""

MOST_DECOMPRESSED: Final = 16 * 1024 * 1024
"""Maximum size in bytes of the decompressed records of one batch."""

_ABORT, _COMMIT = 0, 1
_CONTROL_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")


class LogRecord(NamedTuple):
    """A record of the log; the timestamp is in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class StoredRecord(NamedTuple):
    """A record as seen by compaction.

    Args:
        offset: its offset.
        timestamp: its timestamp (ms).
        key: its key.
        has_value: whether it has a value; a record without a value is a tombstone.
        content: its bytes in the batch, from the attributes on.
        key_at: start of its key in the content.
    """

    offset: int
    timestamp: int
    key: bytes | None
    has_value: bool
    content: memoryview
    key_at: int


class EndTransactionMarker(NamedTuple):
    """The record of a control batch that ends a transaction (Kafka class: EndTransactionMarker)."""

    is_commit: bool
    coordinator_epoch: int


def read_records(view: memoryview) -> Iterator[LogRecord]:
    """Yield the records of a batch, in order.

    Args:
        view: bytes that begin with a checked batch.

    Raises:
        InvalidBatchError: the records cannot be decompressed or read.
    """
    header = read_header(view)
    with _reading(header):
        for record, key_at, offset, timestamp in _framed_records(view, header):
            yield _read_record(record, key_at, offset, timestamp)


def record_times(view: memoryview) -> Iterator[tuple[int, int]]:
    """Yield offset and timestamp (ms) of each record of a batch, in order.

    Args:
        view: bytes that begin with a checked batch.

    Raises:
        InvalidBatchError: the records cannot be decompressed or read.
    """
    header = read_header(view)
    with _reading(header):
        for _, _, offset, timestamp in _framed_records(view, header):
            yield offset, timestamp


def records_without_key(view: memoryview) -> Iterator[int]:
    """Yield the indices, from 0, of the records without a key in a batch.

    Args:
        view: bytes that begin with a checked batch.

    Raises:
        InvalidBatchError: the records cannot be decompressed or read.
    """
    header = read_header(view)
    with _reading(header):
        for place, (record, key_at, *_) in enumerate(_framed_records(view, header)):
            if _unpack_varint(record, key_at)[0] < 0:
                yield place


def stored_records(view: memoryview) -> Iterator[StoredRecord]:
    """Yield the records of a batch, in order.

    Args:
        view: bytes that begin with a checked batch.

    Raises:
        InvalidBatchError: the records cannot be decompressed or read.
    """
    header = read_header(view)
    with _reading(header):
        for content, key_at, offset, timestamp in _framed_records(view, header):
            key, value_at = _unpack_sized(content, key_at)
            value_size, _ = _unpack_varint(content, value_at)
            yield StoredRecord(offset, timestamp, key, value_size >= 0, content, key_at)


def encode_kept(header: BatchHeader, records: Sequence[StoredRecord], delete_horizon: int | None) -> bytearray:
    """Return a batch with the retained records; offsets and sequence numbers are unchanged.

    Args:
        header: the header of the batch.
        records: the records to keep; without records, the result is an empty batch, which keeps the producer's sequence
            numbers.
        delete_horizon: new time (ms) from which tombstones or the marker may be removed; None to leave it unchanged.
    """
    if not records:
        kinds = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
        return encode_batch(header._replace(attributes=kinds, base_timestamp=NO_TIMESTAMP, record_count=0), b"")
    if not header.attributes & LOG_APPEND_TIME:
        header = header._replace(max_timestamp=max(record.timestamp for record in records))
    header = header._replace(record_count=len(records))
    if delete_horizon is None:
        content = b"".join(encode_varint(len(record.content)) + record.content for record in records)
    else:
        # The times of the records are relative to the base timestamp, which is now the horizon.
        header = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=delete_horizon)
        content = b"".join(_with_base_timestamp(record, header) for record in records)
    return encode_batch(header, _compress(content, header.attributes & COMPRESSION_MASK))


def _with_base_timestamp(record: StoredRecord, header: BatchHeader) -> bytes:
    content = bytes(record.content[:1]) + encode_varint(record.timestamp - header.base_timestamp)
    content += encode_varint(record.offset - header.base_offset) + record.content[record.key_at :]
    return encode_varint(len(content)) + content


def encode_records(records: Sequence[LogRecord]) -> bytearray:
    """Return an uncompressed batch of records written by the broker itself.

    Args:
        records: at least one; their offsets are their final offsets in the log, without a gap.
    """
    return _encode_records(records, 0, NO_PRODUCER_ID, -1)


def encode_transactional_records(records: Sequence[LogRecord], producer_id: int, producer_epoch: int) -> bytearray:
    """Return a batch of records written by the broker itself in a producer's transaction.

    Args:
        records: as for encode_records.
        producer_id: the producer of the transaction.
        producer_epoch: its epoch.
    """
    return _encode_records(records, TRANSACTIONAL, producer_id, producer_epoch)


def _encode_records(records: Sequence[LogRecord], attributes: int, producer_id: int, producer_epoch: int) -> bytearray:
    first, last = records[0], records[-1]
    header = _header_of(first.offset, last.offset - first.offset, first.timestamp, len(records))._replace(
        attributes=attributes,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    encoded = [_encode_record(record, first.offset, first.timestamp) for record in records]
    return encode_batch(header, b"".join(encoded))


def encode_marker(marker: EndTransactionMarker, producer_id: int, producer_epoch: int, timestamp: int) -> bytearray:
    """Return the control batch that ends a transaction.

    Args:
        marker: commit or abort.
        producer_id: the producer of the transaction.
        producer_epoch: its epoch.
        timestamp: the time of its end (ms).
    """
    key = _CONTROL_KEY.pack(0, _COMMIT if marker.is_commit else _ABORT)
    record = LogRecord(0, timestamp, key, _MARKER_VALUE.pack(0, marker.coordinator_epoch))
    header = _header_of(0, 0, timestamp, 1)._replace(
        attributes=TRANSACTIONAL | CONTROL, producer_id=producer_id, producer_epoch=producer_epoch
    )
    return encode_batch(header, _encode_record(record, 0, timestamp))


def read_marker(view: memoryview) -> EndTransactionMarker | None:
    """Return the marker of a control batch, or None if it ends no transaction.

    The latter applies to other kinds of markers, and to the empty batches by which compaction preserves the state of
    producers.

    Args:
        view: bytes that begin with a checked control batch.

    Raises:
        InvalidBatchError: its record cannot be read.
    """
    record = next(read_records(view), None)
    if record is None:
        return None
    with _reading(read_header(view)):
        _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
    return EndTransactionMarker(kind == _COMMIT, coordinator_epoch)


def _header_of(base_offset: int, last_offset_delta: int, timestamp: int, count: int) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=0,
        magic=0,
        checksum=0,
        attributes=0,
        last_offset_delta=last_offset_delta,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        record_count=count,
    )


def _encode_record(record: LogRecord, base_offset: int, base_timestamp: int) -> bytes:
    offset, timestamp, key, value, headers = record
    return encode_record(offset - base_offset, timestamp - base_timestamp, key, value, headers)


def _framed_records(view: memoryview, header: BatchHeader) -> Iterator[tuple[memoryview, int, int, int]]:
    """Yield the bytes, key position, offset and timestamp of each record.

    The bytes begin with the attributes; the key position is relative to them.
    """
    fixed_time = header.attributes & LOG_APPEND_TIME
    data, position = memoryview(_decompress(view, header)), 0
    for _ in range(header.record_count):
        length, start = _unpack_varint(data, position)
        position = start + length
        if length < 1 or position > len(data):
            raise IndexError(f"a record of {length} bytes")
        record = data[start:position]
        timestamp_delta, at = _unpack_varint(record, 1)
        offset_delta, at = _unpack_varint(record, at)
        timestamp = header.max_timestamp if fixed_time else header.base_timestamp + timestamp_delta
        yield record, at, header.base_offset + offset_delta, timestamp


def _read_record(record: memoryview, start: int, offset: int, timestamp: int) -> LogRecord:
    key, at = _unpack_sized(record, start)
    value, at = _unpack_sized(record, at)
    count, at = _unpack_varint(record, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _unpack_sized(record, at)
        header_value, at = _unpack_sized(record, at)
        headers.append(((name or b"").decode(), header_value))
    return LogRecord(offset, timestamp, key, value, tuple(headers))


@contextmanager
def _reading(header: BatchHeader) -> Iterator[None]:
    """Raise an InvalidBatchError with the batch's offset if its records cannot be read."""
    try:
        yield
    except (IndexError, UnicodeDecodeError, struct.error, cramjam.DecompressionError) as error:
        raise InvalidBatchError(
            ErrorCode.corrupt_message, f"the records at offset {header.base_offset} cannot be read: {error}"
        ) from error


def _unpack_varint(data: memoryview, position: int) -> tuple[int, int]:
    result = shift = 0
    while shift < 70:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7
    raise IndexError("a variable-length integer has no end")


def _unpack_sized(data: memoryview, position: int) -> tuple[bytes | None, int]:
    size, start = _unpack_varint(data, position)
    if size < 0:
        return None, start
    if start + size > len(data):
        raise IndexError(f"{size} bytes are announced, and {len(data) - start} are left")
    return bytes(data[start : start + size]), start + size


def _decompressed(codec: Any, data: bytes) -> memoryview:
    """Return the decompressed data, of at most MOST_DECOMPRESSED bytes.

    A batch of a few bytes may announce gigabytes.
    """
    for size in (MOST_DECOMPRESSED // 16, MOST_DECOMPRESSED):
        buffer = memoryview(bytearray(size))
        try:
            return buffer[: codec.decompress_into(data, buffer)]
        except cramjam.DecompressionError:
            if size == MOST_DECOMPRESSED:
                raise
    raise AssertionError("the last size returns or raises")


def _decompress_snappy_block(data: bytes, room: int) -> bytes:
    size: int = cramjam.snappy.decompress_raw_len(data)
    if size > room:
        raise IndexError(f"more than {MOST_DECOMPRESSED} bytes are compressed in it")
    return bytes(cramjam.snappy.decompress_raw(data))


def _decompress_snappy(data: bytes) -> bytes:
    # Java clients frame snappy in their own format: a 16-byte preamble, then blocks with a length prefix.
    if not data.startswith(b"\x82SNAPPY\x00"):
        return _decompress_snappy_block(data, MOST_DECOMPRESSED)
    blocks, position, room = [], 16, MOST_DECOMPRESSED
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        blocks.append(_decompress_snappy_block(data[position + 4 : position + 4 + size], room))
        room -= len(blocks[-1])
        position += 4 + size
    return b"".join(blocks)


def _compress(data: bytes, compression: int) -> bytes:
    match compression:
        case 0:
            return data
        case 1:
            return bytes(cramjam.gzip.compress(data))
        case 2:
            return bytes(cramjam.snappy.compress_raw(data))
        case 3:
            # Java's client reads independent blocks only.
            compressor = cramjam.lz4.Compressor(block_linked=False)
            compressor.compress(data)
            return bytes(compressor.finish())
        case _:
            return bytes(cramjam.zstd.compress(data))


def _decompress(view: memoryview, header: BatchHeader) -> bytes | memoryview:
    data = bytes(view[HEADER_SIZE : header.size])
    match header.attributes & COMPRESSION_MASK:
        case 0:
            return data
        case 1:
            return _decompressed(cramjam.gzip, data)
        case 2:
            return _decompress_snappy(data)
        case 3:
            return _decompressed(cramjam.lz4, data)
        case _:
            return _decompressed(cramjam.zstd, data)
