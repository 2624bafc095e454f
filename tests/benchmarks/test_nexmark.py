"""The queries of Nexmark give the right rows, and their benchmark runs; speed is not checked."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from benchmarks.environments import UnavailableError
from benchmarks.nexmark import __main__ as nexmark
from benchmarks.nexmark.events import events, timestamp_of
from benchmarks.nexmark.programs import programs
from benchmarks.nexmark.queries import INPUT, OUTPUT, QUERIES, SIDE_INPUT, SIDE_ROWS
from benchmarks.nexmark.results import RESULTS, Events, row_of_each_place, side_text
from benchmarks.nexmark.rows import wrong
from benchmarks.nexmark.systems import SYSTEMS, Program
from benchmarks.running import ROOT, Broker
from penstock import Serdes, StreamsBuilder
from penstock.testing import TopologyTestDriver

FLINK_SQL: Final = ROOT / "benchmarks" / "rivals" / "nexmark_flink.sql"
FIRST = 19_980  # among these are rows for every query
EVENTS = list(events(300, first=FIRST))


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_the_right_rows(query: str) -> None:
    builder = StreamsBuilder()
    QUERIES[query].build(builder)
    with TopologyTestDriver(builder.build(), {"application.id": "nexmark"}) as driver:
        if QUERIES[query].side:
            side = driver.create_input_topic(SIDE_INPUT, Serdes.string(), Serdes.string())
            side.pipe_key_value_list([(str(number), side_text(number)) for number in range(SIDE_ROWS)])
        topic = driver.create_input_topic(INPUT, Serdes.string(), Serdes.json())
        for number, event in enumerate(EVENTS, FIRST):
            topic.pipe_input(None, event, timestamp=timestamp_of(number))
        written = driver.create_output_topic(OUTPUT, Serdes.string(), Serdes.json()).read_key_values_to_list()
    right = RESULTS[query](Events(EVENTS))
    assert right
    assert wrong([(row.key, row.value) for row in written], right) == ""


def test_a_wrong_row_is_shown() -> None:
    assert wrong([(None, {"price": 2})], [{"price": 1}]).startswith("1 rows are missing and 1 are too many")
    assert wrong([("a", 1), ("a", 2), ("b", None)], {"a": 2}) == ""
    assert wrong([("a", 1)], {"a": 2, "b": 3}).startswith("2 of 2 rows are wrong")


@pytest.mark.slow
def test_a_system_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert nexmark.main(["--events", "60000", "--queries", "q0", "--systems", "threads", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(each["query"], each["system"]) for each in report["measurements"]] == [("q0", "threads")]
    assert report["measurements"][0]["events_per_second"] > 0


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.parametrize("system", ["flink", "structured-streaming", "quix", "bytewax"])
def test_a_rival_answers_as_the_straight_program(system: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = nexmark.main(["--events", "200000", "--queries", "q2", "--systems", system, "--json"])
    report = json.loads(capsys.readouterr().out)
    if SYSTEMS[system].title in report["missing"]:
        pytest.skip(report["missing"][SYSTEMS[system].title])
    assert (code, report["missing"]) == (0, {})
    assert [(each["query"], each["system"]) for each in report["measurements"]] == [("q2", system)]


@pytest.mark.parametrize("system", SYSTEMS)
def test_left_out_queries_are_queries(system: str) -> None:
    assert SYSTEMS[system].left_out.keys() <= QUERIES.keys()
    assert SYSTEMS[system].shapes.keys() <= QUERIES.keys() - SYSTEMS[system].left_out.keys()


def test_a_system_is_measured_with_the_guarantee_that_it_offers() -> None:
    assert SYSTEMS["flink"].guarantee("exactly_once_v2") == "exactly_once_v2"
    assert SYSTEMS["bytewax"].guarantee("exactly_once_v2") == "at_least_once"
    assert SYSTEMS["java"].guarantee("at_least_once") == "at_least_once"


def test_a_left_out_query_and_a_missing_system_are_printed_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nexmark, "brokers", lambda *_: nullcontext([Broker("Kafka", "host:9092")]))
    monkeypatch.setattr(nexmark, "topics", lambda *_, **__: nullcontext())
    monkeypatch.setattr(nexmark, "fill", lambda *_: None)
    absent = replace(SYSTEMS["flink"], program=Program(_not_installed))
    present = replace(SYSTEMS["bytewax"], program=None)
    monkeypatch.setattr(nexmark, "SYSTEMS", {"flink": absent, "bytewax": present})
    assert nexmark.main(["--events", "100", "--queries", "q4", "--systems", "flink,bytewax"]) == 1
    printed = capsys.readouterr().out
    assert "missing: Flink SQL 2.2.1: pip cannot install it" in printed
    assert "left out: q4, Bytewax 0.21.1: Bytewax has no tables" in printed


def _not_installed() -> list[str]:
    raise UnavailableError("pip cannot install it")


def test_ranked_bids_are_rows_of_their_own() -> None:
    first, second = {"price": 2}, {"price": 1}
    assert row_of_each_place({"7": [first, second]}) == {"7/1": first, "7/2": second}


def test_each_query_is_a_block_of_the_sql_or_left_out() -> None:
    named = set(re.findall(r"^-- (q\d+) (?:appended|updated): ", FLINK_SQL.read_text(), re.MULTILINE))
    assert named == QUERIES.keys() - SYSTEMS["flink"].left_out.keys()


def test_progress_is_the_sum_of_the_reports(tmp_path: Path) -> None:
    said = 'print("starting"); print(\'{"event": "progress", "process": 1, "done": 3}\', flush=True); input()'
    with programs([[sys.executable, "-c", said]] * 2, tmp_path) as running:
        for _ in range(1_000):
            if running.reported() == 6:
                break
            running.at_work(lambda: 0)
            Event().wait(0.05)
        assert running.reported() == 6
        assert running.at_work(lambda: 5) == 5


def test_a_program_that_ends_gives_its_last_error(tmp_path: Path) -> None:
    with programs([[sys.executable, "-c", "raise ValueError('no topic')"]], tmp_path) as running:
        os.waitid(os.P_PID, running.pids[0], os.WEXITED | os.WNOWAIT)
        with pytest.raises(UnavailableError, match="exit code 1: ValueError: no topic"):
            running.at_work(lambda: 0)


def test_queries_that_are_left_out_have_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert nexmark.main(["--queries", "q0,q12"]) == 2
    assert "q12: its windows are of processing time" in capsys.readouterr().err
