"""Schedules: which punctuator is due when. Two lifetimes of a schedule exist, and a host says which one its tasks have.

`LivingSchedules`: a processor lives as long as its task, may schedule at any time, and schedules again after a restart,
as in Kafka. `EpochSchedules`: a processor lives for one epoch; only `init` schedules, and a schedule continues where
the same call of the previous epoch stopped.
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
    """Raise TypeError unless `type` is one, and `callback`, which the processor of `node` schedules, takes a time."""
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
    """Before this time (ms) it does not fire, though that is further off than an interval."""

    def cancel(self) -> None:
        """End the schedule; its punctuator is not called again."""
        self.cancelled = True

    def advance(self, now: int) -> None:
        """Set the next time after a punctuation at `now` (ms): one punctuation for all intervals that were missed."""
        self.next_time += self.interval
        if self.next_time <= now:
            self.next_time += (now - self.next_time) // self.interval * self.interval + self.interval

    def go_back(self, now: int) -> None:
        """Set the next time after the clock went back to `now` (ms): at most one interval later, and in step."""
        too_far = max(self.next_time - now - 1, 0) // self.interval * self.interval
        self.next_time = max(self.next_time - too_far, self.first_time)


def _next_time(schedule: Schedule) -> int:
    return schedule.next_time


def _going_on(next_time: int, schedule: Schedule) -> int:
    """Return when `schedule`, just made, fires next, where it was `next_time` (ms) before. By wall clock that is more
    than an interval later than for a new one only where the clock went back: then the interval begins again."""
    went_back = next_time > schedule.next_time + schedule.interval
    return schedule.next_time if went_back and schedule.type is PunctuationType.WALL_CLOCK_TIME else next_time


class Schedules(Protocol):
    """The schedules of one task."""

    def add(self, schedule: Schedule, initializing: bool) -> None:
        """Take a schedule, made in `init` or later; raises StreamsError if it may not be made."""
        ...

    def take_due(self, kind: PunctuationType, now: int) -> Schedule | None:
        """Take out and return the schedule of this clock that is due at `now` (ms) and has the smallest time, None if
        there is none."""
        ...

    def put_back(self, schedule: Schedule) -> None:
        """Put in again a schedule that was taken out, with its next time set; not if it was cancelled meanwhile."""
        ...

    def next_time(self, kind: PunctuationType) -> int | None:
        """Return the next time (ms) of this clock at which a schedule may be due, None if there is none."""
        ...

    def go_back(self, now: int) -> None:
        """Take that the wall clock went back to `now` (ms): no schedule waits longer than its interval for that."""
        ...

    def states(self) -> tuple[ScheduleState, ...]:
        """Return what a commit must remember."""
        ...


class LivingSchedules:
    """Schedules of processors that live as long as their task."""

    def __init__(self) -> None:
        self._schedules: dict[PunctuationType, PriorityQueue[Schedule]] = {
            kind: PriorityQueue(_next_time) for kind in PunctuationType
        }

    def add(self, schedule: Schedule, initializing: bool) -> None:
        """Take a schedule at any time."""
        self._schedules[schedule.type].offer(schedule)

    def take_due(self, kind: PunctuationType, now: int) -> Schedule | None:
        """Take out the due schedule with the smallest time; those that were cancelled are dropped on the way."""
        queue = self._schedules[kind]
        while (first := queue.peek()) is not None and first.next_time <= now:
            queue.poll()
            if not first.cancelled:
                return first
        return None

    def put_back(self, schedule: Schedule) -> None:
        """Put in again a schedule that was taken out, unless it was cancelled."""
        if not schedule.cancelled:
            self._schedules[schedule.type].offer(schedule)

    def next_time(self, kind: PunctuationType) -> int | None:
        """Return the smallest time of the schedules, among them those cancelled that have not become due."""
        first = self._schedules[kind].peek()
        return None if first is None else first.next_time

    def go_back(self, now: int) -> None:
        """Take that the wall clock went back to `now` (ms)."""
        before = self._schedules[PunctuationType.WALL_CLOCK_TIME]
        queue = self._schedules[PunctuationType.WALL_CLOCK_TIME] = PriorityQueue(_next_time)
        for schedule in before:
            schedule.go_back(now)
            queue.offer(schedule)

    def states(self) -> tuple[ScheduleState, ...]:
        """Return nothing: after a restart `init` schedules again."""
        return ()


class EpochSchedules(LivingSchedules):
    """Schedules of processors that live for one epoch; they continue from the states of the previous epoch."""

    def __init__(self, states: Iterable[ScheduleState]) -> None:
        """Go on from `states`."""
        super().__init__()
        self._before = {(state.node, state.call): (place, state) for place, state in enumerate(states)}
        self._made: dict[int, Schedule] = {}

    def add(self, schedule: Schedule, initializing: bool) -> None:
        """Take a schedule made in `init`; raises StreamsError for one made later."""
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
        """Return the next time of each schedule, None for a cancelled one; those of one time in an order that keeps
        their turns."""
        waiting = [schedule for queue in self._schedules.values() for schedule in queue if not schedule.cancelled]
        cancelled = [schedule for schedule in self._made.values() if schedule.cancelled]
        return tuple(
            ScheduleState(s.node, s.call, s.type, None if s.cancelled else s.next_time) for s in (*waiting, *cancelled)
        )
