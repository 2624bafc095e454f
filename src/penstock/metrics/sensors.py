"""The metrics API for users: names of metrics, and sensors for processors.

A sensor accumulates the values recorded by a task; the host collects them with each commit and adds up all tasks for
`KafkaStreams.metrics`. Values recorded in a failed epoch are discarded with it. Counters of hosts are in
`host_metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

from penstock.metrics.measurements import NOTHING, Measurement, Sampled


class RecordingLevel(IntEnum):
    """The level of a sensor (Kafka class: Sensor.RecordingLevel).

    A sensor records if its level is not above `metrics.recording.level`.
    """

    INFO = 0
    DEBUG = 1
    TRACE = 2


class MeasurableStat(Enum):
    """A statistic of a sensor's values (Kafka class: MeasurableStat, each by the name of its class).

    Windowed statistics cover the last `metrics.num.samples` windows of `metrics.sample.window.ms`.
    """

    AVG = "Avg"
    MAX = "Max"
    MIN = "Min"
    RATE = "Rate"
    """The sum of the values in the window, per second."""
    COUNT_RATE = "Rate(WindowedCount)"
    """The number of values in the window, per second."""
    WINDOWED_COUNT = "WindowedCount"
    WINDOWED_SUM = "WindowedSum"
    CUMULATIVE_COUNT = "CumulativeCount"
    CUMULATIVE_SUM = "CumulativeSum"

    def of(self, sampled: Sampled) -> float:
        """Return the value; NaN for an average, maximum or minimum without values, as in Kafka."""
        return _VALUES[self](sampled)


_VALUES: Final[Mapping[MeasurableStat, Callable[[Sampled], float]]] = {
    MeasurableStat.AVG: lambda sampled: (
        sampled.window.total / sampled.window.number if sampled.window.number else math.nan
    ),
    MeasurableStat.MAX: lambda sampled: sampled.window.most if sampled.window.number else math.nan,
    MeasurableStat.MIN: lambda sampled: sampled.window.least if sampled.window.number else math.nan,
    MeasurableStat.RATE: lambda sampled: sampled.window.total / sampled.seconds,
    MeasurableStat.COUNT_RATE: lambda sampled: sampled.window.number / sampled.seconds,
    MeasurableStat.WINDOWED_COUNT: lambda sampled: sampled.window.number,
    MeasurableStat.WINDOWED_SUM: lambda sampled: sampled.window.total,
    MeasurableStat.CUMULATIVE_COUNT: lambda sampled: sampled.number,
    MeasurableStat.CUMULATIVE_SUM: lambda sampled: sampled.total,
}


@dataclass(frozen=True)
class MetricName:
    """The unique name of a metric, with its group and tags (Kafka class: MetricName)."""

    name: str
    group: str
    description: str
    tag_items: tuple[tuple[str, str], ...] = ()

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags by key."""
        return dict(self.tag_items)


@dataclass(frozen=True)
class Metric:
    """A metric and its value at the time of the request (Kafka class: Metric).

    The value is a number or a text.
    """

    metric_name: MetricName
    metric_value: float | str


class SensorMetric(NamedTuple):
    """A metric of a sensor: its name and its statistic."""

    metric_name: MetricName
    stat: MeasurableStat


class SensorReport(NamedTuple):
    """The values of a sensor since its previous report, with its metrics."""

    metrics: tuple[SensorMetric, ...]
    measured: Measurement

    def fields(self) -> tuple[Any, ...]:
        """Return the report as plain data, for `of_fields`."""
        metrics = tuple(
            (name.name, name.group, name.description, name.tag_items, stat.value) for name, stat in self.metrics
        )
        return metrics, tuple(self.measured)

    @staticmethod
    def of_fields(fields: Sequence[Any]) -> SensorReport:
        """Return the report from its plain data (`fields`)."""
        metrics, measured = fields
        return SensorReport(
            tuple(
                SensorMetric(
                    MetricName(name, group, text, tuple((key, tag) for key, tag in tags)), MeasurableStat(stat)
                )
                for name, group, text, tags, stat in metrics
            ),
            Measurement(*measured),
        )


class Sensor:
    """Records values for its metrics (Kafka class: Sensor); created by `StreamsMetrics`.

    Args:
        name: of the sensor, unique in the task.
        records: whether values are recorded instead of dropped.
        parents: sensors that also record the values of this one.
    """

    def __init__(self, name: str, records: bool, parents: Sequence[Sensor] = ()) -> None:
        self._name = name
        self._records = records
        self._parents = tuple(parents)
        self._metrics: dict[MetricName, MeasurableStat] = {}
        self._number, self._total, self._least, self._most = NOTHING

    @property
    def name(self) -> str:
        """Its name, unique in the task."""
        return self._name

    def record(self, value: float = 1.0) -> None:
        """Record a value, here and in the parents; raises ValueError unless it is finite."""
        if not self._records:
            return
        if not math.isfinite(value):
            raise ValueError(f"Sensor {self._name} cannot record {value}: expected a finite number.")
        self._number += 1
        self._total += value
        if value < self._least:
            self._least = value
        if value > self._most:
            self._most = value
        for parent in self._parents:
            parent.record(value)

    def should_record(self) -> bool:
        """Return whether values are recorded at the level of `metrics.recording.level`."""
        return self._records

    def has_metrics(self) -> bool:
        """Return whether the sensor has a metric."""
        return bool(self._metrics)

    def add(self, metric_name: MetricName, stat: MeasurableStat) -> bool:
        """Add the metric `stat` of the recorded values; an existing one stays unchanged. Returns True."""
        self._metrics.setdefault(metric_name, stat)
        return True

    def take_report(self) -> SensorReport | None:
        """Return and reset the values since the last call, None without values or metrics. Engine-internal."""
        if not self._number or not self._metrics:
            return None
        measured = Measurement(self._number, float(self._total), float(self._least), float(self._most))
        self._number, self._total, self._least, self._most = NOTHING
        return SensorReport(tuple(SensorMetric(*item) for item in self._metrics.items()), measured)


