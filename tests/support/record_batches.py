"""Record batches of format 2 as a producer makes them, for tests of the broker's log and protocol.

The encoder shares nothing with the broker's, so that a fault of either shows.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import cramjam
from crc32c import crc32c

from penstock.record import Headers


class Compression(IntEnum):
    """Compressions by their number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@dataclass(frozen=True)
class BatchRecord:
    """One record of a batch; the timestamp in ms."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def _varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _compress(data: bytes, compression: Compression, framed_snappy: bool) -> bytes:
    match compression:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return gzip.compress(data)
        case Compression.SNAPPY if framed_snappy:
            blocks = [bytes(cramjam.snappy.compress_raw(data[at : at + 100])) for at in range(0, len(data), 100)]
            return (
                b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)
            )
        case Compression.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(data))
        case Compression.LZ4:
            return bytes(cramjam.lz4.compress(data))
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data))


def encode_batch(
    records: Sequence[BatchRecord],
    *,
    compression: Compression = Compression.NONE,
    framed_snappy: bool = False,
    attributes: int = 0,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Return the bytes of a batch.

    Args:
        records: its records, at least one.
        compression: how the records are compressed.
        framed_snappy: whether snappy is framed as Java's clients do it.
        attributes: more bits of the attributes.
        base_offset: offset of the first record; a producer sends 0.
        producer_id: id of an idempotent producer.
        producer_epoch: its epoch.
        base_sequence: sequence number of the first record.
    """
    base_timestamp = records[0].timestamp
    body = bytearray()
    for number, record in enumerate(records):
        content = b"\x00" + _varint(record.timestamp - base_timestamp) + _varint(number)
        content += _sized(record.key) + _sized(record.value) + _varint(len(record.headers))
        content += b"".join(_sized(name.encode()) + _sized(text) for name, text in record.headers)
        body += _varint(len(content)) + content
    packed = _compress(bytes(body), compression, framed_snappy)
    checksummed = (
        struct.pack(
            ">hiqqqhii",
            attributes | compression,
            len(records) - 1,
            base_timestamp,
            max(record.timestamp for record in records),
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
        + packed
    )
    return bytearray(struct.pack(">qiibI", base_offset, len(checksummed) + 9, -1, 2, crc32c(checksummed)) + checksummed)
