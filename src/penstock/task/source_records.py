"""The records that a task took, as they came: kept until the caches are flushed, for handlers that ask for the bytes of
a record that failed."""

from __future__ import annotations

import numpy as np

from penstock.record import RecordBatch, RecordMetadata, TopicPartition


class SourceRecords:
    """Records by partition and offset. A partition behind a shuffle has lanes with separate offsets: the lane that is
    being taken is searched first."""

    def __init__(self) -> None:
        """Start without records."""
        self._kept: dict[TopicPartition, list[RecordBatch]] = {}

    def take(self, partition: TopicPartition, batch: RecordBatch | None) -> None:
        """Keep `batch`, bytes by ascending offset, which is taken now; None: nothing is kept."""
        if batch is not None:
            others = [each for each in self._kept.get(partition, ()) if each is not batch]
            self._kept[partition] = [batch, *others]

    def find(self, metadata: RecordMetadata) -> tuple[bytes | None, bytes | None]:
        """Return key and value of the record that `metadata` names, None if it is not kept."""
        for batch in self._kept.get(TopicPartition(metadata.topic or "", metadata.partition), ()):
            row = int(np.searchsorted(batch.offsets, metadata.offset))
            if row < len(batch) and int(batch.offsets[row]) == metadata.offset:
                return batch.keys[row], batch.values[row]
        return None, None

    def forget(self) -> None:
        """Keep nothing any more."""
        self._kept.clear()
