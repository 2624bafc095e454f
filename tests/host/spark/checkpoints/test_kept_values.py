"""Programs whose classes of stored values change: what they read is checked at the start and by diff. Played in one
process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock import Materialized, Serdes, StreamsBuilder, StreamsConfig, TimeWindows, Topology, savepoints
from penstock.errors import IncompatibleCheckpointError
from penstock.host.spark.checkpoints import kept_values
from penstock.host.spark.checkpoints.task_segments import read_segment
from penstock.serdes import Serde
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.host.test_topologies import STRING, TEXT

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(2, 2)]


@dataclass
class Order:
    item: str


@dataclass
class OrderWithDefault:
    item: str
    quantity: int = 1


@dataclass
class OrderWithQuantity:
    item: str
    quantity: int


@dataclass
class RenamedOrder:
    article: str = "unknown"


def orders(source: str, kind: Any, serde: Serde[Any] | None = None) -> Topology:
    """A program that keeps the last order of each key, and of each of its windows."""
    builder = StreamsBuilder()
    read = kind if kind is not OrderWithQuantity else (lambda item: OrderWithQuantity(item, 1))
    values = Serdes.json(kind) if serde is None else serde
    read_orders = builder.stream(source, consumed=TEXT).map_values(read)

    def kept(name: str) -> Materialized:
        return Materialized.as_(name).with_key_serde(STRING).with_value_serde(values)

    read_orders.to_table(materialized=kept("orders"))
    grouped = read_orders.group_by_key().windowed_by(TimeWindows.of_size_and_grace(1_000, 1_000))
    grouped.reduce(lambda _, order: order, kept("hourly"))
    return builder.build()


def orders_of(*keys: str) -> list[InputRecord]:
    return [InputRecord(key.encode(), b"pen", 1_000 + number, number % 2) for number, key in enumerate(keys)]


@pytest.fixture(params=["default", "headers"])
def config(request: pytest.FixtureRequest, spark_runner: SparkRunner, application: str) -> StreamsConfig:
    return spark_runner.config(application, {"dsl.store.format": request.param})


@pytest.fixture
def query(spark_runner: SparkRunner, config: StreamsConfig, topics: tuple[str, str]) -> InlineQuery:
    """An application that has committed orders of the first class."""
    spark_runner.write(topics[0], orders_of("a", "b"))
    made = InlineQuery(orders(topics[0], Order), config, spark_runner.admin)
    made.run_to_end()
    return made


def test_values_that_the_program_cannot_read_are_refused_until_they_are_rewritten(
    spark_runner: SparkRunner, config: StreamsConfig, topics: tuple[str, str], query: InlineQuery, tmp_path: Path
) -> None:
    changed = orders(topics[0], OrderWithQuantity)
    found = savepoints.diff(changed, config, config)
    assert [name for name in ("orders", "hourly") for line in found.refused if f"--map {name}=" in line] == [
        "orders",
        "hourly",
    ]
    assert "store orders: its values get quantity: int" in found.differences
    with pytest.raises(IncompatibleCheckpointError, match=r"store orders has an entry in .*quantity.*--map orders="):
        query.change(changed)
    saved, again = str(tmp_path / "saved"), config.overridden({"penstock.checkpoint.dir": str(tmp_path / "again")})
    savepoints.take(config, saved)

    def with_quantity(key: str, order: Order) -> tuple[str, OrderWithQuantity]:
        return key, OrderWithQuantity(order.item, 5)

    maps = dict.fromkeys(("orders", "hourly"), with_quantity)
    savepoints.restore(saved, again, maps=maps, topology=changed)
    assert savepoints.diff(changed, again, again).refused == ()
    InlineQuery(changed, again, spark_runner.admin).run_to_end()


def test_a_new_field_with_a_default_is_logged(
    config: StreamsConfig, topics: tuple[str, str], query: InlineQuery, caplog: pytest.LogCaptureFixture
) -> None:
    changed = orders(topics[0], OrderWithDefault)
    line = "store orders: its values get quantity: int"
    assert line in savepoints.diff(changed, config, config).lines()
    query.change(changed)
    assert f"The program has changed: {line}" in caplog.text
    query.run_to_end()
    assert savepoints.diff(changed, config, config).differences == ()


def test_a_field_that_is_lost_is_named(config: StreamsConfig, topics: tuple[str, str], query: InlineQuery) -> None:
    found = savepoints.diff(orders(topics[0], RenamedOrder), config, config)
    assert "store orders: its values get article: str, lose item: str" in found.differences


def test_only_the_last_values_count(
    spark_runner: SparkRunner, topics: tuple[str, str], query: InlineQuery, config: StreamsConfig
) -> None:
    query.change(orders(topics[0], OrderWithDefault))
    spark_runner.write(topics[0], orders_of("a", "b"))
    query.run_to_end()  # replaces all orders that have no quantity
    assert savepoints.diff(orders(topics[0], OrderWithQuantity), config, config).refused == ()


class Strict(Serde[Any]):
    """A serde of the user, whose fields are unknown."""

    def serialize(self, topic: str, value: Any, headers: Any = ()) -> bytes:
        return json.dumps({"strict": value.item}).encode()

    def deserialize(self, topic: str, data: bytes, headers: Any = ()) -> Any:
        return Order(json.loads(data)["strict"])


def test_a_serde_of_the_user_is_tried_too(config: StreamsConfig, topics: tuple[str, str], query: InlineQuery) -> None:
    found = savepoints.diff(orders(topics[0], Order, Strict()), config, config)
    assert "KeyError: 'strict'" in found.refused[0]
    assert "store orders: the program cannot read its values" in found.differences


class UnreachableError(Exception):
    """The error of a client of a registry."""


class OfRegistry(Strict):
    """A serde whose registry does not answer."""

    def deserialize(self, topic: str, data: bytes, headers: Any = ()) -> Any:
        raise UnreachableError("no answer")


def test_an_error_that_is_not_of_the_data_is_no_reason_to_refuse(
    config: StreamsConfig, topics: tuple[str, str], query: InlineQuery
) -> None:
    found = savepoints.diff(orders(topics[0], Order, OfRegistry()), config, config)
    assert found.refused == ()
    assert "store orders: its values were not checked, UnreachableError: no answer" in found.differences


@pytest.mark.parametrize("most", [1, 3])
def test_a_limited_number_of_segments_is_read(
    spark_runner: SparkRunner,
    config: StreamsConfig,
    topics: tuple[str, str],
    query: InlineQuery,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    for _ in range(3):
        spark_runner.write(topics[0], orders_of("a", "b"))
        query.run_to_end()
    read: list[str] = []

    def counted(checkpoint: Any, task: str, info: Any, stores: Any = None) -> Any:
        read.append(task)
        return read_segment(checkpoint, task, info, stores)

    monkeypatch.setattr(kept_values, "_SEGMENTS", most)
    monkeypatch.setattr(kept_values, "read_segment", counted)
    assert savepoints.diff(orders(topics[0], Order), config, config).refused == ()
    assert len(read) == most
