"""The benchmark of the families runs for every family and base; speed is not checked."""

from __future__ import annotations

import json

import pytest

from benchmarks import operators
from benchmarks.families import FAMILIES


@pytest.mark.slow
def test_families_are_measured_on_their_bases(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["stateless chain", "count", "stream-stream join", "foreign-key join", "suppress"]
    assert operators.main(["--records", "1500", "--only", ",".join(asked), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(each["family"], each["base"]) for each in report] == [
        (name, base) for name in asked for base in FAMILIES[name].aim
    ]
    for each in report:
        assert each["records_per_second"] > 0
        assert set(each["shares"]) == set(operators.PARTS)


def test_what_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert operators.main(["--only", "count,guess", "--base", "tape"]) == 2
    assert "guess, tape" in capsys.readouterr().err
