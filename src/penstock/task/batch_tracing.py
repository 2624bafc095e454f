"""The interface between a task and a tracer of its batches; the tracer is elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.record import RecordBatch, TopicPartition


class BatchTrace(Protocol):
    """The trace of one batch, from its beginning to its end."""

    def take(self, partitions: Sequence[TopicPartition], batch: RecordBatch) -> None:
        """Record the next records to be processed, and their partitions."""
        ...


class BatchTracing(Protocol):
    """Traces the batches of a task."""

    def batch(self) -> AbstractContextManager[BatchTrace]:
        """Return the trace of the next batch.

        It ends with the block, and with its error, if any.
        """
        ...
