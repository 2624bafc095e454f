"""Metrics as Prometheus sees them: names, labels, totals and facts."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from urllib.request import Request, urlopen

import pytest

from penstock.application.prometheus import PrometheusExporter, exposition
from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.metrics import Metric, MetricName
from penstock.metrics.host_metrics import RESTORE_REMAINING, HostMeasurements, Measured, Operation, streams_metrics
from penstock.metrics.measurements import Measurement
from penstock.metrics.record_counts import RecordCounts
from penstock.record import TopicPartition
from tests.metrics.test_host_metrics import COUNTS


def at_port(port: int, **values: int) -> StreamsConfig:
    """Return the configuration of a port for Prometheus."""
    return StreamsConfig({"penstock.metrics.prometheus.port": port, **values}, environment={})


def samples(metrics: Mapping[MetricName, Metric]) -> dict[str, float]:
    """Return the values that Prometheus reads, by name and labels."""
    exporter = PrometheusExporter(lambda: metrics, at_port(0))
    try:
        accepts = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
        with urlopen(Request(f"http://127.0.0.1:{exporter.port}/metrics", headers=accepts), timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            lines = answer.read().decode().splitlines()
    finally:
        exporter.close(60_000)
    found = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    assert len({name for name, _, _ in found}) == len(found)
    return {name.removeprefix("kafka_"): float(value) for name, _, value in found}


def test_prometheus_reads_them() -> None:
    facts = {
        "version": "1.0",
        "topology-description": "a page",
        "state": "RUNNING",
        "client-state": 2,
        "failed-stream-threads": 3,
    }
    task = 'client_id="me",task_id="0_1",thread_id="me-main"'
    totals = {
        f"streams_stream_task_metrics_dead_letter_records{{}}{{{task}}}": 0,
        f"streams_stream_task_metrics_dropped_records{{}}{{{task}}}": 3,
        f"streams_stream_task_metrics_process{{}}{{{task}}}": 9,
        'streams_stream_topic_metrics_bytes_consumed{}{client_id="me",topic="in"}': 340,
        'streams_stream_topic_metrics_bytes_produced{}{client_id="me",topic="other"}': 2,
        'streams_stream_topic_metrics_bytes_produced{}{client_id="me",topic="out"}': 60,
        'streams_stream_topic_metrics_records_consumed{}{client_id="me",topic="in"}': 12,
        'streams_stream_topic_metrics_records_produced{}{client_id="me",topic="other"}': 1,
        'streams_stream_topic_metrics_records_produced{}{client_id="me",topic="out"}': 5,
    }
    assert samples(streams_metrics("me", facts, COUNTS)) == {
        'streams_stream_metrics{client_id="me",state="RUNNING"}': 1,
        'streams_stream_metrics{client_id="me",version="1.0"}': 1,
        'streams_stream_metrics{client_id="me",failed_stream_threads="3"}': 3,
        'streams_stream_metrics_client_state{client_id="me"}': 2,
        'streams_stream_metrics_failed_stream_threads{client_id="me"}': 3,
        'streams_stream_metrics_state_info{client_id="me",state="RUNNING"}': 1,
        'streams_stream_metrics_version_info{client_id="me",version="1.0"}': 1,
        f"streams_stream_task_metrics_dead_letter_records_rate{{{task}}}": 0,
        f"streams_stream_task_metrics_dropped_records_rate{{{task}}}": 0,
        **{name.replace("{}", suffix): value for name, value in totals.items() for suffix in ("", "_total")},
    }


def test_metrics_of_clients_have_the_names_of_clients() -> None:
    measured = HostMeasurements(2, 30_000)
    measured.take(Operation("request-latency", "", "client", "producer"), Measurement(2, 6.0, 1.0, 5.0), 0)
    measured_now = measured.at(0)._replace(lags={TopicPartition("in", 1): 7})
    assert samples(streams_metrics("me", {}, RecordCounts(), measured_now)) == {
        'producer_producer_metrics_request_latency_avg{client_id="me",client_type="producer"}': 3,
        'producer_producer_metrics_request_latency_max{client_id="me",client_type="producer"}': 5,
        "consumer_consumer_fetch_manager_metrics_records_lag"
        '{client_id="me",client_type="consumer",partition="1",topic="in"}': 7,
    }


def test_a_total_that_falls_is_a_gauge() -> None:
    remaining = Operation(RESTORE_REMAINING, "0_1")
    metrics = streams_metrics("me", {}, RecordCounts(), Measured({}, {}, {remaining: 5.0}))
    text = exposition(lambda: metrics)[0].decode()
    name = "kafka_streams_stream_task_metrics_restore_remaining_records_total"
    assert f"# TYPE {name} gauge\n" in text
    assert f'{name}{{client_id="me",task_id="0_1",thread_id="me-main"}} 5.0\n' in text


def test_prometheus_takes_any_names_and_tags_of_users() -> None:
    names = [
        MetricName("read.lines!", "mine", "", (("café", "a"),)),
        MetricName("read.lines!", "mine", "", (("other", "b"),)),
        MetricName("all-total", "mine", ""),
        MetricName("both-total", "mine", ""),
        MetricName("both", "mine", ""),
    ]
    assert samples({name: Metric(name, 2.5) for name in names}) == {
        "streams_mine_all": 2.5,
        "streams_mine_all_total": 2.5,
        "streams_mine_both": 2.5,
        "streams_mine_both_total": 2.5,
        'streams_mine_read_lines_{caf_="a"}': 2.5,
        'streams_mine_read_lines_{other="b"}': 2.5,
    }


def test_a_port_that_is_taken_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*penstock\.metrics\.prometheus\.port"):
            PrometheusExporter(dict, at_port(port))
