"""Processors that call functions in a topology that is built by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock import Calls, Processor, Record, Serdes, Topology
from penstock.errors import CallFailedError, TopologyError
from penstock.testing import TopologyTestDriver

STRING = Serdes.string()


async def risk(text: str) -> float:
    return len(text) / 10


class Asking(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.call(risk, record.value)

    def answered(self, record: Record[str, str], answer: float) -> None:
        self.context.forward(record.with_value(f"{record.value} {answer}"), "out")


class Recovering(Asking):
    def failed(self, record: Record[str, str], error: CallFailedError) -> None:
        self.context.forward(record.with_value(f"no risk of {record.value}"), "other")


def source() -> Topology:
    return Topology().add_source("read", "in", key_serde=STRING, value_serde=STRING)


def asking(processor: Any = Asking, **options: Any) -> Topology:
    calls = Calls(key_serde=STRING, **options)
    topology = source().add_processor("ask", processor, "read", calls=calls, call_functions=(risk,))
    for name in ("out", "other"):
        topology.add_sink(name, name, "ask", key_serde=STRING, value_serde=STRING)
    return topology


def test_a_processor_receives_answers_and_failures() -> None:
    with TopologyTestDriver(asking(Recovering)) as driver:
        driver.answers("ask", [0.5, ValueError("declined")])
        driver.create_input_topic("in", STRING, STRING).pipe_key_value_list([("a", "a1"), ("b", "b1")])
        assert driver.create_output_topic("out", STRING, STRING).read_values_to_list() == ["a1 0.5"]
        assert driver.create_output_topic("other", STRING, STRING).read_values_to_list() == ["no risk of b1"]


def test_a_failed_call_is_a_dead_letter() -> None:
    with TopologyTestDriver(asking(then="letters")) as driver:
        driver.answers("ask", [ValueError("declined")])
        driver.create_input_topic("in", STRING, STRING).pipe_input("a", "a1")
        assert driver.create_output_topic("letters", STRING, STRING).read_values_to_list() == ["a1"]


def test_the_description_shows_the_source_of_answers() -> None:
    text = str(asking().describe())
    assert "Source: ask-answers (topics: [ask-answers])" in text
    assert "Processor: ask (stores: [ask-calls])" in text


@pytest.mark.parametrize("reads", [("in",), (re.compile("i.*"),)])
def test_dead_letters_do_not_come_back(reads: Any) -> None:
    topology = Topology().add_source("read", *reads).add_processor("pass", Asking, "read")
    with pytest.raises(TopologyError, match=r"then= of the Calls of ask .* to topic in, which read \(created at "):
        topology.add_processor("ask", Asking, "pass", calls=Calls(then="in"), call_functions=(risk,))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"call_functions": (risk,)}, r"ask has call_functions, but no calls: add calls=Calls\(\.\.\.\)"),
        ({"calls": 5, "call_functions": (risk,)}, "Expected Calls as calls of ask, got 5"),
        ({"calls": Calls()}, "ask has calls, but no call_functions"),
    ],
)
def test_mistakes_are_told_and_add_nothing(options: dict[str, Any], says: str) -> None:
    topology = source()
    with pytest.raises(TypeError, match=says):
        topology.add_processor("ask", Asking, "read", **options)
    assert "ask" not in str(topology.describe())
