"""Lines of the log that come once for each record."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import Serdes, StreamsBuilder
from penstock.dsl.options import Consumed
from penstock.exception_handlers import LogAndContinueExceptionHandler
from penstock.testing import TopologyTestDriver
from penstock_broker.common.log_limits import RateLimit


class Lines(logging.Handler):
    """Keeps the lines, and says when one has come."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.summary = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if "more such lines" in self.lines[-1]:
            self.summary.set()


@pytest.fixture
def log(request: pytest.FixtureRequest) -> Iterator[tuple[logging.Logger, Lines]]:
    lines, log = Lines(), logging.getLogger(request.node.name)
    log.addHandler(lines)
    log.setLevel(logging.DEBUG)  # whatever a command has set for all that have none
    yield log, lines
    log.removeHandler(lines)
    for limit in log.filters:
        assert isinstance(limit, RateLimit)
        limit.forget()  # its timer would write during another test


def test_the_first_line_appears_and_then_how_many_were_left_out(log: tuple[logging.Logger, Lines]) -> None:
    logger, said = log
    logger.addFilter(RateLimit(logger, interval_seconds=5))
    for offset in range(1000):
        logger.warning("cannot read %s at offset %d", "topic-0", offset)
    logger.warning("another kind")
    logger.error("an error always appears")
    logger.error("an error always appears")
    assert said.summary.wait(120)
    errors = ["an error always appears"] * 2
    assert said.lines == [
        "cannot read topic-0 at offset 0",
        "another kind",
        *errors,
        "cannot read topic-0 at offset 999 (999 more such lines in 5 s, this is the last one)",
    ]


def test_no_summary_comes_after_the_lines_are_forgotten(log: tuple[logging.Logger, Lines]) -> None:
    logger, said = log
    limit = RateLimit(logger, interval_seconds=3600)
    logger.addFilter(limit)
    before = set(threading.enumerate())
    for _ in range(2):
        logger.warning("cannot read")
    (timer,) = set(threading.enumerate()) - before
    limit.forget()
    timer.join(120)
    assert not timer.is_alive()
    assert said.lines == ["cannot read"]


EXITING = """
import atexit, logging, threading

@atexit.register
def check():  # after what penstock registers, for that comes later
    timer.join(120)
    print("running" if timer.is_alive() else "ended")

from penstock_broker.common.log_limits import limit_rate

log = limit_rate(logging.getLogger("limited"), interval_seconds=3600)
log.warning("once")
(timer,) = (thread for thread in threading.enumerate() if isinstance(thread, threading.Timer))
"""


def test_the_timers_end_with_the_program() -> None:
    command = [sys.executable, "-c", EXITING]
    assert subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout == "ended\n"


def test_kinds_of_lines_are_bounded(log: tuple[logging.Logger, Lines]) -> None:
    logger, said = log
    logger.addFilter(RateLimit(logger))
    for number in range(1000):
        logger.warning(f"line {number}")
    assert len(said.lines) <= 101


def test_lines_of_a_process_that_was_forked_are_its_own(log: tuple[logging.Logger, Lines]) -> None:
    logger, said = log
    limit = RateLimit(logger)
    logger.addFilter(limit)
    logger.warning("a line")
    limit.forget()
    logger.warning("a line")
    assert said.lines == ["a line", "a line"]


def test_poison_records_make_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.long())).to("out")
    config: dict[str, Any] = {"deserialization.exception.handler": LogAndContinueExceptionHandler()}
    for _ in range(2):  # each driver logs its own records
        caplog.clear()
        with TopologyTestDriver(builder.build(), config) as driver:
            topic = driver.create_input_topic("in", Serdes.string(), Serdes.bytes())
            with caplog.at_level(logging.WARNING):
                for number in range(50):
                    topic.pipe_input("key", b"no number %d" % number)
        assert len(caplog.records) == 1
