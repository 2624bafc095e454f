"""The intake of a task: what it notes about records that it takes, and the stream time at each of them.

It reports the records to the observer, the taps and the order trace. Answers of calls, and
requests about parked records, do not advance stream time, since their records have done so when they came.
"""

from __future__ import annotations

import numpy as np

from penstock.config import StreamsConfig
from penstock.processor.row_partitions import RowPartitions
from penstock.record import Int64Array, RecordBatch, TopicPartition
from penstock.task.context import TaskContext
from penstock.task.order_trace import OrderTrace, TracedCommit
from penstock.task.partition_group import MixedRun, RecordRun
from penstock.task.processor_topology import SourceNode
from penstock.task.stream_time import StreamTime
from penstock.task.task_measurements import TaskMeasurements


class Intake:
    """The intake of one task.

    Args:
        context: the context of the task.
        measurements: the figures of the task.
        stream_time: its clock.
        order: its order trace, None without one.
    """

    def __init__(
        self, context: TaskContext, measurements: TaskMeasurements, stream_time: StreamTime, order: OrderTrace | None
    ) -> None:
        self._context = context
        self._measurements = measurements
        self._stream_time = stream_time
        self._order = order

    def take(self, run: RecordRun) -> Int64Array:
        """Note the records of one partition, and return the stream time (ms) at each."""
        batch = run.batch
        self._measurements.observer.processed(run.source.name, len(batch))
        self._context.taps.take(run.source.name, RowPartitions((run.partition,)), batch, self._context.wall_clock)
        self._context.source_records.take(run.partition, run.source_records)
        if self._order is not None:
            self._order.take(run.partition, run.lanes, batch.offsets)
        return self._stream_times(run.source, run.partition, batch)

    def take_mixed(self, run: MixedRun) -> Int64Array:
        """Note the records of several partitions, and return the stream time (ms) at each."""
        batch = run.batch
        counts = np.bincount(run.numbers, minlength=len(run.sources)).tolist()
        for source, records in zip(run.sources, counts, strict=True):
            self._measurements.observer.processed(source.name, records)
        if self._context.taps.are_open:
            for number, start, stop in run.turns():
                source, own = run.sources[number], RowPartitions((run.partitions[number],))
                self._context.taps.take(source.name, own, batch.slice(start, stop), self._context.wall_clock)
        if self._order is not None:
            for number, start, stop in run.turns():
                self._order.take(run.partitions[number], run.lanes[start:stop], batch.offsets[start:stop])
        return self._stream_times(run.sources[0], run.partitions[0], batch)

    def add_partition(self, partition: TopicPartition) -> None:
        """Also take records of `partition`."""
        self._stream_time.add_partition(partition)

    def traced_commit(self) -> TracedCommit | None:
        """Return the records taken since the last commit; None without an order trace."""
        return None if self._order is None else self._order.commit(self._context.wall_clock)

    def _stream_times(self, source: SourceNode, partition: TopicPartition, batch: RecordBatch) -> Int64Array:
        current = self._context.stream_time
        if source.spec.has_task_topic:  # a run has either records of task topics or input
            return np.full(len(batch), current, np.int64)
        times = self._stream_time.advance(partition, batch.timestamps, current)
        self._measurements.add_lateness(times, batch.timestamps)
        return times


def order_trace(config: StreamsConfig) -> OrderTrace | None:
    """Return a new order trace, or None if `penstock.trace.order` is not set."""
    return None if config["penstock.trace.order"] is None else OrderTrace()
