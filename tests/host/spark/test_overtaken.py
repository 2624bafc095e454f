"""Programs that are overtaken: an epoch that one left half committed, workers of a life that is over, and drivers that
start beside one another. Most of it played in one process."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from penstock import StreamsConfig
from penstock.errors import TaskMigratedError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.stored_description import StoredDescription
from penstock.host.spark.driver import preparation
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.failures import QueryFailedError, decode_failure
from penstock.host.spark.protocol.rows import Row
from penstock.host.spark.worker import sink
from penstock.record import TopicPartition
from tests.host.spark.crashes import Crashes, KilledError
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.spark.test_changes import counting, counts
from tests.host.support import lines


def query_with_input(
    spark_runner: SparkRunner, config: StreamsConfig, topics: tuple[str, str], text: str
) -> InlineQuery:
    """Return a query that counts words, whose next epoch reads `text`."""
    query = InlineQuery(counting(*topics, "counts"), config, spark_runner.admin)
    query.run_to_end()
    spark_runner.write(topics[0], lines([text]))
    return query


@pytest.mark.parametrize("stores", [("counts",), ("counts", "new")], ids=["same shape", "another shape"])
@pytest.mark.one_broker
def test_an_epoch_left_half_committed_is_finished_by_the_program_that_began_it(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    stores: tuple[str, ...],
) -> None:
    config = spark_runner.config(application)
    query = query_with_input(spark_runner, config, topics, "a b c d e f g h")
    crashes(at="transaction.after")
    with pytest.raises(KilledError):
        query.run_to_end()
    assert 0 < len(spark_runner.read(topics[1])) < 8  # one sink partition of two
    query.change(counting(*topics, *stores, only="zz"))
    spark_runner.write(topics[0], lines(["a zz"]))
    query.run_to_end()
    words = [record.key for record in spark_runner.read(topics[1])]
    assert sorted(words) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"zz"]
    assert counts(spark_runner, config, "counts") == {**dict.fromkeys("abcdefgh", 1), "zz": 1}


@pytest.mark.parametrize("stores", [("counts",), ("counts", "new")], ids=["same shape", "another shape"])
def test_an_epoch_of_which_nobody_has_seen_anything_is_given_up(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    stores: tuple[str, ...],
) -> None:
    config = spark_runner.config(application)
    query = query_with_input(spark_runner, config, topics, "a b c d e f g h zz")
    crashes(at="transaction.before")
    with pytest.raises(KilledError):
        query.run_to_end()
    query.change(counting(*topics, *stores, only="zz"))
    query.run_to_end()
    assert [record.key for record in spark_runner.read(topics[1])] == [b"zz"]
    assert counts(spark_runner, config, "counts") == {"zz": 1}


def test_a_worker_of_a_life_that_is_over_writes_nothing_any_more(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = spark_runner.config(application)
    query = query_with_input(spark_runner, config, topics, "a b c d e f g h")
    late: list[tuple[ApplicationDescription, list[Row]]] = []
    write = sink._write

    def put_off(description: ApplicationDescription, rows: list[Row]) -> sink.PartitionCommit:
        late.append((description, rows))
        if len(late) == description.placement.sink_partitions:
            raise KilledError("each worker is late")
        return sink.PartitionCommit()

    monkeypatch.setattr(sink, "_write", put_off)
    with pytest.raises(KilledError):
        query.run_to_end()
    monkeypatch.setattr(sink, "_write", write)
    query.change(counting(*topics, "counts", "new"))
    query.run_to_end()
    for description, rows in late:
        with pytest.raises(TaskMigratedError, match="taken over"):
            write(description, rows)
    spark_runner.write(topics[0], lines(["a i"]))
    query.run_to_end()
    words = [record.key for record in spark_runner.read(topics[1])]
    assert sorted(words) == [b"a", b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i"]


@pytest.mark.one_broker
def test_what_an_older_driver_commits_while_a_changed_program_is_prepared_is_not_read_again(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a"]))
    older = InlineQuery(counting(*topics, "counts"), config, spark_runner.admin)
    older.run_to_end()
    spark_runner.write(topics[0], lines(["a b"]))
    reset_offsets = preparation.reset_offsets

    def while_the_older_one_runs(*args: Any) -> dict[TopicPartition, int]:
        older.run_to_end()
        return reset_offsets(*args)

    monkeypatch.setattr(preparation, "reset_offsets", while_the_older_one_runs)
    newer = InlineQuery(counting(*topics, "counts", "new"), config, spark_runner.admin)
    newer.run_to_end()
    assert counts(spark_runner, config, "counts") == {"a": 2, "b": 1}


@pytest.mark.one_broker
def test_a_driver_that_others_overtake_at_each_attempt_to_start_gives_up(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = spark_runner.config(application)
    program = counting(*topics, "counts")
    InlineQuery(program, config, spark_runner.admin).run_to_end()
    reset_offsets = preparation.reset_offsets
    others: list[InlineQuery] = []

    def while_another_commits(*args: Any) -> dict[TopicPartition, int]:
        monkeypatch.setattr(preparation, "reset_offsets", reset_offsets)
        spark_runner.write(topics[0], lines(["a"]))
        others.append(InlineQuery(program, config, spark_runner.admin))
        others[-1].run_to_end()
        monkeypatch.setattr(preparation, "reset_offsets", while_another_commits)
        return reset_offsets(*args)

    monkeypatch.setattr(preparation, "reset_offsets", while_another_commits)
    with pytest.raises(TaskMigratedError, match="taken over"):
        InlineQuery(program, config, spark_runner.admin)
    assert len(others) == 2
    assert counts(spark_runner, config, "counts") == {"a": 2}


@pytest.mark.parametrize(("begun", "tokens"), [(False, (2, 1)), (True, (1, 2)), (True, (2, 1))])
@pytest.mark.one_broker
def test_of_two_drivers_that_start_at_one_moment_one_continues_and_the_other_gets_an_error(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    begun: bool,
    tokens: tuple[int, int],
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a b"]))
    if begun:
        InlineQuery(counting(*topics, "counts"), config, spark_runner.admin).run_to_end()
        spark_runner.write(topics[0], lines(["a c"]))
    drivers: list[InlineQuery] = []
    told: list[TaskMigratedError] = []
    take = Checkpoint.take_generation
    draw = iter(tokens)

    def start(*stores: str) -> None:
        try:
            drivers.append(InlineQuery(counting(*topics, *stores), config, spark_runner.admin))
        except TaskMigratedError as error:
            told.append(error)

    def both_at_once(checkpoint: Checkpoint, at_least: int) -> int:
        monkeypatch.setattr(Checkpoint, "take_generation", take)
        return take(checkpoint, at_least, lambda: start("counts", "one"))

    monkeypatch.setattr(secrets, "randbits", lambda _: next(draw, 0))
    monkeypatch.setattr(Checkpoint, "take_generation", both_at_once)
    start("counts", "two")
    for driver in drivers:
        try:
            driver.run_to_end()
        except QueryFailedError as error:
            known, _ = decode_failure(error.failure)
            assert isinstance(known, TaskMigratedError)
            told.append(known)
    assert len(told) == 1
    assert counts(spark_runner, config, "counts") == ({"a": 2, "b": 1, "c": 1} if begun else {"a": 1, "b": 1})


@pytest.mark.parametrize(("begun", "stores"), [(False, ("counts",)), (True, ("counts",)), (True, ("counts", "late"))])
@pytest.mark.one_broker
def test_a_driver_that_another_overtakes_while_it_prepares_changes_nothing(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    begun: bool,
    stores: tuple[str, ...],
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a b"]))
    if begun:
        InlineQuery(counting(*topics, "counts"), config, spark_runner.admin).run_to_end()
        spark_runner.write(topics[0], lines(["a c"]))
    newer: list[InlineQuery] = []
    dump_for_checkpoint = preparation.dump_for_checkpoint

    def while_another_starts(description: ApplicationDescription) -> StoredDescription:
        monkeypatch.setattr(preparation, "dump_for_checkpoint", dump_for_checkpoint)
        newer.append(InlineQuery(counting(*topics, "counts", "new"), config, spark_runner.admin))
        newer[0].run_to_end()
        return dump_for_checkpoint(description)

    monkeypatch.setattr(preparation, "dump_for_checkpoint", while_another_starts)
    with pytest.raises(TaskMigratedError, match="taken over"):
        InlineQuery(counting(*topics, *stores), config, spark_runner.admin)
    spark_runner.write(topics[0], lines(["a d"]))
    newer[0].run_to_end()
    newer[0].restart()
    assert counts(spark_runner, config, "counts") == {**dict.fromkeys("bd", 1), "a": 3 if begun else 2} | (
        {"c": 1} if begun else {}
    )


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.one_broker
def test_spark_finishes_such_an_epoch_too(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
) -> None:
    config = spark_runner.config(application)
    query = query_with_input(spark_runner, config, topics, "a b c d e f g h")
    crashes(at="manifest.before_write")
    with pytest.raises(KilledError):
        query.run_to_end()
    spark_runner.write(topics[0], lines(["a zz"]))
    spark_runner.run(counting(*topics, "counts", "new", only="zz"), config)
    words = [record.key for record in spark_runner.read(topics[1])]
    assert sorted(words) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"zz"]
    assert counts(spark_runner, config, "counts") == {**dict.fromkeys("abcdefgh", 1), "zz": 1}
    assert counts(spark_runner, config, "new") == {"zz": 1}
