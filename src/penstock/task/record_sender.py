"""Sends a record to any topic, outside the sinks: from a processor, or to a dead letter queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Never

import numpy as np

from penstock.errors import StreamsError
from penstock.exception_handlers import ProducerRecord
from penstock.plan.partitioning import partition_for
from penstock.record import Int64Array, Record, RecordBatch
from penstock.task.record_collector import RecordCollector

DEAD_LETTERS = "dead letters"
"""Stands for the name of a node; no node has blanks in its name."""


class RecordSender:
    """Puts records of bytes into the collector of one task and chooses their partitions, as Kafka's producer does."""

    def __init__(
        self, collector: RecordCollector, partitions: Mapping[str, int], task_id: str, null_key_partition: int
    ) -> None:
        """Send to topics of `partitions` (number of partitions by topic); records without a key go to partition
        `null_key_partition` modulo that number."""
        self._collector = collector
        self._partitions = partitions
        self._task_id = task_id
        self.null_key_partition = null_key_partition

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of `topic`; raises StreamsError if it is not known."""
        count = self._partitions.get(topic)
        if count is None:
            raise StreamsError(
                f"Could not get partition information for topic {topic} for task {self._task_id}. This can "
                "happen if the topic does not exist: "
                f"create it before the program starts (penstock topics create {topic})."
            )
        return count

    def partition_of(self, record: ProducerRecord) -> int:
        """Return the partition that `record` names, else that of its key; raises StreamsError for one that does not
        exist."""
        count = self.partition_count(record.topic)
        if record.partition is None:
            return self.null_key_partition % count if record.key is None else partition_for(record.key, count)
        if not 0 <= record.partition < count:
            raise StreamsError(
                f"Topic {record.topic} has partitions 0 to {count - 1}; a record was sent to {record.partition}."
            )
        return record.partition

    def send(self, record: ProducerRecord) -> None:
        """Send `record`, key and value as bytes; raises StreamsError for a topic or partition that does not exist."""
        partition = self.partition_of(record)
        self._collector.send(record.topic, partition, record.key, record.value, record.timestamp, record.headers)

    def send_at(self, record: ProducerRecord, sequence: int) -> None:
        """As `send`, with a sequence number that was reserved."""
        batch = RecordBatch.of([(record.key, record.value, record.timestamp, 0, record.headers)])
        partitions, numbers = (np.array([number], np.int64) for number in (self.partition_of(record), sequence))
        self._collector.send_columns(record.topic, partitions, numbers, batch)


class DeadLetterSink:
    """Where the dead letters of rows go that failed in columns: a sink whose values are ProducerRecords."""

    name = DEAD_LETTERS
    children: Sequence[Never] = ()

    def __init__(self, sender: RecordSender) -> None:
        """Send through `sender`."""
        self._sender = sender

    def process(self, record: Record[Any, Any]) -> None:
        """Send one dead letter."""
        self._sender.send(record.value)

    def process_columns(self, batch: RecordBatch, sequence: Int64Array) -> None:
        """Send all dead letters, each with its sequence number."""
        for letter, number in zip(batch.values, sequence.tolist(), strict=True):
            self._sender.send_at(letter, number)
