"""The records that have arrived for a task and wait, outside it for a run or inside it. Part of the core."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from penstock.record import RecordBatch, TopicPartition
from penstock.task.partition_group import BufferSize


class WaitingTotal:
    """The waiting records of all tasks, so that no event has to ask each task."""

    def __init__(self) -> None:
        self.records = 0
        """The number of records, outside and inside the tasks."""
        self.bytes = 0
        """Their approximate bytes of keys and values."""
        self.held = 0
        """The number of records inside the tasks."""


class ArrivedRecords:
    """Queues of records by partition, with their counts and approximate bytes of keys and values.

    Args:
        partitions: the input partitions of the task.
        total: counts the records of all tasks.
    """

    def __init__(self, partitions: Iterable[TopicPartition], total: WaitingTotal) -> None:
        self._queues: dict[TopicPartition, deque[RecordBatch]] = {partition: deque() for partition in partitions}
        self._total = total
        self.all_records = 0
        """The number of records of all partitions, outside the task."""
        self.all_bytes = 0
        """The approximate bytes of all partitions, outside the task."""
        self.held: Mapping[TopicPartition, BufferSize] = {}
        """Records that wait inside the task, by partition; empty partitions are absent."""
        self.clear()

    def clear(self) -> None:
        """Drop all records."""
        self.hold({})
        for queue in self._queues.values():
            queue.clear()
        self._total.records -= self.all_records
        self._total.bytes -= self.all_bytes
        self.all_records = self.all_bytes = 0
        self.records = dict.fromkeys(self._queues, 0)
        """The number of records of each partition, outside the task."""
        self.bytes = dict.fromkeys(self._queues, 0)
        """The approximate bytes of each partition, outside the task."""

    def hold(self, held: Mapping[TopicPartition, BufferSize]) -> None:
        """Note the records that now wait inside the task."""
        total = self._total
        for sign, sizes in ((-1, self.held), (1, held)):
            for records, size in sizes.values():
                total.records += sign * records
                total.held += sign * records
                total.bytes += sign * size
        self.held = held

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The input partitions of the task."""
        return tuple(self._queues)

    def add(self, partition: TopicPartition, batch: RecordBatch, size: int) -> None:
        """Append records of a partition. size: in bytes."""
        rows, total = len(batch), self._total
        self._queues[partition].append(batch)
        self.bytes[partition] += size
        self.all_bytes += size
        self.records[partition] += rows
        self.all_records += rows
        total.records += rows
        total.bytes += size

    def take(self, partition: TopicPartition, most: int) -> RecordBatch:
        """Remove and return the first records of a non-empty partition, up to `most`."""
        queue, taken, waiting = self._queues[partition], [], self.records[partition]
        left = max(0, waiting - most)
        while queue and most > 0:
            batch = queue.popleft()
            if (rows := len(batch)) > most:
                queue.appendleft(batch.slice(most, rows))
                batch = batch.slice(0, most)
            taken.append(batch)
            most -= rows
        size = self.bytes[partition] - self.bytes[partition] * left // waiting
        self.bytes[partition] -= size
        self.all_bytes -= size
        self.records[partition] = left
        self.all_records -= waiting - left
        self._total.records -= waiting - left
        self._total.bytes -= size
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
