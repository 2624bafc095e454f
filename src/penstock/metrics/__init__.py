"""Metrics: `sensors` has the API for users, `host_metrics` names the metrics of hosts."""

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
