"""Tasks on Spark keep their stores in the base that the configuration names, and go over from one to the other."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import rocksdict

from penstock import RocksDBConfigSetter
from penstock.config import StreamsConfig
from penstock.errors import LockError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.worker import bases
from penstock.state.rocksdb import RocksDBBase
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.support import lines
from tests.host.test_topologies import final, word_count

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(1, 1)]

ROCKSDB = {"penstock.state.base": "rocksdb"}


class Told(RocksDBConfigSetter):
    """Records which databases it is called for."""

    names: set[str] = set()  # noqa: RUF012  # what all that are made have seen

    def set_config(self, name: str, options: rocksdict.Options, config: StreamsConfig) -> None:
        self.names.add(name)

    def close(self, name: str, options: rocksdict.Options) -> None:
        pass


def test_stores_are_kept_in_rocksdb_or_lmdb_and_go_over(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    state = Path(spark_runner.config(application)["state.dir"]) / application
    for part, values in enumerate([ROCKSDB | {"rocksdb.config.setter": Told}, {}, ROCKSDB, {}]):
        config = spark_runner.config(application, values)
        if part == 0:
            query = InlineQuery(word_count(*topics), config, spark_runner.admin)
        else:
            query._config = config
            query.restart()
        for _ in range(2):
            spark_runner.write(topics[0], lines(["a b", f"only{part}"]))
            query.run_to_end()
        kinds = {path.name for path in state.iterdir() if any(path.iterdir())}
        assert ("bases-rocksdb" in kinds, "bases" in kinds) == (bool(values), not values)
    assert Told.names == {"1_0"}
    assert final(spark_runner.read(topics[1])) == {"a": 8, "b": 8, **{f"only{part}": 2 for part in range(4)}}


def test_a_worker_waits_for_another_that_has_the_base_open(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = spark_runner.config(application, ROCKSDB)
    query = InlineQuery(word_count(*topics), config, spark_runner.admin)
    spark_runner.write(topics[0], lines(["a"]))
    query.run_to_end()
    other = RocksDBBase(
        bases.task_directory(query.description, "1_0", Checkpoint(query.description.checkpoint)).database
    )
    met = threading.Event()
    opened = bases.open_base

    def open_base(*args: object) -> object:
        try:
            return opened(*args)  # type: ignore[arg-type]  # what it is called with
        except LockError:
            met.set()
            raise

    monkeypatch.setattr(bases, "open_base", open_base)
    release = threading.Thread(target=lambda: met.wait(60) and other.close())
    release.start()
    spark_runner.write(topics[0], lines(["a"]))
    query.run_to_end()
    release.join()
    assert met.is_set()
    assert final(spark_runner.read(topics[1])) == {"a": 2}


def test_a_base_that_stays_open_elsewhere_ends_the_query(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "_PATIENCE_SECONDS", 0)
    query = InlineQuery(word_count(*topics), spark_runner.config(application, ROCKSDB), spark_runner.admin)
    other = RocksDBBase(
        bases.task_directory(query.description, "1_0", Checkpoint(query.description.checkpoint)).database
    )
    spark_runner.write(topics[0], lines(["a"]))
    try:
        failure = failure_of(query.run_to_end)
    finally:
        other.close()
    assert isinstance(failure, LockError)
    assert "is already open" in str(failure)
