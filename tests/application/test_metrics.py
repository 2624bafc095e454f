"""Metrics by Kafka's names, and how Prometheus sees them."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any
from urllib.request import Request, urlopen

import pytest

import penstock
from penstock import KafkaStreams, State, StreamsBuilder
from penstock.application.prometheus import PrometheusExporter, exposition
from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.metrics import Metric, MetricName
from penstock.metrics.host_metrics import RESTORE_REMAINING, HostMeasurements, Measured, Operation, streams_metrics
from penstock.metrics.measurements import Measurement
from penstock.metrics.record_counts import RecordCounts
from penstock.record import TopicPartition

COUNTS = RecordCounts(
    consumed={"in": (12, 340)},
    produced={"out": (5, 60), "other": (1, 2)},
    processed={"0_1": 9},
    dropped={"0_1": 3},
)


def values(metrics: Mapping[MetricName, Metric]) -> dict[tuple[Any, ...], float | str]:
    """Return the values by group, name and the tags besides client-id and thread-id."""
    found = {}
    for name, metric in metrics.items():
        tags = dict(name.tags)
        assert tags.pop("client-id") == "me"
        assert tags.pop("thread-id", "me-main") == "me-main"
        assert metric.metric_name == name
        assert name.description
        found[name.group, name.name, *tags.items()] = metric.metric_value
    return found


def test_what_the_host_counts_has_kafkas_names() -> None:
    assert values(streams_metrics("me", {"version": "1.0"}, COUNTS)) == {
        ("stream-metrics", "version"): "1.0",
        ("stream-task-metrics", "process-total", ("task-id", "0_1")): 9,
        ("stream-task-metrics", "dropped-records-total", ("task-id", "0_1")): 3,
        ("stream-task-metrics", "dropped-records-rate", ("task-id", "0_1")): 0,
        ("stream-task-metrics", "dead-letter-records-total", ("task-id", "0_1")): 0,
        ("stream-task-metrics", "dead-letter-records-rate", ("task-id", "0_1")): 0,
        ("stream-topic-metrics", "records-consumed-total", ("topic", "in")): 12,
        ("stream-topic-metrics", "bytes-consumed-total", ("topic", "in")): 340,
        ("stream-topic-metrics", "records-produced-total", ("topic", "out")): 5,
        ("stream-topic-metrics", "bytes-produced-total", ("topic", "out")): 60,
        ("stream-topic-metrics", "records-produced-total", ("topic", "other")): 1,
        ("stream-topic-metrics", "bytes-produced-total", ("topic", "other")): 2,
    }


def test_what_a_host_does_not_count_is_no_metric() -> None:
    assert streams_metrics("me", {}, RecordCounts()) == {}


def test_an_application_says_what_it_is_before_it_runs() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    config = {"application.id": "app", "client.id": "me", "bootstrap.servers": "b:1"}
    streams = KafkaStreams(builder.build(), {**config, "metrics.recording.level": "DEBUG"})
    found = values(streams.metrics())
    description = found.pop(("stream-metrics", "topology-description"))
    assert found == {
        ("stream-metrics", "version"): penstock.__version__,
        ("stream-metrics", "application-id"): "app",
        ("stream-metrics", "state"): "CREATED",
        ("stream-metrics", "client-state"): 0,
        ("stream-metrics", "alive-stream-threads"): 0,
        ("stream-metrics", "failed-stream-threads"): 0,
        ("stream-metrics", "recording-level"): 1,
        ("stream-thread-metrics", "thread-state"): 0,
    }
    assert "Source: KSTREAM-SOURCE-0000000000 (topics: [in])" in str(description)
    streams.close()
    ended = values(streams.metrics())
    assert ended["stream-metrics", "client-state"] == list(State).index(State.NOT_RUNNING) == 4
    assert ended["stream-thread-metrics", "thread-state"] == 6  # DEAD


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
        exporter.close()
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
    assert values(streams_metrics("me", {}, RecordCounts(), measured.at(1_000))) == {
        ("stream-thread-metrics", "commit-total"): 3,
        ("stream-thread-metrics", "commit-rate"): 0.1,
        ("stream-thread-metrics", "commit-latency-avg"): 2.0,
        ("stream-thread-metrics", "commit-latency-max"): 4.0,
        ("stream-thread-metrics", "process-total"): 3,
        ("stream-thread-metrics", "process-rate"): 0.1,
        ("stream-thread-metrics", "process-latency-avg"): 2e-6,
        ("stream-thread-metrics", "process-latency-max"): 4e-6,
        ("stream-task-metrics", "active-process-ratio", task): 1.0,
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


def test_tasks_are_compared_with_one_another() -> None:
    measured = HostMeasurements(2, 30_000)
    for task, nanoseconds, time in (("0_0", 3e6, 5_000.0), ("0_1", 1e6, 4_000.0)):
        measured.take(Operation("process", task), Measurement(2, nanoseconds, 1.0, 2e6), 0)
        measured.take(Operation("stream-time", task), Measurement(1, time, time, time), 0)
    found = values(streams_metrics("me", {}, RecordCounts(), measured.at(0)._replace(committed_ms=9_000)))
    assert found["stream-thread-metrics", "process-total"] == 4
    assert found["stream-thread-metrics", "process-latency-avg"] == 1.0
    assert found["stream-thread-metrics", "process-latency-max"] == 2.0
    assert found["stream-thread-metrics", "last-commit-time"] == 9_000
    by_task = {
        name: [found["stream-task-metrics", name, ("task-id", task)] for task in ("0_0", "0_1")]
        for name in ("active-process-ratio", "stream-time", "stream-time-skew")
    }
    assert by_task == {
        "active-process-ratio": [0.75, 0.25],
        "stream-time": [5_000, 4_000],
        "stream-time-skew": [0, 1_000],
    }
    measured.forget("0_0")
    assert [
        name for name in values(streams_metrics("me", {}, RecordCounts(), measured.at(0))) if name[1] == "stream-time"
    ] == [("stream-task-metrics", "stream-time", ("task-id", "0_1"))]


def test_a_port_that_is_taken_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*penstock\.metrics\.prometheus\.port"):
            PrometheusExporter(dict, at_port(port))