class StreamsMetrics:
    """The sensors of one task (Kafka class: StreamsMetrics); returned by `context.metrics()`.

    `add_sensor` with a known name returns the existing sensor. Sensors of all tasks with the same metrics are added up.
    On Spark a processor lives for one epoch: its `init` adds its sensors again; the metrics of a removed sensor stay
    visible. Kafka's tag `thread-id` is `client-id` here; in Kafka, `metrics()` returns all metrics of the program, here
    KafkaStreams does. Sensors of processors of global stores are not shown: each machine has its own copy of these
    stores.

    Args:
        client_id: the tag of the metrics.
        recording_level: `metrics.recording.level`.
    """

    def __init__(self, client_id: str, recording_level: str = "INFO") -> None:
        self._client_id = client_id
        self._level = RecordingLevel[recording_level]
        self._sensors: dict[str, Sensor] = {}

    def add_sensor(self, name: str, recording_level: RecordingLevel, *parents: Sensor) -> Sensor:
        """Return a sensor without metrics; add them with `Sensor.add`.

        Args:
            name: its name, unique in the task.
            recording_level: the lowest `metrics.recording.level` at which it records.
            parents: sensors that also record the values of this one.
        """
        known = self._sensors.get(name)
        if known is None:
            known = self._sensors[name] = Sensor(name, recording_level <= self._level, parents)
        return known

    def add_rate_total_sensor(
        self, scope_name: str, entity_name: str, operation_name: str, recording_level: RecordingLevel, *tags: str
    ) -> Sensor:
        """Return a sensor with the metrics `<operation>-rate` and `<operation>-total`: calls per second, and in total.

        Args:
            scope_name: the scope; the group is `stream-<scope>-metrics`.
            entity_name: the entity, value of the tag `<scope>-id`.
            operation_name: the operation.
            recording_level: the lowest `metrics.recording.level` at which it records.
            tags: more tags, each key before its value.

        Raises:
            ValueError: a key of a tag has no value.
        """
        return self._operation(scope_name, entity_name, operation_name, recording_level, tags, _RATE_TOTAL)

    def add_latency_rate_total_sensor(
        self, scope_name: str, entity_name: str, operation_name: str, recording_level: RecordingLevel, *tags: str
    ) -> Sensor:
        """Return a sensor with the metrics `<operation>-latency-avg` and `<operation>-latency-max` of its values.

        It also has the metrics of `add_rate_total_sensor`, with the same arguments and errors.
        """
        metrics = (*_RATE_TOTAL, *_LATENCY)
        return self._operation(scope_name, entity_name, operation_name, recording_level, tags, metrics)

    def remove_sensor(self, sensor: Sensor) -> None:
        """Remove a sensor, and its values since the last commit."""
        self._sensors.pop(sensor.name, None)

    def take_reports(self) -> list[SensorReport]:
        """Return and reset the values of all sensors since the last call. Engine-internal."""
        reports = (sensor.take_report() for sensor in self._sensors.values())
        return [report for report in reports if report is not None]

    def _operation(
        self,
        scope: str,
        entity: str,
        operation: str,
        level: RecordingLevel,
        tags: Sequence[str],
        metrics: Sequence[tuple[str, MeasurableStat, str]],
    ) -> Sensor:
        if len(tags) % 2:
            raise ValueError(f"Tags need to be specified in key-value pairs: expected a value for each of {tags}.")
        items = {"client-id": self._client_id, f"{scope}-id": entity, **dict(zip(tags[::2], tags[1::2], strict=True))}
        sensor = self.add_sensor(f"external.entity.{entity}.{operation}", level)
        for suffix, stat, description in metrics:
            text = description.format(operation)
            name = MetricName(f"{operation}{suffix}", f"stream-{scope}-metrics", text, tuple(items.items()))
            sensor.add(name, stat)
        return sensor


_RATE_TOTAL: Final = (
    ("-rate", MeasurableStat.COUNT_RATE, "The number of {} operations a second"),
    ("-total", MeasurableStat.CUMULATIVE_COUNT, "The number of {} operations"),
)
_LATENCY: Final = (
    ("-latency-avg", MeasurableStat.AVG, "The average latency of {}"),
    ("-latency-max", MeasurableStat.MAX, "The largest latency of {}"),
)
