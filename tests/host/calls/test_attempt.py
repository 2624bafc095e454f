"""An attempt ends: with its function, at its time-out, or abandoned."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading

import pytest

from penstock.host.calls.attempt import Attempt, AttemptOutcome
from tests.host.calls.support import (
    KeptAnswers,
    Run,
    entries,
    spec,
)


def test_a_call_that_does_not_end_in_time_is_cancelled(run: Run, answers: KeptAnswers) -> None:
    ended: list[str] = []

    async def call(value: str) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(value)
        return value

    run(spec(call, timeout_ms=20)).add("risk", 0, entries(("a", "x")))
    (failure,) = answers.results(1)
    assert failure == "TimeoutError: The call of risk for orders-0, offset 1, did not end within 20 ms."
    assert ended == ["x"]


@pytest.mark.filterwarnings("error")
def test_a_call_that_is_dropped_before_its_first_step_leaves_no_warning() -> None:
    outcomes: list[AttemptOutcome] = []

    async def call() -> None:
        raise AssertionError("It was dropped.")

    async def dropped() -> None:
        ends = asyncio.Event()

        def ended(outcome: AttemptOutcome) -> None:
            outcomes.append(outcome)
            ends.set()

        made = call()
        Attempt("risk", "The {}".format, made, 1.0, 1.0, ended).cancel()
        await ends.wait()
        assert inspect.getcoroutinestate(made) == inspect.CORO_CLOSED

    asyncio.run(dropped())
    assert isinstance(outcomes[0].error, asyncio.CancelledError)


def test_a_call_that_does_not_end_at_all_is_abandoned(
    run: Run, answers: KeptAnswers, caplog: pytest.LogCaptureFixture
) -> None:
    lasts = threading.Event()

    async def call(value: str) -> str:
        while value == "stubborn" and not lasts.is_set():
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                continue
        return value

    with caplog.at_level(logging.ERROR):
        runner = run(spec(call, timeout_ms=20, capacity=1), cancel_seconds=0.02)
        runner.add("risk", 0, entries(("a", "stubborn"), ("a", "next")))
        failure, following = answers.results(2)
    assert (failure or "").startswith("TimeoutError")
    assert following == "next"
    assert "The call of risk for orders-0, offset 1, was cancelled, and still runs after 20 ms" in caplog.text
    lasts.set()


def test_a_result_that_comes_during_the_cancellation_counts(run: Run, answers: KeptAnswers) -> None:
    async def call(value: str) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "paid"
        return value

    run(spec(call, timeout_ms=20)).add("risk", 0, entries(("a", "x")))
    assert answers.results(1) == ["paid"]


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), StopIteration()])
@pytest.mark.parametrize("threads", [0, 1])
def test_no_error_ends_the_loop(run: Run, answers: KeptAnswers, error: BaseException, threads: int) -> None:
    async def coroutine(value: str) -> str:
        if value == "bad":
            raise error
        return value

    def blocking(value: str) -> str:
        if value == "bad":
            raise error
        return value

    runner = run(spec(blocking if threads else coroutine, threads=threads))
    runner.add("risk", 0, entries(("a", "bad"), ("a", "good")))
    failure, following = answers.results(2)
    assert type(error).__name__ in (failure or "") or isinstance(error, StopIteration)
    assert following == "good"
