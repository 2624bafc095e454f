"""The polling thread: owns the core, the consumer and the producer, and performs actions.

Work on tasks, their restores and the group goes to other threads through queues.
"""

from __future__ import annotations

import logging
import queue

from penstock.host.crashpoints import crash_point
from penstock.host.threads import vocabulary as v
from penstock.host.threads.action_dispatcher import ActionDispatcher
from penstock.host.threads.figures import InstanceFigures
from penstock.host.threads.input_consumer import InputConsumer
from penstock.host.threads.instance import Instance
from penstock.host.threads.moving_loop import MovingLoop
from penstock.host.threads.phases import Phase
from penstock.host.threads.processing import Processing
from penstock_broker.common.clock import Clocks, elapsed_milliseconds

_log = logging.getLogger(__name__)

_BUSY_SECONDS = 0.001
"""Longest wait for an answer to an action in flight, between polls of the consumer."""

_LOOK_MS = 10
"""Longest time that records stay with the consumer while all workers are busy (ms).

Records of a task that has waited for them go before others.
"""


class Polling:
    """The loop of the polling thread.

    Args:
        instance: the core.
        inputs: the consumer of the input topics.
        dispatcher: performs the actions of the core.
        clocks: of the host.
        poll_ms: longest wait for records when no action is in flight.
        figures: counts and measures.
        events: for the core, from all threads.
        processing: runs the tasks. If topologies that share this process take turns, idle workers give theirs up, and
            flushes of commits count as runs.
    """

    def __init__(
        self,
        instance: Instance,
        inputs: InputConsumer,
        dispatcher: ActionDispatcher,
        clocks: Clocks,
        poll_ms: int,
        figures: InstanceFigures,
        events: queue.SimpleQueue[v.Event],
        processing: Processing,
    ) -> None:
        self._instance = instance
        self._inputs = inputs
        self._dispatcher = dispatcher
        self._clocks = clocks
        self._poll_ms = poll_ms
        self._figures = figures
        self._events = events
        self._turns = processing.turns
        self._lend = processing.lend
        self._is_ending = False
        self._ticked_at = 0

    def post(self, event: v.Event) -> None:
        """Post an event to the core; from any thread."""
        self._events.put(event)

    def run(self) -> BaseException | None:
        """Work until the instance has ended; return its error, or None after a requested end."""
        self._dispatcher.start()
        MovingLoop(self, self._lend).run()
        assert self._dispatcher.ended is not None
        return self._dispatcher.ended.error

    @property
    def has_ended(self) -> bool:
        """Whether the instance has ended."""
        return self._dispatcher.ended is not None

    @property
    def is_waiting(self) -> bool:
        """Whether an action is unanswered."""
        return self._dispatcher.is_waiting

    def next_event(self) -> v.Event | None:
        """Return the next event, a tick if only time has passed, or None.

        Records are fetched at once when they can be processed, and from time to time while workers are busy. Until then
        they stay with the consumer, so that one run gets all records that have arrived.
        """
        is_waiting = self.is_waiting
        looks = is_waiting and elapsed_milliseconds() - self._inputs.polled_at_ms >= _LOOK_MS
        if looks and self._instance.room() is not None:
            self._poll(0)
        if not self._events.empty():  # no other thread takes events
            return self._events.get_nowait()
        wait_ms = self._wait_ms()
        if is_waiting and not self._instance.wants_records():
            waits = self._instance.room() is not None
            return self._event_within(min(wait_ms, _LOOK_MS) / 1000 if waits else wait_ms / 1000) or self._tick()
        if is_waiting or self._turns is not None:
            if self._poll(0):
                return self._events.get_nowait()
            if self._turns is not None:
                self._turns.rest(self._dispatcher.busy_workers())
        if is_waiting:
            return self._event_within(min(wait_ms / 1000, _BUSY_SECONDS)) or self._tick()
        return self._events.get_nowait() if self._poll(wait_ms) else self._tick()

    def _event_within(self, seconds: float) -> v.Event | None:
        """Return the next event, or None if it does not come within `seconds`."""
        try:
            return self._events.get(timeout=seconds)
        except queue.Empty:
            return None

    def _tick(self) -> v.TimePassed | None:
        """Return a tick if due: for the core, or long after the last one."""
        now, due = self._clocks.elapsed.milliseconds(), self._instance.next_due_ms()
        if now < self._ticked_at + self._poll_ms and (due is None or now < due):
            return None
        self._ticked_at = now
        return v.TimePassed()

    def _wait_ms(self) -> int:
        due = self._instance.next_due_ms()
        return self._poll_ms if due is None else max(0, min(self._poll_ms, due - self._clocks.elapsed.milliseconds()))

    def _poll(self, timeout_ms: int) -> bool:
        """Poll for records; return whether there is a new event for the core."""
        room = self._instance.room()
        if not self._inputs.is_empty and room is not None:
            return self._inputs.poll(timeout_ms, room)
        if self._inputs.is_empty and not self._is_ending:
            self._figures.lags({}, {})
        if timeout_ms and (event := self._event_within(timeout_ms / 1000)) is not None:
            self.post(event)
            return True
        return False

    def handle(self, event: v.Event) -> None:
        """Pass an event to the core, and perform the actions that follow."""
        if not isinstance(event, v.FREQUENT):  # those have no crash points and no report
            self._crash_point(event)
            _report(event)
        if self._turns is not None and isinstance(event, v.CommitPrepared):
            self._turns.count(event.nanoseconds)
        self._dispatcher.answered(event)
        self._figures.take(event)
        now_ms, wall_ms = self._clocks.elapsed.milliseconds(), self._clocks.wall.milliseconds()
        actions = self._instance.handle(self._dispatcher.by_core(event), now_ms, wall_ms - now_ms)
        is_running, number = self._instance.phase is Phase.RUNNING, self._figures.commits.last.number
        if is_running:  # before the tasks run on, since their records are in the next commit
            self._figures.commit_ended(wall_ms)
        if self._instance.phase is Phase.ENDING and not self._is_ending:
            self._is_ending = True
            self._inputs.look_at_lags()  # for the last time: these lags remain for the other instances
        for action in actions:
            self._dispatcher.do(action)
        if is_running and isinstance(event, v.CommitApplied):
            crash_point("commit.ended", number)

    def _crash_point(self, event: v.Event) -> None:
        """Crash here if a test asks for it."""
        match event:
            case v.Written():
                crash_point("commit.written", self._figures.commits.last.number)
            case v.OffsetsCommitted() | v.TransactionCommitted():
                crash_point("commit.committed", self._figures.commits.last.number)
            case v.CommitApplied():
                crash_point("commit.applied", self._figures.commits.last.number)
            case v.Assigned():
                crash_point("group.assigned", 0)
            case v.Restored():
                crash_point("state.restored", 0)
            case _:
                pass

    def close(self) -> None:
        """Release the clients."""
        self._dispatcher.close()


def _report(event: v.Event) -> None:
    """Log an event that stops the processing or lets it continue."""
    match event:
        case v.MembershipLost(error):
            _log.warning("%s", error)
        case v.ApplicationShutDown(error) if error is not None:
            _log.error("%s", error)
        case v.SessionTimedOut():
            _log.warning(
                "The coordinator of the group has not answered, and other instances may have the tasks of this one. "
                "Processing stops until it does."
            )
        case v.Reconnected():
            _log.warning("The coordinator of the group answers again. Processing continues.")
        case v.TransactionLost(error=error):
            _log.warning("The records since the last commit are processed again: %s", error)
        case _:
            pass
