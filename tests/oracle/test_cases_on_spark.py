"""A sample of the conformance cases on Spark: topics and stores are those of Kafka Streams."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.interpreter import case_runner, spark_host
from tests.oracle.interpreter.comparison import differences
from tests.oracle.run_cases import Case, read_cases

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

CASES = Path(__file__).parent / "cases"
FIT = {
    family: [
        case
        for case in read_cases(CASES / f"{family}.jsonl")
        if not case_runner.missing(case) and not spark_host.unfit(case)
    ]
    for family in ("stateless", "aggregate", "topology", "processor", "timestamps")
}
SAMPLE = [case for family, cases in FIT.items() for case in random.Random(family).sample(cases, 2)]


@pytest.fixture(scope="module")
def spark() -> Iterator[spark_host.SparkCases]:
    with spark_host.SparkCases() as cases:
        yield cases


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in SAMPLE])
def test_case_on_spark_gives_what_kafka_streams_gives(case: Case, spark: spark_host.SparkCases) -> None:
    expected = spark_host.comparable(case, case["expected"])
    assert expected["topics"] or expected["stores"] or case["family"] != "aggregate"
    assert differences(expected, spark.run(case, "auto")) == []


def test_enough_cases_of_each_family_can_be_compared() -> None:
    assert {family: len(cases) >= 8 for family, cases in FIT.items()} == dict.fromkeys(FIT, True)
