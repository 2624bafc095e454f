"""Topics and committed offsets in memory, for instances that run in one process: an Admin and a Fetcher over them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from penstock.client.api import OffsetAndMetadata
from penstock.record import PartitionBatch, RecordBatch, TopicPartition

_LOT = 7
"""Records of one batch of a fetch, so that most fetches have several."""


class MemoryBroker:
    """One log a partition; nothing is deleted (implements what the host uses of Admin and Fetcher)."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        """Have `topics`, the number of partitions of each."""
        self._topics = dict(topics)
        self._logs: dict[TopicPartition, RecordBatch] = {}
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}

    def topics(self) -> dict[str, int]:
        return dict(self._topics)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._topics.setdefault(topic, partitions)

    def append(self, output: Sequence[PartitionBatch]) -> dict[TopicPartition, int]:
        """Write `output`, and return the ends of the partitions written to."""
        ends: dict[TopicPartition, int] = {}
        for topic, partition, batch, _ in output:
            assert partition < self._topics[topic], topic
            place = TopicPartition(topic, partition)
            start = self.end(place)
            copied = batch.slice(0, len(batch))
            copied.offsets = copied.offsets * 0 + range(start, start + len(batch))
            self._logs[place] = RecordBatch.concat([self._logs[place], copied]) if place in self._logs else copied
            ends[place] = self.end(place)
        return ends

    def end(self, partition: TopicPartition) -> int:
        return len(self._logs[partition]) if partition in self._logs else 0

    def read(self, partition: TopicPartition, start: int, stop: int) -> RecordBatch:
        return self._logs[partition].slice(start, stop)

    # ---------------------------------------- Admin

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        return {}  # as brokers before 2.8

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(
        self, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        return {partition: self.end(partition) for partition in partitions}

    def offsets_for_time(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        found = {}
        for partition in partitions:
            times = self.read(partition, 0, self.end(partition)).timestamps.tolist() if self.end(partition) else []
            first = next((offset for offset, time in enumerate(times) if time >= timestamp_ms), None)
            if first is not None:
                found[partition] = first
        return found

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition], stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {partition: self.committed[partition] for partition in partitions if partition in self.committed}

    # ---------------------------------------- Fetcher

    def fetch(
        self, partition: TopicPartition, start_offset: int, end_offset: int, read_committed: bool
    ) -> Iterator[RecordBatch]:
        for start in range(start_offset, end_offset, _LOT):
            yield self.read(partition, start, min(start + _LOT, end_offset))

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"The memory broker has no {name}.")
