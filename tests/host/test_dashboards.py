"""What dashboards and alerts ask for is answered by `/metrics` of a running application, on each host: those of
Confluent for Kafka Streams, and those in `deploy`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import orjson
import pytest

from penstock import (
    BufferConfig,
    Consumed,
    Grouped,
    KafkaStreams,
    Materialized,
    Produced,
    Serdes,
    StreamsBuilder,
    Suppressed,
    Topology,
)
from penstock.application.prometheus import exposition, prometheus_name
from penstock.metrics import Metric, MetricName
from penstock.metrics.host_metrics import DESCRIPTIONS
from penstock.metrics.rocksdb_names import BYTES_READ, BYTES_WRITTEN, ROCKSDB_PROPERTIES, ROCKSDB_RATIOS
from scripts import metrics as reference
from tests.host.spark.support import SparkRunner
from tests.host.support import WITH_A_SESSION, Runner, lines, wait_for

ROOT = Path(__file__).parents[2]
STRING = Serdes.string()
CONFLUENT = orjson.loads((Path(__file__).parent / "data" / "confluent_dashboards.json").read_bytes())["dashboards"]
ROCKSDB_DASHBOARD = "kafka-streams-rocksdb.json"

WITHOUT_COUNTERPART = {
    "kafka_streams_stream_state_metrics_number_open_files": "RocksDB no longer counts the files that it closes",
}

OF_ROCKSDB = {
    prometheus_name("stream-state-metrics", name)
    for name in (*ROCKSDB_PROPERTIES, *ROCKSDB_RATIOS, f"{BYTES_READ}-rate", f"{BYTES_WRITTEN}-rate")
}
"""Names that only RocksDB has; tests/state/test_rocksdb.py shows that it does."""


class Sample(NamedTuple):
    """A value that Prometheus reads."""

    name: str
    labels: frozenset[str]


def asked_for(is_rocksdb: bool) -> Iterator[Sample]:
    """Yield what the dashboards ask for, those of RocksDB or the others."""
    for dashboard, names in CONFLUENT.items():
        if dashboard.endswith(ROCKSDB_DASHBOARD) is is_rocksdb:
            for name, uses in names.items():
                yield from (Sample(name, frozenset(labels)) for labels in uses)


def samples(text: str) -> Iterator[Sample]:
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text, re.MULTILINE):
        yield Sample(name, frozenset(re.findall(r'(\w+)="[^"]', labels)))


def unanswered(asked: Iterator[Sample], answered: list[Sample]) -> set[Sample]:
    return {each for each in asked if not any(each.name == name and each.labels <= labels for name, labels in answered)}


def lags(metrics: Mapping[MetricName, Metric]) -> dict[tuple[str, str], float | str]:
    """Return the lags by topic and partition."""
    return {
        (name.tags["topic"], name.tags["partition"]): metric.metric_value
        for name, metric in metrics.items()
        if name.name == "records-lag"
    }


def deployed() -> set[str]:
    """Return the names of Penstock's metrics that the files of `deploy` have."""
    files = [each for each in (ROOT / "deploy").rglob("*") if each.suffix in (".json", ".yml", ".yaml")]
    assert len(files) == 7
    return {name for each in files for name in re.findall(r"\bkafka_\w+", each.read_text(encoding="utf-8"))}


def needs_more(group: str, name: str) -> bool:
    """Return whether a metric of Kafka is there only in programs that do more than `suppressed`."""
    of_store = group == "stream-state-metrics" and not name.startswith(
        ("put-l", "put-r", "get", "flush", "suppression")
    )
    recorded_later = ("punctuate", "update", "restore-rate", "restore-total", "restore-remaining", "suppression-emit")
    return of_store or name.startswith(recorded_later)


def suppressed(source: str, target: str) -> Topology:
    """Return a topology whose metrics are of all kinds."""
    builder = StreamsBuilder()
    texts = builder.stream(source, Consumed.with_(STRING, STRING))
    texts.group_by_key().count(Materialized.as_("dropped"))  # its records have no keys
    words = texts.flat_map_values(lambda line: line.split())
    counts = words.group_by(lambda _, word: word, Grouped.with_(STRING, STRING)).count(Materialized.as_("counts"))
    counts.suppress(Suppressed.until_time_limit(1, BufferConfig.unbounded()))
    counts.to_stream().to(target, Produced.with_(STRING, Serdes.long()))
    return builder.build()


@WITH_A_SESSION
@pytest.mark.one_broker
@pytest.mark.partitions(2, 1)
def test_a_running_application_answers_dashboards_and_alerts(
    runner: Runner, application: str, topics: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = topics
    values = {"metrics.recording.level": "DEBUG", "penstock.execution": "record", "statestore.cache.max.bytes": 100_000}
    config = runner.config(application, {"penstock.ui.port": 0, **values})
    runner.write(source, lines(["a b", "b", "c a b a b"], partitions=2))
    with KafkaStreams(suppressed(source, target), config, **runner.options()) as streams:
        found = re.search(r"http://\S+/", capsys.readouterr().err)
        assert found is not None

        def missing() -> set[Sample] | set[str]:
            with urlopen(f"{found[0]}metrics", timeout=60) as answer:
                answered = list(samples(answer.read().decode()))
            names = {name for name, _ in answered}
            return unanswered(asked_for(is_rocksdb=False), answered) or deployed() - names - OF_ROCKSDB

        wait_for(lambda: not missing())
        wait_for(lambda: lags(streams.metrics()) == {(source, "0"): 0, (source, "1"): 0})
        host = "Spark" if isinstance(runner, SparkRunner) else "threads"
        rows = re.findall(
            r"^\| (`.*`) \| (threads, Spark|threads|Spark) \| ", reference.PAGE.read_text("utf-8"), re.MULTILINE
        )
        documented = {key for keys, hosts in rows if host in hosts for key in re.findall(r"`(\w+)`", keys)}
        assert documented == streams.statistics().keys()
        left_out = {(group, name) for group, name, missing_on, _ in reference.left_out() if missing_on in ("", host)}
        kafka = {(group, name) for group, names in reference.KAFKA_NAMES.items() for name in names}
        there = {(key.group, key.name) for key in streams.metrics()}
        assert there & left_out == set()
        assert {each for each in kafka - there - left_out if not needs_more(*each)} == set()


def test_the_dashboard_of_rocksdb_is_answered_where_rocksdb_measures() -> None:
    task = (("thread-id", "me-main"), ("task-id", "0_0"), ("rocksdb-state-id", "0_0"))
    names = [MetricName(name, group, "", task) for group, name in DESCRIPTIONS if group == "stream-state-metrics"]
    metrics: Mapping[MetricName, Metric] = {name: Metric(name, 1.0) for name in names}
    answered = list(samples(exposition(lambda: metrics)[0].decode()))
    missing = {each.name for each in unanswered(asked_for(is_rocksdb=True), answered) if "_state_metrics_" in each.name}
    assert missing == WITHOUT_COUNTERPART.keys()
