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
from penstock_broker.common.durations import LATEST_MS

MINIMUM_INTERVAL_MS = 1

_NEVER = LATEST_MS
"""The next time of an alarm that is not set."""

_AFTER_ERROR_MS = 1_000
"""The time from a punctuation of an alarm that failed to the next one (ms)."""


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

    def continue_at(self, next_time: int | None) -> None:
        """Continue at the time (ms) of the last commit, None for a cancelled schedule."""
        self.cancelled = next_time is None
        self.next_time = NO_TIMESTAMP if next_time is None else _going_on(next_time, self)

    def committed_time(self) -> int | None:
        """Return the time (ms) for the next commit, None for a cancelled schedule."""
        return None if self.cancelled else self.next_time

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


class TaskAlarm(Schedule):
    """A schedule by wall clock that fires once at a time set by its operator (implements Alarm).

    The operator derives the time from its store, and sets it again in each `init`.

    Args:
        node: the name of the node.
        call: the number of the schedule among those of the node.
        callback: called with the time in ms.
        schedules: the schedules of the task.
    """

    def __init__(self, node: str, call: int, callback: Punctuator, schedules: Schedules) -> None:
        super().__init__(node, call, PunctuationType.WALL_CLOCK_TIME, _AFTER_ERROR_MS, callback, _NEVER)
        self._schedules = schedules

    def ring_at(self, time_ms: int | None) -> None:
        """Set the next time (ms); None for never."""
        self.next_time = _NEVER if time_ms is None else time_ms
        self._schedules.reorder(self.type)

    def advance(self, now: int) -> None:
        """Keep the time that the punctuator has set; after an error it did not, and is called again soon."""
        if self.next_time <= now:
            self.next_time = now + self.interval

    def go_back(self, now: int) -> None:
        """Fire soon: the operator sets the time again, by the clock that went back to `now` (ms)."""
        if self.next_time != _NEVER:
            self.next_time = min(self.next_time, now)

    def continue_at(self, next_time: int | None) -> None:
        """Ignore the time before: the operator sets it."""

    def committed_time(self) -> int | None:
        """Return the next time (ms), None for never."""
        return None if self.next_time == _NEVER else self.next_time


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

    def reorder(self, kind: PunctuationType) -> None:
        """Take notice of a changed next time of a schedule of this clock."""
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
        return None if first is None or first.next_time == _NEVER else first.next_time

    def reorder(self, kind: PunctuationType) -> None:
        """Order the schedules of this clock again by their times."""
        before = self._schedules[kind]
        self._schedules[kind] = PriorityQueue(_next_time)
        for schedule in before:
            self._schedules[kind].offer(schedule)

    def go_back(self, now: int) -> None:
        """Adjust to a wall clock that went back to `now` (ms)."""
        for schedule in self._schedules[PunctuationType.WALL_CLOCK_TIME]:
            schedule.go_back(now)
        self.reorder(PunctuationType.WALL_CLOCK_TIME)

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
            schedule.continue_at(before.next_time)
        self._made[place] = schedule
        self._schedules[schedule.type] = PriorityQueue(_next_time)
        for _, made in sorted(self._made.items()):
            if made.type is schedule.type:
                self.put_back(made)

    def states(self) -> tuple[ScheduleState, ...]:
        """Return the next time of each schedule, None for a cancelled one. Alarms that are not set are left out.

        Those of one time are in an order that preserves their turns.
        """
        uncancelled = [schedule for queue in self._schedules.values() for schedule in queue if not schedule.cancelled]
        waiting = [schedule for schedule in uncancelled if schedule.committed_time() is not None]
        cancelled = [schedule for schedule in self._made.values() if schedule.cancelled]
        return tuple(ScheduleState(s.node, s.call, s.type, s.committed_time()) for s in (*waiting, *cancelled))
