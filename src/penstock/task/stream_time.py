"""Stream time: how a task's clock follows the timestamps of its records. Two policies, `stream.time.policy`.

`max`, that of Kafka Streams: the largest timestamp that was taken. `min`, that of KIP-28: the smallest of the partition
times, so that no partition is ahead of it; unknown until every partition had a record. Where KIP-28 takes for a
partition's time the lowest timestamp that is buffered, it is the largest that was taken here: the same for records in
order, and for others not a matter of how much was buffered. Either clock never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

from penstock.record import NO_TIMESTAMP, Int64Array, TopicPartition, running_maximum

MAXIMUM = "max"
MINIMUM = "min"


class StreamTime(Protocol):
    """The clock of one task."""

    def advance(self, partition: TopicPartition, timestamps: Int64Array, current: int) -> Int64Array:
        """Return the stream time (ms) at each record of `partition`, given their timestamps and the time before."""
        ...

    def add_partition(self, partition: TopicPartition) -> None:
        """Read `partition` too."""
        ...


class MaximumStreamTime:
    """The largest timestamp that was taken."""

    def advance(self, partition: TopicPartition, timestamps: Int64Array, current: int) -> Int64Array:
        """Return the running maximum of `timestamps` from `current` on."""
        times: Int64Array = np.maximum(running_maximum(timestamps), current)
        return times

    def add_partition(self, partition: TopicPartition) -> None:
        """Do nothing: partitions make no difference."""


class MinimumStreamTime:
    """The smallest of the partition times."""

    def __init__(self, partitions: Iterable[TopicPartition], partition_times: Mapping[TopicPartition, int]) -> None:
        """Follow `partitions`, all that the task reads, from `partition_times`, those of the last commit (ms)."""
        self._times = {each: partition_times.get(each, NO_TIMESTAMP) for each in partitions}

    def advance(self, partition: TopicPartition, timestamps: Int64Array, current: int) -> Int64Array:
        """Return the smaller of this partition's running maximum and the times of the others, never below
        `current`."""
        own: Int64Array = np.maximum(running_maximum(timestamps), self._times.get(partition, NO_TIMESTAMP))
        others = min((time for each, time in self._times.items() if each != partition), default=int(own[-1]))
        self._times[partition] = int(own[-1])
        times: Int64Array = np.maximum(np.minimum(own, others), current)
        return times

    def add_partition(self, partition: TopicPartition) -> None:
        """Wait for `partition` too, unless it is known."""
        self._times.setdefault(partition, NO_TIMESTAMP)


def partitions_ahead(partition_times: Mapping[TopicPartition, int], threshold_ms: int) -> frozenset[TopicPartition]:
    """Return the partitions whose time is ahead of that of the slowest by more than `threshold_ms`; a partition without
    a record yet is not waited for (KIP-28, 'stream synchronisation')."""
    known = {partition: time for partition, time in partition_times.items() if time != NO_TIMESTAMP}
    slowest = min(known.values(), default=0)
    return frozenset(partition for partition, time in known.items() if time - slowest > threshold_ms)
