"""What a host measures of a task itself: how long it takes for a record, and how old records are behind its sinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from penstock.metrics.host_metrics import NODE_ID, PROCESS, RECORD_E2E_LATENCY, operation_of
from penstock.metrics.measurements import NOTHING, Measurement
from penstock.plan.subtopology import SinkSpec, SubtopologySpec
from penstock.record import PartitionBatch


class TaskMeasuring:
    """Measures one task, until it is taken (Kafka metrics: process-latency, record-e2e-latency)."""

    def __init__(self, spec: SubtopologySpec) -> None:
        """Measure a task of the sub-topology `spec`."""
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
            operation = self._latencies.get(topic)
            if operation is not None and len(batch):
                times = batch.timestamps
                total = float(now_ms * len(times) - times.sum())
                self._add(
                    operation,
                    Measurement(len(times), total, float(now_ms - times.max()), float(now_ms - times.min())),
                )

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
