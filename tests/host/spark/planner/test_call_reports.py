"""The figures of calls that reach the driver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.host.calls.measuring import CallFigures
from penstock.host.spark.planner.call_reports import CALLS_FILE, EVERY_MS, CallReports, read_call_reports
from penstock.host.spark.protocol.mailbox import Mailbox
from penstock.metrics.measurements import measured_once


class Source:
    """What the source process has: figures, and a clock."""

    def __init__(self, directory: Path) -> None:
        self.mailbox = Mailbox(str(directory / "control"))
        self.mailbox.create()
        self.figures: Mapping[str, CallFigures] = {}
        self.now = 0
        self.reports = CallReports(self.mailbox, lambda: self.figures, lambda: self.now)

    def tell(self, figures: Mapping[str, CallFigures]) -> None:
        self.figures = figures
        self.reports.tell()
        self.now += EVERY_MS

    def read(self, after: int = 0) -> tuple[int, list[dict[str, CallFigures]]]:
        return read_call_reports(self.mailbox.read(CALLS_FILE), after)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


ONE = {"risk": CallFigures(1, 2, 3, 1, 1, measured_once(7.5), (7.5, 7.5))}
OTHER = {"risk": CallFigures(0, 0, 2)}


def test_each_report_is_read_once(source: Source) -> None:
    assert source.read() == (0, [])
    source.tell(ONE)
    assert source.read() == (1, [ONE])
    source.tell(OTHER)
    assert source.read(1) == (2, [OTHER])
    assert source.read(2) == (2, [])
    assert source.read() == (2, [ONE, OTHER])


def test_equal_figures_without_calls_are_not_written_again(source: Source) -> None:
    source.tell({"risk": CallFigures(1, 1)})
    source.tell({"risk": CallFigures(1, 1)})
    assert source.read() == (1, [{"risk": CallFigures(1, 1)}])


def test_equal_figures_with_calls_are_written_each_time(source: Source) -> None:
    source.tell(ONE)
    source.tell(ONE)
    assert source.read() == (2, [ONE, ONE])


def test_nothing_is_written_before_the_interval_has_passed(source: Source) -> None:
    source.tell(ONE)
    source.now -= 1
    source.tell(OTHER)
    assert source.read() == (1, [ONE])


def test_the_last_report_is_written_at_once(source: Source) -> None:
    source.tell(ONE)
    source.now -= 1
    source.figures = OTHER
    source.reports.finish()
    assert source.read() == (2, [ONE, OTHER])


def test_a_report_that_could_not_be_written_is_in_the_next_message(source: Source, tmp_path: Path) -> None:
    source.tell({})
    away = tmp_path / "away"
    (tmp_path / "control").rename(away)
    source.tell(ONE)
    away.rename(tmp_path / "control")
    source.tell(OTHER)
    assert source.read() == (2, [ONE, OTHER])
