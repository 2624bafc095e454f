"""`describe()` byte for byte: the conformance cases whose lists of names Java does not print in sorted order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamsBuilder
from penstock.config import StreamsConfig
from tests.oracle.interpreter import case_runner, operations

CASES = Path(__file__).parents[1] / "oracle" / "cases"


def java_described() -> list[Any]:
    cases = [json.loads(line) for file in sorted(CASES.glob("*.jsonl")) for line in file.read_text().splitlines()]
    return [case for case in cases if "describe_java" in case["expected"] and not case_runner.missing(case)]


@pytest.mark.parametrize("case", java_described(), ids=lambda case: case["id"])
def test_lists_of_names_stand_in_the_order_of_java(case: dict[str, Any]) -> None:
    builder = StreamsBuilder()
    interpreter = operations.DslInterpreter(builder)
    dsl = [entry for entry in case["topology"] if not operations.is_low_level(entry)]
    for entry in dsl:
        interpreter.apply(entry)
    optimization = {key: value for key, value in case["config"].items() if key == "topology.optimization"}
    topology = builder.build(StreamsConfig(optimization))
    for entry in case["topology"][len(dsl) :]:
        operations.apply_low_level(topology, entry)
    assert str(topology.describe()) == case["expected"]["describe_java"]


def test_there_are_such_cases() -> None:
    assert len(java_described()) >= 15
