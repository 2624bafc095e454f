"""The time of a simulation: what is to happen at which millisecond, in one order for one seed.

One thing happens at a time. A call that has to wait, as calls of clients do, parks its thread, and another thread goes
on with what happens meanwhile; so the code under test needs no change, and no two threads ever run together.
"""

from __future__ import annotations

import heapq
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

MOST_EVENTS = 200_000


class Killed(BaseException):
    """Ends a call of a process that was killed while it waited."""


class World:
    """A clock and what is to happen; all that is random comes from its seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0
        self.is_calm = False
        """Whether nothing goes wrong any more."""
        self.trace: list[tuple[int, str, Any]] = []
        self._numbers = count()
        self._agenda: list[tuple[int, int, Callable[[], object]]] = []
        self._parked: set[_Baton] = set()
        self._over = threading.Event()
        self._is_over = False
        self._error: BaseException | None = None

    def note(self, who: str, what: Any) -> None:
        """Put a line into the trace."""
        self.trace.append((self.now, who, what))

    def after(self, milliseconds: int, call: Callable[[], object]) -> None:
        """Let `call` happen then."""
        heapq.heappush(self._agenda, (self.now + milliseconds, next(self._numbers), call))

    def chance(self, share: float) -> bool:
        """Return True in this share of all cases."""
        return self.random.random() < share

    def wait(self, milliseconds: int) -> None:
        """Return then; other things happen meanwhile. Raises Killed if the simulation ends before."""
        if self._is_over:
            raise Killed
        baton = _Baton()
        self._parked.add(baton)
        self.after(milliseconds, baton)
        _in_pool(self._go_on)
        baton.wait()
        self._parked.discard(baton)
        if self._is_over:
            raise Killed

    def run(self) -> None:
        """Let everything happen until `end`; raises what a call has raised."""
        _in_pool(self._go_on)
        self._over.wait()
        while self._parked:  # their threads unwind one after the other
            self._over.clear()
            self._parked.pop()()
            self._over.wait()
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Let nothing more happen."""
        self._is_over = True

    def _go_on(self) -> None:
        try:
            while not self._is_over:
                if not self._agenda:
                    raise AssertionError("Nothing more happens.")
                self.now, number, call = heapq.heappop(self._agenda)
                if number > MOST_EVENTS:
                    raise AssertionError(f"{MOST_EVENTS} events, and no end.")
                if isinstance(call, _Baton):
                    call()
                    return  # the thread that waited goes on
                with suppress(Killed):
                    call()
        except BaseException as error:
            self._error, self._is_over = self._error or error, True
        self._over.set()


class _Baton:
    """Lets a thread wait until it is called."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self) -> None:
        self._lock.acquire()

    def __call__(self) -> None:
        self._lock.release()


_IDLE: queue.SimpleQueue[queue.SimpleQueue[Callable[[], None]]] = queue.SimpleQueue()


def _in_pool(call: Callable[[], None]) -> None:
    """Let a thread that is idle do `call`, or a new one."""
    try:
        inbox = _IDLE.get_nowait()
    except queue.Empty:
        inbox = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(inbox,), name="simulation", daemon=True).start()
    inbox.put(call)


def _serve(inbox: queue.SimpleQueue[Callable[[], None]]) -> None:
    while True:
        inbox.get()()
        _IDLE.put(inbox)
