"""A loss of power at any moment: only synced data survives, and the application continues as if nothing had
happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import savepoints
from penstock.config import StreamsConfig
from penstock.host.storage import files
from tests.host.spark.crashes import ALL_POINTS, Crashes, KilledError
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.spark.test_changes import counting, counts
from tests.host.spark.test_exactness import assert_counts, count_random_words
from tests.host.spark.test_loops import orders_of_customers
from tests.host.support import lines
from tests.host.test_topologies import (
    word_count,
)
from tests.support.brokers import first_on_kafka
from tests.support.power import Disk


def run_to_end_over_losses_of_power(query: InlineQuery, config: StreamsConfig, disk: Disk) -> None:
    """Run to the end; each kill is one of the machine."""
    killed = False
    while True:
        try:
            if killed:
                application = Path(config["state.dir"]) / config["application.id"]
                disk.lose_power(Path(config.checkpoint_directory()), application / "bases")
                query.restart()
            query.run_to_end()
            return
        except KilledError:
            killed = True


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_on_kafka(range(1)))
def test_counts_are_exact_whenever_the_power_is_lost(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    disk = Disk(monkeypatch)
    config = spark_runner.config(application, {"penstock.manifests.retained": 3})
    query = InlineQuery(word_count(*topics), config, spark_runner.admin)
    installed = crashes(seed, 0.05, 30)
    expected = count_random_words(
        spark_runner, topics[0], seed, lambda: run_to_end_over_losses_of_power(query, config, disk)
    )
    assert sum(installed.struck.values()) >= 5
    assert_counts(spark_runner, config, topics[1], expected)


@pytest.mark.one_broker
def test_rows_on_their_way_and_changes_of_the_program_outlive_a_loss_of_power(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
    crashes: Callable[..., Crashes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    disk = Disk(monkeypatch)
    orders, customers, target = (unique_name(each) for each in ("orders", "customers", "named"))
    spark_runner.create_topics({orders: 2, customers: 2, target: 1})
    config = spark_runner.config(application)
    query = InlineQuery(orders_of_customers(orders, customers, target), config, spark_runner.admin)
    crashes(3, 0.03, 30, points=ALL_POINTS)
    for part in range(5):
        spark_runner.write(customers, lines([f"{part}"], partitions=2))
        spark_runner.write(orders, lines([f"c{part}:{part}"], partitions=2))
        run_to_end_over_losses_of_power(query, config, disk)


@pytest.mark.one_broker
@pytest.mark.parametrize("stores", [("counts",), ("counts", "new"), ("new", "counts")])
def test_a_change_of_the_program_is_made_or_not(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    monkeypatch: pytest.MonkeyPatch,
    stores: tuple[str, ...],
) -> None:
    disk = Disk(monkeypatch)
    config = spark_runner.config(application)
    query = InlineQuery(counting(*topics, "counts"), config, spark_runner.admin)
    spark_runner.write(topics[0], lines(["a b", "b c"], partitions=3))
    query.run_to_end()
    crashes(11, 0.4, 6, points=[point for point in ALL_POINTS if point.startswith("topology.")])
    query._topology = counting(*topics, *stores)
    for _ in range(8):
        try:
            query.restart()
            break
        except KilledError:
            disk.lose_power(Path(config.checkpoint_directory()), Path(config["state.dir"]) / application / "bases")
    spark_runner.write(topics[0], lines(["a d"], partitions=3))
    query.run_to_end()
    assert counts(spark_runner, config, "counts") == {"a": 2, "b": 2, "c": 1, "d": 1}


@pytest.mark.one_broker
def test_a_savepoint_is_durable_once_it_was_taken(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    disk = Disk(monkeypatch)
    config = spark_runner.config(application)
    query = InlineQuery(word_count(*topics), config, spark_runner.admin)
    spark_runner.write(topics[0], lines(["a b", "b c"], partitions=3))
    query.run_to_end()
    savepoint = tmp_path / "savepoint"
    savepoints.take(config, str(savepoint))
    disk.lose_power(savepoint, tmp_path)
    other = spark_runner.config(application, {"penstock.checkpoint.dir": str(tmp_path / "restored")})
    savepoints.restore(str(savepoint), other)
    disk.lose_power(tmp_path / "restored", tmp_path)
    assert counts(spark_runner, other, "counts") == {"a": 1, "b": 2, "c": 1}


@pytest.mark.one_broker
def test_without_a_sync_a_loss_of_power_does_harm(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of these tests forgets what it was not asked to keep."""
    monkeypatch.setattr(files, "sync", lambda descriptor: None)
    disk = Disk(monkeypatch)
    monkeypatch.setattr(files, "sync", lambda descriptor: None)
    config = spark_runner.config(application)
    query = InlineQuery(word_count(*topics), config, spark_runner.admin)
    spark_runner.write(topics[0], lines(["a b"]))
    query.run_to_end()
    disk.lose_power(Path(config.checkpoint_directory()), Path(config["state.dir"]) / application / "bases")
    assert not any(Path(config.checkpoint_directory()).iterdir())
