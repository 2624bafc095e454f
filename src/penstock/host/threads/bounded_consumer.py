"""A consumer that reads no further than the planned ends of partitions, however many records come after them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from penstock.client.api import Consumer
from penstock.record import RecordBatch, TopicPartition


class BoundedConsumer:
    """Reads partitions up to their planned ends (implements Consumer)."""

    def __init__(self, consumer: Consumer, ends: Mapping[TopicPartition, int]) -> None:
        """Read with `consumer`. ends: of some partitions; others are read without end."""
        self._consumer = consumer
        self._ends = ends
        self._reached: dict[TopicPartition, int] = {}
        self._done: set[TopicPartition] = set()
        """The partitions of which records after the end have come, which are not fetched any more."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on, in place of what was assigned before."""
        self._done.clear()
        self._consumer.assign(positions)

    def incremental_assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions too, from these offsets on; the others keep their positions."""
        self._consumer.incremental_assign(positions)

    def incremental_unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions no longer; no record of them is returned after it."""
        self._done.difference_update(partitions)
        for partition in partitions:
            self._reached.pop(partition, None)
        self._consumer.incremental_unassign(partitions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no more records of these partitions until `resume`, but for those that have arrived already."""
        self._consumer.pause(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Return records of these partitions again, unless they are read to their planned end."""
        self._consumer.resume([partition for partition in partitions if partition not in self._done])

    def known_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return how far each of these partitions can be read, at most to its planned end."""
        return self._capped(self._consumer.known_ends(partitions))

    def reached_ends(self) -> dict[TopicPartition, int]:
        """Return up to where partitions have been read to their end since the last call."""
        reached, self._reached = {**self._capped(self._consumer.reached_ends()), **self._reached}, {}
        return reached

    def leader_epochs(self) -> Mapping[TopicPartition, int]:
        """Return under which epoch of its leader the last record of each partition was written that has arrived."""
        return self._consumer.leader_epochs()

    def poll(
        self, timeout_ms: int, max_records: int, max_bytes: int | None = None
    ) -> list[tuple[TopicPartition, RecordBatch]]:
        """Return up to `max_records` records before the planned ends, and about `max_bytes` of them, waiting up to
        `timeout_ms` for the first."""
        arrived = self._consumer.poll(timeout_ms, max_records, max_bytes)
        return [(partition, batch) for partition, all_of in arrived if len(batch := self._cut(partition, all_of))]

    def close(self) -> None:
        """Release connections and threads; harmless when called again."""
        self._consumer.close()

    def _cut(self, partition: TopicPartition, batch: RecordBatch) -> RecordBatch:
        end = self._ends.get(partition)
        if end is None or int(batch.offsets[-1]) < end:
            return batch
        self._reached[partition] = end
        if partition not in self._done:
            self._done.add(partition)
            self._consumer.pause([partition])
        return batch.slice(0, int(np.searchsorted(batch.offsets, end)))

    def _capped(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {partition: min(offset, self._ends.get(partition, offset)) for partition, offset in offsets.items()}
