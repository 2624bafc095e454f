"""`make matrix`: which combinations it runs, and that its cases exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.matrix import CASES, Combination, combinations, results_of

ROOT = Path(__file__).parents[2]


def test_each_version_is_in_a_row_and_everything_in_all() -> None:
    versions = (["4.0", "4.3"], ["3.11", "3.12"], ["3.9", "4.2"])
    assert [*combinations(*versions, everything=False)] == [
        Combination("4.0", "3.11", "4.2"),
        Combination("4.0", "3.12", "4.2"),
        Combination("4.3", "3.11", "3.9"),
        Combination("4.3", "3.11", "4.2"),
        Combination("4.3", "3.12", "4.2"),
    ]
    assert len([*combinations(*versions, everything=True)]) == 8


@pytest.mark.parametrize("test", CASES.values())
def test_its_cases_exist(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()


def test_a_result_is_ok_or_what_the_test_ended_with(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase name="a"/><testcase name="b"><failure/><error/></testcase>'
        '<testcase name="c"><skipped/></testcase></testsuite></testsuites>'
    )
    assert results_of(report) == {"a": "ok", "b": "failure, error", "c": "skipped"}
