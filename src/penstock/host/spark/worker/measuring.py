"""Measurements of a task in an epoch: a few numbers, whatever it processes.

They are sent to the driver as plain data: measurements by operation, and the reports of sensors.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.host.measuring.task_measuring import TaskMeasuring, of_base
from penstock.host.spark.protocol.messages import TaskPhases, TaskReport
from penstock.metrics import SensorMetric, SensorReport
from penstock.metrics.host_metrics import BUFFER_BYTES, BUFFER_COUNT, POLL, POLL_RECORDS, Operation
from penstock.metrics.measurements import NOTHING, Measurement, measured_once
from penstock.plan.subtopology import SubtopologySpec
from penstock.record import PartitionBatch, size_of
from penstock.task.stream_task import TaskCommit
from penstock_broker.common.clock import SystemClock


class EpochMeasuring:
    """Measures one task in one epoch.

    Args:
        spec: the sub-topology of the task.
        between: as for TaskMeasuring.
    """

    def __init__(self, spec: SubtopologySpec, between: Container[str]) -> None:
        clock = SystemClock()
        self.nanoseconds: Callable[[], int] = clock.nanoseconds
        self._milliseconds = clock.milliseconds
        self._task = TaskMeasuring(spec, between)
        self._measured: dict[str, Measurement] = {}
        self._sensors: Sequence[SensorReport] = ()
        self._began_ms = self._milliseconds()
        self._began = self.nanoseconds()
        self._fetch = self._process = 0

    def fetched(self, inputs: Iterable[PartitionBatch]) -> Iterator[PartitionBatch]:
        """Yield the inputs, and measure the time spent waiting for them."""
        each = iter(inputs)
        while True:
            began = self.nanoseconds()
            batch = next(each, None)
            self._fetch += self.nanoseconds() - began
            if batch is None:
                return
            yield batch

    @contextmanager
    def processing(self) -> Iterator[None]:
        """Count the time of the block, without waiting for inputs, as processing."""
        began = self.nanoseconds() - self._fetch
        yield
        self._process += self.nanoseconds() - self._fetch - began

    def phases(self) -> TaskPhases:
        """Return the phases of the task until now.

        The time besides fetching and processing counts as state.
        """
        took = (self.nanoseconds() - self._began) / 1e6
        fetch, process = self._fetch / 1e6, self._process / 1e6
        return TaskPhases(self._began_ms, self._began_ms + took, fetch, process, max(took - fetch - process, 0.0))

    def process(self, process: Callable[[], int]) -> None:
        """Call `process`, which returns its number of records; measure the average time per record."""
        began = self.nanoseconds()
        records = process()
        self._task.processed(records, self.nanoseconds() - began)

    def polled(self, inputs: Iterable[PartitionBatch]) -> Iterator[PartitionBatch]:
        """Yield the inputs as `fetched` does, and measure each.

        The measurements are the waiting time and the number of records.
        """
        before = self._fetch
        for each in self.fetched(inputs):
            took, records = (self._fetch - before) / 1_000_000, float(len(each.batch))
            for name, value in ((POLL, took), (POLL_RECORDS, records)):
                self._measured[name] = self._measured.get(name, NOTHING).plus(measured_once(value))
            yield each
            before = self._fetch

    def take(self, commit: TaskCommit) -> None:
        """Add the measurements of the task, and the age of the records written."""
        self._task.prepared(commit, self._milliseconds())
        self._measured.update(commit.measured)
        self._measured.update(self._task.take())
        self._sensors = commit.sensors

    def take_base(self, task: str, measured: Mapping[str, Measurement]) -> None:
        """Add the measurements of the base of `task`."""
        self._measured.update(of_base(task, measured))

    def held(self, batches: Sequence[PartitionBatch]) -> None:
        """Measure the records that wait in the task for the next epoch."""
        self._measured[BUFFER_COUNT] = measured_once(sum(len(each.batch) for each in batches))
        self._measured[BUFFER_BYTES] = measured_once(sum(size_of(each.batch) for each in batches))

    def take_clients(self, measured: Mapping[str, Measurement]) -> None:
        """Add the reports of this process's clients since the last task that ran in it."""
        self._measured.update(measured)

    def measured(self) -> dict[str, tuple[float, ...]]:
        """Return the measurements by operation, for `operations_of`."""
        return plain(self._measured)

    def sensors(self) -> tuple[Any, ...]:
        """Return the reports of sensors, for `added_up`."""
        return tuple(report.fields() for report in self._sensors)


def plain(measured: Mapping[str, Measurement]) -> dict[str, tuple[float, ...]]:
    """Return measurements by operation as plain data, for `operations_of`."""
    return {name: tuple(measurement) for name, measurement in measured.items()}


def measured_by_task(
    reports: Iterable[TaskReport], of_sinks: Iterable[Mapping[str, Sequence[float]]]
) -> dict[str, Mapping[str, Sequence[float]]]:
    """Return the measurements of an epoch by task.

    Those of all sinks together, which work for no task in particular, are under an empty name.
    """
    together: dict[str, Measurement] = {}
    for of_sink in of_sinks:
        for name, (number, *others) in of_sink.items():
            together[name] = together.get(name, NOTHING).plus(Measurement(int(number), *others))
    found = {"": plain(together), **{report.task: report.measured for report in reports}}
    return {task: measured for task, measured in found.items() if measured}


def operations_of(task: str, measured: Mapping[str, Sequence[float]]) -> Iterator[tuple[Operation, Measurement]]:
    """Yield the operations of `task` with their measurements."""
    for name, values in measured.items():
        number, *others = values
        yield Operation.reported(name, task), Measurement(int(number), *others)


def added_up(reports: Iterable[Sequence[Any]]) -> list[Any]:
    """Return the reports of sensors of all tasks, merged by equal metrics."""
    found: dict[tuple[SensorMetric, ...], Measurement] = {}
    for of_task in reports:
        for metrics, measured in map(SensorReport.of_fields, of_task):
            found[metrics] = found.get(metrics, NOTHING).plus(measured)
    return [SensorReport(*item).fields() for item in found.items()]
