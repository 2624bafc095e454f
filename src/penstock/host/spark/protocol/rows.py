"""The rows that flow between the stages of the query.

A row is a record batch of up to `penstock.row.max.bytes`, or a message of the protocol.

Schema: (dst, kind, level, task, lane, sequence, batch). level and task are the destination of a row: the number of a
task in its level, or a sink partition at the level after the last. dst is the Spark partition of the next shuffle only:
task modulo the partitions of the next level, which for a row of that level is the partition of its task. A shuffle
guarantees no order, so (lane, sequence) restores it: lane is the number of the task that wrote the row, over all
levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

SCHEMA_DDL = "dst int, kind int, level int, task int, lane int, sequence int, batch binary"
"""The schema of a row in Spark."""

_SCHEMA = pa.schema(
    [(name, pa.int32()) for name in ("dst", "kind", "level", "task", "lane", "sequence")] + [("batch", pa.binary())]
)

CONTROL, DATA, OUTPUT, HEAD, FAILURE = range(5)
"""Kinds of rows: control of a task or a sink partition; input of a task; output of a task to a topic; the report of a
task; an error that ends the query.
"""

_ENCODER = msgspec.msgpack.Encoder()
_FRAME_BYTES = 8 * 1024 * 1024


class Row(NamedTuple):
    """One row; see the module docstring."""

    kind: int
    level: int
    task: int
    lane: int
    sequence: int
    batch: bytes


def encode_message(value: Any) -> bytes:
    """Return a message of the protocol (tuples of numbers, texts and bytes) as a blob."""
    return _ENCODER.encode(value)


def decode_message(blob: bytes) -> Any:
    """Return the message that `encode_message` wrote; tuples become lists."""
    return msgspec.msgpack.decode(blob)


def read_rows(frames: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Yield the rows of Arrow frames."""
    for frame in frames:
        columns = [column.to_pylist() for column in frame.columns[1:]]
        yield from map(Row._make, zip(*columns, strict=True))


def read_spark_rows(rows: Iterable[Sequence[Any]]) -> Iterator[Row]:
    """Yield the rows of Spark's own row objects."""
    return (Row._make(row[1:]) for row in rows)


def write_rows(rows: Iterable[Row], partitions: int) -> Iterator[pa.RecordBatch]:
    """Yield `rows` as Arrow frames of about 8 MiB.

    The next level has `partitions` Spark partitions.
    """
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
