"""`penstock parked list` on a checkpoint: rows, JSON, and what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

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
    if key == "a":
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


def test_a_store_of_another_kind_is_refused(
    spark_runner: SparkRunner, program: tuple[Path, str], penstock_here: Run
) -> None:
    loaded = load_program(program[0])
    InlineQuery(loaded.topology, loaded.configured({}), spark_runner.admin).run_to_end()
    refused = penstock_here("parked", "list", str(program[0]), "other")
    assert refused.code == 1
    assert "Store other is no store of parked records: expected one of charge-parked." in refused.err
