"""What workers measure comes to the driver with the commit of the epoch, each once, of all tasks together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock import (
    BufferConfig,
    Grouped,
    Materialized,
    Named,
    Processor,
    ProcessorContext,
    Produced,
    PunctuationType,
    Record,
    Serdes,
    StreamsBuilder,
    Suppressed,
    Topology,
)
from penstock.client.confluent import connection
from penstock.client.confluent.statistics import ClientStatistics
from penstock.client.settings import PRODUCER
from penstock.host.calls.measuring import CallFigures
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.driver.figures import ManifestFigures
from penstock.host.spark.worker import sink, task_epoch
from penstock.host.spark.worker.measuring import EpochMeasuring
from penstock.metrics import Metric, MetricName, RecordingLevel
from penstock.metrics.host_metrics import client_statistics, streams_metrics
from penstock.metrics.measurements import measured_once
from penstock.record import PartitionBatch, RecordBatch
from penstock.task.stream_task import TaskCommit
from penstock.task.task_checkpoint import TaskCheckpoint
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, wait_for
from tests.host.test_topologies import TEXT, word_count

STRING = Serdes.string()


class Measuring(Processor):
    """Records the length of each value, and of those that are not empty how many there are."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        metrics = context.metrics()
        self._lengths = metrics.add_latency_rate_total_sensor("text", "lines", "read", RecordingLevel.INFO)
        self._hidden = metrics.add_rate_total_sensor("text", "lines", "hide", RecordingLevel.DEBUG)
        context.schedule(1, PunctuationType.STREAM_TIME, lambda _: None)

    def process(self, record: Record[Any, Any]) -> None:
        self._lengths.record(len(record.value))
        self._hidden.record()
        self.context.forward(record)

    def close(self) -> None:
        self.context.metrics().remove_sensor(self._lengths)


def measuring(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream(source, consumed=TEXT).process(Measuring)
    lines.to(target, produced=Produced.with_(key_serde=STRING, value_serde=STRING).with_name("out"))
    return builder.build()


def values(metrics: Mapping[MetricName, Metric]) -> dict[tuple[str, ...], Any]:
    """Return the values by name and the values of the tags besides client-id and thread-id."""
    return {
        (name.name, *(tag for key, tag in name.tag_items if key not in ("client-id", "thread-id"))): metric.metric_value
        for name, metric in metrics.items()
    }


def figures_of(query: InlineQuery) -> ManifestFigures:
    """Return the figures of a driver that has followed all epochs."""
    checkpoint = Checkpoint(query.description.checkpoint)
    last_ms = 0
    figures = ManifestFigures(elapsed_ms=lambda: last_ms)
    for epoch in range(1, checkpoint.last_epoch() + 1):
        manifest = checkpoint.read_manifest(epoch, query.description.query_id)
        assert manifest is not None
        last_ms = manifest.committed_ms
        figures.take(manifest)
    return figures


def seen(query: InlineQuery) -> dict[tuple[str, ...], Any]:
    """Return what the metrics of a driver are that has followed all epochs."""
    figures = figures_of(query)
    return values(streams_metrics("me", {}, figures.snapshot(), figures.measured()))


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)
def test_sensors_of_all_tasks_are_added_up(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
) -> None:
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics({source: 2, target: 1})
    query = InlineQuery(measuring(source, target), spark_runner.config(application), spark_runner.admin)
    for round_ in range(2):
        for partition, text in enumerate((b"a", b"abcde")):
            spark_runner.write(source, [InputRecord(b"k", text, 1_000 - 100 * round_, partition)])
        query.epoch()
    first, second = figures_of(query).snapshot().recent_commits
    assert (first.number, first.records, second.number) == (1, 2, 2)
    assert list(second.phases_ms) == ["plan", "fetch", "process", "state", "transaction", "spark"]
    assert second.phases_ms["process"] > 0
    assert second.phases_ms["transaction"] > 0
    found = seen(query)
    assert found["read-total", "lines"] == 4
    assert found["read-latency-avg", "lines"] == 3.0
    assert found["read-latency-max", "lines"] == 5.0
    assert found["read-rate", "lines"] > 0
    assert ("hide-total", "lines") not in found
    for task in ("0_0", "0_1"):
        assert found["process-total", task] == 2
        assert found["process-latency-max", task] >= found["process-latency-avg", task] > 0
        assert found["process-rate", task] > 0
        assert found["record-lateness-max", task] == 100
        assert found["record-lateness-avg", task] == 50
        assert found["punctuate-total", task] >= 1
        assert found["punctuate-latency-avg", task] > 0
        ages = [found[f"record-e2e-latency-{end}", task, "out"] for end in ("min", "avg", "max")]
        assert ages == sorted(ages)
        assert ages[0] > 1_000_000  # of a record of 1970
        assert found["stream-time", task] == 1_000
    assert found["committed-output-age-p50",] > 1_000_000
    assert found["commit-total",] == 2
    assert found["commit-latency-max",] >= found["commit-latency-avg",] > 0


