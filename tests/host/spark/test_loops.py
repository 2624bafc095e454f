"""Loops on Spark: joins by foreign key and sub-topologies that feed themselves, over several partitions. What goes back
is carried to the next epoch, and arrives there once, whatever falls when."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Consumed, Grouped, Materialized, Produced, Serdes, StreamsBuilder, Topology, savepoints
from penstock.config import StreamsConfig
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.plan.partitioning import partition_for
from penstock.testing import TopologyTestDriver
from tests.host.spark.crashes import Crashes, run_to_end_over_kills
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, OutputRecord, lines
from tests.support.brokers import first_on_kafka

STRING = Serdes.string()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
TEXT_OUT = Produced.with_(key_serde=STRING, value_serde=STRING)

LEFT, RIGHT = 3, 2
"""Partitions of the tables that are joined."""

Table = dict[str, str]
Row = tuple[str, str | None]


def orders_of_customers(orders: str, customers: str, target: str) -> Topology:
    """Orders `<customer>:<amount>` joined with the name of the customer, and how many orders each name has."""
    builder = StreamsBuilder()
    left, right = builder.table(orders, TEXT), builder.table(customers, TEXT)
    joined = left.left_join(
        right,
        lambda order, name: f"{order} of {name}",
        foreign_key_extractor=lambda order: order.split(":")[0],
        materialized=Materialized.as_("joined").with_key_serde(STRING).with_value_serde(STRING),
    )
    joined.to_stream().to(target, TEXT_OUT)
    by_name = joined.group_by(
        lambda _, text: (text.split(" of ")[1], text), Grouped.with_(key_serde=STRING, value_serde=STRING)
    )
    by_name.count(Materialized.as_("orders-by-name"))
    return builder.build()


def changes(chosen: random.Random, orders: Table, customers: Table, count: int) -> tuple[list[Row], list[Row]]:
    """Return rows for both topics, a tenth of them deletes, and take them into the tables."""
    left: list[Row] = []
    right: list[Row] = []
    for _ in range(count):
        rows, table, key = left, orders, f"o{chosen.randrange(60)}"
        value = f"c{chosen.randrange(12)}:{chosen.randrange(1000)}"
        if chosen.random() < 0.4:
            rows, table, key, value = right, customers, f"c{chosen.randrange(12)}", f"name{chosen.randrange(5)}"
        if chosen.random() < 0.1:
            table.pop(key, None)
            rows.append((key, None))
        else:
            table[key] = value
            rows.append((key, value))
    return left, right


def records(rows: list[Row], partitions: int, first_timestamp: int) -> list[InputRecord]:
    return [
        InputRecord(
            key.encode(),
            None if value is None else value.encode(),
            first_timestamp + number,
            partition_for(key.encode(), partitions),
        )
        for number, (key, value) in enumerate(rows)
    ]


def expected_join(orders: Table, customers: Table) -> Table:
    return {key: f"{order} of {customers.get(order.split(':')[0])}" for key, order in orders.items()}


def living(found: list[OutputRecord]) -> Table:
    last = {record.key: record.value for record in found}
    return {key.decode(): value.decode() for key, value in last.items() if key is not None and value is not None}


@pytest.fixture
def topics(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> tuple[str, str, str]:
    names = unique_name("orders"), unique_name("customers"), unique_name("joined")
    spark_runner.create_topics(dict(zip(names, (LEFT, RIGHT, LEFT), strict=True)))
    return names


@pytest.mark.parametrize("seed", first_on_kafka(range(3)))
def test_a_join_by_foreign_key_is_exact_whatever_fails_when(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str, str],
    crashes: Callable[..., Crashes],
    seed: int,
) -> None:
    values = {"penstock.manifests.retained": 3, "penstock.row.max.bytes": 1024}
    config = spark_runner.config(application, values)
    query = InlineQuery(orders_of_customers(*topics), config, spark_runner.admin)
    orders: Table = {}
    customers: Table = {}
    chosen = random.Random(seed)
    installed = crashes(seed, 0.02, 8)
    for part in range(4):
        left, right = changes(chosen, orders, customers, 60)
        spark_runner.write(topics[0], records(left, LEFT, 1_000 * part))
        spark_runner.write(topics[1], records(right, RIGHT, 1_000 * part))
        run_to_end_over_kills(query)
    assert sum(installed.struck.values()) >= 3
    expected = expected_join(orders, customers)
    assert living(spark_runner.read(topics[2])) == expected
    store = spark_runner.store(config, "orders-by-name")
    counted = Counter({key.decode(): int.from_bytes(value[8:], "big") for key, value in store.items()})
    assert +counted == Counter(text.split(" of ")[1] for text in expected.values())


@pytest.mark.one_broker
@pytest.mark.parametrize("grown", [(LEFT + 1, RIGHT), (LEFT, RIGHT + 1), (LEFT + 1, RIGHT + 1)])
def test_a_join_by_foreign_key_continues_with_more_partitions_of_either_side(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str, str], tmp_path: Path, grown: tuple[int, int]
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(orders_of_customers(*topics), config, spark_runner.admin)
    orders: Table = {}
    customers: Table = {}
    chosen = random.Random(9)
    left, right = changes(chosen, orders, customers, 60)
    spark_runner.write(topics[0], records(left, LEFT, 0))
    spark_runner.write(topics[1], records(right, RIGHT, 0))
    query.run_to_end()
    savepoints.take(config, str(tmp_path / "saved"))
    for topic, before, now in zip(topics, (LEFT, RIGHT), grown, strict=False):
        if now > before:
            spark_runner.add_partitions(topic, now)
    rescaled = spark_runner.config(application, {"penstock.checkpoint.dir": str(tmp_path / "rescaled")})
    counts = savepoints.partitions_of_stores(orders_of_customers(*topics), rescaled)
    savepoints.restore(str(tmp_path / "saved"), rescaled, counts)
    query = InlineQuery(orders_of_customers(*topics), rescaled, spark_runner.admin)
    left, right = changes(chosen, orders, customers, 60)
    spark_runner.write(topics[0], records(left, grown[0], 1_000))
    spark_runner.write(topics[1], records(right, grown[1], 1_000))
    query.run_to_end()
    joined = spark_runner.store(rescaled, "joined")
    assert {key.decode(): value[8:].decode() for key, value in joined.items()} == expected_join(orders, customers)


def test_nothing_is_left_of_carried_rows_that_arrived(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str, str]
) -> None:
    config = spark_runner.config(application, {"penstock.manifests.retained": 2})
    query = InlineQuery(orders_of_customers(*topics), config, spark_runner.admin)
    seen: set[tuple[str, str]] = set()
    for part in range(4):
        orders: Table = {}
        left, right = changes(random.Random(part), orders, {}, 30)
        spark_runner.write(topics[0], records(left, LEFT, 1_000 * part))
        spark_runner.write(topics[1], records(right, RIGHT, 1_000 * part))
        while query.epoch():
            manifest = spark_runner.manifest(config)
            seen |= {(task, e.carried["id"]) for task, e in manifest.tasks.items() if e.carried is not None}
    assert len(seen) >= 4
    assert all(entry.carried is None for entry in spark_runner.manifest(config).tasks.values())
    checkpoint = Checkpoint(config.checkpoint_directory())
    there = {(task, name) for task, _ in seen for name, _ in checkpoint.list_segments(task)}
    recent = [checkpoint.read_manifest(query.epochs - back, "") for back in range(2)]
    named = {each for manifest in recent if manifest is not None for each in manifest.segments()}
    assert seen & there <= named


def test_a_damaged_file_of_carried_rows_is_reported(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str, str]
) -> None:
    config = spark_runner.config(application)
    query = InlineQuery(orders_of_customers(*topics), config, spark_runner.admin)
    spark_runner.write(topics[0], records([("o1", "c1:5")], LEFT, 0))
    spark_runner.write(topics[1], records([("c1", "name")], RIGHT, 0))
    query.epoch()
    task, file = next(
        (task, entry.carried["id"])
        for task, entry in spark_runner.manifest(config).tasks.items()
        if entry.carried is not None
    )
    checkpoint = Checkpoint(config.checkpoint_directory())
    data = checkpoint.read_segment(task, file)
    assert data is not None
    checkpoint.write_segment(task, file, data[:-1] + bytes([data[-1] ^ 1]), lambda: None)
    failure = failure_of(query.epoch)
    assert f"{checkpoint.uri}/state/{task}/{file} cannot be used" in str(failure)
    assert "it is torn or was changed" in str(failure)


def fed_back(source: str, target: str) -> Topology:
    """Counts merged back into the stream that they come from: one sub-topology that feeds itself, until a word has been
    counted four times."""
    builder = StreamsBuilder()
    words = builder.stream(source, TEXT)
    pairs = Grouped.with_(key_serde=STRING, value_serde=STRING).with_name("words")
    counted = words.group_by(lambda _, word: word, pairs).count(Materialized.as_("counts"))
    counted.to_stream().map_values(str).merge(words).to(target, TEXT_OUT)
    return builder.build()


def test_a_subtopology_that_feeds_itself_gives_what_the_test_driver_gives(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics({source: 3, target: 2})
    config = spark_runner.config(application)
    query = InlineQuery(fed_back(source, target), config, spark_runner.admin)
    assert len(query.description.placement.levels) == 1
    texts = [f"w{number % 7}" for number in range(40)]
    for half in (texts[:20], texts[20:]):
        spark_runner.write(source, lines(half, 3))
        query.run_to_end()
    found = spark_runner.read(target)
    with TopologyTestDriver(fed_back(source, target), {"application.id": "expected"}) as driver:
        for number, text in enumerate(texts):
            driver.pipe_bytes(source, None, text.encode(), 1_000 + number, ())
        expected = [(record.key, record.value) for record in driver.read_all_bytes() if record.topic == target]
    assert sorted((each.key or b"", each.value or b"") for each in found) == sorted(
        (key or b"", value or b"") for key, value in expected
    )


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_join_by_foreign_key_runs_to_its_end_on_spark(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str, str]
) -> None:
    config: StreamsConfig = spark_runner.config(application)
    orders: Table = {}
    customers: Table = {}
    chosen = random.Random(7)
    for part in range(2):  # two lives: carried rows and stores outlive the first
        left, right = changes(chosen, orders, customers, 200)
        spark_runner.write(topics[0], records(left, LEFT, 1_000 * part))
        spark_runner.write(topics[1], records(right, RIGHT, 1_000 * part))
        spark_runner.run(orders_of_customers(*topics), config)
    assert living(spark_runner.read(topics[2])) == expected_join(orders, customers)
