"""What is measured of a task in an epoch, a few numbers whatever it processes, on its way to the driver as plain data:
measurements by operation, and the reports of sensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.clock import SystemClock
from penstock.host.task_measuring import TaskMeasuring
from penstock.metrics import SensorMetric, SensorReport
from penstock.metrics.host_metrics import Operation, operation_of, state_id
from penstock.metrics.measurements import NOTHING, Measurement
from penstock.plan.subtopology import SubtopologySpec
from penstock.task.stream_task import TaskCommit


class EpochMeasuring:
    """Measures one task in one epoch."""

    def __init__(self, spec: SubtopologySpec) -> None:
        """Measure a task of the sub-topology `spec`."""
        clock = SystemClock()
        self.nanoseconds: Callable[[], int] = clock.nanoseconds
        self._milliseconds = clock.milliseconds
        self._task = TaskMeasuring(spec)
        self._measured: dict[str, Measurement] = {}
        self._sensors: Sequence[SensorReport] = ()

    def process(self, process: Callable[[], int]) -> None:
        """Call `process`, which returns how many records it took, and measure the time of each as their average."""
        began = self.nanoseconds()
        records = process()
        self._task.processed(records, self.nanoseconds() - began)

    def take(self, commit: TaskCommit) -> None:
        """Take what the task measured, and how old the records are now that sinks have written."""
        self._task.written(commit.output, self._milliseconds())
        self._measured.update(commit.measured)
        self._measured.update(self._task.take())
        self._sensors = commit.sensors

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
