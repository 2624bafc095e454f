"""The jobs of the papers, on the test driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.serdes import Serdes
from penstock.testing import TestInputTopic, TestOutputTopic, TestRecord, TopologyTestDriver
from penstock.tools.cli.program import load_program

KIP28 = Path(__file__).parents[2] / "examples" / "kip28"
STRING, INTEGER = Serdes.string(), Serdes.integer()


def driver_of(name: str) -> TopologyTestDriver:
    program = load_program(KIP28 / name)
    return TopologyTestDriver(program.topology, program.config)


def test_processor_job_adds_up_and_tells_all_sums_every_second(capsys: pytest.CaptureFixture[str]) -> None:
    with driver_of("processor_job.py") as driver:
        source: TestInputTopic[str, int] = driver.create_input_topic("topic-source", STRING, INTEGER, 0)
        sink: TestOutputTopic[str, int] = driver.create_output_topic("topic-sink", STRING, INTEGER)
        source.pipe_key_value_list([("a", 1), ("b", 5), ("a", 2)], start_timestamp=100, advance_ms=100)
        sink.read_records_to_list()
        source.pipe_input("b", 6, 1300)
        assert sink.read_records_to_list() == [TestRecord("a", 3, 1300), TestRecord("b", 11, 1300)]
        store = driver.get_key_value_store("local-state")
        assert store is not None
        assert store.get("b") == 11
    assert "[b, 11]" in capsys.readouterr().out


def test_kstream_job_branches_in_the_order_of_the_predicates() -> None:
    with driver_of("kstream_job.py") as driver:
        topic1: TestInputTopic[str, str] = driver.create_input_topic("topic1", STRING, STRING, 0)
        large: TestOutputTopic[str, int] = driver.create_output_topic("topic2", STRING, INTEGER)
        small: TestOutputTopic[str, int] = driver.create_output_topic("topic3", STRING, INTEGER)
        topic1.pipe_key_value_list([("a", "10"), ("b", "11"), ("c", "-3")])
        assert large.read_key_values_to_list() == [("b", 11)]
        assert small.read_key_values_to_list() == [("a", 10), ("c", -3)]


def test_stateful_process_job_forgets_sums_that_it_has_forwarded() -> None:
    with driver_of("stateful_process_job.py") as driver:
        source: TestInputTopic[str, int] = driver.create_input_topic("topic-source", STRING, INTEGER, 0)
        sink: TestOutputTopic[str, int] = driver.create_output_topic("topic-sink", STRING, INTEGER)
        source.pipe_input("a", 6, 10)  # emitted immediately, because stream time starts here
        source.pipe_input("a", 5, 20)
        source.pipe_input("b", 5, 30)
        source.pipe_input("b", 20, 1100)
        assert sink.read_key_values_to_list() == [("b", 25)]


def test_kstream_topology_job_tells_odd_from_even() -> None:
    with driver_of("kstream_topology_job.py") as driver:
        source: TestInputTopic[str, str] = driver.create_input_topic("topic-source", STRING, STRING, 0)
        source.pipe_key_value_list([("a", "13"), ("b", "14"), ("c", "4")])
        assert driver.create_output_topic("topic-odd", STRING, INTEGER).read_key_values_to_list() == [("a", 13)]
        assert driver.create_output_topic("topic-even", STRING, INTEGER).read_key_values_to_list() == [("b", 14)]


def test_windowed_join_job_joins_around_and_strictly_before() -> None:
    with driver_of("windowed_join_job.py") as driver:
        trades: TestInputTopic[str, str] = driver.create_input_topic("trades", STRING, STRING)
        quotes: TestInputTopic[str, str] = driver.create_input_topic("quotes", STRING, STRING)
        around: TestOutputTopic[str, str] = driver.create_output_topic("around", STRING, STRING)
        copied: TestOutputTopic[str, str] = driver.create_output_topic("copied", STRING, STRING)
        for quote, time in (("q0", 3999), ("q1", 4000), ("q2", 4999), ("q3", 5000)):
            quotes.pipe_input("A", quote, time)
        trades.pipe_input("A", "t", 5000)
        quotes.pipe_input("A", "late", 4500)
        quotes.pipe_input("A", "later", 5001)
        quotes.pipe_input("B", "other", 4999)
        assert around.read_values_to_list() == [f"t at {quote}" for quote in ("q1", "q2", "q3", "late", "later")]
        assert copied.read_values_to_list() == [f"t after {quote}" for quote in ("q1", "q2", "late")]
