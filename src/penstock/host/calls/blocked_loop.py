"""Finds the function that blocks the loop of the calls, and logs it.

While a function blocks, nothing else runs in the loop, so another thread looks at it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from penstock.plan.user_lines import function_line, running_line
from penstock.processor.called_functions import CalledFunctions
from penstock.processor.calls import CallSpec

_log = logging.getLogger(__name__)

BLOCKED_SECONDS: Final = 3.0
"""The time without a sign of the loop after which it is blocked; shorter than a standstill of the process."""

_EVERY_SECONDS: Final = 0.5
"""The interval of the looks."""


def named_functions(spec: CallSpec) -> dict[str, str]:
    """Return the functions of an operator that run in the loop, for logs, by the names of their tasks."""
    names = {spec.node: called_function(spec)}
    if spec.open is not None:
        names[open_task_name(spec.node)] = f"{_line_of(spec.open)}, open of node {spec.node},"
    return names


def called_function(spec: CallSpec) -> str:
    """Return the function of an operator for logs, with its line and its node."""
    return f"{_line_of(spec.function)} of node {spec.node}"


def open_task_name(node: str) -> str:
    """Return the name of the task that opens the client of an operator."""
    return f"open of {node}"


def running_function(loop: asyncio.AbstractEventLoop, thread: int, functions: Mapping[str, str]) -> str | None:
    """Return the function that runs in a loop now, with the line of the program; None if it is none of the program.

    Args:
        loop: the loop.
        thread: the identifier of its thread.
        functions: the functions by the names of their tasks.
    """
    task, frame = asyncio.current_task(loop), sys._current_frames().get(thread)
    function = None if task is None else functions.get(task.get_name())
    line = None if frame is None else running_line(frame)
    return function if function is None or line is None else f"{function}, now at {line},"


class BlockedLoop:
    """Logs once for each time that a function blocks the loop, and keeps the function for later messages.

    Args:
        seen: returns the time of the last sign of the loop, in seconds.
        now: the clock of `seen`.
        running: returns the function that runs in the loop now, None if the loop is only slow.
    """

    def __init__(self, seen: Callable[[], float], now: Callable[[], float], running: Callable[[], str | None]) -> None:
        self._seen = seen
        self._now = now
        self._running = running
        self._looked = now()
        self._found: tuple[float, str] | None = None
        self._has_ended = threading.Event()

    def start(self, name: str) -> None:
        """Look at intervals, in a thread of this name, until `end`."""
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def end(self) -> None:
        """End the looks."""
        self._has_ended.set()

    def look(self) -> None:
        """Look whether the loop is blocked. If the look is late, the process stood still, and the next one decides."""
        now, seen = self._now(), self._seen()
        is_late, self._looked = now - self._looked > BLOCKED_SECONDS, now
        if is_late or now - seen <= BLOCKED_SECONDS or self.since(seen) is not None:
            return
        function = self._running()
        if function is not None:
            self._found = seen, function
            _log.warning(
                "%s has blocked the loop of all calls for %d ms, and no timeout ends it. It must await what it waits "
                "for: write def in place of async def, and give Calls threads=.",
                function,
                round((now - seen) * 1000),
            )

    def since(self, seen: float) -> str | None:
        """Return the function that blocks the loop since its sign at `seen`, None if it was not found blocked."""
        return self._found[1] if self._found is not None and self._found[0] == seen else None

    def _run(self) -> None:
        while not self._has_ended.wait(_EVERY_SECONDS):
            self.look()


def _line_of(function: Any) -> str:
    """Return name and line of a function; without these for the functions of a processor, which are several."""
    inner = function.func if isinstance(function, partial) else function
    return "A function" if isinstance(inner, CalledFunctions) else function_line(inner)
