"""A sample of the conformance cases on the Spark host: on a real query, and with Spark's part played in this process.

All of them run by hand: `python tests/oracle/run_cases.py tests/oracle/cases/*.jsonl --host spark-inline`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.interpreter import case_runner, divergences, spark_host
from tests.oracle.interpreter.comparison import differences
from tests.oracle.run_cases import Case, read_cases

CASES = Path(__file__).parent / "cases"
FAMILIES = sorted(path.stem for path in CASES.glob("*.jsonl"))
ON_A_QUERY = ("foreign_key_join", "stream_global_join", "suppress", "errors")


def chosen(family: str) -> Case:
    """Return one of the shortest cases of a family that write something or fail on their way, the same each time."""
    fit = [
        case
        for case in read_cases(CASES / f"{family}.jsonl")
        if not (case_runner.missing(case) or spark_host.unfit(case) or divergences.diverges(case))
    ]
    shown = [case for case in fit if any(case["expected"].get("steps", []))] or fit
    shown.sort(key=lambda case: (len(case.get("steps", [])), case["id"]))
    return random.Random(family).choice(shown[: len(shown) // 8 + 1])


def check(case: Case, cases: spark_host.SparkCases) -> None:
    actual = cases.run(case, "auto")
    expected, _ = spark_host.expected(case, "auto", actual)
    assert differences(expected, actual) == []


def marked(family: str, host: str) -> object:
    return pytest.param(family, marks=pytest.mark.family(family, host))


@pytest.fixture(scope="module")
def inline() -> Iterator[spark_host.SparkCases]:
    with spark_host.SparkCases(inline=True) as cases:
        yield cases


@pytest.fixture(scope="module")
def spark() -> Iterator[spark_host.SparkCases]:
    with spark_host.SparkCases() as cases:
        yield cases


@pytest.mark.parametrize("family", [marked(family, "spark, inline") for family in FAMILIES])
def test_case_on_the_spark_host_gives_what_kafka_streams_gives(family: str, inline: spark_host.SparkCases) -> None:
    check(chosen(family), inline)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("family", [marked(family, "spark") for family in ON_A_QUERY])
def test_case_on_a_query_of_spark_gives_what_kafka_streams_gives(family: str, spark: spark_host.SparkCases) -> None:
    check(chosen(family), spark)


def test_nearly_all_cases_are_run() -> None:
    all_cases = [case for family in FAMILIES for case in read_cases(CASES / f"{family}.jsonl")]
    assert sum(bool(spark_host.unfit(case)) for case in all_cases) <= len(all_cases) // 100


def test_steps_become_epochs_in_order() -> None:
    for family in FAMILIES:
        case = chosen(family)
        try:
            built = case_runner.build(case, spark_host.configuration(case, "auto")).build(spark_host.APPLICATION_ID)
        except case_runner.BuildError:
            continue
        epochs = spark_host.epochs_of(case, built)
        assert [number for epoch in epochs for number in epoch] == list(range(len(case["steps"])))
        topics = [{case["steps"][number].get("in") for number in epoch} for epoch in epochs]
        assert all(len(names) == 1 for names in topics)
