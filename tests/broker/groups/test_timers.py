"""Delayed actions on the event loop, whose time the tests move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock_broker.groups.timers import LoopTimers

Schedule = Callable[[LoopTimers, list[str]], None]


def run_until(seconds: float, schedule: Schedule) -> list[str]:
    """Return the actions that run within a time, which passes at once."""
    done: list[str] = []

    async def pass_time() -> None:
        now = 0.0
        asyncio.get_running_loop().time = lambda: now  # type: ignore[method-assign]  # the test's own clock
        schedule(LoopTimers(), done)
        for _ in range(3):
            await asyncio.sleep(0)
        assert done == []
        now = seconds
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(pass_time())
    return done


def test_an_action_runs_when_its_delay_is_over() -> None:
    def schedule(timers: LoopTimers, done: list[str]) -> None:
        timers.schedule("early", 1_000, lambda: done.append("early"))
        timers.schedule(("late", 1), 1_001, lambda: done.append("late"))

    assert run_until(1.0, schedule) == ["early"]


def test_a_key_has_one_action_the_last_one() -> None:
    def schedule(timers: LoopTimers, done: list[str]) -> None:
        timers.schedule("key", 10, lambda: done.append("first"))
        timers.schedule("key", 20, lambda: done.append("second"))
        timers.schedule("other", 10, lambda: done.append("other"))
        timers.cancel("other")
        timers.cancel("missing")

    assert run_until(1.0, schedule) == ["second"]


def test_an_action_may_schedule_its_own_key_again() -> None:
    def schedule(timers: LoopTimers, done: list[str]) -> None:
        def again() -> None:
            done.append("again")
            if len(done) < 2:
                timers.schedule("key", 0, again)

        timers.schedule("key", 10, again)

    assert run_until(1.0, schedule) == ["again", "again"]
