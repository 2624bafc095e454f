"""Metrics as instruments of OpenTelemetry."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping

import pytest

from penstock.config import StreamsConfig
from penstock.metrics import Metric, MetricName
from penstock.metrics.host_metrics import RESTORE_REMAINING, Measured, Operation, streams_metrics
from penstock.metrics.record_counts import RecordCounts
from penstock.tools.otel.instruments import ObservedMetrics
from tests.support.telemetry import Telemetry
from tests.support.waiting import until

CONFIG = StreamsConfig({"penstock.otel.enabled": True})
COUNTS = RecordCounts(consumed={"in": (12, 340)}, processed={"0_1": 9})


class Application:
    """Metrics that change from reading to reading."""

    def __init__(self, client_id: str) -> None:
        self.metrics: dict[MetricName, Metric] = {}
        self.client_id = client_id
        self.readings = 0

    def read(self) -> Mapping[MetricName, Metric]:
        self.readings += 1
        facts = {"state": "RUNNING", "client-state": 2, "failed-stream-threads": self.readings}
        return {**streams_metrics(self.client_id, facts, COUNTS), **self.metrics}


@pytest.fixture
def application(telemetry: Telemetry) -> Iterator[Application]:
    found = Application("me")
    observed = ObservedMetrics(found.read, CONFIG)
    yield found
    observed.close(0)
    observed.close(0)


def of(client_id: str, **tags: str) -> frozenset[tuple[str, object]]:
    return frozenset({"client_id": client_id, **tags}.items())


def test_metrics_have_the_names_of_kafkas_clients(telemetry: Telemetry, application: Application) -> None:
    found = telemetry.values()
    task = of("me", task_id="0_1", thread_id="me-main")
    assert found == {
        "org.apache.kafka.stream.client.state": {of("me"): 2},
        "org.apache.kafka.stream.failed.stream.threads": {of("me"): 1},
        "org.apache.kafka.stream.task.process.total": {task: 9},
        "org.apache.kafka.stream.task.dropped.records.total": {task: 0},
        "org.apache.kafka.stream.task.dropped.records.rate": {task: 0},
        "org.apache.kafka.stream.task.dead.letter.records.total": {task: 0},
        "org.apache.kafka.stream.task.dead.letter.records.rate": {task: 0},
        "org.apache.kafka.stream.topic.records.consumed.total": {of("me", topic="in"): 12},
        "org.apache.kafka.stream.topic.bytes.consumed.total": {of("me", topic="in"): 340},
    }


def test_totals_are_counters(telemetry: Telemetry, application: Application) -> None:
    data = telemetry.reader.get_metrics_data()
    assert data is not None
    ((metrics,),) = ([scope.metrics for scope in resource.scope_metrics] for resource in data.resource_metrics)
    kinds = {metric.name.rpartition(".")[2]: type(metric.data).__name__ for metric in metrics}
    assert (kinds["total"], kinds["rate"], kinds["state"]) == ("Sum", "Gauge", "Gauge")


def test_a_total_that_falls_is_a_gauge(telemetry: Telemetry, application: Application) -> None:
    remaining = Operation(RESTORE_REMAINING, "0_1")
    application.metrics |= streams_metrics("me", {}, RecordCounts(), Measured({}, {}, {remaining: 5.0}))
    data = telemetry.reader.get_metrics_data()
    assert data is not None
    ((metrics,),) = ([scope.metrics for scope in resource.scope_metrics] for resource in data.resource_metrics)
    kinds = {metric.name: type(metric.data).__name__ for metric in metrics}
    assert kinds["org.apache.kafka.stream.task.restore.remaining.records.total"] == "Gauge"


def test_a_collection_reads_the_metrics_once(telemetry: Telemetry, application: Application) -> None:
    name = "org.apache.kafka.stream.failed.stream.threads"
    for readings in (1, 2, 3):
        assert telemetry.values()[name] == {of("me"): readings}
        assert application.readings == readings


def test_metrics_of_sensors_come_with_a_later_collection(telemetry: Telemetry, application: Application) -> None:
    name = MetricName("largest order!", "shop-metrics", "The largest order", (("currency-code", "EUR"),))
    application.metrics[name] = Metric(name, 7.5)
    expected = {frozenset({("currency_code", "EUR")}): 7.5}
    assert until(lambda: telemetry.values().get("org.apache.kafka.shop.largest_order_") == expected, 60)


def test_a_metric_without_a_value_is_left_out_and_not_warned_of(
    telemetry: Telemetry, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    order, empty = (MetricName(name, "shop-metrics", "Size of orders") for name in ("order-avg", "empty-avg"))
    application.metrics.update({order: Metric(order, 7.5), empty: Metric(empty, math.nan)})
    assert until(lambda: "org.apache.kafka.shop.order.avg" in telemetry.values(), 60)
    assert "org.apache.kafka.shop.empty.avg" not in telemetry.values()
    assert caplog.records == []


def test_a_metric_whose_name_is_refused_hides_no_other(
    telemetry: Telemetry, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    long, other = (MetricName(name, "shop-metrics", "Orders") for name in ("o" * 300, "orders"))
    application.metrics.update({long: Metric(long, 1.0), other: Metric(other, 2.0)})
    with caplog.at_level(logging.WARNING):
        assert until(lambda: "org.apache.kafka.shop.orders" in telemetry.values(), 60)
    (warning,) = caplog.records
    assert warning.getMessage().startswith("OpenTelemetry does not export the metric org.apache.kafka.shop.ooo")


def test_applications_of_a_process_share_instruments(telemetry: Telemetry, application: Application) -> None:
    name = "org.apache.kafka.stream.client.state"
    other = ObservedMetrics(Application("other").read, CONFIG)
    assert telemetry.values()[name] == {of("me"): 2, of("other"): 2}
    other.close(0)
    assert telemetry.values()[name] == {of("me"): 2}


def test_an_application_whose_metrics_fail_hides_no_other(
    telemetry: Telemetry, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> Mapping[MetricName, Metric]:
        raise OSError("gone")

    other = ObservedMetrics(fail, CONFIG)
    with caplog.at_level(logging.WARNING):
        assert telemetry.values()["org.apache.kafka.stream.client.state"] == {of("me"): 2}
    other.close(0)
    assert [line.getMessage() for line in caplog.records] == [
        "Metrics are missing in this collection for OpenTelemetry."
    ]
