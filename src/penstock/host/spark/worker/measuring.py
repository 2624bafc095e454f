"""What is measured of a task in an epoch, a few numbers whatever it processes, on its way to the driver as plain data:
measurements by operation, and the reports of sensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.clock import SystemClock
from penstock.metrics import SensorMetric, SensorReport
from penstock.metrics.host_metrics import NODE_ID, PROCESS, RECORD_E2E_LATENCY, Operation, operation_of, state_id
from penstock.metrics.measurements import NOTHING, Measurement
from penstock.plan.subtopology import SinkSpec, SubtopologySpec
from penstock.record import PartitionBatch
from penstock.task.stream_task import TaskCommit


class EpochMeasuring:
    """Measures one task in one epoch."""

    def __init__(self, spec: SubtopologySpec) -> None:
        """Measure a task of the sub-topology `spec`."""
        clock = SystemClock()
        self.nanoseconds: Callable[[], int] = clock.nanoseconds
        self._milliseconds = clock.milliseconds
        self._spec = spec
        self._measured: dict[str, Measurement] = {}
        self._sensors: Sequence[SensorReport] = ()

    def process(self, process: Callable[[], int]) -> None:
        """Call `process`, which returns how many records it took, and measure the time of each as their average."""
        began = self.nanoseconds()
        records = process()
        took = self.nanoseconds() - began
        if records:
            each = took / records
            self._measured[PROCESS] = Measurement(records, took, each, each)

    def take(self, commit: TaskCommit) -> None:
        """Take what the task measured, and how old the records are now that sinks have written."""
        self._measured.update(commit.measured)
        self._sensors = commit.sensors
        now = self._milliseconds()
        sinks = _sinks_by_topic(self._spec)
        for output in commit.output:
            sink = sinks.get(output.topic)
            if sink is not None and len(output.batch):
                name = operation_of(RECORD_E2E_LATENCY, NODE_ID, sink)
                self._measured[name] = self._measured.get(name, NOTHING).plus(_latency(output, now))

    def take_base(self, task: str, measured: Mapping[str, Measurement]) -> None:
        """Take the measurements of the base of `task`, which is one database for all stores of the task."""
        for name, measurement in measured.items():
            self._measured[operation_of(name, state_id("rocksdb"), task)] = measurement

    def take_clients(self, measured: Mapping[str, Measurement]) -> None:
        """Take what the clients of this process have reported since the last task that ran in it."""
        self._measured.update(measured)

    def measured(self) -> dict[str, tuple[float, ...]]:
        """Return the measurements by operation, for `operations_of`."""
        return {name: tuple(measurement) for name, measurement in self._measured.items()}

    def sensors(self) -> tuple[Any, ...]:
        """Return the reports of sensors, for `added_up`."""
        return tuple(report.fields() for report in self._sensors)


def _sinks_by_topic(spec: SubtopologySpec) -> Mapping[str | None, str]:
    """Return the sink that has written what is in a topic; where several may have, nobody knows which one did."""
    sinks = [node for node in spec.nodes if isinstance(node, SinkSpec)]
    writers = Counter(node.topic for node in sinks)
    return {} if None in writers else {node.topic: node.name for node in sinks if writers[node.topic] == 1}


def _latency(output: PartitionBatch, now: int) -> Measurement:
    ages = now - output.batch.timestamps
    return Measurement(len(ages), float(ages.sum()), float(ages.min()), float(ages.max()))


def operations_of(task: str, measured: Mapping[str, Sequence[float]]) -> Iterator[tuple[Operation, Measurement]]:
    """Yield what was measured of `task`, with the operations."""
    for name, values in measured.items():
        number, *others = values
        yield Operation.reported(name, task), Measurement(int(number), *others)


def added_up(reports: Iterable[Sequence[Any]]) -> list[Any]:
    """Return the reports of sensors of all tasks, those with the same metrics as one."""
    found: dict[tuple[SensorMetric, ...], Measurement] = {}
    for of_task in reports:
        for metrics, measured in map(SensorReport.of_fields, of_task):
            found[metrics] = found.get(metrics, NOTHING).plus(measured)
    return [SensorReport(*item).fields() for item in found.items()]
