"""A function that blocks the loop of the calls is named, with its node and the line at which it stands."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from contextlib import nullcontext
from functools import partial

import pytest

from penstock.host.calls.blocked_loop import BLOCKED_SECONDS, BlockedLoop, named_functions, running_function
from penstock.processor.called_functions import CalledFunctions
from tests.host.calls.support import LIMIT_SECONDS, KeptAnswers, Run, entries, spec

BEGUN, GO = threading.Event(), threading.Event()


async def blocks(value: str) -> str:
    BEGUN.set()
    GO.wait(LIMIT_SECONDS)
    return value


async def answers_at_once(value: str) -> str:
    return value


def first_line(function: object) -> int:
    return inspect.getsourcelines(function)[1]  # type: ignore[arg-type]  # a function


@pytest.fixture(autouse=True)
def blocking() -> None:
    BEGUN.clear()
    GO.clear()


def test_the_function_that_runs_is_named_with_its_line() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        functions = named_functions(spec(blocks))
        loop.call_soon_threadsafe(lambda: loop.create_task(blocks("x"), name="risk"))
        assert BEGUN.wait(LIMIT_SECONDS)
        line = first_line(blocks)
        assert running_function(loop, thread.ident or 0, functions) == (
            f"blocks ({__file__}:{line}) of node risk, now at {__file__}:{line + 2},"
        )
        assert running_function(loop, thread.ident or 0, {}) is None
    finally:
        GO.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_an_open_and_the_functions_of_a_processor_are_named() -> None:
    named = named_functions(spec(blocks, open=nullcontext))
    assert named["open of risk"].endswith(", open of node risk,")
    assert named_functions(spec(CalledFunctions("risk", ())))["risk"] == "A function of node risk"
    assert named_functions(spec(partial(blocks, "x"))) == named_functions(spec(blocks))


class Times:
    """The clock, and the last sign of a loop."""

    def __init__(self) -> None:
        self.now = self.seen = 100.0


def test_a_blocked_loop_is_logged_once_and_a_process_that_stood_still_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = Times()
    blocked = BlockedLoop(lambda: times.seen, lambda: times.now, lambda: "risk (shop.py:1) of node risk")
    times.now += BLOCKED_SECONDS + 1
    with caplog.at_level(logging.WARNING):
        blocked.look()
        assert (blocked.since(100.0), caplog.messages) == (None, [])  # the look was late itself
        for _ in range(3):
            times.now += 0.5
            blocked.look()
        assert blocked.since(100.0) == "risk (shop.py:1) of node risk"
        (message,) = caplog.messages
        assert message.startswith("risk (shop.py:1) of node risk has blocked the loop of all calls for 4500 ms")
        times.seen = times.now
        blocked.look()
    assert (blocked.since(times.seen), len(caplog.messages)) == (None, 1)


def test_calls_that_do_not_end_name_the_function_that_blocks(
    run: Run, answers: KeptAnswers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.host.calls.runner._CLOSE_SECONDS", 0.01)
    runner = run(spec(blocks), cancel_seconds=0.01)
    runner.add("risk", 0, entries(("a", "x")))
    assert BEGUN.wait(LIMIT_SECONDS)
    runner.close()
    GO.set()
    assert f"do not end: blocks ({__file__}:{first_line(blocks)}) of node risk, now at" in caplog.text
