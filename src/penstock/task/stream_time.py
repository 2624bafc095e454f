"""Stream time: a task's clock, driven by record timestamps, with two values of `stream.time.policy`.

`max`, Kafka Streams' policy: the largest timestamp taken so far. `min`, the policy of KIP-28: the smallest of the
partition times, so that no partition is ahead of it; unknown until every partition had a record. KIP-28 defines a
partition's time as the lowest buffered timestamp; here it is the largest one taken so far: equal for records in order,
and otherwise independent of the number of buffered records. Neither clock ever goes back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

import numpy as np

from penstock.config import StreamsConfig
from penstock.plan.subtopology import SourceSpec, SubtopologySpec, TaskId
from penstock.record import NO_TIMESTAMP, Int64Array, TopicPartition, running_maximum

MAXIMUM = "max"
MINIMUM = "min"


class StreamTime(Protocol):
    """The clock of one task."""

    def advance(self, partition: TopicPartition, timestamps: Int64Array, current: int) -> Int64Array:
        """Return the stream time (ms) at each record of `partition`.

        Args:
            partition: the partition.
            timestamps: the timestamps of the records (ms).
            current: the stream time before them (ms).
        """
        ...

    def add_partition(self, partition: TopicPartition) -> None:
        """Also read `partition`."""
        ...


class MaximumStreamTime:
    """The largest timestamp taken so far."""

    def advance(self, partition: TopicPartition, timestamps: Int64Array, current: int) -> Int64Array:
        """Return the running maximum of `timestamps` from `current` on."""
        if len(timestamps) == 1 and timestamps[0] >= current:  # as most often where records arrive one by one
            return timestamps
        times: Int64Array = np.maximum(running_maximum(timestamps), current)
        return times

    def add_partition(self, partition: TopicPartition) -> None:
        """Do nothing: partitions make no difference."""


class MinimumStreamTime:
    """The smallest of the partition times.

    Args:
        partitions: all partitions read by the task.
        partition_times: those of the last commit (ms).
    """

    def __init__(self, partitions: Iterable[TopicPartition], partition_times: Mapping[TopicPartition, int]) -> None:
        self._times = {each: partition_times.get(each, NO_TIMESTAMP) for each in partitions}

    def advance(self, partition: TopicPartition, timestamps: Int64Array, current: int) -> Int64Array:
        """Return the minimum of this partition's running maximum and the other partitions' times.

        It is never below `current`.
        """
        own: Int64Array = np.maximum(running_maximum(timestamps), self._times.get(partition, NO_TIMESTAMP))
        others = min((time for each, time in self._times.items() if each != partition), default=int(own[-1]))
        self._times[partition] = int(own[-1])
        times: Int64Array = np.maximum(np.minimum(own, others), current)
        return times

    def add_partition(self, partition: TopicPartition) -> None:
        """Also wait for `partition`, unless it is known."""
        self._times.setdefault(partition, NO_TIMESTAMP)


def partitions_ahead(partition_times: Mapping[TopicPartition, int], threshold_ms: int) -> frozenset[TopicPartition]:
    """Return the partitions more than `threshold_ms` ahead of the slowest.

    Partitions without a record yet are ignored (KIP-28, 'stream synchronisation').
    """
    known = {partition: time for partition, time in partition_times.items() if time != NO_TIMESTAMP}
    slowest = min(known.values(), default=0)
    return frozenset(partition for partition, time in known.items() if time - slowest > threshold_ms)


def task_stream_time(
    spec: SubtopologySpec,
    task_id: TaskId,
    config: StreamsConfig,
    partition_times: Mapping[TopicPartition, int],
    input_partitions: Collection[TopicPartition] | None,
) -> StreamTime:
    """Return the clock of a task by `stream.time.policy`. Task topics have no part in it.

    Args:
        spec: the nodes of the task.
        task_id: the task.
        config: the configuration.
        partition_times: those of the last commit (ms).
        input_partitions: the partitions of the task; None for one of each topic, with the number of the task.
    """
    if config["stream.time.policy"] == MAXIMUM:
        return MaximumStreamTime()
    if input_partitions is None:
        sources = [node for node in spec.nodes if isinstance(node, SourceSpec)]
        outside = [node for node in sources if not node.is_internal]  # repartition topics only without others
        input_partitions = [
            TopicPartition(topic, task_id.partition) for node in outside or sources for topic in node.topics
        ]
    of_task = spec.task_topics
    return MinimumStreamTime((each for each in input_partitions if each.topic not in of_task), partition_times)
