"""Calls that failed together pause together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from penstock.host.calls.lines import Call
from penstock.host.calls.pauses import CallPauses
from tests.host.calls.support import HOUR, record


def calls(number: int) -> list[Call]:
    return [Call(0, each, record("a", "v"), each) for each in range(number)]


def paused(play: Callable[[CallPauses, list[Sequence[Call]]], Awaitable[None]]) -> None:
    """Run a play in a loop, with the pauses and the calls whose pauses have ended."""

    async def run() -> None:
        ended: list[Sequence[Call]] = []
        await asyncio.wait_for(play(CallPauses(ended.append), ended), 20)

    asyncio.run(run())


def test_calls_of_one_pause_end_it_together() -> None:
    async def play(pauses: CallPauses, ended: list[Sequence[Call]]) -> None:
        made = calls(3)
        pauses.begin(made[:2], 0.001)
        pauses.begin(made[2:], HOUR)
        while not ended:
            await asyncio.sleep(0.001)
        assert ended == [made[:2]]
        pauses.cancel(made[0])

    paused(play)


def test_a_cancelled_call_leaves_its_pause() -> None:
    async def play(pauses: CallPauses, ended: list[Sequence[Call]]) -> None:
        made = calls(4)
        pauses.begin(made[:2], 0.001)
        pauses.begin(made[2:3], 0.001)
        for call in (made[0], made[2], made[3]):
            pauses.cancel(call)
        while not ended:
            await asyncio.sleep(0.001)
        assert ended == [[made[1]]]

    paused(play)
