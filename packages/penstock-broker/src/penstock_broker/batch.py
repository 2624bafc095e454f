"""Record batches of Kafka's message format 2, in requests and in the log.

Contains the header of a batch, its validation, and patching of the fields that the broker sets (offset and leader
epoch). Not here: the records in a batch (records.py), files (segment.py) and offsets (partition.py).

Rules:
- A batch is stored as the producer sent it. The broker only overwrites fields before the checksummed region, so the
  producer's checksum remains valid; only a topic with append times needs a new checksum.
- No field is trusted before its length is checked; every failure is an InvalidBatchError with Kafka's error code.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock_broker.errors import ApiError
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.record_batches import (
    CHECKSUM_AT,
    CHECKSUMMED_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    TRANSACTIONAL,
)

NO_PRODUCER_ID: Final = -1
"""Producer id of a batch without an idempotent producer."""

NO_TIMESTAMP: Final = -1
"""Timestamp of a record without a timestamp."""

NO_SEQUENCE: Final = -1
"""Sequence number of records without an idempotent producer, and of markers."""

COMPRESSION_MASK: Final = 0x07
"""Bits of the attributes that hold the compression."""
ZSTD: Final = 4
"""The highest compression code that Kafka defines."""
LOG_APPEND_TIME: Final = 0x08
"""Attribute bit: all records have the append time, the largest timestamp of the batch."""
CONTROL: Final = 0x20
"""Attribute bit: the batch holds a marker."""
DELETE_HORIZON: Final = 0x40
"""Attribute bit: the base timestamp is the delete horizon.

Compaction may remove the tombstones or the marker from that time on (KIP-534).
"""

_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_CHECKSUM: Final = struct.Struct(">I")
_EPOCH_AT: Final = 12
_LOW_ATTRIBUTES_AT: Final = 22
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP_AT: Final = 35


class InvalidBatchError(ApiError):
    """A record batch is incomplete, not of format 2, or fails its checksum."""


class BatchHeader(NamedTuple):
    """The fixed fields at the start of a batch.

    Offsets are in records, lengths in bytes, times in ms.
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return LENGTH_PREFIX + self.length

    @property
    def next_offset(self) -> int:
        """Offset after the last record of the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, wrapping after 2^31 - 1 as the protocol requires."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def delete_horizon(self) -> int | None:
        """Time (ms) from which compaction may remove the tombstones or the marker; None if unset."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def is_control(self) -> bool:
        """Whether the batch holds markers of transactions instead of records."""
        return bool(self.attributes & CONTROL)


def read_header(view: memoryview | bytes, position: int = 0) -> BatchHeader:
    """Return the header at a position, unchecked.

    Args:
        view: bytes that hold at least the header.
        position: start of the header, in bytes.

    Raises:
        InvalidBatchError: fewer bytes are left than a header has.
    """
    try:
        return BatchHeader._make(HEADER.unpack_from(view, position))
    except struct.error as error:
        left = len(view) - position
        raise InvalidBatchError(
            ErrorCode.corrupt_message, f"a record batch of {left} bytes is shorter than its header of {HEADER_SIZE}"
        ) from error


def check_batch(view: memoryview) -> BatchHeader:
    """Return the header of the first batch, after checking format, length, checksum and count.

    Args:
        view: bytes that begin with the batch; more may follow.

    Raises:
        InvalidBatchError: with CORRUPT_MESSAGE or INVALID_RECORD.
    """
    header = check_intact(view)
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise InvalidBatchError(
            ErrorCode.invalid_record,
            f"the record batch counts {header.record_count} records and {header.last_offset_delta + 1} offsets",
        )
    return header


