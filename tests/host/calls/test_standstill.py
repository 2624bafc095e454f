"""After a standstill of the process, attempts wait until it may know whether it still has its tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest

from penstock.host.calls.node_calls import NodeCalls
from penstock.host.calls.standstill import HOLD_SECONDS, LONGEST_SECONDS, LOOK_SECONDS, Standstill
from penstock.processor.call_function import call_function
from penstock.processor.calls import NOT_CALLED, CallSpec, NotCalled
from tests.host.calls.support import LIMIT_SECONDS, TOPIC, KeptAnswers, entries, spec, upper


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
    assert "The process stood still for 5000 ms. No call starts for 5000 ms" in caplog.text
    clock.seconds += 2
    assert standstill.look() == HOLD_SECONDS - 2
    clock.seconds += HOLD_SECONDS - 2
    assert standstill.look() == 0


def test_a_function_that_blocked_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    standstill = Standstill(clock, {100.0: "priced (shop.py:1) of node prices"}.get)
    clock.seconds += LONGEST_SECONDS + 1
    with caplog.at_level(logging.WARNING):
        assert standstill.look() == HOLD_SECONDS
    assert "priced (shop.py:1) of node prices blocked the loop of all calls for 5000 ms." in caplog.text
    assert "stood still" not in caplog.text


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


def reconciling(clock: Clock, steps: list[str]) -> CallSpec:
    """Return an operator during whose first look-up the process stands still."""

    async def known(value: str) -> str | NotCalled:
        clock.seconds += 0 if steps else LONGEST_SECONDS + 1
        steps.append("asked")
        return NOT_CALLED

    return spec(noting(steps), reconcile=known)


def opening(clock: Clock, steps: list[str]) -> CallSpec:
    """Return an operator during whose opening of the client the process stands still."""

    def client() -> AbstractContextManager[None]:
        clock.seconds += LONGEST_SECONDS + 1
        steps.append("opened")
        return nullcontext()

    return spec(noting(steps), open=client)


def noting(steps: list[str]) -> Callable[..., object]:
    async def call(value: str) -> str:
        steps.append("called")
        return await upper(value)

    return call


@pytest.mark.parametrize(
    ("operator_of", "before", "after"),
    [(reconciling, ["asked"], ["asked", "asked", "called"]), (opening, ["opened"], ["opened", "called"])],
)
def test_an_attempt_begins_again_after_a_standstill_before_its_call(
    operator_of: Callable[[Clock, list[str]], CallSpec], before: list[str], after: list[str]
) -> None:
    steps: list[str] = []
    clock, answers = Clock(), KeptAnswers()
    operator = operator_of(clock, steps)

    async def run() -> None:
        function = call_function(operator, TOPIC, "shop", None, None)
        calls = NodeCalls(operator, TOPIC, function, answers, print, Standstill(clock))

        async def end_of_attempt() -> None:
            while calls.counters.take().in_flight:
                await asyncio.sleep(0.001)

        calls.add(0, [(number, waiting.that_waited()) for number, waiting in entries(("a", "x"))])
        await asyncio.wait_for(end_of_attempt(), LIMIT_SECONDS)
        assert steps == before
        for _ in range(2):
            clock.seconds += HOLD_SECONDS / 2
            calls.resume()
        await asyncio.wait_for(end_of_attempt(), LIMIT_SECONDS)
        await calls.close([])

    asyncio.run(run())
    assert steps == after
    assert answers.results(1) == ["X"]
    assert answers.records[0].answer.attempts == 1
