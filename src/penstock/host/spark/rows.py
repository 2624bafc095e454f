"""The rows that flow between the stages of the query: one row is a record batch of up to `penstock.row.max.bytes`, or a
message of the protocol.

Schema: (dst, kind, level, task, lane, sequence, batch). level and task say where a row is going: the number of a task
in its level, or a sink partition at the level behind the last. dst is the Spark partition of the next shuffle only:
task modulo the partitions of the next level, which for a row of that level is the partition of its task. A shuffle
promises no order, so (lane, sequence) restores it: lane is the number of the task that wrote the row, over all levels.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from penstock.record import DictionaryColumn, Int64Array, RecordBatch, column_of, rows_of

SCHEMA_DDL = "dst int, kind int, level int, task int, lane int, sequence int, batch binary"
"""The schema of a row as Spark reads it."""

_SCHEMA = pa.schema(
    [(name, pa.int32()) for name in ("dst", "kind", "level", "task", "lane", "sequence")] + [("batch", pa.binary())]
)

CONTROL, DATA, OUTPUT, HEAD, FAILURE = range(5)
"""Kinds of rows: what a task or a sink partition may know of the epoch; input of a task; output of a task to a topic;
the report of a task; an error that ends the query."""

_MARSHAL_VERSION = 2  # without references between objects: smaller and three times as fast to write
_FRAME_BYTES = 8 * 1024 * 1024


class TaskInput(NamedTuple):
    """Records of one lane of one partition, as bytes: what a task is given."""

    lane: int
    topic: str
    partition: int
    batch: RecordBatch


class Row(NamedTuple):
    """One row; see the module."""

    kind: int
    level: int
    task: int
    lane: int
    sequence: int
    batch: bytes


def encode_batch(topic: str, partition: int, batch: RecordBatch, max_bytes: int) -> list[bytes]:
    """Return `batch` as blobs of at most `max_bytes` each where its records allow it, in order."""
    blob = marshal.dumps(
        (
            topic,
            partition,
            _encoded_column(batch.keys),
            None if batch.values is batch.keys else _encoded_column(batch.values),
            _encoded_numbers(batch.timestamps),
            _encoded_numbers(batch.offsets),
            batch.headers,
        ),
        _MARSHAL_VERSION,
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


def decode_batch(blob: bytes | memoryview) -> tuple[str, int, RecordBatch]:
    """Return topic, partition and records of a blob made by `encode_batch`."""
    topic, partition, keys, values, timestamps, offsets, headers = marshal.loads(blob)
    keys = _decoded_column(keys)
    values = keys if values is None else _decoded_column(values)
    rows = len(keys)
    batch = RecordBatch(keys, values, _decoded_numbers(timestamps, rows), _decoded_numbers(offsets, rows), headers)
    return topic, partition, batch


def _encoded_column(column: Sequence[bytes | None]) -> Any:
    """Return a column for marshal: the list itself, or the entries and the places of a dictionary."""
    if not isinstance(column, DictionaryColumn):
        return rows_of(column)
    entries, places = column.compact()
    kind = np.min_scalar_type(len(entries))
    return entries, kind.str, places.astype(kind).tobytes()


def _decoded_column(column: Any) -> Sequence[bytes | None]:
    if isinstance(column, list):
        return column
    entries, kind, places = column
    return column_of(entries, np.frombuffer(places, kind).astype(np.int32))


_STEPS = "steps"  # numbers that go up by one


def _encoded_numbers(numbers: Int64Array) -> tuple[int, str, bytes]:
    """Return numbers for marshal: the least, and by how much each is larger, in as few bytes as that needs."""
    if not len(numbers):
        return 0, _STEPS, b""
    least = int(numbers.min())
    over = numbers.view(np.uint64) - np.int64(least).view(np.uint64)  # modulo 2**64: no distance is too large
    if bool((over == np.arange(len(over), dtype=np.uint64)).all()):
        return least, _STEPS, b""
    kind = np.min_scalar_type(int(over.max()))
    return least, kind.str, over.astype(kind).tobytes()


def _decoded_numbers(encoded: tuple[int, str, bytes], count: int) -> Int64Array:
    least, kind, over = encoded
    if kind == _STEPS:
        return np.arange(least, least + count, dtype=np.int64)
    numbers: Int64Array = (np.frombuffer(over, kind).astype(np.uint64) + np.int64(least).view(np.uint64)).view(np.int64)
    return numbers


def size_of(batch: RecordBatch) -> int:
    """Return the bytes of the keys and values of `batch`."""
    return _bytes_of(batch.keys) + _bytes_of(batch.values)


def _bytes_of(column: Sequence[bytes | None]) -> int:
    if isinstance(column, DictionaryColumn):
        sizes = np.array([0 if entry is None else len(entry) for entry in column.entries()], np.int64)
        return int(sizes[column.places].sum())
    try:
        return sum(map(len, cast("Sequence[bytes]", column)))
    except TypeError:  # one is None
        return sum(map(len, filter(None, column)))


def encode_message(value: Any) -> bytes:
    """Return a message of the protocol (tuples of numbers, texts and bytes) as a blob."""
    return marshal.dumps(value, _MARSHAL_VERSION)


def decode_message(blob: bytes) -> Any:
    """Return the message that `encode_message` wrote."""
    return marshal.loads(blob)


def read_rows(frames: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Yield the rows of Arrow frames."""
    for frame in frames:
        columns = [column.to_pylist() for column in frame.columns[1:]]
        yield from map(Row._make, zip(*columns, strict=True))


def write_rows(rows: Iterable[Row], partitions: int) -> Iterator[pa.RecordBatch]:
    """Yield `rows` as Arrow frames of about 8 MiB, for a next level of `partitions` Spark partitions."""
    pending: list[Row] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row.batch)
        if size >= _FRAME_BYTES:
            yield _frame(pending, partitions)
            pending, size = [], 0
    yield _frame(pending, partitions)


def _frame(rows: list[Row], partitions: int) -> pa.RecordBatch:
    columns = [pa.array([row.task % partitions for row in rows], pa.int32())]
    columns.extend(pa.array([row[field] for row in rows], pa.int32()) for field in range(5))
    columns.append(pa.array([row.batch for row in rows], pa.binary()))
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
