"""`penstock query` on a checkpoint: what it lists, shows and refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.tools.cli.program import load_program
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.support.commands import Run

pytestmark = pytest.mark.one_broker

PROGRAM = """
from penstock import Grouped, Materialized, Serdes, Stores, StreamsBuilder, TimeWindows
config = {settings!r}
config["default.key.serde"] = config["default.value.serde"] = Serdes.string()
builder = StreamsBuilder()
stream = builder.stream({source!r})
stream.group_by_key().count(materialized=Materialized.as_("counts"))
minute = TimeWindows.of_size_with_no_grace(60_000)
stream.group_by_key().windowed_by(minute).count(materialized=Materialized.as_("windows").with_retention(600_000))
stream.to_table(materialized=Materialized.as_(Stores.persistent_versioned_key_value_store("versions", 600_000)))
numbers = stream.group_by(lambda _, value: int(value), grouped=Grouped.with_(key_serde=Serdes.long()))
numbers.count(materialized=Materialized.as_("numbers"))
topology = builder.build()
"""


@pytest.fixture
def source(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> str:
    """The topic that the program reads, with two partitions."""
    name = unique_name("in")
    spark_runner.create_topics({name: 2})
    return name


@pytest.fixture
def new_program(
    spark_runner: SparkRunner, application: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A program that has not run yet."""
    monkeypatch.setattr(sys, "path", list(sys.path))  # to which programs add their directory
    monkeypatch.setenv("PYTHONPATH", "")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(settings=dict(spark_runner.config(application).given()), source=source))
    return path


@pytest.fixture
def program(spark_runner: SparkRunner, source: str, new_program: Path) -> Path:
    loaded = load_program(new_program)
    for key, value, timestamp in (("a", "1", 1_000), ("a", "2", 61_000), ("b", "1", 2_000)):
        spark_runner.write(source, [InputRecord(key.encode(), value.encode(), timestamp)])
    InlineQuery(loaded.topology, loaded.configured({}), spark_runner.admin).run_to_end()
    return new_program


@pytest.fixture
def query(program: Path, penstock_here: Run) -> Run:
    """Runs `penstock query` in this process."""
    return partial(penstock_here, "query", str(program))


def test_stores_without_a_commit_are_empty(spark_runner: SparkRunner, new_program: Path, penstock_here: Run) -> None:
    loaded = load_program(new_program)
    InlineQuery(loaded.topology, loaded.configured({}), spark_runner.admin)
    stores = penstock_here("query", str(new_program))
    assert (stores.code, stores.err) == (
        0,
        "The application has not committed an epoch yet, so its stores are empty.\n",
    )


def test_stores_are_listed_and_shown(query: Run) -> None:
    stores = query()
    assert (stores.code, stores.err.startswith("As of epoch 1 (committed ")) == (0, True)
    assert [line.split(maxsplit=1)[0] for line in stores.out.splitlines()[1:]] == [
        "counts",
        "numbers",
        "versions",
        "windows",
    ]
    assert query("counts").out == "a\t2\nb\t1\n"
    assert query("counts", "a").out == "a\t2\n"
    assert query("counts", "z").out == "z\tnull\n"
    assert query("counts", "-p", "1").out == ""
    assert query("numbers", "1").out == "1\t2\n", "a key that is a number"
    few = query("counts", "--limit", "1")
    assert (few.out, "more than 1 entries" in few.err) == ("a\t2\n", True)


def test_windows_and_versions_have_times(query: Run) -> None:
    assert query("windows", "a").out == "a\t0\t1\na\t60000\t1\n"
    assert query("windows", "--from-time", "60000").out == "a\t60000\t120000\t1\n"
    assert query("versions", "a").out == "a\t2\na\t61000\t1\n"
    assert query("versions", "a", "--to-time", "60000").out == "a\t61000\t1\n"
    rows = [json.loads(line) for line in query("versions", "a", "--json").out.splitlines()]
    assert rows == [
        {"partition": 0, "key": "a", "value": "2", "timestamp": 61_000},
        {"partition": 0, "key": "a", "value": "1", "timestamp": 1_000, "valid_to": 61_000},
    ]


def test_an_earlier_commit_is_shown(spark_runner: SparkRunner, source: str, program: Path, query: Run) -> None:
    loaded = load_program(program)
    spark_runner.write(source, [InputRecord(b"a", b"3", 62_000)])
    InlineQuery(loaded.topology, loaded.configured({}), spark_runner.admin).run_to_end()
    assert query("counts", "a").out == "a\t3\n"
    earlier = query("counts", "a", "--as-of", "1")
    assert (earlier.out, earlier.err.startswith("As of epoch 1 (committed ")) == ("a\t2\n", True)
    assert query("counts", "a", "--as-of", "2999-01-01T00:00:00Z").out == "a\t3\n"
    assert "has no commit of epoch 9: it has the epochs 1" in query("counts", "--as-of", "9").err
    wrong = query("counts", "--as-of", "yesterday")
    assert (wrong.code, "expected an epoch or a time" in " ".join(wrong.err.split())) == (2, True)
    on_threads = query("counts", "--as-of", "1", "--config", "penstock.host=threads")
    assert (on_threads.code, "keeps no earlier commits" in on_threads.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("count",), "Cannot get state store count"),
        (("counts", "-p", "7"), "partition 7 for store counts does not exist"),
        (("versions",), "name a key"),
        (("numbers", "many"), "Cannot read 'many' as a long of store numbers"),
        (("counts", "--config", "application.id=another"), "start the application first"),
    ],
)
def test_what_cannot_be_shown_is_reported(query: Run, arguments: tuple[str, ...], said: str) -> None:
    ended = query(*arguments)
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
    assert "Traceback" not in ended.err
