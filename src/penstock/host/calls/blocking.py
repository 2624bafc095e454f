"""Threads that run blocking functions for a loop."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.host.calls.attempt import AttemptOutcome

_log = logging.getLogger(__name__)


class _Work:
    """A function that runs in a thread, and the future of its result.

    Either a thread begins it, or it is cancelled before: the lock decides.
    """

    def __init__(self, name: str, function: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.name = name
        self.function = function
        self.future = future
        self.is_lost = False
        self._lock = threading.Lock()
        self._has_begun = self._is_cancelled = False

    def begin(self) -> bool:
        """Return whether a thread runs the function now; False if it was cancelled before."""
        with self._lock:
            self._has_begun = not self._is_cancelled and not self.future.cancelled()
            return self._has_begun

    def cancel(self) -> bool:
        """Return whether the function never runs; False if a thread has begun it."""
        with self._lock:
            self._is_cancelled = not self._has_begun
            return self._is_cancelled


class BlockingThreads:
    """Daemon threads that start with the first work. The interpreter does not wait for them on exit.

    Args:
        name: of the threads.
        size: the number of threads.
        freed: called in the loop when a thread returns whose work was cancelled.
    """

    def __init__(self, name: str, size: int, freed: Callable[[], None]) -> None:
        self._name = name
        self._size = size
        self._freed = freed
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._started = 0
        self.lost = 0
        """The number of threads whose function still runs after its time."""

    async def run(self, name: str, function: Callable[[], Any]) -> Any:
        """Run `function` in a thread and return its result.

        A thread cannot be cancelled: it is lost until the function returns. name: of the function, for the log.
        """
        loop = asyncio.get_running_loop()
        work = _Work(name, function, loop.create_future())
        if self._started < self._size:
            self._started += 1
            threading.Thread(target=self._work, args=(loop,), name=self._name, daemon=True).start()
        self._queue.put(work)
        try:
            return await work.future
        except asyncio.CancelledError:
            if not work.cancel():
                work.is_lost = True
                self.lost += 1
                _log.error(
                    "%s has used its time, and its thread cannot be cancelled. One of the %d threads is missing until "
                    "it returns: give the client inside of it a shorter timeout.",
                    name,
                    self._size,
                )
            raise

    def close(self) -> None:
        """End the threads after their current work."""
        for _ in range(self._started):
            self._queue.put(None)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (work := self._queue.get()) is not None:
            if not work.begin():
                continue
            try:
                outcome = AttemptOutcome(work.function())
            except BaseException as error:
                outcome = AttemptOutcome(error=error)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._returned, work, outcome)

    def _returned(self, work: _Work, outcome: AttemptOutcome) -> None:
        if work.is_lost:
            self.lost -= 1
            self._freed()
        if work.future.done():
            return
        if outcome.error is None:
            work.future.set_result(outcome.result)
        elif isinstance(outcome.error, Exception) and not isinstance(outcome.error, StopIteration):
            work.future.set_exception(outcome.error)
        else:
            work.future.set_exception(_ended_by(work.name, outcome.error))


def _ended_by(name: str, error: BaseException) -> RuntimeError:
    """Return an error for one that a future cannot carry."""
    raised = RuntimeError(f"{name} raised {type(error).__name__}: {error}")
    raised.__cause__ = error
    return raised
