"""The source records of a task since its caches were flushed, by partition and offset.

A partition after a shuffle has lanes with separate offsets. The record in progress belongs to the lane of the current
batch. A record from a cache may belong to any lane, so it is known only if no other lane has its offset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from penstock.record import RecordBatch, RecordMetadata, TopicPartition

_Bytes = tuple[bytes | None, bytes | None]


class _Run:
    """Batches whose offsets ascend from each to the next, so that a search needs few steps."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: list[RecordBatch] = []

    def precedes(self, batch: RecordBatch) -> bool:
        """Return whether all offsets here are smaller than those of `batch`."""
        return int(self._batches[-1].offsets[-1]) < int(batch.offsets[0])

    def add(self, batch: RecordBatch) -> None:
        """Add a batch after all others."""
        self._firsts.append(int(batch.offsets[0]))
        self._batches.append(batch)

    def batch_at(self, offset: int) -> RecordBatch | None:
        """Return the last batch that begins at `offset` or before."""
        place = bisect_right(self._firsts, offset)
        return self._batches[place - 1] if place else None


class SourceRecords:
    """The source records of a task, by partition and offset.

    They are kept until the caches are flushed, for exception handlers and sinks of dropped records, which read the
    bytes of a record.
    """

    def __init__(self) -> None:
        self._kept: dict[TopicPartition, list[_Run]] = {}
        self._current: dict[TopicPartition, RecordBatch] = {}
        self.place_is_earlier = False
        """Whether the current record has the place of an earlier one, which an operator has kept."""
        self._are_hidden = False
        self._are_flushed = False
        self._stored: tuple[RecordMetadata, _Bytes | None] | None = None

    def take(self, partition: TopicPartition, batch: RecordBatch | None) -> None:
        """Keep the current `batch`, bytes in ascending order of offsets; None keeps no records."""
        if batch is None or not len(batch):
            return
        self._current[partition] = batch
        runs = self._kept.setdefault(partition, [])
        if any(run.batch_at(int(batch.offsets[0])) is batch for run in runs):
            return
        run = next((run for run in runs if run.precedes(batch)), None)
        if run is None:
            run = _Run()
            runs.append(run)
        run.add(batch)

    def find(self, metadata: RecordMetadata) -> _Bytes:
        """Return key and value of the record at `metadata`. Both are None if it is not known, or hidden."""
        return self.kept(metadata) or (None, None)

    def kept(self, metadata: RecordMetadata) -> _Bytes | None:
        """Return key and value of the record at `metadata`; None if it is not known, or hidden."""
        partition = TopicPartition(metadata.topic or "", metadata.partition)
        if self._stored is not None and not self._are_hidden:
            place, found = self._stored
            return found if metadata == place else None
        if self._are_hidden or partition not in self._current:
            return None
        if not self._are_flushed:
            found = _in_batch(self._current[partition], metadata.offset)
            if found is not None:
                return found
        batches = (run.batch_at(metadata.offset) for run in self._kept[partition])
        each = [_in_batch(batch, metadata.offset) for batch in batches if batch is not None]
        known = [found for found in each if found is not None]
        return known[0] if len(known) == 1 else None

    def place(self, metadata: RecordMetadata) -> RecordMetadata | None:
        """Return `metadata`; None if its record is not known, or hidden."""
        return None if self.kept(metadata) is None else metadata

    def place_in(self, partition: TopicPartition, offset: int) -> RecordMetadata | None:
        """Return the place of the record at `offset` of `partition`; None if it is not known, or hidden."""
        return self.place(RecordMetadata(*partition, offset))

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide all records during the `with` block."""
        self._are_hidden = True
        try:
            yield
        finally:
            self._are_hidden = False

    @contextmanager
    def stored(self, metadata: RecordMetadata, source: _Bytes | None) -> Iterator[None]:
        """During the `with` block, the only record is the one at `metadata`, kept by a store; None if unknown."""
        self._stored = metadata, source
        yield
        self._stored = None  # not after an error, which ends the task and names this record

    @property
    def are_earlier(self) -> bool:
        """Whether the current record is from a cache, or has the context of an earlier one."""
        return self._are_hidden or self._are_flushed or self.place_is_earlier

    @property
    def are_stored(self) -> bool:
        """Whether the current record is from a store."""
        return self._stored is not None

    @contextmanager
    def flushed(self) -> Iterator[None]:
        """During the `with` block, look for records from a cache, which may belong to any lane."""
        outer, self._are_flushed = self._are_flushed, True
        try:
            yield
        finally:
            self._are_flushed = outer

    def forget(self) -> None:
        """Drop all records."""
        self._kept.clear()
        self._current.clear()


def _in_batch(batch: RecordBatch, offset: int) -> _Bytes | None:
    row = int(np.searchsorted(batch.offsets, offset))
    if row < len(batch) and int(batch.offsets[row]) == offset:
        return batch.keys[row], batch.values[row]
    return None
