"""The benchmark of functions on columns runs for every program; speed is not checked."""

from __future__ import annotations

import json

import pytest

from benchmarks import columns


@pytest.mark.slow
@pytest.mark.parametrize("hosts", ["task", "threads"])
def test_every_form_is_measured(hosts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert columns.main(["--records", "1000", "--hosts", hosts, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(each["program"], each["form"]) for each in report] == [
        (name, form)
        for name, program in columns.PROGRAMS.items()
        if hosts == "task" or not program.caches
        for form in program.forms
    ]
    assert all(each["records_per_second"] > 0 for each in report)


def test_a_task_alone_is_measured_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert columns.main(["--records", "200", "--hosts", "task", "--only", "word count;doubles, one function"]) == 0
    assert "| word count | task | arrow |" in capsys.readouterr().out


def test_what_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert columns.main(["--only", "guess", "--hosts", "tape"]) == 2
    assert "guess, tape" in capsys.readouterr().err
