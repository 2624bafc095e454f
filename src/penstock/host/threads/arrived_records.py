"""The records that have arrived for a task and wait for a run. Part of the core."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from penstock.record import RecordBatch, TopicPartition


class ArrivedRecords:
    """Queues of records by partition, with their counts and approximate bytes of keys and values.

    Args:
        partitions: the input partitions of the task.
    """

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self._queues: dict[TopicPartition, deque[RecordBatch]] = {partition: deque() for partition in partitions}
        self.clear()

    def clear(self) -> None:
        """Drop all records."""
        for queue in self._queues.values():
            queue.clear()
        self.records = dict.fromkeys(self._queues, 0)
        """The number of records of each partition."""
        self.bytes = dict.fromkeys(self._queues, 0)
        """The approximate bytes of each partition."""
        self.all_records = 0
        """The number of records of all partitions."""
        self.all_bytes = 0
        """The approximate bytes of all partitions."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The input partitions of the task."""
        return tuple(self._queues)

    def add(self, partition: TopicPartition, batch: RecordBatch, size: int) -> None:
        """Append records of a partition. size: in bytes."""
        self._queues[partition].append(batch)
        self.bytes[partition] += size
        self.all_bytes += size
        self.records[partition] += len(batch)
        self.all_records += len(batch)

    def take(self, partition: TopicPartition, most: int) -> RecordBatch:
        """Remove and return the first records of a non-empty partition, up to `most`."""
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
        """Return the timestamp (ms) of the first record of each non-empty partition."""
        return {partition: int(queue[0].timestamps[0]) for partition, queue in self._queues.items() if queue}

    def time_of(self, partition: TopicPartition, number: int) -> int:
        """Return the timestamp (ms) of a record of a partition. number: counts from 1; past the end, the last record is
        used."""
        for batch in self._queues[partition]:
            if number <= len(batch):
                return int(batch.timestamps[number - 1])
            number -= len(batch)
        return int(self._queues[partition][-1].timestamps[-1])

    def records_until(self, partition: TopicPartition, until_ms: int) -> int:
        """Return the number of records before the first one later than `until_ms`."""
        count = 0
        for batch in self._queues[partition]:
            later = batch.timestamps > until_ms
            if later.any():
                return count + int(later.argmax())
            count += len(batch)
        return count
