"""The figures of calls are metrics of their operators."""

from __future__ import annotations

from penstock.host.calls.measuring import CallFigures
from penstock.host.measuring.call_measuring import measured_calls
from penstock.metrics.host_metrics import HostMeasurements, streams_metrics
from penstock.metrics.measurements import Measurement
from penstock.metrics.record_counts import RecordCounts


def test_each_figure_is_a_metric_of_its_operator() -> None:
    measurements = HostMeasurements(2, 1_000)
    for figures in (CallFigures(7, 9, 3, 1, 2, Measurement(2, 30, 10, 20), (10, 20)), CallFigures(4, 5, 1, 0, 0)):
        for operation, measurement in measured_calls({"risk": figures}):
            measurements.take(operation, measurement, 500)
    metrics = streams_metrics("client", {}, RecordCounts(), measurements.at(500))
    found = {name.name: each.metric_value for name, each in metrics.items()}
    assert {name.tags["processor-node-id"] for name in metrics} == {"risk"}
    assert not any("task-id" in name.tags for name in metrics)
    assert found == {
        "calls-in-flight": 4,
        "calls-waiting": 5,
        "calls-answered-total": 4,
        "calls-answered-rate": 4,
        "calls-failed-total": 1,
        "calls-failed-rate": 1,
        "call-retries-total": 2,
        "call-retries-rate": 2,
        "call-latency-avg": 15,
        "call-latency-max": 20,
        "call-latency-p50": 10,
        "call-latency-p99": 20,
    }
