"""The way of an application between Kafka Streams, which keeps its state in changelog topics, and Spark: what Java has
left is imported, and exported again the same; other instances go on where Spark has stopped, and the reverse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from penstock import (
    BufferConfig,
    Grouped,
    Materialized,
    Produced,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topology,
    savepoints,
)
from penstock.client.api import OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.offsets import commit_offsets, committed_offsets
from penstock.errors import KafkaError, ProcessorStateError, StreamsError
from penstock.host.commits.committing import PartitionMetadata
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, checkpoint_of
from penstock.host.spark.checkpoints.savepoint import SavedState
from penstock.host.spark.driver.resetting import reset_application
from penstock.host.threads.handing_over import HandingOver
from penstock.host.threads.host import ThreadsHost
from penstock.plan.topology import built_topology
from penstock.record import RecordBatch, TopicPartition
from penstock.testing import TopologyTestDriver
from tests.host.spark.crashes import KilledError
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, OutputRecord
from tests.host.threads.support import Listening
from tests.host.threads.takeover import twin
from tests.host.threads.takeover.running import RECORDED, SEED, make_inputs, split, write
from tests.support.brokers import EMBEDDED_ONLY
from tests.support.waiting import until

pytestmark = EMBEDDED_ONLY

EVERYTHING = json.loads(RECORDED.read_text())
FORMATS = [pytest.param("default", marks=pytest.mark.slow), "headers"]
PLAIN = ("held-store", "Buffer", "latest", "matched", "billing-subscription")
"""Stores that keep neither times nor headers of the records in their changelogs."""


class JavaLeft:
    """The application of `twin` as Kafka Streams 4.3.0 has left it behind the first half of its input, on a broker."""

    def __init__(self, runner: SparkRunner, store_format: str, unique_name: Callable[[str], str]) -> None:
        self.runner = runner
        self.name, self.inputs = unique_name("app"), unique_name("in") + "-"
        self.config = runner.config(self.name, twin.settings("at_least_once", store_format))
        self.halves = split(twin.records(SEED, EVERYTHING["base_ms"]), 2)
        self._java = EVERYTHING[store_format]
        self._prefixes = f"{store_format}-app", f"{store_format}-in-"
        self.topology = twin.topology(self.inputs, self.name)
        make_inputs(runner.bootstrap_servers, self.inputs)
        runner.create_topics({f"{self.name}-out-{output}": 1 for output in twin.OUTPUTS})
        runner.create_topics({self._own(name): count for name, (count, _) in self._java["topics"].items()})
        write(runner.bootstrap_servers, self.inputs, self.halves[0])
        for name, rows in self._java["changelogs"].items():
            topic, _, partition = self._own(name).rpartition("-")
            runner.write(topic, [_record(row, int(partition)) for row in rows])
        self.committed = {
            TopicPartition(topic.replace(self._prefixes[1], self.inputs), partition): OffsetAndMetadata(*committed)
            for topic, partition, *committed in self._java["committed"]
            if topic.startswith(self._prefixes[1])  # all that was in the others was read
        }
        with Cluster(self.config) as cluster:  # as Java, and not librdkafka, commits texts
            commit_offsets(cluster, self.name, self.committed)

    def _own(self, name: str) -> str:
        return self.name + name.replace(self._prefixes[1], self.inputs)

    def changelogs(self) -> dict[str, list[OutputRecord]]:
        """Return what is in each changelog topic."""
        found: dict[str, list[OutputRecord]] = {}
        names = {self._own(name).rpartition("-")[0] for name in self._java["changelogs"]}
        for name in names:
            rows = [row for row in self.runner.read(name) if "prices" in name or row.value is not None]
            if any(part in name for part in PLAIN):
                rows = [row._replace(timestamp=0, headers=()) for row in rows]
            found[name] = sorted(rows, key=repr)
        return found

    def outputs(self) -> twin.Outputs:
        return twin.outputs(
            (name, row.key or b"", twin.Output(row.value, row.timestamp, row.headers))
            for name in twin.OUTPUTS
            for row in self.runner.read(f"{self.name}-out-{name}")
        )


def _record(row: list[Any], partition: int) -> InputRecord:
    key, value, timestamp, headers = row
    made = tuple((name, None if data is None else bytes.fromhex(data)) for name, data in headers)
    return InputRecord(bytes.fromhex(key), None if value is None else bytes.fromhex(value), timestamp, partition, made)


@pytest.mark.parametrize("store_format", FORMATS)
def test_spark_goes_on_where_kafka_streams_has_stopped(
    spark_runner: SparkRunner, store_format: str, unique_name: Callable[[str], str]
) -> None:
    left = JavaLeft(spark_runner, store_format, unique_name)
    savepoints.import_from_kafka(left.topology, left.config)
    write(spark_runner.bootstrap_servers, left.inputs, left.halves[1])
    query = InlineQuery(left.topology, left.config, spark_runner.admin)
    query.run_to_end()
    query.close()
    _, rows = twin.expected(left.halves, twin.settings("at_least_once", store_format))
    expected, found = twin.outputs(rows), left.outputs()
    for name in twin.OUTPUTS:
        if name in twin.REORDERED:  # what an order leaves out another one may write again
            assert {key: found[name][key] for key in expected[name]} == expected[name]
        else:
            assert found[name] == expected[name], name


@pytest.mark.parametrize("store_format", FORMATS)
def test_what_kafka_streams_has_left_is_exported_again_the_same(
    spark_runner: SparkRunner,
    store_format: str,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = JavaLeft(spark_runner, store_format, unique_name)
    before = left.changelogs()
    savepoints.import_from_kafka(left.topology, left.config)
    saved = str(tmp_path / "saved")
    savepoints.take(left.config, saved)
    assert savepoints.export_to_kafka(saved, left.topology, left.config) == 0
    spark_runner.admin.delete_topics(list(before))
    spark_runner.admin.commit_offsets(left.name, dict.fromkeys(left.committed, OffsetAndMetadata(0)))
    with monkeypatch.context() as failing:
        failing.setattr(HandingOver, "_send", fails_after(9, HandingOver._send))
        with pytest.raises(KilledError):
            savepoints.export_to_kafka(saved, left.topology, left.config)
    assert savepoints.export_to_kafka(saved, left.topology, left.config) > 0
    assert left.changelogs() == before
    with Cluster(left.config) as cluster:
        committed = committed_offsets(cluster, left.name, list(left.committed))
    for partition, theirs in left.committed.items():
        ours = committed[partition]
        assert ours.offset == theirs.offset
        assert PartitionMetadata.decode(ours.metadata).partition_time == (
            PartitionMetadata.decode(theirs.metadata).partition_time
        )
    assert savepoints.export_to_kafka(saved, left.topology, left.config) == 0


def fails_after(calls: int, call: Callable[..., None]) -> Callable[..., None]:
    """Return `call`, which raises KilledError behind so many calls."""
    left = iter(range(calls))

    def counted(*args: Any) -> None:
        if next(left, None) is None:
            raise KilledError
        call(*args)

    return counted


def held_counts(source: str, names: str, target: str) -> Topology:
    """Return a topology that counts words, and lines per window, whose results it holds until the window closes; and
    looks up the names of keys in a global table."""
    builder = StreamsBuilder()
    known = builder.global_table(names)
    named = builder.stream(source).join(known, lambda line, name: f"{name}: {line}", key_selector=lambda key, _: key)
    named.to(target)
    words = builder.stream(source).flat_map_values(lambda line: line.split())
    counts = words.group_by(lambda _, word: word, Grouped.as_("words")).count(Materialized.as_("counts"))
    counts.to_stream().to(target, Produced.with_(Serdes.string(), Serdes.long()))
    windows = TimeWindows.of_size_with_no_grace(10)
    lines = builder.stream(source).group_by_key(Grouped.with_(Serdes.string(), Serdes.string()))
    held = lines.windowed_by(windows).count(Materialized.as_("lines"))
    held = held.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()).with_name("held"))
    of_window = held.to_stream(lambda windowed, _: f"{windowed.key}@{windowed.window.start}")
    of_window.to(target, Produced.with_(Serdes.string(), Serdes.long()))
    return builder.build()


def test_an_application_moves_to_spark_and_back_with_its_state(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, names, target = unique_name("in"), unique_name("names"), unique_name("out")
    spark_runner.create_topics({source: 1, names: 1, target: 1})
    name = InputRecord(b"k0", b"zero", 1)
    spark_runner.write(names, [name])
    texts = ["a b", "b", "c a", "d", "a", "b c a", "a d", "b"]
    parts = [
        [InputRecord(b"k%d" % (at % 2), text.encode(), 1_000 + at * 4) for at, text in enumerate(texts)][first:last]
        for first, last in ((0, 3), (3, 6), (6, 8))
    ]
    settings = {
        "default.key.serde": Serdes.string(),
        "default.value.serde": Serdes.string(),
        "auto.offset.reset": "earliest",
        "commit.interval.ms": 50,
        "processing.guarantee": "at_least_once",
    }
    config, topology = spark_runner.config(application, settings), held_counts(source, names, target)
    threads = config.overridden({"penstock.checkpoint.dir": str(tmp_path / "no-checkpoint")})
    spark_runner.write(source, parts[0])
    first = TopicPartition(source, 0)

    def has_read_the_first_part() -> bool:
        committed = spark_runner.admin.committed_offsets(application, [first])
        return first in committed and committed[first].offset == len(parts[0])

    run_threads(topology, threads, has_read_the_first_part)  # what it has sent to itself may still wait
    savepoints.import_from_kafka(topology, config)
    spark_runner.write(source, parts[1])
    query = InlineQuery(topology, config, spark_runner.admin)
    query.run_to_end()
    query.close()
    saved = str(tmp_path / "saved")
    savepoints.take(config, saved)
    assert savepoints.export_to_kafka(saved, topology, config) > 0
    assert savepoints.export_to_kafka(saved, topology, config) == 0
    spark_runner.write(source, parts[2])
    with TopologyTestDriver(topology, config) as driver:
        driver.pipe_bytes(names, name.key, name.value, name.timestamp)
        for record in (each for part in parts for each in part):
            driver.pipe_bytes(source, record.key, record.value, record.timestamp)
        expected = [(each.key, each.value, each.timestamp) for each in driver.read_all_bytes() if each.topic == target]
    run_threads(topology, threads, lambda: len(spark_runner.read(target)) >= len(expected))
    found = [(each.key, each.value, each.timestamp) for each in spark_runner.read(target)]
    assert sorted(found) == sorted(expected)


def run_threads(topology: Topology, config: StreamsConfig, is_done: Callable[[], bool]) -> None:
    """Run an instance until `is_done`, and close it."""
    host, listening = ThreadsHost(built_topology(topology, str(config["application.id"])), config), Listening()
    host.start(listening)
    try:
        assert until(lambda: listening.ended.is_set() or is_done())
    finally:
        assert host.close(60_000)
    if listening.error is not None:
        raise listening.error


def test_another_host_processes_what_a_task_without_state_has_held_back(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    first, second, target = unique_name("first"), unique_name("second"), unique_name("out")
    spark_runner.create_topics({first: 1, second: 1, target: 1})
    serdes = {"default.key.serde": Serdes.bytes(), "default.value.serde": Serdes.bytes()}
    config = spark_runner.config(application, {**serdes, "max.task.idle.ms": 3_600_000, "commit.interval.ms": 50})
    builder = StreamsBuilder()
    builder.stream([first, second]).to(target)
    topology = builder.build()
    spark_runner.write(first, [InputRecord(b"k", b"early", 1), InputRecord(b"k", b"late", 9)])
    spark_runner.write(second, [InputRecord(b"k", b"between", 5)])
    query = InlineQuery(topology, config, spark_runner.admin)
    query.run_to_end()
    read = [TopicPartition(first, 0), TopicPartition(second, 0)]
    assert until(lambda: spark_runner.admin.committed_offsets(application, read).keys() == set(read))
    query.close()
    assert [row.value for row in spark_runner.read(target)] == [b"early", b"between"]  # a record of second may come
    threads = config.overridden({"penstock.checkpoint.dir": str(tmp_path / "no-checkpoint"), "max.task.idle.ms": 0})
    run_threads(topology, threads, lambda: len(spark_runner.read(target)) > 2)
    assert [row.value for row in spark_runner.read(target)] == [b"early", b"between", b"late"]


# ---------------------------------------- what is refused, and what is between tasks


def counting(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(source).flat_map_values(lambda line: line.split())
    counts = words.group_by(lambda _, word: word, Grouped.as_("words")).count(Materialized.as_("counts"))
    counts.to_stream().to(target, Produced.with_(Serdes.string(), Serdes.long()))
    return builder.build()


class Counting:
    """A count of words that Kafka Streams has run: it has read two lines, and counted one word of two."""

    def __init__(self, runner: SparkRunner, name: str, topics: tuple[str, str]) -> None:
        serdes = {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
        self.runner, self.name, self.source = runner, name, topics[0]
        self.config = runner.config(name, serdes)
        self.topology = counting(*topics)
        self.changelog, self.repartition = f"{name}-counts-changelog", f"{name}-words-repartition"
        runner.create_topics({self.changelog: 2, self.repartition: 2})
        runner.write(self.source, [InputRecord(None, b"a", 1), InputRecord(None, b"a", 2)])
        runner.write(self.repartition, [InputRecord(b"a", b"a", time) for time in (1, 2)])
        runner.write(self.changelog, [InputRecord(b"a", (1).to_bytes(8, "big"), 1)])
        self.commit(TopicPartition(self.source, 0), 2)
        self.commit(TopicPartition(self.repartition, 0), 1)

    def commit(self, partition: TopicPartition, offset: int) -> None:
        text = PartitionMetadata(1).encode()
        self.runner.admin.commit_offsets(self.name, {partition: OffsetAndMetadata(offset, text)})

    def import_(self) -> None:
        savepoints.import_from_kafka(self.topology, self.config)

    def refused(self) -> str:
        with pytest.raises(StreamsError) as caught:
            self.import_()
        assert checkpoint_of(self.config).read_metadata() is None
        return str(caught.value)


@pytest.fixture
def left(spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]) -> Counting:
    topics = unique_name("in"), unique_name("out")
    spark_runner.create_topics(dict.fromkeys(topics, 2))
    return Counting(spark_runner, application, topics)


def test_records_between_tasks_are_processed_after_the_import(left: Counting) -> None:
    left.import_()
    left.runner.write(left.source, [InputRecord(None, b"a b", 3, 1)])
    query = InlineQuery(left.topology, left.config, left.runner.admin)
    query.run_to_end()
    query.close()
    values = {key: value[8:] for key, value in left.runner.store(left.config, "counts").items()}
    assert values == {b"a": (3).to_bytes(8, "big"), b"b": (1).to_bytes(8, "big")}


def test_records_between_tasks_behind_the_open_transaction_of_a_killed_instance_are_imported(
    left: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Producer({"bootstrap.servers": left.runner.bootstrap_servers, "transactional.id": f"{left.name}-killed"})
    killed.init_transactions()
    killed.begin_transaction()
    killed.produce(left.repartition, b"a", b"a", partition=0, timestamp=3)
    killed.flush()
    left.runner.write(left.repartition, [InputRecord(b"a", b"a", 4)])
    fetch = ConfluentFetcher.fetch

    def fetch_while_the_transaction_ends(
        fetcher: ConfluentFetcher, partition: TopicPartition, *arguments: Any, **named: Any
    ) -> Iterator[RecordBatch]:
        if partition.topic == left.repartition:
            killed.abort_transaction()
        return fetch(fetcher, partition, *arguments, **named)

    monkeypatch.setattr(ConfluentFetcher, "fetch", fetch_while_the_transaction_ends)
    left.import_()
    query = InlineQuery(left.topology, left.config, left.runner.admin)
    query.run_to_end()
    query.close()
    values = {key: value[8:] for key, value in left.runner.store(left.config, "counts").items()}
    assert values == {b"a": (3).to_bytes(8, "big")}


def test_an_import_is_refused_where_an_instance_has_run_meanwhile(
    left: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = savepoints._waiting

    def meanwhile(*arguments: Any) -> dict[TopicPartition, Callable[[], Iterator[RecordBatch]]]:
        left.commit(TopicPartition(left.repartition, 0), 2)
        return waiting(*arguments)

    monkeypatch.setattr(savepoints, "_waiting", meanwhile)
    moved = f"The group {left.name} has committed offset 2 of {left.repartition}-0, and had committed 1 before"
    assert moved in left.refused()


def test_an_import_takes_over_the_times_of_tasks_that_another_client_than_librdkafka_has_committed(
    left: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed_offsets = ConfluentAdmin.committed_offsets

    def with_what_follows_in_memory(*arguments: Any) -> dict[TopicPartition, OffsetAndMetadata]:
        found = committed_offsets(*arguments)
        return {partition: each._replace(metadata=f"{each.metadata}!") for partition, each in found.items()}

    monkeypatch.setattr(ConfluentAdmin, "committed_offsets", with_what_follows_in_memory)
    left.import_()
    savepoints.take(left.config, str(tmp_path / "saved"))
    clocks = SavedState(Checkpoint(str(tmp_path / "saved"))).task("0_0").clocks
    assert clocks.partition_times == {TopicPartition(left.source, 0): 1}


def test_an_imported_application_writes_its_changelog_topics_though_a_partition_had_no_records(left: Counting) -> None:
    left.import_()
    left.runner.write(left.source, [InputRecord(None, b"b", 3, 1)])  # nobody has committed an offset there
    config = left.config.overridden({"penstock.changelog.topics": True})
    query = InlineQuery(left.topology, config, left.runner.admin)
    query.run_to_end()
    query.close()
    last = {row.key: row.value for row in left.runner.read(left.changelog)}
    assert last == {b"a": (2).to_bytes(8, "big"), b"b": (1).to_bytes(8, "big")}


def test_records_between_tasks_are_exported(left: Counting, tmp_path: Path) -> None:
    left.import_()
    saved = str(tmp_path / "saved")
    savepoints.take(left.config, saved)
    assert savepoints.export_to_kafka(saved, left.topology, left.config) == 0
    left.runner.admin.delete_topics([left.changelog, left.repartition])
    assert savepoints.export_to_kafka(saved, left.topology, left.config) == 2
    [record] = left.runner.read(left.repartition)
    assert (record.key, record.timestamp) == (b"a", 2)
    waiting = TopicPartition(left.repartition, 0)
    assert left.runner.admin.committed_offsets(left.name, [waiting])[waiting].offset == 0
    left.runner.write(left.repartition, [InputRecord(b"z", b"z", 9)])  # of an attempt that failed, say
    assert savepoints.export_to_kafka(saved, left.topology, left.config) == 1
    assert left.runner.admin.committed_offsets(left.name, [waiting])[waiting].offset == 2


def test_an_import_is_refused_while_the_group_has_members(left: Counting) -> None:
    consumer = Consumer({"bootstrap.servers": left.runner.bootstrap_servers, "group.id": left.name})
    consumer.subscribe([left.source])
    try:
        assert until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
        refused = left.refused()
        assert f"The group {left.name} has 1 member" in refused
        assert "Stop the application" in refused
    finally:
        consumer.close()


def test_an_import_is_refused_where_a_topic_is_missing_or_does_not_fit(left: Counting) -> None:
    left.runner.write(left.changelog, [InputRecord(b"b", b"one", 3)])
    assert f"Store counts, {left.changelog}-0: " in left.refused()
    left.runner.admin.delete_topics([left.changelog, left.repartition])
    refused = left.refused()
    assert f"Store counts has no changelog: there is no topic {left.changelog}" in refused
    assert f"There is no topic {left.repartition}, through which this topology repartitions" in refused


def go_on_with_spark(left: Counting) -> None:
    """Let Spark read one more record, and the group know of it."""
    left.runner.write(left.source, [InputRecord(None, b"b", 3)])
    query = InlineQuery(left.topology, left.config, left.runner.admin)
    query.run_to_end()
    first = TopicPartition(left.source, 0)
    assert until(lambda: left.runner.admin.committed_offsets(left.name, [first])[first].offset == 3)
    query.close()


def test_changelogs_are_out_of_date_where_spark_has_gone_on(left: Counting, tmp_path: Path) -> None:
    left.import_()
    go_on_with_spark(left)
    elsewhere = left.config.overridden({"penstock.checkpoint.dir": str(tmp_path / "elsewhere")})
    refused = f"The Spark host has read {left.source}-0 up to offset 3"
    with pytest.raises(StreamsError, match=refused) as caught:
        savepoints.import_from_kafka(left.topology, elsewhere)
    assert "penstock savepoint export" in str(caught.value)
    saved = str(tmp_path / "saved")
    savepoints.take(left.config, saved)
    assert savepoints.export_to_kafka(saved, left.topology, left.config) == 2
    assert [(row.key, row.value) for row in left.runner.read(left.changelog)][1:] == [
        (b"a", (2).to_bytes(8, "big")),
        (b"b", (1).to_bytes(8, "big")),
    ]
    savepoints.import_from_kafka(left.topology, elsewhere)


def test_there_is_nothing_to_import_without_offsets(left: Counting) -> None:
    left.runner.admin.delete_groups([left.name])
    assert "has committed no offset" in left.refused()


def test_an_import_that_failed_is_reported_and_can_be_repeated(left: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as failing:
        failing.setattr(savepoints, "_waiting", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            left.import_()
    assert checkpoint_of(left.config).read_metadata() is None
    left.import_()
    with pytest.raises(StreamsError, match="A checkpoint already exists"):
        left.import_()


def test_a_reset_deletes_nothing_while_instances_run_on_another_host(left: Counting) -> None:
    left.import_()
    built = built_topology(left.topology, left.name)
    consumer = Consumer({"bootstrap.servers": left.runner.bootstrap_servers, "group.id": left.name})
    consumer.subscribe([left.source])
    try:
        assert until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
        with pytest.raises(KafkaError, match=r"has 1 member: .* Nothing was deleted"):
            reset_application(built, left.config, left.runner.admin)
    finally:
        consumer.close()
    assert {left.changelog, left.repartition} <= left.runner.admin.topics().keys()
    assert checkpoint_of(left.config).read_metadata() is not None


def test_a_reset_deletes_the_offsets_together_with_the_changelogs(left: Counting) -> None:
    left.import_()
    reset_application(built_topology(left.topology, left.name), left.config, left.runner.admin)
    assert {left.changelog, left.repartition}.isdisjoint(left.runner.admin.topics())
    assert left.runner.admin.committed_offsets(left.name, [TopicPartition(left.source, 0)]) == {}


class Prices:
    """A table that remembers its versions, of which Kafka Streams has kept one, and Spark continues it."""

    def __init__(self, runner: SparkRunner, name: str, source: str) -> None:
        self.runner, self.name, self.source = runner, name, source
        runner.create_topics({source: 1, f"{name}-prices-changelog": 1})
        self.changelog = f"{name}-prices-changelog"
        serdes = {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
        self.config = runner.config(name, serdes)
        builder = StreamsBuilder()
        versions = Stores.persistent_versioned_key_value_store("prices", 60_000)
        builder.table(source, materialized=Materialized.as_(versions)).filter(lambda _, price: price is not None)
        self.topology = builder.build()
        runner.write(source, [InputRecord(b"k", b"p", 100)])
        runner.write(self.changelog, [InputRecord(b"k", b"p", 100)])
        committed = {TopicPartition(source, 0): OffsetAndMetadata(1, PartitionMetadata(100).encode())}
        runner.admin.commit_offsets(name, committed)

    def run(self, *records: InputRecord) -> None:
        """Process `records` on Spark."""
        self.runner.write(self.source, list(records))
        query = InlineQuery(self.topology, self.config, self.runner.admin)
        query.run_to_end()
        query.close()

    def versions(self) -> list[tuple[bytes | None, int]]:
        return [(row.value, row.timestamp) for row in self.runner.read(self.changelog)]


@pytest.fixture
def prices(spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]) -> Prices:
    return Prices(spark_runner, application, unique_name("in"))


def test_a_version_that_spark_has_deleted_at_its_very_time_is_deleted_in_the_changelog(
    prices: Prices, tmp_path: Path
) -> None:
    savepoints.import_from_kafka(prices.topology, prices.config)
    prices.run(InputRecord(b"k", None, 100), InputRecord(b"m", b"q", 200))
    saved = str(tmp_path / "saved")
    savepoints.take(prices.config, saved)
    assert savepoints.export_to_kafka(saved, prices.topology, prices.config) == 2
    assert prices.versions() == [(b"p", 100), (None, 100), (b"q", 200)]
    assert savepoints.export_to_kafka(saved, prices.topology, prices.config) == 0


def test_a_version_whose_end_has_expired_does_not_come_back(prices: Prices, tmp_path: Path) -> None:
    savepoints.import_from_kafka(prices.topology, prices.config)
    # the history of a minute begins at 140,000
    prices.run(InputRecord(b"k", None, 50_100), InputRecord(b"m", b"s", 200_000), InputRecord(b"k", b"r", 190_000))
    saved = str(tmp_path / "saved")
    savepoints.take(prices.config, saved)
    savepoints.export_to_kafka(saved, prices.topology, prices.config)
    assert prices.versions() == [(b"p", 100), (None, 140_000), (b"r", 190_000), (b"s", 200_000)]
    assert savepoints.export_to_kafka(saved, prices.topology, prices.config) == 0


def test_a_changelog_with_later_versions_than_the_state_is_refused_until_it_is_deleted(
    prices: Prices, tmp_path: Path
) -> None:
    savepoints.import_from_kafka(prices.topology, prices.config)
    saved = str(tmp_path / "saved")
    savepoints.take(prices.config, saved)
    prices.runner.write(prices.changelog, [InputRecord(b"k", b"q", 200)])  # of an instance that has gone on
    with pytest.raises(ProcessorStateError, match=r"store prices has a version of key b'k' as of 200 ms"):
        savepoints.export_to_kafka(saved, prices.topology, prices.config)
    prices.runner.admin.delete_topics([prices.changelog])  # as the error says
    assert savepoints.export_to_kafka(saved, prices.topology, prices.config) == 1
    assert prices.versions() == [(b"p", 100)]


def test_an_export_of_an_older_savepoint_than_spark_has_written_is_refused(left: Counting, tmp_path: Path) -> None:
    left.import_()
    saved = str(tmp_path / "saved")
    savepoints.take(left.config, saved)
    go_on_with_spark(left)
    gone_on = "this state is of offset 2: Spark has gone on since. Take a savepoint of its last commit"
    with pytest.raises(StreamsError, match=gone_on):
        savepoints.export_to_kafka(saved, left.topology, left.config)
    left.runner.admin.delete_groups([left.name])  # as the error says
    savepoints.export_to_kafka(saved, left.topology, left.config)
    first = TopicPartition(left.source, 0)
    assert left.runner.admin.committed_offsets(left.name, [first])[first].offset == 2


def test_an_export_is_refused_where_others_go_on(left: Counting, tmp_path: Path) -> None:
    left.import_()
    saved = str(tmp_path / "saved")
    savepoints.take(left.config, saved)
    left.runner.write(left.source, [InputRecord(None, b"c", 3)])
    left.commit(TopicPartition(left.source, 0), 3)
    with pytest.raises(StreamsError, match=r"up to offset 3, and this state is of offset 2") as caught:
        savepoints.export_to_kafka(saved, left.topology, left.config)
    assert "penstock groups delete" in str(caught.value)
