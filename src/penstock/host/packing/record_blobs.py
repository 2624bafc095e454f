"""Serialization of record batches as blobs, by column, for other processes and files."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from penstock.errors import IncompatibleCheckpointError
from penstock.record import DictionaryColumn, Int64Array, PartitionBatch, RecordBatch, column_of, rows_of

BATCH_VERSION = b"\x01"
"""The first byte of a blob of `encode_batch`."""

_Column = tuple[list[bytes | None], str, bytes]
_Numbers = tuple[int, str, bytes]
_Headers = list[tuple[tuple[str, bytes | None], ...]]

_ENCODER = msgspec.msgpack.Encoder()
_BATCH_DECODER = msgspec.msgpack.Decoder(tuple[str, int, _Column, _Column | None, _Numbers, _Numbers, _Headers | None])


def encode_batch(topic: str, partition: int, batch: RecordBatch, max_bytes: int) -> list[bytes]:
    """Return `batch` as ordered blobs of at most `max_bytes`; a larger record has its own.

    A blob is a byte for its format version, then MessagePack: checkpoints contain such blobs (see `carried`).
    """
    blob = BATCH_VERSION + _ENCODER.encode(
        (
            topic,
            partition,
            _encoded_column(batch.keys),
            None if batch.values is batch.keys else _encoded_column(batch.values),
            _encoded_numbers(batch.timestamps),
            _encoded_numbers(batch.offsets),
            batch.headers,
        )
    )
    if len(blob) <= max_bytes or len(batch) == 1:
        return [blob]
    pieces = min(len(batch), -(-len(blob) // max_bytes))
    size = -(-len(batch) // pieces)
    return [
        part
        for start in range(0, len(batch), size)
        for part in encode_batch(topic, partition, batch.slice(start, start + size), max_bytes)
    ]


def decode_batch(blob: bytes | memoryview) -> PartitionBatch:
    """Return topic, partition and records of a blob of `encode_batch`.

    Raises IncompatibleCheckpointError for a blob of another version.
    """
    if blob[:1] != BATCH_VERSION:
        raise IncompatibleCheckpointError(
            f"Records were written in version {bytes(blob[:1]).hex()} of their format; this version of Penstock reads "
            f"version {BATCH_VERSION.hex()}. Run the version of Penstock that wrote them."
        )
    topic, partition, keys, values, timestamps, offsets, headers = _BATCH_DECODER.decode(memoryview(blob)[1:])
    decoded_keys = _decoded_column(keys)
    decoded_values = decoded_keys if values is None else _decoded_column(values)
    rows = len(decoded_keys)
    times, positions = decoded_numbers(timestamps, rows), decoded_numbers(offsets, rows)
    batch = RecordBatch(decoded_keys, decoded_values, times, positions, headers)
    return PartitionBatch(topic, partition, batch)


def _encoded_column(column: Sequence[bytes | None]) -> _Column:
    """Return a column for MessagePack: entries, and dictionary indices, empty for plain columns."""
    if not isinstance(column, DictionaryColumn):
        return rows_of(column), "", b""
    entries, places = column.compact()
    kind = np.min_scalar_type(len(entries))
    return entries, kind.str, places.astype(kind).tobytes()


def _decoded_column(column: _Column) -> Sequence[bytes | None]:
    entries, kind, places = column
    return column_of(entries, np.frombuffer(places, kind).astype(np.int32)) if kind else entries


_STEPS = "steps"  # consecutive numbers


def _encoded_numbers(numbers: Int64Array) -> _Numbers:
    """Return numbers for MessagePack: minimum and differences to it, in the smallest type."""
    if not len(numbers):
        return 0, _STEPS, b""
    least = int(numbers.min())
    over = numbers.view(np.uint64) - np.int64(least).view(np.uint64)  # modulo 2**64: no difference overflows
    if bool((over == np.arange(len(over), dtype=np.uint64)).all()):
        return least, _STEPS, b""
    kind = np.min_scalar_type(int(over.max()))
    return least, kind.str, over.astype(kind).tobytes()


def decoded_numbers(encoded: _Numbers, count: int) -> Int64Array:
    """Return the `count` numbers of a column of a batch."""
    least, kind, over = encoded
    if kind == _STEPS:
        return np.arange(least, least + count, dtype=np.int64)
    numbers: Int64Array = (np.frombuffer(over, kind).astype(np.uint64) + np.int64(least).view(np.uint64)).view(np.int64)
    return numbers
