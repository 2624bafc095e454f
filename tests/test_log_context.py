"""The attributes of log records."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from threading import Barrier, Thread

import pytest

from penstock.log_context import Work, current_work, logged_as, mark_log_records

_log = logging.getLogger("shop")


@pytest.fixture(autouse=True)
def marked() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    mark_log_records()
    mark_log_records()
    yield
    logging.setLogRecordFactory(before)


def works(caplog: pytest.LogCaptureFixture) -> list[Work]:
    return [
        Work(*(vars(line)[f"penstock_{name}"] for name in ("application", "task", "epoch"))) for line in caplog.records
    ]


def test_lines_say_what_they_come_from(caplog: pytest.LogCaptureFixture) -> None:
    _log.warning("before")
    with logged_as("app"):
        _log.warning("starts")
        with logged_as("app", "0_1", 7):
            _log.warning("processes", extra={"task": "of the user"})
        _log.warning("restarts")
    assert works(caplog) == [Work(), Work("app"), Work("app", "0_1", 7), Work("app")]
    assert current_work() == Work()
    formatted = logging.Formatter("%(penstock_task)s %(message)s").format(caplog.records[2])
    assert formatted == "0_1 processes"


def test_calls_of_a_function_that_logs_as_something_may_overlap() -> None:
    inside, works = Barrier(2), []

    @logged_as("app", "0_1")
    def work() -> None:
        inside.wait(60)
        works.append(current_work())
        inside.wait(60)

    def run() -> None:
        work()
        works.append(current_work())

    threads = [Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(works) == [Work(), Work(), Work("app", "0_1"), Work("app", "0_1")]
