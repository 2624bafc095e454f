"""Metrics of hosts by Kafka's names: totals by task and topic, sums over tasks, and the ages of output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.metrics import Metric, MetricName, host_metrics
from penstock.metrics.drop_reasons import Dropped, DropReason
from penstock.metrics.host_metrics import (
    CLIENT,
    DEAD_LETTER_RECORDS,
    DESCRIPTIONS,
    OUTPUT_AGE,
    HostMeasurements,
    Measured,
    Operation,
    client_statistics,
    dropped_for,
    operation_of,
    output_age,
    streams_metrics,
)
from penstock.metrics.measurements import Measurement, bucket_of, measured_once
from penstock.metrics.record_counts import RecordCounts

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


OF_PARTS = {"stream-processor-node-metrics", "stream-state-metrics", "stream-record-cache-metrics"}


def test_each_described_metric_of_a_part_is_measured_and_each_measured_one_is_described() -> None:
    measured = {(group, f"{name}{end}") for (group, name), ends in host_metrics._STATS.items() for end, _ in ends}
    assert measured <= DESCRIPTIONS.keys(), "a row of _STATS has no description"
    of_parts = {(group, name) for group, name in DESCRIPTIONS if group in OF_PARTS and name not in host_metrics._GAUGES}
    assert of_parts <= measured, "a description has no row in _STATS, and is not in _GAUGES"


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


def test_an_operation_is_of_a_task_unless_it_is_of_a_client_or_of_all() -> None:
    assert Operation.reported("process", "0_1") == Operation("process", "0_1")
    assert Operation.reported(operation_of("put", "in-memory-state-id", "a/b"), "0_1") == Operation(
        "put", "0_1", "in-memory-state-id", "a/b"
    )
    assert Operation.reported("poll", "0_1") == Operation("poll")
    assert Operation.reported(operation_of("request-latency", CLIENT, "producer"), "0_1").task == ""


def test_a_drop_has_the_tags_of_its_node_and_its_reason() -> None:
    measured = HostMeasurements(2, 30_000)
    reported = dropped_for(Dropped("node/1", DropReason.LATE))
    measured.take(Operation.reported(reported, "0_1"), measured_once(1.0), 0)
    tags = (("task-id", "0_1"), ("processor-node-id", "node/1"), ("reason", "late"))
    assert values(streams_metrics("me", {}, RecordCounts(), measured.at(0))) == {
        ("stream-processor-node-metrics", "dropped-records-by-reason-total", *tags): 1
    }


def test_output_ages_until_its_commit() -> None:
    measured = HostMeasurements(2, 30_000)
    operation = Operation.reported(output_age(bucket_of(100)), "0_1")
    measured.take(operation, Measurement(2, 2 * 4_000.0), 0)  # two records, sent at 4,000
    assert measured.at(0).output_ages == {}
    measured.committed(9_000, 0)
    found = values(streams_metrics("me", {}, RecordCounts(), measured.at(0)))
    assert all(
        5_100 / 1.2 < float(found["stream-metrics", f"{OUTPUT_AGE}-p{percent}"]) < 5_100 * 1.2 for percent in (50, 99)
    )
    measured.take(operation, Measurement(1, 9_000.0), 0)
    measured.committed(None, 0)  # it will be sent again
    measured.committed(10_000, 0)
    assert sum(measured.at(0).output_ages.values()) == 2


def test_a_closed_task_leaves_its_totals_and_its_dead_letters() -> None:
    measured = HostMeasurements(2, 30_000)
    for task in ("0_0", "0_1"):
        for name in ("process", "dropped-records", DEAD_LETTER_RECORDS):
            measured.take(Operation(name, task), Measurement(3, 3e6, 1e6, 1e6), 0)
    measured.closed("0_0")
    found = values(streams_metrics("me", {}, RecordCounts(), measured.at(0)))
    assert found["stream-thread-metrics", "process-total"] == 6
    assert {(name[1], *name[2:]) for name in found if name[-1] == ("task-id", "0_0")} == {
        (f"{DEAD_LETTER_RECORDS}{end}", ("task-id", "0_0")) for end in ("-total", "-rate")
    }


@pytest.mark.parametrize(("opened", "shown"), [(0.0, False), (5.0, True)])
def test_the_oldest_iterator_is_shown_while_one_is_open(opened: float, shown: bool) -> None:
    oldest = Operation("oldest-iterator-open-since-ms", "0_1", "in-memory-state-id", "s")
    assert bool(streams_metrics("me", {}, RecordCounts(), Measured({}, {}, {oldest: opened}))) is shown


def test_statistics_of_clients_are_by_kind() -> None:
    measured = HostMeasurements(2, 30_000)
    assert client_statistics(measured.at(0)) == {}
    measured.take(Operation("request-latency", "", CLIENT, "producer"), Measurement(2, 6.0, 1.0, 5.0), 0)
    measured.take(Operation("process", "0_1"), Measurement(2, 6.0, 1.0, 5.0), 0)
    assert client_statistics(measured.at(0)) == {"producer": {"request-latency-avg": 3.0, "request-latency-max": 5.0}}
