"""The record collector: a task's output since the last commit, as bytes.

It is returned by partition or in the order of sending. Each record has a sequence number, its place in a depth-first
run; columns may arrive in any order of topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from penstock.record import Headers, Int64Array, PartitionBatch, RecordBatch, TopicPartition


class SentRecord(NamedTuple):
    """One record as it was sent; timestamp in ms."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


@dataclass
class _OpenRows:
    """Records sent one by one to one topic."""

    partitions: list[int] = field(default_factory=list)
    sequence: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)


class _Rows(NamedTuple):
    """Columns sent to one topic; sequence ascends."""

    partitions: Int64Array
    sequence: Int64Array
    batch: RecordBatch


class RecordCollector:
    """Collects the sinks' records (Kafka class: RecordCollector; seed text 002, 'record collector')."""

    def __init__(self) -> None:
        self._next = 0
        self._open: dict[str, _OpenRows] = {}
        self._rows: dict[str, list[_Rows]] = {}

    def send(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        """Add one record (timestamp in ms)."""
        rows = self._open.get(topic)
        if rows is None:
            rows = self._open[topic] = _OpenRows()
        rows.partitions.append(partition)
        rows.sequence.append(self._next)
        rows.keys.append(key)
        rows.values.append(value)
        rows.timestamps.append(timestamp)
        rows.headers.append(headers)
        self._next += 1

    def reserve(self, count: int) -> int:
        """Reserve `count` sequence numbers for the next columns; return the first."""
        first = self._next
        self._next += count
        return first

    def send_columns(self, topic: str, partitions: Int64Array, sequence: Int64Array, batch: RecordBatch) -> None:
        """Add the rows of `batch` (keys and values as bytes), each with its partition.

        sequence: the ascending sequence numbers of the rows.
        """
        if len(batch):
            self._close(topic)
            self._rows.setdefault(topic, []).append(_Rows(partitions, sequence, batch))

    def __len__(self) -> int:
        return sum(len(rows.keys) for rows in self._open.values()) + sum(
            len(r.batch) for rows in self._rows.values() for r in rows
        )

    def drain(self, repartition_topics: Set[str], lane_offsets: dict[TopicPartition, int]) -> list[PartitionBatch]:
        """Remove and return everything, by partition.

        Offsets start at 0 in each batch; those of a repartition topic continue from `lane_offsets`, which are advanced.
        """
        output: list[PartitionBatch] = []
        for topic in sorted({*self._open, *self._rows}):
            for partition, batch in self._take_by_partition(topic):
                first = 0
                if topic in repartition_topics:
                    lane = TopicPartition(topic, partition)
                    first = lane_offsets.get(lane, 0)
                    lane_offsets[lane] = first + len(batch)
                batch.offsets = np.arange(first, first + len(batch), dtype=np.int64)
                output.append(PartitionBatch(topic, partition, batch))
        return output

    def drain_in_order(self) -> Iterator[SentRecord]:
        """Remove and yield everything, record by record in the order of sending, across topics."""
        sent: list[tuple[int, SentRecord]] = []
        for topic in {*self._open, *self._rows}:
            rows = self._take(topic)
            batch = rows.batch
            for row, (sequence, partition, timestamp) in enumerate(
                zip(rows.sequence.tolist(), rows.partitions.tolist(), batch.timestamps.tolist(), strict=True)
            ):
                record = SentRecord(
                    topic, partition, batch.keys[row], batch.values[row], timestamp, batch.headers_at(row)
                )
                sent.append((sequence, record))
        sent.sort(key=lambda entry: entry[0])
        return iter([record for _, record in sent])

    def _close(self, topic: str) -> None:
        rows = self._open.pop(topic, None)
        if rows is None:
            return
        columns = _Rows(np.array(rows.partitions, np.int64), np.array(rows.sequence, np.int64), _batch(rows))
        self._rows.setdefault(topic, []).append(columns)

    def _take_by_partition(self, topic: str) -> Iterable[tuple[int, RecordBatch]]:
        """Remove and return the rows of `topic` by partition, each in the order of their sequence numbers."""
        rows = self._open.get(topic)
        if rows is None or topic in self._rows or rows.partitions.count(rows.partitions[0]) < len(rows.partitions):
            return _by_partition(self._take(topic))
        del self._open[topic]  # they need no order, such as the rows of a run of one record
        return [(rows.partitions[0], _batch(rows))]

    def _take(self, topic: str) -> _Rows:
        """Remove and return the rows of `topic` in the order of their sequence numbers."""
        self._close(topic)
        parts = self._rows.pop(topic)
        if len(parts) == 1:
            return parts[0]
        sequence = np.concatenate([part.sequence for part in parts])
        partitions = np.concatenate([part.partitions for part in parts])
        batch = RecordBatch.concat([part.batch for part in parts])
        if bool((sequence[1:] < sequence[:-1]).any()):
            order = np.argsort(sequence, kind="stable")
            return _Rows(partitions[order], sequence[order], batch.take(order))
        return _Rows(partitions, sequence, batch)


def _batch(rows: _OpenRows) -> RecordBatch:
    """Return the records of `rows`, without offsets."""
    return RecordBatch(
        rows.keys,
        rows.values,
        np.array(rows.timestamps, np.int64),
        np.zeros(len(rows.keys), np.int64),
        rows.headers if any(rows.headers) else None,
    )


def _by_partition(rows: _Rows) -> Iterator[tuple[int, RecordBatch]]:
    partitions = rows.partitions
    first = int(partitions[0])
    if bool((partitions == first).all()):
        yield first, rows.batch
        return
    order = np.argsort(partitions, kind="stable")
    ordered, batch = partitions[order], rows.batch.take(order)
    cuts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(ordered)]
    for start, stop in pairwise(cuts):
        yield int(ordered[start]), batch.slice(start, stop)
