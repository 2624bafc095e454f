"""Restores of savepoints and drops of stores that fail at any line: either the change has happened or not, and a
half-done one is reported and can be repeated. Played in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from penstock import savepoints
from penstock.errors import StreamsError
from penstock.host import crashpoints
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.entry_map import MapFunction
from penstock.host.spark.driver.resetting import reset_application
from tests.host.spark.crashes import Crashes, KilledError
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.spark.test_changes import counting, counts, removed
from tests.host.support import lines

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(2, 2)]

RESTORE_POINTS = [
    point for point in crashpoints.SAVEPOINT_POINTS if point.startswith("restore.") and point != "restore.before"
]
DROP_POINTS = [point for point in crashpoints.SAVEPOINT_POINTS if point.startswith("drop.")]


@pytest.mark.slow
@pytest.mark.parametrize("point", RESTORE_POINTS)
@pytest.mark.parametrize("maps", [{}, {"counts": lambda word, count: (word, 10 * count)}], ids=["copied", "rewritten"])
def test_a_restore_that_fails_at_any_line_is_reported_and_can_be_repeated(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    tmp_path: Path,
    maps: Mapping[str, MapFunction],
    point: str,
) -> None:
    times = 10 if maps else 1
    config, program = spark_runner.config(application), counting(*topics, "counts")
    query = InlineQuery(program, config, spark_runner.admin)
    early, late = str(tmp_path / "early"), str(tmp_path / "late")
    for words, saved in ((["a b", "b c"], early), (["c d"], late)):
        spark_runner.write(topics[0], lines(words, partitions=2))
        query.run_to_end()
        savepoints.take(config, saved)
    again = spark_runner.config(application, {"penstock.checkpoint.dir": str(tmp_path / "again")})
    crashes(at=point)
    with pytest.raises(KilledError):
        savepoints.restore(late, again, maps=maps)
    if point == "restore.after":
        assert counts(spark_runner, again, "counts") == {"a": times, "b": 2 * times, "c": 2 * times, "d": times}
        return
    with pytest.raises(StreamsError, match="the restore of a savepoint did not finish: run it again"):
        InlineQuery(program, again, spark_runner.admin)
    savepoints.restore(early, again, maps=maps)
    restored = InlineQuery(program, again, spark_runner.admin)
    assert counts(spark_runner, again, "counts") == {"a": times, "b": 2 * times, "c": times}
    spark_runner.write(topics[0], lines(["a"]))
    restored.run_to_end()
    assert counts(spark_runner, again, "counts") == {"a": times + 1, "b": 2 * times, "c": times + 1, "d": 1}


@pytest.mark.slow
@pytest.mark.parametrize("point", DROP_POINTS)
def test_a_drop_that_fails_at_any_line_has_happened_or_not(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    crashes: Callable[..., Crashes],
    point: str,
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a b"]))
    query = InlineQuery(counting(*topics, "counts", "other"), config, spark_runner.admin)
    query.run_to_end()
    query.change(counting(*topics, "counts"))
    query.run_to_end()
    installed = crashes(at=point)
    with pytest.raises(KilledError):
        savepoints.drop(config, "other")
    dropped = point == "drop.after"
    assert removed(config) == (set() if dropped else {"other"})
    query.restart()
    spark_runner.write(topics[0], lines(["a"]))
    query.run_to_end()
    if not dropped:
        installed.at = point
        with pytest.raises(KilledError):
            savepoints.drop(config, "other")
        savepoints.drop(config, "other")
    assert spark_runner.manifest(config).removed == {}
    query.change(counting(*topics, "counts", "other"))
    spark_runner.write(topics[0], lines(["a"]))
    query.run_to_end()
    assert counts(spark_runner, config, "counts") == {"a": 3, "b": 1}
    assert counts(spark_runner, config, "other") == {"a": 1}


def test_a_program_on_another_machine_is_over_when_a_store_is_dropped(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a b"]))
    query = InlineQuery(counting(*topics, "counts", "other"), config, spark_runner.admin)
    query.run_to_end()
    query.change(counting(*topics, "counts"))
    query.run_to_end()
    savepoints.drop(config, "other")
    spark_runner.write(topics[0], lines(["a"]))
    assert "taken over the checkpoint" in str(failure_of(query.run_to_end))
    query.restart()
    query.run_to_end()
    assert counts(spark_runner, config, "counts") == {"a": 2, "b": 1}
    assert removed(config) == set()


def test_a_checkpoint_whose_metadata_is_gone_is_reported(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application)
    spark_runner.write(topics[0], lines(["a b"]))
    query = InlineQuery(counting(*topics, "counts"), config, spark_runner.admin)
    query.run_to_end()
    checkpoint = Checkpoint(config.checkpoint_directory())
    (Path(checkpoint.uri) / "metadata").unlink()
    with pytest.raises(StreamsError, match=r"it has state, but the file .*/metadata is missing"):
        query.restart()
    reset_application(counting(*topics, "counts").build(application), config, spark_runner.admin)
    query.restart()
    query.run_to_end()
    assert counts(spark_runner, config, "counts") == {"a": 1, "b": 1}
