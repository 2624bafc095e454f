"""Sends a record to any topic, outside the sinks: from a processor, or to a dead letter queue."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import StreamsError
from penstock.exception_handlers import ProducerRecord
from penstock.plan.partitioning import partition_for
from penstock.task.record_collector import RecordCollector


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
