"""Moves the polling loop to the thread of the tasks while their runs are short, so a record wakes no other thread.

Tasks always run in their own thread: the functions of users may hold objects that belong to it. So the loop moves, and
the tasks do not. The thread of the tasks has the loop on loan. It returns the loop before a long run and before all
other work than records and their runs. The polling thread takes the loop back from a run that does not return soon.
Other runs then overlap with fetching, and a function that hangs holds up its own task only, as without the loan.

One thread has the loop at a time: the lock decides who has it when a run ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.host.threads import vocabulary as v

_CALM_RUNS: Final = 10
"""Short runs in a row after which the loop moves."""
_SHORT_NANOSECONDS: Final = 5_000_000
_FEW_RECORDS: Final = 100
"""Most records of a run in the thread that has the loop."""

Take = Callable[[], v.TaskAction | None]
"""Returns the next queued action of the thread without waiting, None without one."""
Perform = Callable[[v.TaskAction], None]
"""Performs an action and posts its answer."""


@dataclass(frozen=True)
class Loan:
    """The loop, for the thread of the tasks. run: works until the loop is returned or taken back."""

    run: Callable[[Take, Perform], None]


Lend = Callable[[Loan], bool]
"""Gives the loop to the thread of the tasks; returns False if tasks have none of this process to themselves."""


class PollingLoop(Protocol):
    """A polling loop, step by step."""

    @property
    def has_ended(self) -> bool:
        """Whether the instance has ended."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether an action is unanswered."""
        ...

    def next_event(self) -> v.Event | None:
        """Return the next event, or None after a wait."""
        ...

    def handle(self, event: v.Event) -> None:
        """Handle an event."""
        ...


class _Borrower:
    """The thread of the tasks, for the time of one loan. context: the steps of the loop run in it, the tasks do not."""

    def __init__(self, context: Context) -> None:
        self.in_context = context.run
        self.runs_since: float | None = None
        """The beginning of its current run (s, monotonic)."""

    def runs_for(self, seconds: float) -> bool:
        """Return whether its current run has taken `seconds` so far."""
        return self.runs_since is not None and time.monotonic() - self.runs_since >= seconds


class MovingLoop:
    """The polling loop, in one of two threads.

    Args:
        loop: the steps of the loop.
        lend: gives the loop to the thread of the tasks.
        look_seconds: the interval of the looks at the current run, and the time after which it holds up the loop.
    """

    def __init__(self, loop: PollingLoop, lend: Lend, look_seconds: float = 0.02) -> None:
        self._loop = loop
        self._lend = lend
        self._look_seconds = look_seconds
        self._short_runs = 0
        self._changed = threading.Condition()
        self._borrower: _Borrower | None = None
        """None while the polling thread has the loop."""
        self._left: v.Event | None = None
        """An event that the borrower leaves to the polling thread."""
        self._error: BaseException | None = None

    def run(self) -> None:
        """Work until the instance has ended; raises the error of the loop."""
        while not self._loop.has_ended:
            event, self._left = self._left or self._loop.next_event(), None
            if event is None:
                continue
            self._loop.handle(event)
            if isinstance(event, v.Ran) and self._is_calm(event) and not self._loop.is_waiting:
                self._wait_for_return()

    def _is_calm(self, event: v.Ran) -> bool:
        """Return whether the last runs were short."""
        is_short = event.nanoseconds < _SHORT_NANOSECONDS and event.records <= _FEW_RECORDS
        self._short_runs = self._short_runs + 1 if is_short else 0
        return self._short_runs >= _CALM_RUNS

    def _wait_for_return(self) -> None:
        """Lend the loop until it is returned, or until a run is too long."""
        # the log needs the context of the loop; tasks keep the one of their thread, where functions may set variables
        self._borrower = borrower = _Borrower(copy_context())
        if not self._lend(Loan(lambda take, perform: self._borrowed(borrower, take, perform))):
            self._borrower = None
            return
        with self._changed:
            while self._borrower is borrower:
                self._changed.wait(self._look_seconds)
                if borrower.runs_for(self._look_seconds):
                    self._borrower, self._short_runs = None, 0
        if self._error is not None:
            raise self._error

    def _borrowed(self, borrower: _Borrower, take: Take, perform: Perform) -> None:
        """Work in the thread of the tasks."""
        try:
            action = self._first_other(borrower, take, perform)
        except BaseException as error:
            self._error, action = error, None
        self._return(borrower)
        if action is not None:
            perform(action)

    def _first_other(self, borrower: _Borrower, take: Take, perform: Perform) -> v.TaskAction | None:
        """Handle records and their short runs; return the first other action, if it ends the loan."""
        while not self._loop.has_ended:
            action = take()
            if action is not None:
                if not _is_short(action):
                    return action
                if not self._performed(borrower, action, perform):
                    return None
                continue
            event = borrower.in_context(self._loop.next_event)
            if event is not None and not isinstance(event, v.FREQUENT):
                self._left = event
                return None
            if event is not None:
                borrower.in_context(self._loop.handle, event)
        return None

    def _performed(self, borrower: _Borrower, action: v.TaskAction, perform: Perform) -> bool:
        """Perform a short run; return whether the loop is still on loan."""
        borrower.runs_since = time.monotonic()
        perform(action)
        with self._changed:
            borrower.runs_since = None
            return self._borrower is borrower

    def _return(self, borrower: _Borrower) -> None:
        """Return the loop, unless it was taken back."""
        with self._changed:
            if self._borrower is borrower:
                self._borrower = None
                self._changed.notify()


def _is_short(action: v.TaskAction) -> bool:
    return isinstance(action, v.RunTask) and sum(len(batch) for _, batch in action.records) <= _FEW_RECORDS
