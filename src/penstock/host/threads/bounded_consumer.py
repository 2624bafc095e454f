"""A consumer that reads up to the planned ends of partitions, and no later records."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from penstock.client.api import Consumer
from penstock.record import RecordBatch, TopicPartition


class BoundedConsumer:
    """Reads partitions up to their planned ends (implements Consumer).

    Args:
        consumer: reads the partitions.
        ends: the planned end of partitions (offset, exclusive); other partitions are read without end.
    """

    def __init__(self, consumer: Consumer, ends: Mapping[TopicPartition, int]) -> None:
        self._consumer = consumer
        self._ends = ends
        self._reached: dict[TopicPartition, int] = {}
        self._done: set[TopicPartition] = set()
        """Partitions with records after their end, which are no longer fetched."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, instead of the previous assignment."""
        self._done.clear()
        self._consumer.assign(positions)

    def incremental_assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Also read these partitions, from these offsets; the others keep their positions."""
        self._consumer.incremental_assign(positions)

    def incremental_unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these partitions; no record of them is returned afterwards."""
        self._done.difference_update(partitions)
        for partition in partitions:
            self._reached.pop(partition, None)
        self._consumer.incremental_unassign(partitions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no more records of these partitions until `resume`, except those that have already arrived."""
        self._consumer.pause(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Return records of these partitions again, except for those at their planned end."""
        self._consumer.resume([partition for partition in partitions if partition not in self._done])

    def known_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the known end of each partition, at most its planned end."""
        return self._capped(self._consumer.known_ends(partitions))

    def reached_ends(self) -> dict[TopicPartition, int]:
        """Return the ends that partitions have reached since the last call."""
        reached, self._reached = {**self._capped(self._consumer.reached_ends()), **self._reached}, {}
        return reached

    def leader_epochs(self) -> Mapping[TopicPartition, int]:
        """Return the leader epoch of the last arrived record of each partition."""
        return self._consumer.leader_epochs()

    def poll(
        self, timeout_ms: int, max_records: int, max_bytes: int | None = None
    ) -> list[tuple[TopicPartition, RecordBatch]]:
        """Return up to `max_records` records, and about `max_bytes` of them, before the planned ends. Wait up to
        `timeout_ms` for the first."""
        arrived = self._consumer.poll(timeout_ms, max_records, max_bytes)
        return [(partition, batch) for partition, all_of in arrived if len(batch := self._cut(partition, all_of))]

    def close(self) -> None:
        """Release connections and threads; safe to call again."""
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
