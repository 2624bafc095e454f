"""The driver's view of a running query."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from penstock.host.calls.measuring import CallFigures
from penstock.host.spark.driver.running_query import RunningQuery
from penstock.host.spark.planner import epoch_planner
from penstock.host.spark.planner.call_reports import EVERY_MS, CallReports
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.mailbox import Mailbox
from penstock.record import TopicPartition

IN = TopicPartition("in", 0)


class Described:
    """Replaces a description."""

    def __init__(self, directory: Path) -> None:
        self.control_directory = str(directory)


def test_ends_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mailbox = Mailbox(str(tmp_path))
    query = RunningQuery(
        cast(StreamingQuery, None), cast(ApplicationDescription, Described(tmp_path)), release=lambda: None
    )
    assert query.new_ends() == {}
    epoch_planner.write_ends(mailbox, {IN: 3})
    assert query.new_ends() == {IN: 3}

    def loads(data: bytes) -> Any:
        raise AssertionError("the driver looks twenty times a second, and the planner writes at most once")

    with monkeypatch.context() as patched:
        patched.setattr("orjson.loads", loads)
        assert query.new_ends() == {}
    epoch_planner.write_ends(mailbox, {IN: 4})
    assert query.new_ends() == {IN: 4}


class Answering:
    """Replaces a query of Spark, whose session answers until it is released."""

    def __init__(self) -> None:
        self.isActive = True

    def release(self) -> None:
        del self.isActive


def test_a_closed_query_asks_its_session_nothing(tmp_path: Path) -> None:
    answering = Answering()
    query = RunningQuery(
        cast(StreamingQuery, answering), cast(ApplicationDescription, Described(tmp_path)), answering.release
    )
    seen = [query.is_active]
    query.close()
    seen.append(query.is_active)
    query.stop()
    assert seen == [True, False]


def test_reports_on_calls_are_read_once(tmp_path: Path) -> None:
    mailbox = Mailbox(str(tmp_path))
    query = RunningQuery(
        cast(StreamingQuery, None), cast(ApplicationDescription, Described(tmp_path)), release=lambda: None
    )
    figures = {"ask": CallFigures(answered=1)}
    now = iter((0, EVERY_MS))
    reports = CallReports(mailbox, lambda: figures, lambda: next(now))
    assert query.new_calls() == []
    reports.tell()
    assert query.new_calls() == [figures]
    assert query.new_calls() == []
    reports.tell()
    assert query.new_calls() == [figures]
