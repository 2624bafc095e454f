"""What a task tells a tracer of the batches that it processes. Nothing here traces."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.record import RecordBatch, TopicPartition


class BatchTrace(Protocol):
    """The trace of one batch, from its beginning to its end."""

    def take(self, partitions: Sequence[TopicPartition], batch: RecordBatch) -> None:
        """Take note of records that are processed next, and of the partitions that they come from."""
        ...


class BatchTracing(Protocol):
    """Traces the batches of a task."""

    def batch(self) -> AbstractContextManager[BatchTrace]:
        """Return the trace of the next batch; it ends with the block, with the error if there is one."""
        ...
