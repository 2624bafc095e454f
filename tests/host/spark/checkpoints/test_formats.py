"""Checkpoints and savepoints of format 2 are read, and continue in the present format."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock import savepoints
from penstock.config import StreamsConfig
from penstock.errors import TaskCorruptedError
from penstock.host.spark.checkpoints.checkpoint import FORMAT, Checkpoint
from penstock.host.spark.driver.resetting import reset_application
from penstock.plan.partitioning import partition_for
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.spark.test_loops import orders_of_customers
from tests.host.support import InputRecord
from tests.support.brokers import EMBEDDED_ONLY

DATA = Path(__file__).parents[1] / "data" / "format_2"
APPLICATION, TOPICS = "compat", ("orders", "customers", "named-orders")

ORDERS = [(f"o{number}", f"c{number % 5}:{number}") for number in range(20)]
CUSTOMERS = [(f"c{number}", f"name{number % 3}") for number in range(4)]
CHANGED = [("o1", "c3:99"), ("o7", "c1:77")]

pytestmark = EMBEDDED_ONLY


def joined(orders: dict[str, str]) -> dict[str, str]:
    names = dict(CUSTOMERS)
    return {order: f"{value} of {names.get(value.split(':')[0])}" for order, value in orders.items()}


@pytest.fixture
def config(spark_runner: SparkRunner, tmp_path: Path) -> StreamsConfig:
    """The configuration of the application, whose topics have what it had read and planned to read."""
    known = spark_runner.admin.topics()
    spark_runner.admin.delete_topics([topic for topic in TOPICS if topic in known])
    spark_runner.create_topics(dict(zip(TOPICS, (3, 2, 2), strict=True)))
    for topic, partitions, rows, first in (
        ("orders", 3, ORDERS, 1000),
        ("customers", 2, CUSTOMERS, 1000),
        ("orders", 3, CHANGED, 2000),
    ):
        records = [
            InputRecord(key.encode(), value.encode(), first + number, partition_for(key.encode(), partitions))
            for number, (key, value) in enumerate(rows)
        ]
        spark_runner.write(topic, records)
    config = spark_runner.config(APPLICATION, {"state.dir": str(tmp_path)})
    # The broker knows the commits of the test before, which had the same application.id.
    reset_application(orders_of_customers(*TOPICS).build(APPLICATION), config, spark_runner.admin)
    return config


def stored(spark_runner: SparkRunner, config: StreamsConfig) -> dict[str, str]:
    return {key.decode(): value[8:].decode() for key, value in spark_runner.store(config, "joined").items()}


def test_a_checkpoint_continues_with_the_epoch_that_sparks_log_has(
    spark_runner: SparkRunner, config: StreamsConfig
) -> None:
    shutil.copytree(DATA / "checkpoint", config.checkpoint_directory())
    query = InlineQuery(orders_of_customers(*TOPICS), config, spark_runner.admin)
    checkpoint = Checkpoint(config.checkpoint_directory())
    metadata = checkpoint.read_metadata()
    assert metadata is not None
    assert metadata.format == FORMAT
    assert not (Path(config.checkpoint_directory()) / "spark").exists() or not any(
        (Path(config.checkpoint_directory()) / "spark").iterdir()
    )
    assert query.description.planned is not None
    assert query.description.planned.planned_ms == 1795367920105
    query.epoch()
    manifest = spark_runner.manifest(config)
    assert (manifest.epoch, manifest.planned_ms) == (2, 1795367920105)
    query.run_to_end()
    assert stored(spark_runner, config) == joined(dict(ORDERS + CHANGED))


def test_a_change_to_the_format_that_fails_at_any_file_is_made_at_the_next_start(
    spark_runner: SparkRunner, config: StreamsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(DATA / "checkpoint", config.checkpoint_directory())
    for method in ("write_offset", "write_metadata", "forget_other_descriptions"):
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, method, _fall)
            with pytest.raises(KeyboardInterrupt):
                InlineQuery(orders_of_customers(*TOPICS), config, spark_runner.admin)
    query = InlineQuery(orders_of_customers(*TOPICS), config, spark_runner.admin)
    assert query.description.planned is not None
    query.run_to_end()
    assert stored(spark_runner, config) == joined(dict(ORDERS + CHANGED))


def _fall(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_damaged_log_of_spark_is_reported(spark_runner: SparkRunner, config: StreamsConfig) -> None:
    shutil.copytree(DATA / "checkpoint", config.checkpoint_directory())
    (log,) = Path(config.checkpoint_directory()).glob("spark/*/offsets/1")
    log.write_bytes(log.read_bytes()[:-20])
    with pytest.raises(TaskCorruptedError, match=f"{log} cannot be used"):
        InlineQuery(orders_of_customers(*TOPICS), config, spark_runner.admin)


def test_a_savepoint_is_restored(spark_runner: SparkRunner, config: StreamsConfig) -> None:
    held = savepoints.restore(str(DATA / "savepoint"), config)
    assert (held.application_id, held.epoch) == (APPLICATION, 1)
    query = InlineQuery(orders_of_customers(*TOPICS), config, spark_runner.admin)
    query.run_to_end()
    assert stored(spark_runner, config) == joined(dict(ORDERS + CHANGED))


def test_a_manifest_that_lost_its_digest_is_not_taken_for_one_of_format_2(
    spark_runner: SparkRunner, config: StreamsConfig
) -> None:
    query = InlineQuery(orders_of_customers(*TOPICS), config, spark_runner.admin)
    query.run_to_end()
    (newest,) = sorted(Path(config.checkpoint_directory()).glob("manifests/*"))[-1:]
    newest.write_bytes(newest.read_bytes().rpartition(b"\nblake2b ")[0])
    with pytest.raises(TaskCorruptedError, match=f"{newest} cannot be used: its last line"):
        query.restart()
