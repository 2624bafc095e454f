"""The benchmark of Spark refuses unknown families and prints what it measured; speed is not checked."""

from __future__ import annotations

import pytest

from benchmarks import spark
from benchmarks.families import FAMILIES


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.main(["--only", "count,guess"]) == 2
    assert "not guess" in capsys.readouterr().err


def test_its_families_are_those_of_the_programs() -> None:
    assert set(spark.FAMILIES) <= set(FAMILIES)


def test_a_table_has_a_row_for_each_family_and_says_what_is_missing() -> None:
    measured = {"name": "count", "broker": "Kafka", "records": 2_000_000, "records_per_second": 250_000.4}
    row = {**measured, "cpu_seconds": 8.0, "epochs": 7, "worker_bytes": 123_000_000}
    text = spark._table(
        [row, {"tasks": 128, "broker": "Kafka", "median": 210.2, "p90": 330.0}], {"keys, Kafka": "no progress"}
    )
    assert "| count | Kafka | 250,000 | - | 4.0 | 7 | 123 |" in text
    assert "1 of 128 tasks has a record, Kafka: 210 ms (p90 330)" in text
    assert "missing: keys, Kafka: no progress" in text
