"""`penstock parked list` on a checkpoint: rows, JSON, and what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.tools.cli.program import load_program
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.support.commands import Run

pytestmark = pytest.mark.one_broker

PROGRAM = """
from penstock import Backoff, Park, Serdes, StreamsBuilder
config = {settings!r}
config["default.key.serde"] = config["default.value.serde"] = Serdes.string()
def charge(key, value):
    if key in ("a", None):
        raise ConnectionError("no [answer]")
builder = StreamsBuilder()
builder.stream({source!r}).foreach(charge, named="charge", on_error=Park(backoff=Backoff(3_600_000), attempts=3))
topology = builder.build()
"""


@pytest.fixture
def program(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Path, str]:
    """A program that has not run yet, and the topic that it reads."""
    source = unique_name("in")
    spark_runner.create_topics({source: 1})
    monkeypatch.setattr(sys, "path", list(sys.path))  # to which programs add their directory
    monkeypatch.setenv("PYTHONPATH", "")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(settings=dict(spark_runner.config(application).given()), source=source))
    return path, source


def test_the_keys_whose_records_wait_are_listed(
    spark_runner: SparkRunner, program: tuple[Path, str], penstock_here: Run
) -> None:
    path, source = program
    loaded = load_program(path)
    query = InlineQuery(loaded.topology, loaded.configured({}), spark_runner.admin)
    query.run_to_end()
    assert penstock_here("parked", "list", str(path)).err == "No records are parked.\n"
    spark_runner.write(source, [InputRecord(key.encode(), b"v", 5) for key in "aba"])
    query.run_to_end()
    listed = penstock_here("parked", "list", str(path))
    title, row = listed.out.splitlines()
    assert " ".join(title.split()) == "store partition key records attempts next attempt first error"
    store, partition, key, records, attempts, due, *error = row.split()
    assert (store, partition, key, records, attempts) == ("charge-parked", "0", "a", "2", "1")
    assert due.endswith("Z")
    assert " ".join(error) == "ConnectionError: no [answer]"
    (found,) = map(json.loads, penstock_here("parked", "list", str(path), "--json").out.splitlines())
    assert {name: found[name] for name in ("key", "records", "topic", "offset", "timestamp", "failure")} == {
        "key": "a",
        "records": 2,
        "topic": source,
        "offset": 0,
        "timestamp": 5,
        "failure": "ConnectionError: no [answer]",
    }


def test_keys_are_tried_again_or_dropped(
    spark_runner: SparkRunner, program: tuple[Path, str], penstock_here: Run
) -> None:
    path, source = program
    loaded = load_program(path)
    query = InlineQuery(loaded.topology, loaded.configured({}), spark_runner.admin)
    spark_runner.write(source, [InputRecord(key, b"v", 5) for key in (b"a", None, b"a")])
    query.run_to_end()

    def listed() -> list[tuple[Any, int, int]]:
        lines = map(json.loads, penstock_here("parked", "list", str(path), "--json").out.splitlines())
        return [(each["key"], each["records"], each["due_ms"]) for each in lines]

    before = listed()
    assert [each[:2] for each in before] == [("a", 2), (None, 1)]
    retried = penstock_here("parked", "retry", str(path), "charge-parked", "a")
    assert retried.err == (
        "Requested the retry of 2 records of 1 key in charge-parked. The application does it with its next commit, or "
        "when it starts again.\n"
    )
    assert listed() == before  # until the next commit
    query.run_to_end()
    (after, *others) = listed()
    assert after[:2] == ("a", 2)
    assert after[2] > before[0][2]  # another attempt has failed
    assert others == before[1:]
    assert penstock_here("parked", "drop", str(path), "charge-parked", "null").code == 0
    query.run_to_end()
    assert listed() == [after]
    assert "1 key in" in penstock_here("parked", "drop", str(path), "charge-parked", "--all").err
    query.run_to_end()
    assert listed() == []
    none = penstock_here("parked", "drop", str(path), "charge-parked", "--all")
    assert (none.code, "No records are parked in charge-parked" in none.err) == (1, True)


@pytest.mark.parametrize("arguments", [(), ("a", "--all")])
def test_a_request_names_either_a_key_or_all_of_them(
    program: tuple[Path, str], penstock_here: Run, arguments: tuple[str, ...]
) -> None:
    refused = penstock_here("parked", "retry", str(program[0]), "charge-parked", *arguments)
    assert (refused.code, "give either a KEY or --all" in refused.err) == (2, True)


def test_a_request_needs_the_topic_that_the_application_creates(
    spark_runner: SparkRunner, program: tuple[Path, str], penstock_here: Run
) -> None:
    path, source = program
    loaded = load_program(path)
    config = loaded.configured({})
    query = InlineQuery(loaded.topology, config, spark_runner.admin)
    spark_runner.write(source, [InputRecord(b"a", b"v", 5)])
    query.run_to_end()
    topic = f"{config['application.id']}-charge-parked-requests"
    spark_runner.admin.delete_topics([topic])
    refused = penstock_here("parked", "retry", str(path), "charge-parked", "--all")
    assert (refused.code, f"Topic {topic} does not exist" in refused.err) == (1, True)


def test_a_store_of_another_kind_is_refused(
    spark_runner: SparkRunner, program: tuple[Path, str], penstock_here: Run
) -> None:
    loaded = load_program(program[0])
    InlineQuery(loaded.topology, loaded.configured({}), spark_runner.admin).run_to_end()
    refused = penstock_here("parked", "list", str(program[0]), "other")
    assert refused.code == 1
    assert "Store other is no store of parked records: expected one of charge-parked." in refused.err
