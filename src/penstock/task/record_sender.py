"""Sends records to any topic outside the sinks: from a processor, or to a dead letter queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Never

import numpy as np

from penstock.errors import StreamsError
from penstock.exception_handlers import ProducerRecord
from penstock.plan.partitioning import keyless_partitions, partition_column, partition_for
from penstock.plan.subtopology import TaskId
from penstock.record import Int64Array, Record, RecordBatch
from penstock.serdes.columns import Places
from penstock.task.record_collector import RecordCollector

DEAD_LETTERS = "dead letters"
"""Used instead of a node's name; node names contain no blanks."""


class RecordSender:
    """Adds serialised records to a task's collector and chooses their partitions like Kafka's producer.

    Args:
        collector: the collector of the task.
        partitions: the number of partitions by topic; may look it up on demand.
        task_id: the id of the task.
        offset: returns the offset of the current input record, -1 without one.
    """

    def __init__(
        self, collector: RecordCollector, partitions: Mapping[str, int], task_id: TaskId, offset: Callable[[], int]
    ) -> None:
        self._collector = collector
        self._partitions = partitions
        self._task_id = task_id
        self._offset = offset
        self.dead_letters = 0
        """Number of records sent to dead letter queues."""

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of `topic`; raises StreamsError if unknown."""
        try:
            return self._partitions[topic]
        except KeyError:
            raise StreamsError(
                f"Could not get partition information for topic {topic} for task {self._task_id}. This can "
                f"happen if the topic does not exist: create it (penstock topics create {topic})."
            ) from None

    def partition_of(self, record: ProducerRecord, offset: int) -> int:
        """Return the partition of `record`: its own, that of its key, or any without a key.

        offset: that of the input record from which it comes. Raises StreamsError for a partition that does not exist.
        """
        count = self.partition_count(record.topic)
        if record.partition is None:
            if record.key is not None:
                return partition_for(record.key, count)
            offsets, timestamps = (np.array([number], np.int64) for number in (offset, record.timestamp))
            return int(keyless_partitions(offsets, timestamps, self._task_id.partition, count)[0])
        if not 0 <= record.partition < count:
            raise StreamsError(
                f"Topic {record.topic} has partitions 0 to {count - 1}; a record was sent to {record.partition}."
            )
        return record.partition

    def partitions_of(
        self, topic: str, keys: Sequence[bytes | None], places: Places, offsets: Int64Array, timestamps: Int64Array
    ) -> Int64Array:
        """Return the partition of each row of a column.

        Args:
            topic: the topic.
            keys: the distinct keys.
            places: the index of each row's key.
            offsets: the offsets of the input records.
            timestamps: in ms.

        Raises:
            StreamsError: the topic does not exist.
        """
        count = self.partition_count(topic)
        partitions: Int64Array = partition_column(keys, count, 0)[places]
        if count > 1 and None in keys:
            rows = np.flatnonzero(places == keys.index(None))
            partitions[rows] = keyless_partitions(offsets[rows], timestamps[rows], self._task_id.partition, count)
        return partitions

    def send(self, record: ProducerRecord) -> None:
        """Send `record`, with key and value as bytes.

        Raises StreamsError for a topic or partition that does not exist.
        """
        partition = self.partition_of(record, self._offset())
        self._collector.send(record.topic, partition, record.key, record.value, record.timestamp, record.headers)

    def bury(self, record: ProducerRecord) -> None:
        """Send a record to a dead letter queue; raises like `send`."""
        self.dead_letters += 1
        self.send(record)

    def bury_at(self, record: ProducerRecord, sequence: int, offset: int) -> None:
        """Like `bury`, with a reserved sequence number, for the input record at `offset`."""
        self.dead_letters += 1
        batch = RecordBatch.of([(record.key, record.value, record.timestamp, 0, record.headers)])
        partitions, numbers = (np.array([number], np.int64) for number in (self.partition_of(record, offset), sequence))
        self._collector.send_columns(record.topic, partitions, numbers, batch)


class DeadLetterSink:
    """The sink of dead letters from columns; its values are ProducerRecords.

    Args:
        sender: sends the records.
    """

    name = DEAD_LETTERS
    children: Sequence[Never] = ()

    def __init__(self, sender: RecordSender) -> None:
        self._sender = sender

    def process(self, record: Record[Any, Any]) -> None:
        """Send one dead letter."""
        self._sender.bury(record.value)

    def process_columns(self, batch: RecordBatch, sequence: Int64Array) -> None:
        """Send all dead letters, each with its sequence number."""
        for letter, number, offset in zip(batch.values, sequence.tolist(), batch.offsets.tolist(), strict=True):
            self._sender.bury_at(letter, number, offset)
