"""The queries of Nexmark give the right rows, and their benchmark runs; speed is not checked."""

from __future__ import annotations

import json

import pytest

from benchmarks.nexmark import __main__ as nexmark
from benchmarks.nexmark.events import events, timestamp_of
from benchmarks.nexmark.queries import INPUT, OUTPUT, QUERIES, SIDE_INPUT, SIDE_ROWS
from benchmarks.nexmark.results import RESULTS, Events, side_text
from benchmarks.nexmark.rows import wrong
from penstock import Serdes, StreamsBuilder
from penstock.testing import TopologyTestDriver

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


def test_queries_that_are_left_out_have_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert nexmark.main(["--queries", "q0,q12"]) == 2
    assert "q12: its windows are of processing time" in capsys.readouterr().err
