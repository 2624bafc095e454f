"""Measurements of a task by its host.

These are process latency, age of records at sinks, stream time and dropped records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from penstock.metrics.drop_reasons import Dropped
from penstock.metrics.host_metrics import (
    DROPPED_RECORDS,
    NODE_ID,
    PROCESS,
    RECORD_E2E_LATENCY,
    STATE_SIZE,
    STREAM_TIME,
    dropped_for,
    operation_of,
    output_age,
    state_id,
)
from penstock.metrics.measurements import NOTHING, Measurement, buckets_of
from penstock.plan.subtopology import SinkSpec, SubtopologySpec
from penstock.record import NO_TIMESTAMP, Int64Array, PartitionBatch
from penstock.task.stream_task import TaskCommit

ROWS_TOGETHER: Final = 1_000
"""Number of records whose ages are added in one step.

A step costs about as much for one record as for hundreds, and a run may have only one.
"""


class TaskMeasuring:
    """Collects the measurements of one task (Kafka metrics: process-latency, record-e2e-latency).

    Args:
        spec: the sub-topology of the task.
        between: the topics through which tasks send records to one another.
    """

    def __init__(self, spec: SubtopologySpec, between: Container[str]) -> None:
        self._between = between
        self._dropped: Mapping[Dropped, int] = {}
        self._latencies = {
            topic: operation_of(RECORD_E2E_LATENCY, NODE_ID, sink) for topic, sink in _sinks_by_topic(spec).items()
        }
        self._measured: dict[str, Measurement] = {}
        self._written: dict[str, list[tuple[Int64Array, int]]] = {}
        """Timestamps by topic of records with ages to be added, with their write times (ms)."""
        self._rows = 0

    def processed(self, records: int, nanoseconds: int) -> None:
        """Add the total time of a number of records; each counts with the average."""
        if records:
            each = nanoseconds / records
            self._add(PROCESS, Measurement(records, nanoseconds, each, each))

    def written(self, output: Iterable[PartitionBatch], now_ms: int) -> None:
        """Add the ages (ms) of records that sinks have written by `now_ms`."""
        for topic, _, batch, _ in output:
            if len(batch) and (topic in self._latencies or topic not in self._between):
                self._written.setdefault(topic, []).append((batch.timestamps, now_ms))
                self._rows += len(batch)
        if self._rows >= ROWS_TOGETHER:
            self._add_up()

    def _add_up(self) -> None:
        """Add up the ages of the written records."""
        written, self._written, self._rows = self._written, {}, 0
        for topic, runs in written.items():
            times = np.repeat(np.array([now_ms for _, now_ms in runs], np.int64), [len(each) for each, _ in runs])
            ages = times - np.concatenate([timestamps for timestamps, _ in runs])
            if topic not in self._between:
                buckets = buckets_of(ages)
                for bucket in np.unique(buckets).tolist():
                    self._add(output_age(bucket), _measurement(times[buckets == bucket]))
            if (operation := self._latencies.get(topic)) is not None:
                self._add(operation, _measurement(ages))

    def prepared(self, commit: TaskCommit, now_ms: int) -> None:
        """Add output, stream time and newly dropped records of a commit at `now_ms`."""
        self.written(commit.output, now_ms)
        if commit.checkpoint.stream_time != NO_TIMESTAMP:
            time = float(commit.checkpoint.stream_time)
            self._measured[STREAM_TIME] = Measurement(1, time, time, time)
        for name, measurement in measured_drops(self._dropped, commit.dropped_records):
            self._add(name, measurement)
        self._dropped = commit.dropped_records

    def take(self) -> dict[str, Measurement]:
        """Return and remove the measurements since the last call, by operation."""
        self._add_up()
        measured, self._measured = self._measured, {}
        return measured

    def _add(self, operation: str, measurement: Measurement) -> None:
        self._measured[operation] = self._measured.get(operation, NOTHING).plus(measurement)


def measured_drops(before: Mapping[Dropped, int], dropped: Mapping[Dropped, int]) -> Iterator[tuple[str, Measurement]]:
    """Yield the newly dropped records, by operation: those of each node or store, and those for each reason.

    Args:
        before: the dropped records at the previous commit.
        dropped: those at this commit.
    """
    for each, records in dropped.items():
        if more := records - before.get(each, 0):
            measurement = Measurement(more, float(more), 1.0, 1.0)
            yield operation_of(DROPPED_RECORDS, NODE_ID, each.place), measurement
            yield dropped_for(each), measurement


def of_base(task: str, measured: Mapping[str, Measurement]) -> dict[str, Measurement]:
    """Return the measurements by operation of the base of `task`, one database for all stores."""
    return {
        name if name == STATE_SIZE else operation_of(name, state_id("rocksdb"), task): measurement
        for name, measurement in measured.items()
    }


def _measurement(values: Int64Array) -> Measurement:
    return Measurement(len(values), float(values.sum()), float(values.min()), float(values.max()))


def _sinks_by_topic(spec: SubtopologySpec) -> Mapping[str, str]:
    """Return the sink of each topic, omitting topics of several sinks, whose writer is unknown."""
    sinks = [node for node in spec.nodes if isinstance(node, SinkSpec)]
    writers = Counter(node.topic for node in sinks)
    if None in writers:
        return {}
    return {node.topic: node.name for node in sinks if node.topic is not None and writers[node.topic] == 1}
