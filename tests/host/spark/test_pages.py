"""The Python blocks of README.md and docs that are programs for Spark run there, all in one session."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

from penstock import (
    Consumed,
    KafkaStreams,
    KafkaStreamsNamedTopologyWrapper,
    Materialized,
    Serdes,
    State,
    StreamsBuilder,
    Topology,
    open_state,
    savepoints,
)
from penstock.config import StreamsConfig
from penstock.host.spark.session import make_active
from penstock_broker.process import BrokerProcess
from tests.docs.pages import converting_orders, given, run_block, sections
from tests.host.spark.support import SparkRunner
from tests.host.spark.test_examples import Piped, Program, check_on_spark
from tests.host.support import InputRecord, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.one_broker, pytest.mark.slow]

STRING, DOUBLE = Serdes.string(), Serdes.double()
ADDRESS = "localhost:9092"
"""The broker of the pages."""


class Machine:
    """A broker with the topics of the pages, the shared session, and directories of the test's own."""

    def __init__(self, runner: SparkRunner, servers: str, directory: Path) -> None:
        self.servers, self.session, self.directory = servers, runner.session, directory
        self.here = SparkRunner(servers, directory)

    def config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration of a page with this broker and directory."""
        return {**config, "bootstrap.servers": self.servers, "state.dir": str(self.directory), "penstock.poll.ms": 20}

    def write(self, topic: str, *values: str) -> None:
        """Write `values` without keys to `topic`."""
        self.here.write(topic, [InputRecord(None, value.encode(), 1_000) for value in values])

    def values(self, topic: str) -> list[bytes | None]:
        """Return the values of the records of `topic`."""
        return [record.value for record in self.here.read(topic)]


@pytest.fixture
def machine(spark_runner: SparkRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path))  # for the pages that make their own configuration
    with BrokerProcess(tmp_path / "broker", auto_create_topics=False) as broker:
        machine = Machine(spark_runner, broker.bootstrap_servers, tmp_path)
        make_active(machine.session)  # programs that name no session use it
        try:
            yield machine
        finally:
            machine.here.close()


@pytest.fixture
def word_count(machine: Machine) -> dict[str, Any]:
    """What the program of the README defines, with the configuration of the test and topics that have records."""
    names = given()
    run_block("README.md", 0, names)
    names["config"] = machine.config(names["config"])
    machine.here.create_topics({"plaintext-input": 1, "word-count-output": 1})
    machine.write("plaintext-input", *["kafka"] * 42, "all is")
    return names


@contextlib.contextmanager
def closed_when_counted(names: dict[str, Any]) -> Iterator[None]:
    """Close the application `streams` of a block that waits for its end, once it has read all records."""

    def close() -> None:
        wait_for(lambda: "streams" in names and names["streams"].statistics().get("records_in") == 43)
        names["streams"].close()

    closing = threading.Thread(target=close)
    closing.start()
    try:
        yield
    finally:
        closing.join()


def check_counts(machine: Machine) -> None:
    assert int.from_bytes(machine.values("word-count-output")[0] or b"", "big") == 42


def test_the_guide_runs_until_closed(machine: Machine, word_count: dict[str, Any]) -> None:
    with closed_when_counted(word_count):
        run_block("docs/guide.md", 0, word_count)
    assert word_count["streams"].state() is State.NOT_RUNNING
    check_counts(machine)


def test_the_guide_starts_in_the_background(machine: Machine, word_count: dict[str, Any]) -> None:
    with closed_when_counted(word_count):
        run_block("docs/guide.md", 1, word_count)
    check_counts(machine)


def test_the_guide_runs_to_the_end(machine: Machine, word_count: dict[str, Any]) -> None:
    run_block("docs/guide.md", 2, word_count)
    check_counts(machine)


def test_the_page_on_life_restarts_after_an_error(machine: Machine) -> None:
    failed = machine.directory / "failed"

    def fails_once(value: str) -> str:
        if not failed.exists():
            failed.touch()
            raise ValueError(value)
        return value

    machine.here.create_topics({"in": 1, "out": 1})
    machine.write("in", "x")
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(STRING, STRING)).map_values(fails_once).to("out")
    values = {"application.id": "restarts", "default.key.serde": STRING, "default.value.serde": STRING}
    config = machine.config({**values, "penstock.restart.backoff.ms": 1})
    names = given(streams=KafkaStreams(builder.build(), config))
    run_block("docs/life.md", 0, names)
    with names["streams"] as streams:
        wait_for(lambda: streams.statistics()["records_out"] == 1)
    assert failed.exists()
    assert machine.values("out") == [b"x"]


def test_named_topologies_come_and_go(machine: Machine) -> None:
    machine.here.create_topics(dict.fromkeys(("orders", "orders-copy", "returns", "returns-copy"), 1))
    machine.write("orders", "o")
    machine.write("returns", "r")
    names = given()
    try:
        run_block("docs/life.md", 1, names, {ADDRESS: machine.servers})
        wait_for(lambda: machine.values("orders-copy") == [b"o"])
        run_block("docs/life.md", 2, names)
        wait_for(lambda: machine.values("returns-copy") == [b"r"])
        streams: KafkaStreamsNamedTopologyWrapper = names["streams"]
        assert [each.name() for each in streams.get_all_topologies()] == ["returns"]
    finally:
        if "streams" in names:
            names["streams"].close()


def test_the_page_on_queries(machine: Machine, word_count: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    word_count["config"] = StreamsConfig(word_count["config"]).overridden({"dsl.store.format": "headers"})
    KafkaStreams(word_count["topology"], word_count["config"]).run_to_end()
    run_block("docs/queries.md", 1, word_count)
    assert capsys.readouterr().out == "all 1\n"
    word_count["spark"] = machine.session
    with KafkaStreams(word_count["topology"], word_count["config"]) as streams:
        word_count["streams"] = streams
        for number in (0, 2, 3, 4, 5, 6, 8):
            run_block("docs/queries.md", number, word_count)
        run_block("docs/queries.md", 7, word_count, {"as_of=17": f"as_of={streams.staleness().epoch}"})
    assert word_count["result"].only_partition_result.result == 42
    assert (word_count["record"].key, word_count["record"].value) == ("kafka", 42)
    assert word_count["committed"].only_partition_result.result == 42
    assert "kafka" in capsys.readouterr().out


def test_rows_and_records_as_data_frames(machine: Machine, tmp_path: Path) -> None:
    spark = machine.session
    machine.here.create_topics({"customers": 1, "copy": 1})
    machine.here.write("customers", [InputRecord(b"ann", b"Ann", 1_000)])
    order = [("1", "ann", 2.5)]
    spark.createDataFrame(order, "order string, customer string, amount double").write.parquet(f"{tmp_path}/orders")
    builder = StreamsBuilder()
    table = builder.table("customers", Consumed.with_(STRING, STRING))
    names = given(spark=spark, builder=builder, table=table)
    run_block("docs/spark.md", 0, names, {"/data": str(tmp_path)})
    names["stream"].map_values(lambda row: row["order"]).to("copy")
    run_block("docs/spark.md", 1, names, {"/data": str(tmp_path)})
    values = {"application.id": "frames", "default.key.serde": STRING, "default.value.serde": STRING}
    KafkaStreams(builder.build(), machine.config(values), spark=spark).run_to_end()
    assert machine.values("copy") == [b"1"]
    stored = spark.read.parquet(f"{tmp_path}/counts").collect()
    assert [(row.key, row.value) for row in stored] == [("ann", "Ann")]


def test_a_history_and_then_its_topic(machine: Machine, tmp_path: Path) -> None:
    spark = machine.session
    machine.here.create_topics({"clicks": 1, "copy": 1})
    machine.here.write("clicks", [InputRecord(b"ann", b'{"page": "b"}', 1_767_225_600_000)])
    past = spark.sql("SELECT 'ann' AS user, 'a' AS page, TIMESTAMP '2025-06-01 00:00:00Z' AS clicked_at")
    past.write.parquet(f"{tmp_path}/clicks")
    names = given(spark=spark, builder=StreamsBuilder())
    run_block("docs/spark.md", 3, names, {"/data": str(tmp_path)})
    names["clicks"].map_values(lambda row: row["page"]).to("copy")
    values = {"application.id": "history", "default.key.serde": STRING, "default.value.serde": STRING}
    KafkaStreams(names["builder"].build(), machine.config(values), spark=spark).run_to_end()
    assert machine.values("copy") == [b"a", b"b"]


def test_the_recipe_of_a_lake_table_writes_parquet(machine: Machine) -> None:
    machine.here.create_topics({"orders": 1})
    machine.write("orders", '{"product": "tea"}', "{}")
    page = "docs/cookbook/state.md"
    lake = str(machine.directory / "parquet")
    names: dict[str, Any] = {}
    run_block(page, sections(page)["To a lake table"][0], names, {"/data/lake/orders": lake})
    KafkaStreams(names["topology"], machine.config({"application.id": "lake"}), spark=machine.session).run_to_end()
    assert [row.row for row in machine.session.read.parquet(lake).collect()] == ['{"product": "tea"}']


def test_topics_as_data_frames(machine: Machine) -> None:
    machine.here.create_topics({"orders": 1, "returns": 1})
    machine.write("orders", "o")
    machine.write("returns", "r")
    names: dict[str, Any] = {"spark": machine.session}
    run_block("docs/spark.md", 2, names, {ADDRESS: machine.servers})
    checkpoint = str(machine.directory / "frame")
    started = names["frame"].writeStream.format("memory").queryName("orders_and_returns")
    started.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    found: SparkSession = machine.session
    assert Counter(bytes(row.value) for row in found.table("orders_and_returns").collect()) == {b"o": 1, b"r": 1}


def counting(*stores: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed.with_(STRING, STRING)).group_by(lambda key, word: word)
    for store in stores:
        words.count(Materialized.as_(store))
    return builder.build()


def test_the_notebook_changes_its_topology(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.here.create_topics({"words": 1})
    machine.write("words", "a", "b", "a")
    values = {"application.id": "notebook", "default.key.serde": STRING, "default.value.serde": STRING}
    config = machine.config(values)
    versions = {"first_version": lambda: counting("counts"), "second_version": lambda: counting("counts", "again")}
    run_block("docs/changing-a-topology.md", 1, given(config=config, savepoints=savepoints, **versions))
    shown = capsys.readouterr().out
    assert "a 2\nb 1\n" in shown
    assert "store counts keeps its state" in shown
    assert "store again is new and starts empty" in shown
    with open_state(counting("counts", "again"), config) as state:
        assert state.staleness() is not None


def test_a_function_rewrites_orders() -> None:
    names = given()
    run_block("docs/changing-a-topology.md", 0, names)
    key, order = names["with_quantity"]("o1", SimpleNamespace(item="pen"))
    assert (key, order) == ("o1", names["Order"]("pen", 1))


def test_a_global_table_converts_orders(spark_runner: SparkRunner, machine: Machine, tmp_path: Path) -> None:
    piped = [
        Piped("rates", b"EUR", DOUBLE.serialize("rates", 2.0), 1_000),
        Piped("orders", b"o1", orjson.dumps({"currency": "EUR", "amount": 5}), 2_000),
    ]
    serdes = {"default.key.serde": STRING, "default.value.serde": DOUBLE}
    program = Program(converting_orders(), {"application.id": "converting", **serdes})
    check_on_spark(program, piped, spark_runner, machine.servers, tmp_path / "converting")
