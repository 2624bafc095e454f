"""Blocking functions run on threads, which cannot be cancelled."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from penstock.host.calls.blocking import BlockingThreads
from tests.host.calls.support import (
    LIMIT_SECONDS,
    KeptAnswers,
    Run,
    entries,
    spec,
)


def test_blocking_functions_run_on_threads(run: Run, answers: KeptAnswers) -> None:
    both = threading.Barrier(2, timeout=LIMIT_SECONDS)

    def call(value: str) -> str:
        both.wait()
        return f"{value} {threading.current_thread() is not threading.main_thread()}"

    run(spec(call, threads=2)).add("risk", 0, entries(("a", "x"), ("b", "y")))
    assert sorted(map(str, answers.results(2))) == ["x True", "y True"]


def test_a_thread_is_missing_until_its_function_returns(
    run: Run, answers: KeptAnswers, caplog: pytest.LogCaptureFixture
) -> None:
    returns = threading.Event()

    def call(value: str) -> str:
        if value == "slow":
            returns.wait(LIMIT_SECONDS)
        return value

    runner = run(spec(call, threads=1, timeout_ms=500))  # enough for a thread to begin
    with caplog.at_level(logging.ERROR):
        runner.add("risk", 0, entries(("a", "slow"), ("b", "next")))
        (failure,) = answers.results(1)
    assert (failure or "").startswith("TimeoutError")
    assert "its thread cannot be cancelled" in caplog.text
    assert runner.take_measured()["risk"].waiting == 1
    returns.set()
    assert answers.results(2)[1] == "next"


def test_work_that_is_dropped_before_it_begins_loses_no_thread() -> None:
    async def dropped() -> int:
        threads = BlockingThreads("calls", 1, lambda: None)
        began, returns, follows = threading.Event(), threading.Event(), threading.Event()

        def first() -> None:
            began.set()
            returns.wait(LIMIT_SECONDS)

        running = asyncio.create_task(threads.run("first", first))
        await asyncio.to_thread(began.wait, LIMIT_SECONDS)
        queued = asyncio.create_task(threads.run("queued", lambda: None))
        following = asyncio.create_task(threads.run("following", follows.set))
        await asyncio.sleep(0)
        queued.cancel()
        returns.set()
        assert follows.wait(LIMIT_SECONDS)  # in the loop: the thread finds the dropped work before the loop goes on
        await asyncio.gather(running, queued, following, return_exceptions=True)
        threads.close()
        return threads.lost

    assert asyncio.run(asyncio.wait_for(dropped(), LIMIT_SECONDS)) == 0
