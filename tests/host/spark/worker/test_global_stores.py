"""Global tables and global stores on Spark, most of it played in one process: what comes out equals the test driver,
over restarts, replays, several workers and machines that begin with nothing."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Consumed,
    FailureReason,
    Grouped,
    KeyQuery,
    Materialized,
    Processor,
    Produced,
    QueryableStoreTypes,
    Record,
    Serdes,
    StateQueryRequest,
    StoreBuilder,
    StoreQueryParameters,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Topology,
    open_state,
)
from penstock.errors import StateStoreNotAvailableError, StreamsError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.protocol.messages import GlobalControl
from penstock.host.spark.worker import global_state
from penstock.host.spark.worker.global_state import global_stores
from penstock.testing import TopologyTestDriver
from tests.host.spark.crashes import Crashes, KilledError
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, OutputRecord
from tests.support.brokers import EMBEDDED_ONLY

STRING, LONG = Serdes.string(), Serdes.long()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
TEXT_OUT = Produced.with_(key_serde=STRING, value_serde=STRING)
PARTITIONS = 2

Written = Counter[tuple[bytes | None, bytes | None, int]]


def enriched(prefix: str) -> Topology:
    """Orders, each with the name of its customer from a global table, counted by name: two levels, both of which read
    the table."""
    builder = StreamsBuilder()
    names = builder.global_table(f"{prefix}-names", TEXT, Materialized.as_("names"))

    def customer(_: str, value: str) -> str:
        return value.split()[0]

    orders = builder.stream(f"{prefix}-orders", TEXT)
    named = orders.left_join(names, lambda order, name: f"{order} by {name}", key_selector=customer)
    named.to(f"{prefix}-named", TEXT_OUT)
    grouped = orders.group_by(customer, grouped=Grouped.with_(key_serde=STRING, value_serde=STRING))
    counts = grouped.count(materialized=Materialized.as_("counts")).to_stream().map_values(str)
    counts.join(names, lambda count, name: f"{name} {count}", key_selector=lambda key, _: key).to(
        f"{prefix}-counted", TEXT_OUT
    )
    return builder.build()


@pytest.fixture
def prefix(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> str:
    name = unique_name("global")
    spark_runner.create_topics({f"{name}-{topic}": PARTITIONS for topic in ("names", "orders", "named", "counted")})
    return name


def rounds(prefix: str, seed: int, number: int) -> list[list[tuple[str, InputRecord]]]:
    """Return rounds of names, some of which go again, then orders of customers with and without a name. Keys of one
    partition of the one topic are spread over all of the other."""
    chosen = random.Random(seed)
    found = []
    for part in range(number):
        rows = []
        for _ in range(10):
            who = chosen.randrange(12)
            name = None if chosen.random() < 0.2 else f"name{part}.{chosen.randrange(100)}".encode()
            rows.append((f"{prefix}-names", InputRecord(f"c{who}".encode(), name, 1_000 + part, who % PARTITIONS)))
        for n in range(30):
            order = InputRecord(
                None, f"c{chosen.randrange(12)} order{n}".encode(), 5_000 + part * 100 + n, n % PARTITIONS
            )
            rows.append((f"{prefix}-orders", order))
        found.append(rows)
    return found


def expected(topology: Topology, rows: list[tuple[str, InputRecord]], topic: str) -> Written:
    with TopologyTestDriver(topology, {"application.id": "expected"}) as driver:
        for name, record in rows:
            driver.pipe_bytes(name, record.key, record.value, record.timestamp, ())
        produced = driver.read_all_bytes()
    return Counter((each.key, each.value, each.timestamp) for each in produced if each.topic == topic)


def written(records: list[OutputRecord]) -> Written:
    return Counter((record.key, record.value, record.timestamp) for record in records)


def base_directory(config: StreamsConfig) -> Path:
    return Path(config["state.dir"]) / str(config["application.id"]) / "global"


@pytest.mark.parametrize("new_machine", [False, True], ids=["one machine", "a new machine each round"])
@pytest.mark.one_broker
def test_streams_meet_a_global_table_as_in_the_test_driver(
    spark_runner: SparkRunner, application: str, prefix: str, new_machine: bool
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(enriched(prefix), config, spark_runner.admin)
    all_rounds = rounds(prefix, seed=1, number=3)
    for rows in all_rounds:
        for topic, record in rows:
            spark_runner.write(topic, [record])
        query.run_to_end()
        if new_machine:
            shutil.rmtree(base_directory(config))
        query.restart()
    everything = [row for rows in all_rounds for row in rows]
    for topic in (f"{prefix}-named", f"{prefix}-counted"):
        assert written(spark_runner.read(topic)) == expected(enriched(prefix), everything, topic)


@EMBEDDED_ONLY
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.one_broker
def test_workers_of_spark_share_the_global_table_of_their_machine(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    config = spark_runner.config(application)
    all_rounds = rounds(prefix, seed=2, number=2)
    for rows in all_rounds:
        for topic, record in rows:
            spark_runner.write(topic, [record])
        spark_runner.run(enriched(prefix), config)
    everything = [row for rows in all_rounds for row in rows]
    for topic in (f"{prefix}-named", f"{prefix}-counted"):
        assert written(spark_runner.read(topic)) == expected(enriched(prefix), everything, topic)


@EMBEDDED_ONLY
def test_a_replay_reads_the_global_table_as_it_was(
    spark_runner: SparkRunner, application: str, prefix: str, crashes: Callable[..., Crashes]
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(enriched(prefix), config, spark_runner.admin)
    for number in range(3):
        spark_runner.write(f"{prefix}-names", [InputRecord(b"c1", f"before{number}".encode(), 1_000)])
        spark_runner.write(f"{prefix}-orders", [InputRecord(None, f"c1 order{number}".encode(), 2_000)])
        crashes(at="task.after_process")
        with pytest.raises(KilledError):
            query.run_to_end()
        spark_runner.write(f"{prefix}-names", [InputRecord(b"c1", f"after{number}".encode(), 1_000)])
        if number == 1:
            shutil.rmtree(base_directory(config))  # another machine takes the replay
        query.restart()
        assert query.epoch(), "the replay"
        named = {record.value for record in spark_runner.read(f"{prefix}-named")}  # over partitions, without keys
        assert f"c1 order{number} by before{number}".encode() in named
        query.run_to_end()


@EMBEDDED_ONLY
def test_a_machine_that_fails_while_it_reads_a_global_topic_continues_from_its_last_commit(
    spark_runner: SparkRunner, application: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(global_state, "_COMMIT_BYTES", 1)  # a commit for each batch of a partition
    config = spark_runner.config(application)
    query = InlineQuery(counting(prefix), config, spark_runner.admin)
    names = [InputRecord(f"c{n}".encode(), b"x", 1_000, n % PARTITIONS) for n in range(20)]
    spark_runner.write(f"{prefix}-names", names)
    taken: list[int] = []
    commit = global_state._Updating._commit

    def falling(self: Any, task: Any, reached: Any) -> None:
        commit(self, task, reached)
        taken.append(1)
        if len(taken) == 1:
            raise KilledError("after the first commit")

    monkeypatch.setattr(global_state._Updating, "_commit", falling)
    with pytest.raises(KilledError):
        query.run_to_end()
    query.restart()
    spark_runner.write(f"{prefix}-orders", [InputRecord(None, b"?", 2_000)])
    query.run_to_end()
    assert spark_runner.read(f"{prefix}-named")[0].value == b"20"


class Tally(Processor):
    """Counts the records of the global topic under one key; fails on the value `bad`."""

    def process(self, record: Record[Any, Any]) -> None:
        if record.value == "bad":
            raise ValueError("bad value")
        store = self.context.get_state_store("tally")
        store.put("all", (store.get("all") or 0) + 1)


class Show(Processor):
    """Forwards the tally as it is."""

    def process(self, record: Record[Any, Any]) -> None:
        tally = self.context.get_state_store("tally").get("all")
        self.context.forward(record.with_value(str(tally)))


def counting(prefix: str) -> Topology:
    """A global store whose processor counts records, so that one processed twice or never shows."""
    builder = StreamsBuilder()
    store: StoreBuilder = Stores.key_value_store_builder(Stores.persistent_key_value_store("tally"), STRING, LONG)
    builder.add_global_store(store, f"{prefix}-names", TEXT, Tally)
    builder.stream(f"{prefix}-orders", TEXT).process(Show).to(f"{prefix}-named", TEXT_OUT)
    return builder.build()


@EMBEDDED_ONLY
def test_each_record_of_a_global_topic_is_processed_once(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(counting(prefix), config, spark_runner.admin)
    for number in range(1, 4):
        spark_runner.write(f"{prefix}-names", [InputRecord(b"c", b"x", 1_000, n % PARTITIONS) for n in range(5)])
        spark_runner.write(f"{prefix}-orders", [InputRecord(None, b"?", 2_000, n) for n in range(PARTITIONS)])
        query.run_to_end()
        query.restart()
        seen = [record.value for record in spark_runner.read(f"{prefix}-named")]
        assert seen.count(str(5 * number).encode()) == PARTITIONS


@EMBEDDED_ONLY
def test_an_error_in_the_processor_of_a_global_store_ends_the_query(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    query = InlineQuery(counting(prefix), spark_runner.config(application), spark_runner.admin)
    spark_runner.write(f"{prefix}-names", [InputRecord(b"c", b"bad", 1_000)])
    spark_runner.write(f"{prefix}-orders", [InputRecord(None, b"?", 2_000)])
    failure = failure_of(query.run_to_end)
    assert f"topic {prefix}-names, partition 0" in str(failure)
    assert "ValueError: bad value" in "\n".join(failure.__notes__)
    assert spark_runner.read(f"{prefix}-named") == []


@EMBEDDED_ONLY
def test_the_handler_of_processing_errors_serves_global_stores_where_it_is_asked_to(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    values = {
        "processing.exception.handler.global.enabled": True,
        "processing.exception.handler": "LogAndContinueProcessingExceptionHandler",
    }
    query = InlineQuery(counting(prefix), spark_runner.config(application, values), spark_runner.admin)
    spark_runner.write(f"{prefix}-names", [InputRecord(b"c", value, 1_000) for value in (b"x", b"bad", b"x")])
    spark_runner.write(f"{prefix}-orders", [InputRecord(None, b"?", 2_000)])
    query.run_to_end()
    assert spark_runner.read(f"{prefix}-named")[0].value == b"2"


@EMBEDDED_ONLY
def test_a_worker_of_an_epoch_that_is_over_is_refused(spark_runner: SparkRunner, application: str, prefix: str) -> None:
    query = InlineQuery(counting(prefix), spark_runner.config(application), spark_runner.admin)
    spark_runner.write(f"{prefix}-names", [InputRecord(b"c", b"x", 1_000)])
    query.run_to_end()
    earlier = GlobalControl(0, 0, {f"{prefix}-names": [0, 0]})
    with (
        pytest.raises(StreamsError, match=r"Another worker has advanced .* to epoch 1, while this one is at epoch 0"),
        global_stores(query.description, Checkpoint(query.description.checkpoint), earlier),
    ):
        pass


class Keep(Processor):
    """Keeps the last value of each key."""

    def process(self, record: Record[Any, Any]) -> None:
        self.context.get_state_store("kept").put(record.key, record.value)


class Look(Processor):
    """Forwards what is kept under the key of each record."""

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record.with_value(self.context.get_state_store("kept").get(record.key)))


def with_read_only_store(prefix: str) -> Topology:
    store: StoreBuilder = Stores.key_value_store_builder(Stores.persistent_key_value_store("kept"), STRING, STRING)
    serdes: dict[str, Any] = {"key_serde": STRING, "value_serde": STRING}
    topology = Topology().add_read_only_state_store(store, "names", f"{prefix}-names", "keep", Keep, **serdes)
    topology.add_source("orders", f"{prefix}-orders", **serdes).add_processor("look", Look, "orders")
    topology.connect_processor_and_state_stores("look", "kept")
    return topology.add_sink("named", f"{prefix}-named", "look", **serdes)


@EMBEDDED_ONLY
def test_a_read_only_store_is_kept_from_its_topic_partition_by_partition(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(with_read_only_store(prefix), config, spark_runner.admin)
    rows: list[tuple[str, InputRecord]] = []
    for part in range(3):
        for n in range(8):
            name = None if (n + part) % 5 == 0 else f"name{n}.{part}".encode()
            rows.append((f"{prefix}-names", InputRecord(f"c{n}".encode(), name, 1_000 + part * 100, n % PARTITIONS)))
        for n in range(8):
            order = InputRecord(f"c{n}".encode(), b"?", 1_050 + part * 100, n % PARTITIONS)
            rows.append((f"{prefix}-orders", order))
        for topic, record in rows[-16:]:
            spark_runner.write(topic, [record])
        query.run_to_end()
        query.restart()
    topic = f"{prefix}-named"
    assert written(spark_runner.read(topic)) == expected(with_read_only_store(prefix), rows, topic)


@pytest.mark.slow
@pytest.mark.one_broker
def test_no_record_of_a_global_topic_counts_twice_whatever_fails_when(
    spark_runner: SparkRunner, application: str, prefix: str, crashes: Callable[..., Crashes]
) -> None:
    installed = crashes(seed=4, probability=0.06, most=25)
    query = InlineQuery(counting(prefix), spark_runner.config(application), spark_runner.admin)
    written_before: dict[bytes, int] = {}
    chosen = random.Random(4)
    for part in range(1, 7):
        spark_runner.write(f"{prefix}-names", [InputRecord(b"c", b"x", 1_000, n % PARTITIONS) for n in range(5)])
        orders = [b"%d.%d" % (part, number) for number in range(PARTITIONS)]
        spark_runner.write(f"{prefix}-orders", [InputRecord(o, b"?", 2_000, n) for n, o in enumerate(orders)])
        written_before.update(dict.fromkeys(orders, 5 * part))
        fell = False
        while True:
            try:
                if fell:
                    query.restart()
                query.run_to_end()
                break
            except KilledError:
                fell = True
                if chosen.random() < 0.3:  # another machine continues
                    shutil.rmtree(base_directory(query.description.config), ignore_errors=True)
    assert sum(installed.struck.values()) >= 5
    tallies = [(record.key, int(record.value or b"0")) for record in spark_runner.read(f"{prefix}-named")]
    assert sorted(tallies) == sorted(written_before.items())


@EMBEDDED_ONLY
def test_the_global_stores_are_rebuilt_where_the_program_has_others(
    spark_runner: SparkRunner, application: str, prefix: str
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(counting(prefix), config, spark_runner.admin)
    spark_runner.write(f"{prefix}-names", [InputRecord(b"c1", b"kept", 1_000)])
    query.run_to_end()
    query.change(enriched(prefix))
    spark_runner.write(f"{prefix}-orders", [InputRecord(None, b"c1 order", 2_000)])
    query.run_to_end()
    assert spark_runner.read(f"{prefix}-named")[-1].value == b"c1 order by kept"


@EMBEDDED_ONLY
@pytest.mark.parametrize(("more", "restarts"), [(0, False), (2, True), (5, False)])
def test_the_global_stores_are_rebuilt_with_their_topic(
    spark_runner: SparkRunner, application: str, prefix: str, more: int, restarts: bool
) -> None:
    query = InlineQuery(enriched(prefix), spark_runner.config(application), spark_runner.admin)
    old = [InputRecord(b"c1", b"old", 1_000), InputRecord(b"c2", b"gone", 1_000), InputRecord(b"c3", b"gone", 1_000)]
    spark_runner.write(f"{prefix}-names", old)
    query.run_to_end()
    spark_runner.admin.delete_topics([f"{prefix}-names"])
    spark_runner.create_topics({f"{prefix}-names": PARTITIONS})
    spark_runner.write(f"{prefix}-names", [InputRecord(b"c1", b"new", 1_000)] * (more + 1))
    if restarts:
        query.restart()
    spark_runner.write(f"{prefix}-orders", [InputRecord(None, who + b" order", 2_000) for who in (b"c1", b"c2")])
    query.run_to_end()
    named = [record.value for record in spark_runner.read(f"{prefix}-named")]
    assert named == [b"c1 order by new", b"c2 order by None"]


@EMBEDDED_ONLY
def test_a_global_store_is_read_from_outside(spark_runner: SparkRunner, application: str, prefix: str) -> None:
    config, topology = spark_runner.config(application), enriched(prefix)
    names = StoreQueryParameters.from_name_and_type("names", QueryableStoreTypes.key_value_store())
    with open_state(topology, config) as state, pytest.raises(StateStoreNotAvailableError, match="names is not on"):
        state.store(names).get("c1")
    query = InlineQuery(topology, config, spark_runner.admin)
    for name in (b"first", b"second"):
        spark_runner.write(f"{prefix}-names", [InputRecord(b"c1", name, 1_000)])
        query.run_to_end()
        with open_state(topology, config) as state:
            assert dict(state.store(names).all()) == {"c1": name.decode()}
            result = state.query(StateQueryRequest.in_store("names").with_query(KeyQuery.with_key("c1")))
            assert result.partition_results == {}
            assert result.global_result is not None
            assert result.global_result.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE
