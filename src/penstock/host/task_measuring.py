"""What a host measures of a task itself: how long it takes for a record, how old records are behind its sinks, its
stream time, and which of its nodes dropped records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping

from penstock.metrics.host_metrics import (
    DROPPED_RECORDS,
    NODE_ID,
    PROCESS,
    RECORD_E2E_LATENCY,
    STREAM_TIME,
    operation_of,
    output_age,
)
from penstock.metrics.measurements import NOTHING, Measurement, buckets_of
from penstock.plan.subtopology import SinkSpec, SubtopologySpec
from penstock.record import NO_TIMESTAMP, PartitionBatch
from penstock.task.stream_task import TaskCommit


class TaskMeasuring:
    """Measures one task, until it is taken (Kafka metrics: process-latency, record-e2e-latency)."""

    def __init__(self, spec: SubtopologySpec, between: Container[str]) -> None:
        """Measure a task of the sub-topology `spec`. between: the topics through which tasks send to one another."""
        self._between = between
        self._dropped: Mapping[str, int] = {}
        self._latencies = {
            topic: operation_of(RECORD_E2E_LATENCY, NODE_ID, sink) for topic, sink in _sinks_by_topic(spec).items()
        }
        self._measured: dict[str, Measurement] = {}

    def processed(self, records: int, nanoseconds: int) -> None:
        """Take how long a number of records took: the time of each is their average."""
        if records:
            each = nanoseconds / records
            self._add(PROCESS, Measurement(records, nanoseconds, each, each))

    def written(self, output: Iterable[PartitionBatch], now_ms: int) -> None:
        """Take how old (ms) the records are that sinks have written by `now_ms`."""
        for topic, _, batch, _ in output:
            times = batch.timestamps
            if topic not in self._between and len(batch):
                for bucket, number in buckets_of(now_ms - times).items():
                    self._add(output_age(bucket), Measurement(number, float(number * now_ms), now_ms, now_ms))
            operation = self._latencies.get(topic)
            if operation is not None and len(batch):
                total = float(now_ms * len(times) - times.sum())
                self._add(
                    operation,
                    Measurement(len(times), total, float(now_ms - times.max()), float(now_ms - times.min())),
                )

    def prepared(self, commit: TaskCommit, now_ms: int) -> None:
        """Take what the task is about to commit at `now_ms`: output, stream time, and what was dropped since the commit
        before."""
        self.written(commit.output, now_ms)
        if commit.checkpoint.stream_time != NO_TIMESTAMP:
            time = float(commit.checkpoint.stream_time)
            self._measured[STREAM_TIME] = Measurement(1, time, time, time)
        for place, records in commit.dropped_records.items():
            if more := records - self._dropped.get(place, 0):
                self._add(operation_of(DROPPED_RECORDS, NODE_ID, place), Measurement(more, float(more), 1.0, 1.0))
        self._dropped = commit.dropped_records

    def take(self) -> dict[str, Measurement]:
        """Give up what was measured since the last time, by operation."""
        measured, self._measured = self._measured, {}
        return measured

    def _add(self, operation: str, measurement: Measurement) -> None:
        self._measured[operation] = self._measured.get(operation, NOTHING).plus(measurement)


def _sinks_by_topic(spec: SubtopologySpec) -> Mapping[str, str]:
    """Return the sink that writes to each topic; where several may, nobody knows which one did."""
    sinks = [node for node in spec.nodes if isinstance(node, SinkSpec)]
    writers = Counter(node.topic for node in sinks)
    if None in writers:
        return {}
    return {node.topic: node.name for node in sinks if node.topic is not None and writers[node.topic] == 1}
