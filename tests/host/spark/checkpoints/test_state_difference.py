"""The entries that differ between two commits. Played in one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Materialized, StreamsBuilder, TimeWindows, Topology, savepoints
from penstock.errors import StreamsError
from penstock.host.spark.checkpoints.state_difference import EntryDifference
from penstock.plan.partitioning import partition_for
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.host.test_topologies import STRING, TEXT
from tests.support.commands import Run

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(3, 3)]


def last_values(source: str, *more: str) -> Topology:
    builder = StreamsBuilder()
    values = builder.stream(source, consumed=TEXT)
    for name in ("table", *more):
        values.to_table(materialized=Materialized.as_(name).with_key_serde(STRING).with_value_serde(STRING))
    values.group_by_key().windowed_by(TimeWindows.of_size_and_grace(10, 1_000)).count(Materialized.as_("windows"))
    return builder.build()


@pytest.fixture
def directory(spark_runner: SparkRunner, application: str, topics: tuple[str, str]) -> str:
    """A checkpoint with two commits: the second adds c, changes b, deletes a, and leaves d."""
    config = spark_runner.config(application)
    query = InlineQuery(last_values(topics[0]), config, spark_runner.admin)
    parts: list[dict[bytes, bytes | None]] = [
        {b"a": b"1", b"b": b"2", b"d": b"4"},
        {b"a": None, b"b": b"20", b"c": b"3"},
    ]
    for time, part in enumerate(parts):
        spark_runner.write(topics[0], [InputRecord(k, v, 1_000 + time, partition_for(k, 3)) for k, v in part.items()])
        query.run_to_end()
    return config.checkpoint_directory()


def test_entries_are_added_removed_and_changed(directory: str) -> None:
    table, windows = savepoints.diff_state(directory, directory, 1, 2)
    assert (table.added, table.removed, table.changed, table.same) == (1, 1, 1, 1)
    assert table.first == (
        EntryDifference("'a'", "'1'", None),
        EntryDifference("'b'", "'2'", "'20'"),
        EntryDifference("'c'", None, "'3'"),
    )
    assert (windows.added, windows.removed, windows.changed, windows.same) == (1, 0, 2, 1)
    assert windows.first[0] == EntryDifference("'a' at 1000 ms", "1", "2")
    for each in savepoints.diff_state(directory, directory):
        assert (each.added, each.removed, each.changed, each.first) == (0, 0, 0, ())


def test_numbers_of_tasks_and_headers_may_differ(
    spark_runner: SparkRunner,
    unique_name: Callable[[str], str],
    topics: tuple[str, str],
    directory: str,
    tmp_path: Path,
) -> None:
    saved = str(tmp_path / "saved")
    savepoints.take(directory, saved)
    rescaled = spark_runner.config(unique_name("rescaled"))
    savepoints.restore(saved, rescaled, 5)
    with_headers = spark_runner.config(unique_name("headers"), {"dsl.store.format": "headers"})
    savepoints.restore(saved, with_headers)
    InlineQuery(last_values(topics[0]), with_headers, spark_runner.admin).run_to_end()
    for other in (rescaled, with_headers):
        for each in savepoints.diff_state(directory, other.checkpoint_directory()):
            assert (each.added, each.removed, each.changed, each.same > 0) == (0, 0, 0, True), each


def test_a_store_of_one_commit_alone_is_added_or_removed(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], directory: str, tmp_path: Path
) -> None:
    saved = str(tmp_path / "saved")
    savepoints.take(directory, saved)
    query = InlineQuery(last_values(topics[0], "more"), spark_runner.config(application), spark_runner.admin)
    spark_runner.write(topics[0], [InputRecord(b"a", b"5", 1_005, partition_for(b"a", 3))])
    query.run_to_end()
    assert {each.name: each.added for each in savepoints.diff_state(saved, directory)} == {
        "more": 1,
        "table": 1,
        "windows": 0,
    }
    assert {each.name: each.removed for each in savepoints.diff_state(directory, saved)}["more"] == 1


def test_the_command_shows_them(directory: str, penstock_here: Run) -> None:
    shown = penstock_here("diff-state", f"{directory}@1", directory)
    assert shown.code == 0
    assert shown.out.splitlines()[1].split() == ["table", "1", "1", "1", "1"]
    assert [line for line in shown.out.splitlines() if line.startswith("table ")][1:] == [
        "table - 'a': '1'",
        "table ~ 'b': '2' -> '20'",
        "table + 'c': '3'",
    ]
    answer = json.loads(penstock_here("diff-state", f"{directory}@1", directory, "--json").out)
    assert answer["stores"][0]["first"][0] == {"key": "'a'", "before": "'1'", "after": None}
    assert penstock_here("diff-state", f"{directory}@soon", directory).code == 2
    missing = penstock_here("diff-state", f"{directory}/missing", directory)
    assert (missing.code, "There is no checkpoint at" in missing.err) == (1, True)


def test_a_commit_that_is_not_retained_is_refused(directory: str) -> None:
    with pytest.raises(StreamsError, match="has no commit of epoch 7"):
        savepoints.diff_state(directory, directory, 7)
