"""Each row of DIVERGENCES.md names the tests or the cases of Kafka Streams that show it, and these exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.oracle.interpreter import divergences
from tests.oracle.run_cases import read_cases

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "DIVERGENCES.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^- .*?(?=^- |^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
NAMED = sorted(set(re.findall(r"`((?:tests|docs)/[\w./-]+)`", PAGE)))
CASES = {case["id"]: case for path in (ROOT / "tests/oracle/cases").glob("*.jsonl") for case in read_cases(path)}
NAMED_CASES = sorted({name for row in ROWS for name in re.findall(r"`([\w-]+)`", row) if name in CASES})
UNSHOWN = (
    "- **Messages that name Java**",  # each case compares what a message says
    "- **The record cache on Spark**",
    "- **Headers for the serdes of a global store.**",
    "- **Dead letters of what a buffer held back.**",
)
"""The beginnings of rows without a test of their own."""


@pytest.mark.parametrize("row", ROWS, ids=[row[2:40] for row in ROWS])
def test_a_row_names_what_shows_it(row: str) -> None:
    shown = re.search(r"`tests/|Cases?:\s", row) is not None
    assert shown != row.startswith(UNSHOWN), "name the tests, as `tests/...`, or the cases"


@pytest.mark.parametrize("name", NAMED)
def test_a_named_file_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_each_case_of_a_row_exists() -> None:
    ends = "".join(end for row in ROWS for end in re.findall(r"Cases?:\s(.*?)\.\s", row, re.DOTALL))
    listed = set(re.findall(r"`([\w-]+)`", ends))
    assert listed - CASES.keys() == set()
    assert listed


@pytest.mark.parametrize("name", NAMED_CASES)
def test_a_named_case_differs(name: str) -> None:
    assert divergences.diverges(CASES[name]), "tests/oracle/interpreter/divergences.py does not know it"


def test_each_difference_of_the_cases_has_a_row() -> None:
    named = [CASES[name] for name in NAMED_CASES]
    faults = {case.get("kafka_fault", case["id"]) for case in CASES.values() if divergences.diverges(case)}
    assert faults <= {case.get("kafka_fault", case["id"]) for case in named}
