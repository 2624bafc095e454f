"""Stores that functions rewrite at the restore of a savepoint. Played in one process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Grouped,
    Materialized,
    Repartitioned,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
    savepoints,
)
from penstock.errors import StreamsError
from penstock.host.spark.checkpoints.entry_map import MapFunction
from penstock.plan.partitioning import partition_for
from penstock.serdes import Serde
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.host.test_topologies import STRING, TEXT
from tests.support.commands import Run

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(3, 3)]


@dataclass
class Order:
    item: str


@dataclass
class CountedOrder:
    item: str
    letters: int


OLD: Serde[Order] = Serdes.json(Order)
NEW: Serde[CountedOrder] = Serdes.json(CountedOrder)


def counted(key: str, order: Order) -> tuple[str, CountedOrder]:
    return key, CountedOrder(order.item, len(order.item))


def counted_elsewhere(key: str, order: Order) -> tuple[str, CountedOrder]:
    return f"{key}/{len(key)}", CountedOrder(order.item, len(order.item))


def last_orders(source: str, serde: Serde[Any], rewritten: MapFunction | None = None) -> Topology:
    """A program that keeps the last order of each key, of each of its windows, and of each of its sessions."""
    builder = StreamsBuilder()
    orders = builder.stream(source, consumed=TEXT).map_values(Order).map(rewritten or (lambda key, order: (key, order)))
    orders = orders.repartition(Repartitioned.as_("orders").with_key_serde(STRING).with_value_serde(serde))
    grouped = orders.group_by_key(Grouped.with_(key_serde=STRING, value_serde=serde))

    def kept(name: str) -> Materialized:
        return Materialized.as_(name).with_key_serde(STRING).with_value_serde(serde)

    def last(_: Any, order: Any) -> Any:
        return order

    grouped.reduce(last, kept("table"))
    grouped.windowed_by(TimeWindows.of_size_and_grace(100, 100_000)).reduce(last, kept("windows"))
    grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(7, 100_000)).reduce(last, kept("sessions"))
    grouped.count(materialized=Materialized.as_("counts"))
    return builder.build()


STORES = ("table", "windows", "sessions")


def records(count: int, partitions: int = 3) -> list[InputRecord]:
    return [
        InputRecord(key, f"{'o' * (n % 5)}{n}".encode(), 1_000 + n * 3, partition_for(key, partitions))
        for n in range(count)
        for key in [f"k{n * n % 13}".encode()]
    ]


@pytest.fixture
def saved(tmp_path: Path) -> str:
    return str(tmp_path / "saved")


def run(spark_runner: SparkRunner, topology: Topology, config: StreamsConfig) -> None:
    InlineQuery(topology, config, spark_runner.admin).run_to_end()


def contents(spark_runner: SparkRunner, config: StreamsConfig) -> dict[str, dict[str, dict[bytes, bytes]]]:
    return {name: spark_runner.store_by_task(config, name) for name in (*STORES, "counts")}


@pytest.mark.parametrize("format", ["default", "headers"])
@pytest.mark.parametrize("rewritten", [counted, counted_elsewhere])
def test_state_rewritten_is_that_of_a_run_of_the_new_program(
    spark_runner: SparkRunner,
    unique_name: Callable[[str], str],
    topics: tuple[str, str],
    saved: str,
    format: str,
    rewritten: MapFunction,
) -> None:
    values = {"dsl.store.format": format, "penstock.spark.partitions": 3}
    old, new, direct = (spark_runner.config(unique_name(name), values) for name in ("old", "new", "direct"))
    spark_runner.write(topics[0], records(60))
    run(spark_runner, last_orders(topics[0], OLD), old)
    run(spark_runner, last_orders(topics[0], NEW, rewritten), direct)
    savepoints.take(old, saved)
    changed = last_orders(topics[0], NEW, rewritten)
    maps: dict[str, MapFunction] = dict.fromkeys(STORES, rewritten)
    if rewritten is counted_elsewhere:
        maps["counts"] = lambda key, value: (f"{key}/{len(key)}", value)
    restored = savepoints.restore(saved, new, maps=maps, topology=changed)
    assert {each.name for each in restored.mapped} == set(maps)
    for each in restored.mapped:
        entries = sum(map(len, spark_runner.store_by_task(old, each.name).values()))
        assert (each.entries, each.changed, each.deleted, each.failed) == (entries, entries, 0, 0)
        assert (each.moved > 0) == (rewritten is counted_elsewhere)
    assert contents(spark_runner, new) == contents(spark_runner, direct)
    spark_runner.write(topics[0], records(80))
    for config in (new, direct):
        run(spark_runner, changed, config)
    assert contents(spark_runner, new) == contents(spark_runner, direct)


def simple(source: str, serde: Serde[Any], **given: Any) -> Topology:
    """A program that keeps the last value of each key in the store `table`."""
    builder = StreamsBuilder()
    values = builder.stream(source, consumed=TEXT)
    if given:
        values = values.repartition(Repartitioned.as_("spread").with_stream_partitioner(given["partitioner"]))
    read: Callable[[str], Any] = str if serde is STRING else Order
    kept = Materialized.as_("table").with_key_serde(STRING).with_value_serde(serde)
    values.map_values(read).to_table(materialized=kept)
    return builder.build()


@pytest.fixture
def simple_saved(spark_runner: SparkRunner, application: str, topics: tuple[str, str], saved: str) -> str:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], records(40))
    run(spark_runner, simple(topics[0], OLD), config)
    savepoints.take(config, saved)
    return saved


def table(spark_runner: SparkRunner, config: StreamsConfig) -> dict[str, Any]:
    return {key.decode(): json.loads(value[8:]) for key, value in spark_runner.store(config, "table").items()}


def test_entries_that_cannot_be_rewritten_are_listed_and_nothing_is_restored(
    spark_runner: SparkRunner, unique_name: Callable[[str], str], simple_saved: str
) -> None:
    target = spark_runner.config(unique_name("target"))

    def failing(key: str, order: Order) -> tuple[str, Order | None]:
        if key in ("k1", "k3"):
            raise ValueError(f"no place for {order.item}")
        return (key, order) if key != "k4" else ("", None)

    (tried,) = savepoints.try_maps(simple_saved, {"table": failing})
    assert (tried.entries, tried.changed, tried.deleted, tried.failed) == (7, 0, 1, 2)
    assert {failure.key for failure in tried.failures} == {"'k1'", "'k3'"}
    assert all("ValueError: no place for " in failure.reason for failure in tried.failures)
    assert all("test_mapping.py" in failure.reason for failure in tried.failures)
    with pytest.raises(StreamsError, match=r"cannot rewrite 2 keys of store table(?s:.*)'k1': ValueError: no place"):
        savepoints.restore(simple_saved, target, maps={"table": failing})
    assert not list(Path(target.checkpoint_directory()).rglob("state/*"))
    savepoints.restore(simple_saved, target, maps={"table": lambda key, order: None if key == "k4" else (key, order)})
    assert table(spark_runner, target).keys() == {"k0", "k1", "k3", "k9", "k10", "k12"}


def test_a_function_returns_a_key_and_a_value(simple_saved: str) -> None:
    (tried,) = savepoints.try_maps(simple_saved, {"table": lambda key, order: order})
    assert (tried.failed, len(tried.failures)) == (7, 7)
    assert "expected a key and a value" in tried.failures[0].reason


def test_two_entries_with_the_same_new_key_are_refused(
    spark_runner: SparkRunner, unique_name: Callable[[str], str], simple_saved: str
) -> None:
    target = spark_runner.config(unique_name("target"))
    with pytest.raises(StreamsError, match=r"cannot rewrite 6 keys(?s:.*)another entry has the key b'all' afterwards"):
        savepoints.restore(simple_saved, target, maps={"table": lambda key, order: ("all", order)})


def test_an_unknown_store_is_refused(simple_saved: str) -> None:
    with pytest.raises(StreamsError, match="has no store tables; it has table"):
        savepoints.try_maps(simple_saved, {"tables": lambda key, order: (key, order)})


def test_a_new_key_has_no_place_if_a_function_chooses_partitions(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
    topics: tuple[str, str],
    saved: str,
) -> None:
    config, target = spark_runner.config(application), spark_runner.config(unique_name("target"))
    spark_runner.write(topics[0], records(40))
    run(spark_runner, simple(topics[0], OLD, partitioner=lambda topic, key, value, count: {1}), config)
    savepoints.take(config, saved)
    (tried,) = savepoints.try_maps(saved, {"table": lambda key, order: (key + "!", order)})
    assert tried.failed == tried.entries == 7
    assert "chooses the partitions of" in tried.failures[0].reason
    restored = savepoints.restore(saved, target, maps={"table": lambda key, order: (key, Order("other"))})
    assert [(each.changed, each.moved) for each in restored.mapped] == [(7, 0)]


def test_keys_are_rewritten_and_re_partitioned_at_once(
    spark_runner: SparkRunner, unique_name: Callable[[str], str], simple_saved: str
) -> None:
    target = spark_runner.config(unique_name("target"))
    savepoints.restore(simple_saved, target, 5, maps={"table": lambda key, order: (key + "!", order)})
    found = spark_runner.store_by_task(target, "table")
    assert {key for content in found.values() for key in content} == {
        f"k{number}!".encode() for number in (0, 1, 3, 4, 9, 10, 12)
    }
    for task, content in found.items():
        assert {partition_for(key, 5) for key in content} <= {int(task.partition("_")[2])}


def test_a_savepoint_of_rewritten_state_is_read_by_the_serdes_that_wrote_it(
    spark_runner: SparkRunner,
    unique_name: Callable[[str], str],
    topics: tuple[str, str],
    simple_saved: str,
    tmp_path: Path,
) -> None:
    first, second = (spark_runner.config(unique_name(name)) for name in ("first", "second"))
    texts = simple(topics[0], STRING)
    savepoints.restore(
        simple_saved, first, maps={"table": lambda key, order: (key, order.item.upper())}, topology=texts
    )
    savepoints.take(first, str(tmp_path / "again"))
    savepoints.restore(str(tmp_path / "again"), second, maps={"table": lambda key, text: (key, text + "!")})
    written = {key: value[8:] for key, value in spark_runner.store(second, "table").items()}
    assert written[b"k0"] == b"OOOO39!"
    run(spark_runner, texts, second)  # whose serde has another format than that of the savepoint


MIGRATION = """
from dataclasses import dataclass

