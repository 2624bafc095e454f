"""Metrics by Kafka's names, and how Prometheus sees them."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any
from urllib.request import urlopen

import pytest

import penstock
from penstock import KafkaStreams, State, StreamsBuilder
from penstock.application.prometheus import PrometheusExporter
from penstock.errors import ConfigError
from penstock.metrics import Metric, MetricName
from penstock.metrics.host_metrics import HostMeasurements, Operation, streams_metrics
from penstock.metrics.measurements import Measurement

STATISTICS = {
    "epoch": 7,
    "consumed": {"in": (12, 340)},
    "produced": {"out": (5, 60), "other": (1, 2)},
    "processed": {"0_1": 9},
    "dropped": {"0_1": 3},
}


def values(metrics: Mapping[MetricName, Metric]) -> dict[tuple[Any, ...], float | str]:
    """Return the values by group, name and the tags besides client-id."""
    found = {}
    for name, metric in metrics.items():
        tags = dict(name.tags)
        assert tags.pop("client-id") == "me"
        assert metric.metric_name is name
        assert name.description
        found[name.group, name.name, *tags.items()] = metric.metric_value
    return found


def test_what_the_host_counts_has_kafkas_names() -> None:
    assert values(streams_metrics("me", {"version": "1.0"}, STATISTICS)) == {
        ("stream-metrics", "version"): "1.0",
        ("stream-task-metrics", "process-total", ("task-id", "0_1")): 9,
        ("stream-task-metrics", "dropped-records-total", ("task-id", "0_1")): 3,
        ("stream-topic-metrics", "records-consumed-total", ("topic", "in")): 12,
        ("stream-topic-metrics", "bytes-consumed-total", ("topic", "in")): 340,
        ("stream-topic-metrics", "records-produced-total", ("topic", "out")): 5,
        ("stream-topic-metrics", "bytes-produced-total", ("topic", "out")): 60,
        ("stream-topic-metrics", "records-produced-total", ("topic", "other")): 1,
        ("stream-topic-metrics", "bytes-produced-total", ("topic", "other")): 2,
    }


def test_what_a_host_does_not_count_is_no_metric() -> None:
    assert streams_metrics("me", {}, {}) == {}


def test_an_application_says_what_it_is_before_it_runs() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    streams = KafkaStreams(builder.build(), {"application.id": "app", "client.id": "me", "bootstrap.servers": "b:1"})
    found = values(streams.metrics())
    description = found.pop(("stream-metrics", "topology-description"))
    assert found == {
        ("stream-metrics", "version"): penstock.__version__,
        ("stream-metrics", "application-id"): "app",
        ("stream-metrics", "state"): "CREATED",
        ("stream-metrics", "client-state"): 0,
    }
    assert "Source: KSTREAM-SOURCE-0000000000 (topics: [in])" in str(description)
    streams.close()
    ended = values(streams.metrics())
    assert ended["stream-metrics", "client-state"] == list(State).index(State.NOT_RUNNING) == 4


def test_prometheus_reads_them() -> None:
    facts = {"version": "1.0", "topology-description": "a page", "client-state": 2}
    exporter = PrometheusExporter(lambda: streams_metrics("me", facts, STATISTICS), "127.0.0.1", 0)
    try:
        with urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
    finally:
        exporter.close()
    prefix = "kafka_streams_stream"
    assert sorted(line for line in lines if not line.startswith("#")) == [
        f'{prefix}_metrics_client_state{{client_id="me"}} 2.0',
        f'{prefix}_metrics_version_info{{client_id="me",version="1.0"}} 1.0',
        f'{prefix}_task_metrics_dropped_records_total{{client_id="me",task_id="0_1"}} 3.0',
        f'{prefix}_task_metrics_process_total{{client_id="me",task_id="0_1"}} 9.0',
        f'{prefix}_topic_metrics_bytes_consumed_total{{client_id="me",topic="in"}} 340.0',
        f'{prefix}_topic_metrics_bytes_produced_total{{client_id="me",topic="other"}} 2.0',
        f'{prefix}_topic_metrics_bytes_produced_total{{client_id="me",topic="out"}} 60.0',
        f'{prefix}_topic_metrics_records_consumed_total{{client_id="me",topic="in"}} 12.0',
        f'{prefix}_topic_metrics_records_produced_total{{client_id="me",topic="other"}} 1.0',
        f'{prefix}_topic_metrics_records_produced_total{{client_id="me",topic="out"}} 5.0',
    ]


def test_prometheus_takes_any_names_and_tags_of_users() -> None:
    names = [
        MetricName("read.lines!", "mine", "", (("café", "a"),)),
        MetricName("read.lines!", "mine", "", (("other", "b"),)),
        MetricName("all-total", "mine", ""),
    ]
    metrics = {name: Metric(name, 2.5) for name in names}
    exporter = PrometheusExporter(lambda: metrics, "127.0.0.1", 0)
    try:
        with urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
    finally:
        exporter.close()
    assert sorted(line for line in lines if not line.startswith("#")) == [
        "kafka_streams_mine_all_total 2.5",
        'kafka_streams_mine_read_lines_{caf_="a"} 2.5',
        'kafka_streams_mine_read_lines_{other="b"} 2.5',
    ]


def test_what_was_measured_has_kafkas_names() -> None:
    measured = HostMeasurements(2, 30_000)
    for operation in (
        Operation("commit"),
        Operation("process", "0_1"),
        Operation("dropped-records", "0_1"),
        Operation("process", "0_1", "processor-node-id", "out"),
        Operation("record-e2e-latency", "0_1", "processor-node-id", "out"),
    ):
        measured.take(operation, Measurement(3, 6.0, 1.0, 4.0), 1_000)
    task = ("task-id", "0_1")
    node = (task, ("processor-node-id", "out"))
    assert values(streams_metrics("me", {}, {}, measured.at(1_000))) == {
        ("stream-thread-metrics", "commit-total", ("thread-id", "main")): 3,
        ("stream-thread-metrics", "commit-rate", ("thread-id", "main")): 0.1,
        ("stream-thread-metrics", "commit-latency-avg", ("thread-id", "main")): 2.0,
        ("stream-thread-metrics", "commit-latency-max", ("thread-id", "main")): 4.0,
        ("stream-task-metrics", "process-rate", task): 0.1,
        ("stream-task-metrics", "process-latency-avg", task): 2.0,
        ("stream-task-metrics", "process-latency-max", task): 4.0,
        ("stream-task-metrics", "dropped-records-rate", task): 0.1,
        ("stream-processor-node-metrics", "process-total", *node): 3,
        ("stream-processor-node-metrics", "process-rate", *node): 0.1,
        ("stream-processor-node-metrics", "record-e2e-latency-avg", *node): 2.0,
        ("stream-processor-node-metrics", "record-e2e-latency-min", *node): 1.0,
        ("stream-processor-node-metrics", "record-e2e-latency-max", *node): 4.0,
    }


def test_a_port_that_is_taken_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*penstock\.metrics\.prometheus\.port"):
            PrometheusExporter(dict, "127.0.0.1", port)
