"""Interactive queries of state that epochs on Spark wrote, read from the checkpoint while it grows and old files are
deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock import QueryableStoreTypes, StoreQueryParameters, open_state, savepoints
from penstock.config import StreamsConfig
from penstock.errors import (
    InvalidStateStoreError,
    TaskCorruptedError,
)
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.query.queries import CheckpointQueries
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import lines
from tests.host.test_topologies import word_count

pytestmark = pytest.mark.one_broker

KEY_VALUE = QueryableStoreTypes.key_value_store()
COUNTS = StoreQueryParameters.from_name_and_type("counts", KEY_VALUE)


@pytest.fixture
def config(spark_runner: SparkRunner, application: str) -> StreamsConfig:
    return spark_runner.config(application, {"penstock.query.refresh.ms": 0})


def test_an_iterator_is_as_of_the_commit_at_which_it_was_made(
    spark_runner: SparkRunner, config: StreamsConfig, topics: tuple[str, str]
) -> None:
    topology = word_count(*topics)
    query = InlineQuery(topology, config, spark_runner.admin)
    with open_state(topology, config) as state:
        counts = state.store(COUNTS)
        assert list(counts.all()) == []
        spark_runner.write(topics[0], lines(["a b", "b c", "a"], partitions=3))
        query.run_to_end()
        before = counts.all()
        spark_runner.write(topics[0], lines(["a b c d"]))
        query.run_to_end()
        assert dict(counts.all()) == {"a": 3, "b": 3, "c": 2, "d": 1}
        assert dict(before) == {"a": 2, "b": 2, "c": 1}


def test_an_application_that_never_ran_has_no_stores_to_read(config: StreamsConfig, topics: tuple[str, str]) -> None:
    with open_state(word_count(*topics), config) as state:
        with pytest.raises(InvalidStateStoreError, match="start the application first"):
            state.store(COUNTS).get("a")
        counts = state.store(COUNTS)
    with pytest.raises(InvalidStateStoreError, match="closed"):
        counts.get("a")


class ClearedAway(Checkpoint):
    """A checkpoint on which something happens between the reading of a manifest and that of its segments."""

    happening: Callable[[], None] | None = None
    gone = 0

    def read_segment(self, task: str, segment: str) -> bytes | None:
        happening, self.happening = self.happening, None
        if happening is not None:
            happening()
        data = super().read_segment(task, segment)
        self.gone += data is None
        return data


def test_a_reader_that_fell_behind_starts_over_from_the_newest_manifest(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    values = {"penstock.query.refresh.ms": 0, "penstock.manifests.retained": 2}
    config = spark_runner.config(application, values)
    topology = word_count(*topics)
    query = InlineQuery(topology, config, spark_runner.admin)

    def run_ahead() -> None:
        for number in range(12):  # the segments of the reader's manifest are merged and deleted
            spark_runner.write(topics[0], lines([f"a n{number}"]))
            query.run_to_end()

    spark_runner.write(topics[0], lines(["a"]))
    query.run_to_end()
    checkpoint = ClearedAway(config.checkpoint_directory())
    checkpoint.happening = run_ahead
    with CheckpointQueries(topology.build(application), config, checkpoint) as state:
        counts = state.store(COUNTS)
        assert counts.get("a") == 13, "not the manifest that was cleared away, and nothing torn"
        assert checkpoint.gone > 0
        held = counts.all()
        run_ahead()
        run_ahead()
        assert counts.get("a") == 37, "behind by more than is retained"
        assert dict(held)["a"] == 13
        assert dict(counts.all()) == {"a": 37, **{f"n{number}": 3 for number in range(12)}}


def test_a_segment_that_is_missing_is_reported(
    spark_runner: SparkRunner, config: StreamsConfig, topics: tuple[str, str]
) -> None:
    topology = word_count(*topics)
    spark_runner.write(topics[0], lines(["a"]))
    InlineQuery(topology, config, spark_runner.admin).run_to_end()
    manifest = spark_runner.manifest(config)
    checkpoint = Checkpoint(config.checkpoint_directory())
    for task, segment in manifest.segments():
        checkpoint.delete_segment(task, segment)
    with open_state(topology, config) as state, pytest.raises(TaskCorruptedError, match="files were deleted"):
        list(state.store(COUNTS).all())


def test_readers_of_one_machine_do_not_disturb_one_another(
    spark_runner: SparkRunner, config: StreamsConfig, topics: tuple[str, str]
) -> None:
    topology = word_count(*topics)
    query = InlineQuery(topology, config, spark_runner.admin)
    with open_state(topology, config) as one, open_state(topology, config) as other:
        for number in range(1, 4):
            spark_runner.write(topics[0], lines(["a"]))
            query.run_to_end()
            assert one.store(COUNTS).get("a") == number
        assert other.store(COUNTS).get("a") == 3
    with open_state(topology, config) as again:
        assert again.store(COUNTS).get("a") == 3
        assert again.staleness().epoch == spark_runner.manifest(config).epoch


def test_a_savepoint_is_read_as_a_checkpoint_is(
    spark_runner: SparkRunner, config: StreamsConfig, topics: tuple[str, str], tmp_path: Path
) -> None:
    topology = word_count(*topics)
    query = InlineQuery(topology, config, spark_runner.admin)
    for number in (1, 2):
        spark_runner.write(topics[0], lines(["a"]))
        query.run_to_end()
        savepoints.take(config, str(tmp_path / str(number)))
    for number in (1, 2):
        saved = {**config.given(), "penstock.checkpoint.dir": str(tmp_path / str(number))}
        with open_state(topology, saved) as state:
            assert state.store(COUNTS).get("a") == number


def test_the_first_manifest_of_a_life_that_has_not_begun_is_not_read(
    spark_runner: SparkRunner, config: StreamsConfig, topics: tuple[str, str]
) -> None:
    topology = word_count(*topics)
    query = InlineQuery(topology, config, spark_runner.admin)
    spark_runner.write(topics[0], lines(["a"]))
    query.run_to_end()
    checkpoint, manifest = Checkpoint(config.checkpoint_directory()), spark_runner.manifest(config)
    next_version = replace(manifest, query_id="next", epoch=manifest.epoch + 1, tasks={})
    with open_state(topology, config) as before:
        assert before.store(COUNTS).get("a") == 1
        checkpoint.write_manifest(next_version, lambda: None)
        with open_state(topology, config) as after:
            for state in (before, after):
                assert state.store(COUNTS).get("a") == 1
                assert state.staleness().epoch == manifest.epoch
