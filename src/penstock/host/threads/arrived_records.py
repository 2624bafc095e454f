"""The records that have arrived for a task and wait until a run takes them. Part of the core."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from penstock.record import RecordBatch, TopicPartition


class ArrivedRecords:
    """Queues of records, by partition, with how many there are and about how many bytes of keys and values.

    Args:
        partitions: all that the task reads.
    """

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self._queues: dict[TopicPartition, deque[RecordBatch]] = {partition: deque() for partition in partitions}
        self.clear()

    def clear(self) -> None:
        """Drop all records."""
        for queue in self._queues.values():
            queue.clear()
        self.records = dict.fromkeys(self._queues, 0)
        """How many records of each partition there are."""
        self.bytes = dict.fromkeys(self._queues, 0)
        """About how many bytes of each partition there are."""
        self.all_records = 0
        """How many records of all partitions there are."""
        self.all_bytes = 0
        """About how many bytes of all partitions there are."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that the task reads."""
        return tuple(self._queues)

    def add(self, partition: TopicPartition, batch: RecordBatch, size: int) -> None:
        """Append records of a partition. size: their bytes."""
        self._queues[partition].append(batch)
        self.bytes[partition] += size
        self.all_bytes += size
        self.records[partition] += len(batch)
        self.all_records += len(batch)

    def take(self, partition: TopicPartition, most: int) -> RecordBatch:
        """Remove and return the first records of a partition that has some, at most so many."""
        queue, taken, waiting = self._queues[partition], [], self.records[partition]
        left = max(0, waiting - most)
        while queue and most > 0:
            batch = queue.popleft()
            if len(batch) > most:
                queue.appendleft(batch.slice(most, len(batch)))
                batch = batch.slice(0, most)
            taken.append(batch)
            most -= len(batch)
        self.all_bytes -= self.bytes[partition]
        self.bytes[partition] = self.bytes[partition] * left // waiting
        self.all_bytes += self.bytes[partition]
        self.records[partition] = left
        self.all_records -= waiting - left
        return RecordBatch.concat(taken)

    def heads(self) -> dict[TopicPartition, int]:
        """Return the timestamp (ms) of the first record of each partition that has any."""
        return {partition: int(queue[0].timestamps[0]) for partition, queue in self._queues.items() if queue}

    def time_of(self, partition: TopicPartition, number: int) -> int:
        """Return the timestamp (ms) of that record of a partition, counted from 1; of the last one if there are not so
        many."""
        for batch in self._queues[partition]:
            if number <= len(batch):
                return int(batch.timestamps[number - 1])
            number -= len(batch)
        return int(self._queues[partition][-1].timestamps[-1])

    def records_until(self, partition: TopicPartition, until_ms: int) -> int:
        """Return how many records of a partition there are before the first one that is later (ms)."""
        count = 0
        for batch in self._queues[partition]:
            later = batch.timestamps > until_ms
            if later.any():
                return count + int(later.argmax())
            count += len(batch)
        return count
