"""After a standstill of the process, attempts wait until it may know whether it still has its tasks."""

from __future__ import annotations

import asyncio
import logging

import pytest

from penstock.host.calls.node_calls import NodeCalls
from penstock.host.calls.standstill import HOLD_SECONDS, LONGEST_SECONDS, LOOK_SECONDS, Standstill
from penstock.processor.call_function import call_function
from tests.host.calls.support import TOPIC, KeptAnswers, entries, spec, upper


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_process_that_runs_holds_nothing_back() -> None:
    clock = Clock()
    standstill = Standstill(clock)
    for _ in range(20):
        assert standstill.look() == 0
        clock.seconds += LOOK_SECONDS


def test_a_standstill_holds_attempts_back_for_some_time(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    standstill = Standstill(clock)
    clock.seconds += LONGEST_SECONDS + 1
    with caplog.at_level(logging.WARNING):
        assert standstill.look() == HOLD_SECONDS
    assert "The process stood still for 5000 ms, or a coroutine function of Calls blocked its loop." in caplog.text
    assert "write def in place of async def, and give Calls threads=." in caplog.text
    clock.seconds += 2
    assert standstill.look() == HOLD_SECONDS - 2
    clock.seconds += HOLD_SECONDS - 2
    assert standstill.look() == 0


def test_calls_wait_after_a_standstill() -> None:
    clock, answers, operator = Clock(), KeptAnswers(), spec(upper)

    async def run() -> None:
        function = call_function(operator, TOPIC, "shop", None, None)
        calls = NodeCalls(operator, TOPIC, function, answers, print, Standstill(clock))
        clock.seconds += LONGEST_SECONDS + 1
        calls.add(0, entries(("a", "x")))
        assert calls.counters.take().in_flight == 0
        for _ in range(2):
            clock.seconds += HOLD_SECONDS / 2
            calls.resume()
        assert calls.counters.take().in_flight == 1
        await calls.close([])

    asyncio.run(run())
    assert answers.results(1) == ["X"]
