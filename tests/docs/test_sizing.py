"""The calculator of the page on sizing runs, with the figures that were measured."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.docs.pages import ROOT, run_block


def test_the_calculator_gives_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    run_block("docs/sizing.md", 0, {"__name__": "page"})
    shown = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "sizing.md").read_text(encoding="utf-8"), re.DOTALL)
    assert [capsys.readouterr().out] == shown


def test_the_figures_are_those_of_the_benchmarks() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    run_block("docs/sizing.md", 0, names)
    benchmarks = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    on_kafka = re.findall(r"^\| ([^|]+) \| Kafka \|(?:[^|]*\|){3} ([\d.]+) \| \d+ \| \d+ \|$", benchmarks, re.MULTILINE)
    measured = {family: float(cpu_us) for family, cpu_us in on_kafka}
    assert names["CPU_US"] == {family: measured[family] for family in names["CPU_US"]}
    workers = re.findall(r"^\| [^|]+ \| (?:Kafka|embedded broker) \|(?:[^|]*\|){5} (\d+) \|$", benchmarks, re.MULTILINE)
    assert names["LARGEST_WORKER_MB"] == max(map(int, workers))
    assert f"| {names['RESTORED_PER_SECOND']:,} |" in benchmarks
