"""Schedules: punctuators and their due times. A schedule has one of two lifetimes, by host.

`LivingSchedules`: a processor lives as long as its task, may schedule at any time, and schedules again after a restart,
as in Kafka. `EpochSchedules`: a processor lives for one epoch; only `init` schedules, and a schedule continues at the
state of the same call in the previous epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.errors import StreamsError
from penstock.processor.api import PunctuationType, Punctuator
from penstock.record import NO_TIMESTAMP
from penstock.signatures import misfit
from penstock.task.priority_queue import PriorityQueue
from penstock.task.task_checkpoint import ScheduleState

MINIMUM_INTERVAL_MS = 1


def check_schedule(type: Any, callback: Any, node: str) -> None:
    """Raise TypeError for an invalid `type`, or a `callback` that does not accept a time.

    node: the node whose processor schedules it.
    """
    if not isinstance(type, PunctuationType):
        listed = " or ".join(map(str, PunctuationType))
        raise TypeError(f"Expected {listed} for the punctuator of {node}, got {type!r}.")
    why = misfit(callback, 0) if callable(callback) else "it is no function"
    if why is not None:
        raise TypeError(
            f"The punctuator of {node} cannot be called as punctuator(time_ms): "
            f"{getattr(callback, '__qualname__', repr(callback)):.100} does not fit ({why})."
        )


@dataclass(eq=False)
class Schedule:
    """One schedule of a node: fires at `next_time` (ms) and then every `interval` ms."""

    node: str
    call: int
    type: PunctuationType
    interval: int
    callback: Punctuator
    next_time: int
    cancelled: bool = False
    first_time: int = NO_TIMESTAMP
    """The earliest time (ms) of a punctuation, even if more than an interval away."""

    def cancel(self) -> None:
        """End the schedule; its punctuator is not called again."""
        self.cancelled = True

    def advance(self, now: int) -> None:
        """Set the next time after a punctuation at `now` (ms): one punctuation for all missed intervals."""
        self.next_time += self.interval
        if self.next_time <= now:
            self.next_time += (now - self.next_time) // self.interval * self.interval + self.interval

    def go_back(self, now: int) -> None:
        """Set the next time after the clock went back to `now` (ms).

        It is at most one interval later, and keeps the phase.
        """
        too_far = max(self.next_time - now - 1, 0) // self.interval * self.interval
        self.next_time = max(self.next_time - too_far, self.first_time)


def _next_time(schedule: Schedule) -> int:
    return schedule.next_time


def _going_on(next_time: int, schedule: Schedule) -> int:
    """Return the next time of `schedule`, just created, which was `next_time` (ms) before.

    By wall clock, that exceeds a new one by more than an interval only if the clock went back: then the interval
    restarts.
    """
    went_back = next_time > schedule.next_time + schedule.interval
    return schedule.next_time if went_back and schedule.type is PunctuationType.WALL_CLOCK_TIME else next_time


class Schedules(Protocol):
    """The schedules of one task."""

    def add(self, schedule: Schedule, initializing: bool) -> None:
        """Add a schedule, created in `init` or later; raises StreamsError if that is not allowed."""
        ...

    def take_due(self, kind: PunctuationType, now: int) -> Schedule | None:
        """Remove and return the earliest schedule of this clock due at `now` (ms), or None."""
        ...

    def put_back(self, schedule: Schedule) -> None:
        """Add a removed schedule again, with its next time set, unless it was cancelled meanwhile."""
        ...

    def next_time(self, kind: PunctuationType) -> int | None:
        """Return the next time (ms) of this clock with a possibly due schedule, or None."""
        ...

    def go_back(self, now: int) -> None:
        """Adjust to a wall clock that went back to `now` (ms).

        No schedule waits longer than its interval because of it.
        """
        ...

    def states(self) -> tuple[ScheduleState, ...]:
        """Return the states for a commit."""
        ...


class LivingSchedules:
    """Schedules of processors that live as long as their task."""

    def __init__(self) -> None:
        self._schedules: dict[PunctuationType, PriorityQueue[Schedule]] = {
            kind: PriorityQueue(_next_time) for kind in PunctuationType
        }

    def add(self, schedule: Schedule, initializing: bool) -> None:
        """Add a schedule at any time."""
        self._schedules[schedule.type].offer(schedule)

    def take_due(self, kind: PunctuationType, now: int) -> Schedule | None:
        """Remove and return the earliest due schedule, or None; drops cancelled ones on the way."""
        queue = self._schedules[kind]
        while (first := queue.peek()) is not None and first.next_time <= now:
            queue.poll()
            if not first.cancelled:
                return first
        return None

    def put_back(self, schedule: Schedule) -> None:
        """Add a removed schedule again, unless it was cancelled."""
        if not schedule.cancelled:
            self._schedules[schedule.type].offer(schedule)

    def next_time(self, kind: PunctuationType) -> int | None:
        """Return the earliest time of the schedules, including cancelled ones that are not yet due."""
        first = self._schedules[kind].peek()
        return None if first is None else first.next_time

    def go_back(self, now: int) -> None:
        """Adjust to a wall clock that went back to `now` (ms)."""
        before = self._schedules[PunctuationType.WALL_CLOCK_TIME]
        queue = self._schedules[PunctuationType.WALL_CLOCK_TIME] = PriorityQueue(_next_time)
        for schedule in before:
            schedule.go_back(now)
            queue.offer(schedule)

    def states(self) -> tuple[ScheduleState, ...]:
        """Return an empty tuple: after a restart, `init` schedules again."""
        return ()


class EpochSchedules(LivingSchedules):
    """Schedules of processors that live for one epoch.

    Args:
        states: the states of the previous epoch, from which they continue.
    """

    def __init__(self, states: Iterable[ScheduleState]) -> None:
        super().__init__()
        self._before = {(state.node, state.call): (place, state) for place, state in enumerate(states)}
        self._made: dict[int, Schedule] = {}

    def add(self, schedule: Schedule, initializing: bool) -> None:
        """Add a schedule created in `init`; raises StreamsError for a later one."""
        if not initializing:
            raise StreamsError(
                f"Processor {schedule.node} calls schedule() outside init(). On this host a processor lives for one "
                "epoch and its schedules come from init(): call schedule() there, and decide in the punctuator, from "
                "a store, whether to do something."
            )
        place, before = self._before.get((schedule.node, schedule.call), (len(self._before) + len(self._made), None))
        if before is not None:
            schedule.cancelled = before.next_time is None
            schedule.next_time = NO_TIMESTAMP if before.next_time is None else _going_on(before.next_time, schedule)
        self._made[place] = schedule
        self._schedules[schedule.type] = PriorityQueue(_next_time)
        for _, made in sorted(self._made.items()):
            if made.type is schedule.type:
                self.put_back(made)

    def states(self) -> tuple[ScheduleState, ...]:
        """Return the next time of each schedule, None for a cancelled one.

        Those of one time are in an order that preserves their turns.
        """
        waiting = [schedule for queue in self._schedules.values() for schedule in queue if not schedule.cancelled]
        cancelled = [schedule for schedule in self._made.values() if schedule.cancelled]
        return tuple(
            ScheduleState(s.node, s.call, s.type, None if s.cancelled else s.next_time) for s in (*waiting, *cancelled)
        )
