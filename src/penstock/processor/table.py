"""The operators of a table that keep no state."""

from __future__ import annotations

from typing import Any

from penstock.processor.api import BatchProcessor, FailureHandler, RowOrigin
from penstock.record import Record, RecordBatch


class TableToStream(BatchProcessor):
    """Turns each update of a table into a record with the new value (Kafka class: the KStreamMapValues of
    KTable.toStream)."""

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the new value under the same key."""
        self.context.forward(Record(record.key, record.value.new_value, record.timestamp, record.headers))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows with their new values."""
        return RecordBatch(
            batch.keys, [change.new_value for change in batch.values], batch.timestamps, batch.offsets, batch.headers
        ), None
