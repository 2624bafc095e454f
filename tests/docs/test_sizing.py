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


ROWS = {
    "words of a word count per second and processing thread": "words/s",
    "CPU seconds for a million words": "CPU seconds for a million words",
    "latency at least once at 1,000 records/s, p50 / p99": "latency at least once, p50 / p99",
    "latency exactly once with commits each 100 ms, p50 / p99": "latency exactly once, commits each 100 ms, p50 / p99",
    "restore from a changelog topic into LMDB, keys/s": "restore into LMDB, keys/s",
}
"""Rows of the table of the threads host, and those of the benchmarks with the same figures."""


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


def cells(page: str) -> dict[str, str]:
    """Return the first two cells of each row of the tables of `page`."""
    return dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))


def test_the_table_of_the_threads_host_is_that_of_the_benchmarks() -> None:
    shown, measured = cells("docs/sizing.md"), cells("benchmarks/README.md")
    assert {row: shown[row] for row in ROWS} == {row: measured[name] for row, name in ROWS.items()}
    stands_still = shown["output stands still when an instance closes and a standby takes over"]
    assert f"A hand-over takes {stands_still}" in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert measured["its CPU time, memory"].endswith(f" {shown['memory'].split()[0]} MB")
