"""Metrics: `sensors` is the part that users call, `host_metrics` names those of hosts."""

from __future__ import annotations

from penstock.metrics.sensors import (
    MeasurableStat,
    Metric,
    MetricName,
    RecordingLevel,
    Sensor,
    SensorMetric,
    SensorReport,
    StreamsMetrics,
)

__all__ = [
    "MeasurableStat",
    "Metric",
    "MetricName",
    "RecordingLevel",
    "Sensor",
    "SensorMetric",
    "SensorReport",
    "StreamsMetrics",
]
