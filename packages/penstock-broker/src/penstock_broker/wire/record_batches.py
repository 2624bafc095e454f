"""Writing of record batches in Kafka's message format 2: records, header and checksum.

Not here: reading and checking batches, which the broker does (batch.py, records.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""The fields of a batch up to its records.

These are base offset, length, leader epoch, format, checksum, attributes, last offset delta, base timestamp, maximal
timestamp, producer id, producer epoch, base sequence and number of records.
"""

HEADER_SIZE: Final = HEADER.size
"""Size of a batch header in bytes."""

LENGTH_PREFIX: Final = 12
"""Bytes of base offset and length, which a batch's length field does not include."""

MAGIC: Final = 2
"""Number of the format."""

CHECKSUM_AT: Final = 17
"""Position of the checksum in a batch."""

CHECKSUMMED_FROM: Final = 21
"""Start of the checksummed region in a batch."""

TRANSACTIONAL: Final = 0x10
"""Attribute bit: the batch belongs to a transaction."""

_CHECKSUM: Final = struct.Struct(">I")


def encode_batch(fields: Iterable[int], records: bytes | memoryview) -> bytearray:
    """Return the bytes of a batch.

    Args:
        fields: those of HEADER; length, format and checksum are computed.
        records: the bytes of its records, compressed according to the attributes.
    """
    base_offset, _, leader_epoch, _, _, *described = fields
    batch = bytearray(HEADER_SIZE + len(records))
    batch[HEADER_SIZE:] = records
    HEADER.pack_into(batch, 0, base_offset, len(batch) - LENGTH_PREFIX, leader_epoch, MAGIC, 0, *described)
    _CHECKSUM.pack_into(batch, CHECKSUM_AT, crc32c(memoryview(batch)[CHECKSUMMED_FROM:]))
    return batch


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
) -> bytes:
    """Return the bytes of a record.

    The deltas (records, ms) are relative to base offset and base timestamp.
    """
    named = tuple(headers)
    content = bytearray(1)  # the attributes of a record, which are unused
    content += encode_varint(timestamp_delta) + encode_varint(offset_delta)
    content += _sized(key) + _sized(value) + encode_varint(len(named))
    for name, of_header in named:
        content += _sized(name.encode()) + _sized(of_header)
    return encode_varint(len(content)) + content


def encode_varint(value: int) -> bytes:
    """Return the bytes of a signed variable-length integer."""
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data
