"""Clocks: `SystemClock` is the only caller of `time.time`; tests and the task use `MockClock`. Intervals
and time-outs within one process are measured by `elapsed_milliseconds` or `time.monotonic`, which no leap of the wall
clock changes."""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol


def elapsed_milliseconds() -> int:
    """Return the time in ms since a moment that is the same for a process: for intervals."""
    return time.perf_counter_ns() // 1_000_000


class Clock(Protocol):
    """Tells the wall-clock time (Kafka class: Time)."""

    def milliseconds(self) -> int:
        """Return the time in ms since the epoch."""
        ...


class SystemClock:
    """The clock of this machine."""

    def milliseconds(self) -> int:
        """Return the machine's time in ms since the epoch."""
        return int(time.time() * 1000)

    def nanoseconds(self) -> int:
        """Return the time in ns since a moment that is the same for a process: for durations."""
        return time.perf_counter_ns()


class ElapsedClock:
    """Counts from a moment that is the same for a process; no leap of the wall clock moves it."""

    def milliseconds(self) -> int:
        """Return the time in ms since that moment."""
        return elapsed_milliseconds()


class Clocks(NamedTuple):
    """The clocks of a host: `wall` for what users see, `elapsed` for intervals and time-outs."""

    wall: Clock
    elapsed: Clock

    @staticmethod
    def of(clock: Clock | None) -> Clocks:
        """Return `clock` as both, for who moves it by hand; None for those of the machine."""
        return Clocks(clock or SystemClock(), clock or ElapsedClock())


class MockClock:
    """A clock that moves only by calls (Kafka class: MockTime)."""

    def __init__(self, milliseconds: int = 0) -> None:
        """Start at `milliseconds` (ms since the epoch)."""
        self._milliseconds = milliseconds

    def milliseconds(self) -> int:
        """Return the time in ms since the epoch."""
        return self._milliseconds

    def advance(self, milliseconds: int) -> None:
        """Move forward by `milliseconds`; raises ValueError for a negative step."""
        if milliseconds < 0:
            raise ValueError(f"A clock cannot go back: expected a step of 0 ms or more, got {milliseconds}.")
        self._milliseconds += milliseconds