def check_intact(view: memoryview) -> BatchHeader:
    """Return the header of the first batch, after checking format, length and checksum.

    Args:
        view: bytes that begin with the batch, which compaction may have emptied; more may follow.

    Raises:
        InvalidBatchError: with CORRUPT_MESSAGE or INVALID_RECORD.
    """
    header = read_header(view)
    if header.magic != MAGIC:
        raise InvalidBatchError(
            ErrorCode.invalid_record,
            f"the record batch has message format {header.magic}; this broker serves format {MAGIC} only",
        )
    if header.length < HEADER_SIZE - LENGTH_PREFIX or header.size > len(view):
        raise InvalidBatchError(
            ErrorCode.corrupt_message, f"the record batch claims {header.size} bytes, and {len(view)} are available"
        )
    if crc32c(view[CHECKSUMMED_FROM : header.size]) != header.checksum:
        raise InvalidBatchError(ErrorCode.corrupt_message, "the record batch does not match its CRC32C checksum")
    return header


def check_produced(view: memoryview, max_bytes: int) -> BatchHeader:
    """Return the header of a produced batch, after checking everything the log relies on.

    Args:
        view: the records of one partition in a Produce request; exactly one batch.
        max_bytes: the topic's `max.message.bytes`.

    Raises:
        InvalidBatchError: the batch is damaged, too large, not the only one, or of an unsupported kind.
    """
    if len(view) > max_bytes:
        raise InvalidBatchError(
            ErrorCode.message_too_large,
            f"the record batch has {len(view)} bytes; max.message.bytes of the topic allows {max_bytes}",
        )
    header = check_batch(view)
    if header.size != len(view):
        raise InvalidBatchError(
            ErrorCode.invalid_record, f"{len(view) - header.size} bytes follow the one record batch that is allowed"
        )
    if header.is_control:
        raise InvalidBatchError(ErrorCode.invalid_record, "clients cannot write control batches")
    if header.is_transactional and header.producer_id == NO_PRODUCER_ID:
        raise InvalidBatchError(ErrorCode.invalid_record, "a batch of a transaction has no producer id")
    if header.producer_id != NO_PRODUCER_ID and header.base_sequence < 0:
        raise InvalidBatchError(
            ErrorCode.invalid_record,
            f"the batch of producer {header.producer_id} begins at sequence number {header.base_sequence}; at least 0",
        )
    if header.attributes & COMPRESSION_MASK > ZSTD:
        raise InvalidBatchError(
            ErrorCode.unsupported_compression_type, f"unknown compression {header.attributes & COMPRESSION_MASK}"
        )
    return header


def is_transactional(view: memoryview) -> bool:
    """Return whether an unchecked batch claims to belong to a transaction."""
    return len(view) >= HEADER_SIZE and bool(view[_LOW_ATTRIBUTES_AT] & TRANSACTIONAL)


def is_zstd(view: memoryview) -> bool:
    """Return whether an unchecked batch claims to be compressed with zstd."""
    return len(view) >= HEADER_SIZE and view[_LOW_ATTRIBUTES_AT] & COMPRESSION_MASK == ZSTD


def assign_offset(view: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write offset and leader epoch into a batch in place; the checksum stays valid.

    Args:
        view: a writable view of the batch.
        base_offset: offset of its first record.
        leader_epoch: epoch of the partition's leader.
    """
    _OFFSET.pack_into(view, 0, base_offset)
    _EPOCH.pack_into(view, _EPOCH_AT, leader_epoch)


def set_append_time(view: memoryview, header: BatchHeader, time: int) -> BatchHeader:
    """Set the append time of a batch in place, and return the new header.

    Args:
        view: a writable view of the batch.
        header: its header.
        time: the time in ms.
    """
    attributes = header.attributes | LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(view, CHECKSUMMED_FROM, attributes)
    _OFFSET.pack_into(view, _MAX_TIMESTAMP_AT, time)
    checksum = crc32c(view[CHECKSUMMED_FROM : header.size])
    _CHECKSUM.pack_into(view, CHECKSUM_AT, checksum)
    return header._replace(attributes=attributes, max_timestamp=time, checksum=checksum)