@dataclass
class CountedOrder:
    item: str
    letters: int

def counted(key, order):
    return key, CountedOrder(order.item, len(order.item))

def failing(key, order):
    return order.missing

nothing = None
"""

PROGRAM = """
from migration_of_orders import CountedOrder
from penstock import *

text = Serdes.string()
builder = StreamsBuilder()
orders = builder.stream({source!r}, Consumed.with_(key_serde=text, value_serde=text)).map_values(
    lambda item: CountedOrder(item, len(item))
)
kept = Materialized.as_("table").with_key_serde(text).with_value_serde(Serdes.json(CountedOrder))
orders.to_table(materialized=kept)
topology = builder.build()
config = {config!r}
"""


def test_the_command_rewrites_stores(
    spark_runner: SparkRunner,
    unique_name: Callable[[str], str],
    topics: tuple[str, str],
    simple_saved: str,
    tmp_path: Path,
    penstock_here: Run,
) -> None:
    target = spark_runner.config(unique_name("target"))
    program = tmp_path / "program.py"
    (tmp_path / "migration_of_orders.py").write_text(MIGRATION)
    program.write_text(PROGRAM.format(source=topics[0], config=dict(target.given())))
    restore = partial(penstock_here, "savepoint", "restore", simple_saved, str(program))
    tried = restore("--map", "table=migration_of_orders:failing", "--dry-run")
    assert tried.code == 1
    assert tried.out.splitlines()[1].split() == ["table", "7", "0", "0", "0", "7"]
    assert "key 'k0': AttributeError" in tried.err
    answer = json.loads(restore("--map", "table=migration_of_orders:counted", "--dry-run", "--json").out)
    assert [(each["name"], each["changed"]) for each in answer["mapped"]] == [("table", 7)]
    for wrong, why in {
        "table": "expected STORE=MODULE:FUNCTION",
        "table=missing_module:counted": "there is no module missing_module",
        "table=migration_of_orders:nothing": "has no function nothing",
    }.items():
        refused = restore("--map", wrong)
        assert (refused.code, why in " ".join(refused.err.replace("│", "").split())) == (2, True), refused.err
    assert restore("--dry-run").code == 2
    assert not Path(target.checkpoint_directory()).exists()
    done = restore("--map", "table=migration_of_orders:counted")
    assert (done.code, done.out.splitlines()[1].split()) == (0, ["table", "7", "7", "0", "0", "0"])
    assert table(spark_runner, target)["k0"] == {"item": "oooo39", "letters": 6}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_depend_on_the_number_of_entries(tmp_path: Path) -> None:
    def largest(entries: int) -> int:
        command = [sys.executable, "-m", "tests.host.spark.checkpoints.mapped_entries", str(tmp_path / str(entries))]
        return int(subprocess.run([*command, str(entries)], check=True, capture_output=True, text=True).stdout)

    few, many = largest(20_000), largest(200_000)  # 20 and 200 MB
    assert many < few + 60 * 1024
    assert many < 300 * 1024
