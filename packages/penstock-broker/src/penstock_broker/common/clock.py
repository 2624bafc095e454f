"""Clocks for wall-clock time and for intervals.

`SystemClock` is the only caller of `time.time`; tests and the task use `MockClock`. Intervals and time-outs within one
process are measured by `elapsed_milliseconds` or `time.monotonic`, which are immune to jumps of the wall clock.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol


def elapsed_milliseconds() -> int:
    """Return the time in ms since a fixed moment of this process, for intervals."""
    return time.perf_counter_ns() // 1_000_000


class Clock(Protocol):
    """A source of wall-clock time (Kafka class: Time)."""

    def milliseconds(self) -> int:
        """Return the time in ms since the epoch."""
        ...


class SystemClock:
    """The clock of this machine."""

    def milliseconds(self) -> int:
        """Return the machine's time in ms since the epoch."""
        return int(time.time() * 1000)

    def nanoseconds(self) -> int:
        """Return the time in ns since a fixed moment of this process, for durations."""
        return time.perf_counter_ns()


class ElapsedClock:
    """A clock since a fixed moment of this process, immune to wall-clock jumps."""

    def milliseconds(self) -> int:
        """Return the time in ms since that moment."""
        return elapsed_milliseconds()


class Clocks(NamedTuple):
    """The clocks of a host: `wall` for users, `elapsed` for intervals and time-outs."""

    wall: Clock
    elapsed: Clock

    @staticmethod
    def of(clock: Clock | None) -> Clocks:
        """Return `clock` as both clocks, or the machine's clocks if it is None."""
        return Clocks(clock or SystemClock(), clock or ElapsedClock())


class MockClock:
    """A clock that moves only by calls (Kafka class: MockTime).

    Args:
        milliseconds: the start time in ms since the epoch.
    """

    def __init__(self, milliseconds: int = 0) -> None:
        self._milliseconds = milliseconds

    def milliseconds(self) -> int:
        """Return the time in ms since the epoch."""
        return self._milliseconds

    def advance(self, milliseconds: int) -> None:
        """Move forward by `milliseconds`; raises ValueError for a negative step."""
        if milliseconds < 0:
            raise ValueError(f"A clock cannot go back: expected a step of 0 ms or more, got {milliseconds}.")
        self._milliseconds += milliseconds