class Twice(Processor):
    """Forwards each record twice."""

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)
        self.context.forward(record)


def detailed(one: str, other: str, target: str) -> Topology:
    """Return a topology with columns, a record section that takes records of two topics in turn, and a count."""
    builder = StreamsBuilder()
    lines = builder.stream(one, consumed=TEXT.with_name("one")).merge(
        builder.stream(other, consumed=TEXT.with_name("other")), named=Named.as_("both")
    )
    twice = lines.process(Twice, named=Named.as_("twice"))
    twice.to(target, produced=Produced.with_(key_serde=STRING, value_serde=STRING).with_name("out"))
    words = lines.group_by(
        lambda key, value: value, Grouped.with_(key_serde=STRING, value_serde=STRING).with_name("words")
    )
    counts = words.count(Materialized.as_("counts"), named=Named.as_("counted"))
    counts.suppress(Suppressed.until_time_limit(1_000, BufferConfig.unbounded()).with_name("held"))
    return builder.build()


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)
@pytest.mark.parametrize("execution", ["auto", "record"])
def test_a_level_of_debug_tells_of_nodes_and_stores_and_changes_nothing(
    execution: str,
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
) -> None:
    one, other = unique_name("one"), unique_name("other")
    spark_runner.create_topics({one: 1, other: 1})
    for topic, first in ((one, 1_000), (other, 1_001)):
        texts = [f"{number % 3}".encode() for number in range(50)]
        spark_runner.write(topic, [InputRecord(b"k", text, first + 2 * at, 0) for at, text in enumerate(texts)])
    found, output, state = {}, {}, {}
    for level in ("INFO", "DEBUG"):
        target = unique_name("out")
        spark_runner.create_topics({target: 1})
        values = {
            "metrics.recording.level": level,
            "penstock.execution": execution,
            "statestore.cache.max.bytes": 100_000,
        }
        config = spark_runner.config(f"{application}-{level}", values)
        query = InlineQuery(detailed(one, other, target), config, spark_runner.admin)
        query.run_to_end()
        found[level] = seen(query)
        output[level] = spark_runner.read(target)
        state[level] = spark_runner.store(config, "counts")
    nodes = {key[2]: value for key, value in found["DEBUG"].items() if key[0] == "process-total" and len(key) == 3}
    assert {name: nodes[name] for name in ("one", "other", "both", "twice", "out", "counted")} == {
        "one": 50,
        "other": 50,
        "both": 100,
        "twice": 100,
        "out": 200,
        "counted": 100,
    }
    assert ("hit-ratio-avg" in {key[0] for key in found["DEBUG"]}) == (
        execution == "record"
    )  # a column reads a key once
    task = next(key[1] for key in found["DEBUG"] if key[0] == "put-rate")
    for operation in ("put", "get", "flush"):
        assert found["DEBUG"][f"{operation}-rate", task, "counts"] > 0
        assert found["DEBUG"][f"{operation}-latency-max", task, "counts"] > 0
        assert (f"{operation}-rate", task, "counts") not in found["INFO"]
    assert found["DEBUG"]["suppression-buffer-count-max", task, "held-store"] == 3
    assert found["DEBUG"]["suppression-buffer-size-avg", task, "held-store"] > 0
    assert not [key for key in found["INFO"] if key[0].startswith("suppression")]
    assert {key for key in found["INFO"] if key[0] == "process-total"} == {
        ("process-total",),
        ("process-total", "0_0"),
        ("process-total", "1_0"),
    }
    assert output["DEBUG"] == output["INFO"]
    assert state["DEBUG"] == state["INFO"] != {}


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)
def test_a_base_of_rocksdb_tells_its_properties_and_its_statistics(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics({source: 1, target: 1})
    values = {"penstock.state.base": "rocksdb", "metrics.recording.level": "DEBUG"}
    query = InlineQuery(word_count(source, target), spark_runner.config(application, values), spark_runner.admin)
    for text in (b"a b", b"a c"):  # what an epoch has changed goes into the base with the next one
        spark_runner.write(source, [InputRecord(b"k", text, 1_000, 0)])
        query.run_to_end()
    found = {name: value for name, value in seen(query).items() if name[-1] == "1_0"}
    assert found["estimate-num-keys", "1_0", "1_0"] >= 2
    assert found["total-sst-files-size", "1_0", "1_0"] > 0
    assert found["bytes-written-total", "1_0", "1_0"] > 0
    assert found["bytes-written-rate", "1_0", "1_0"] > 0
    assert not math.isnan(found["memtable-flush-time-avg", "1_0", "1_0"])
    query.close()


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)
def test_an_epoch_that_is_run_again_is_measured_once(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics({source: 1, target: 1})
    query = InlineQuery(measuring(source, target), spark_runner.config(application), spark_runner.admin)

    def killed(point: str, epoch: int) -> None:
        if point == "manifest.before_write":
            raise KeyboardInterrupt

    spark_runner.write(source, [InputRecord(b"k", b"a", 1_000, 0)])
    with monkeypatch.context() as patched:
        patched.setattr(sink, "crash_point", killed)
        with pytest.raises(KeyboardInterrupt):
            query.epoch()
    query.restart()
    query.run_to_end()
    assert seen(query)["read-total", "lines"] == 1


def test_where_several_sinks_may_have_written_no_age_is_reported() -> None:
    def told(topology: Topology) -> list[str]:
        (spec,) = topology.build("app").subtopologies
        measuring = EpochMeasuring(spec, ())
        output = [PartitionBatch(topic, 0, RecordBatch.of([(b"k", b"v", 1_000, 0, ())])) for topic in ("one", "both")]
        measuring.take(TaskCommit({}, TaskCheckpoint(), output, {}, None, {}, []))
        return list(measuring.measured())

    def topology() -> Topology:
        both = Topology().add_source("source", "in").add_sink("one", "one", "source")
        return both.add_sink("both-1", "both", "source").add_sink("both-2", "both", "source")

    ages = ["record-e2e-latency/processor-node-id/one"]
    assert [name for name in told(topology()) if "bucket" not in name] == ages
    dynamic = topology().add_sink("any", lambda key, value, context: "both", "source")
    assert [name for name in told(dynamic) if "bucket" not in name] == []


class ByProcess(ClientStatistics):
    """Keeps the reports of consumers and producers apart, as processes do."""

    def __init__(self, of_tasks: ClientStatistics, of_sinks: ClientStatistics) -> None:
        super().__init__()
        self._of_tasks = of_tasks
        self._of_sinks = of_sinks

    def report(self, role: str, text: str) -> None:
        (self._of_sinks if role == PRODUCER else self._of_tasks).report(role, text)


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_clients_report_where_an_interval_is_set(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    guarantee: str,
) -> None:
    monkeypatch.setattr(task_epoch, "STATISTICS", of_tasks := ClientStatistics())
    monkeypatch.setattr(sink, "STATISTICS", of_sinks := ClientStatistics())  # a sink runs in a process of its own
    monkeypatch.setattr(connection, "STATISTICS", ByProcess(of_tasks, of_sinks))
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics({source: 1, target: 1})
    values = {"statistics.interval.ms": 5, "penstock.manifests.retained": 100_000, "processing.guarantee": guarantee}
    config = spark_runner.config(application, values)
    query = InlineQuery(measuring(source, target), config, spark_runner.admin)

    def have_reported() -> bool:
        spark_runner.write(source, [InputRecord(b"k", b"a", 1_000, 0)])
        query.run_to_end()
        names = {name[0] for name in seen(query)}
        if not names >= {"incoming-byte-total", "fetch-throttle-time-avg", "produce-throttle-time-avg"}:
            return False
        found = client_statistics(figures_of(query).measured())
        figures = [found.get(role, {}) for role in ("consumer", "producer")]
        return all(  # an interval in which no request was answered has no latency
            each.get("outgoing-byte-total", 0) > 0
            and each.get("request-latency-max", 0) > 0
            and each.get("buffered-bytes-max", -1) >= 0
            for each in figures
        )

    wait_for(have_reported)
    query.close()


def test_reports_on_calls_are_added_up_by_operator() -> None:
    figures = ManifestFigures(elapsed_ms=lambda: 1_000)
    for in_flight in (3, 2):
        figures.take_calls({"ask": CallFigures(in_flight, 5, 4, 1, 2, measured_once(10.0))})
    found = values(streams_metrics("me", {}, figures.snapshot(), figures.measured()))
    of_node = {name[0]: value for name, value in found.items() if "ask" in name}
    assert (of_node["calls-in-flight"], of_node["calls-waiting"]) == (2, 5)
    assert (of_node["calls-answered-total"], of_node["calls-failed-total"]) == (8, 2)
    assert of_node["call-retries-total"] == 4
    assert of_node["call-latency-avg"] == of_node["call-latency-max"] == 10
