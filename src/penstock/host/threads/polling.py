"""The polling thread: owns the core, the consumer and the producer, and does what the core asks for; everything that
concerns tasks, their restores and the group goes to other threads through queues."""

from __future__ import annotations

import logging
import queue
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, TypeVar

from penstock.client.api import Consumer, OffsetAndMetadata
from penstock.errors import OffsetOutOfRangeError
from penstock.host.crashpoints import crash_point
from penstock.host.supervision.turns import TopologyTurns
from penstock.host.threads import vocabulary as v
from penstock.host.threads.figures import InstanceFigures
from penstock.host.threads.instance import Instance
from penstock.host.threads.membership import Membership
from penstock.host.threads.output import Output
from penstock.host.threads.phases import Phase
from penstock.host.threads.task_manager import WorkerOf
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock_broker.common.clock import Clocks, elapsed_milliseconds

A = TypeVar("A", v.RunTask, v.Prepare)

_log = logging.getLogger(__name__)

_BUSY_SECONDS = 0.001
"""Longest wait for an answer while something is in flight: the consumer is looked at in between."""

_LOOK_MS = 10
"""How long records may stay with the consumer while all workers are busy: those of a task that has waited for them go
before others."""


class Workers(Protocol):
    """Where actions about tasks are done: other threads, which answer with events."""

    def do(self, action: v.TaskAction) -> None:
        """Let a processing thread do `action`."""
        ...

    def look_for_hung(self, limit_ms: int) -> None:
        """Tell of the tasks that cannot go on because a function has not returned for `limit_ms`."""
        ...

    def end_hung(self, limit_ms: int) -> None:
        """End what has been doing one action for `limit_ms`, where it can be ended."""
        ...

    def restore(self, action: v.RestoreAction) -> None:
        """Let the restore thread do `action`."""
        ...

    def cancel_restore(self, task: TaskId) -> None:
        """Have the restore thread not go on with the restore of `task`."""
        ...


class ApplicationListener(Protocol):
    """What the polling thread tells the application."""

    def running(self) -> None:
        """All tasks are being processed."""
        ...

    def rebalancing(self) -> None:
        """Tasks are being set up."""
        ...

    def ask(self, error: BaseException) -> v.Decided:
        """Return the answer of the handler of uncaught exceptions."""
        ...


class Polling:
    """The loop of the polling thread."""

    def __init__(
        self,
        instance: Instance,
        consumer: Consumer,
        output: Output,
        membership: Membership,
        workers: Workers,
        application: ApplicationListener,
        clocks: Clocks,
        poll_ms: int,
        awaitable: frozenset[TopicPartition],
        figures: InstanceFigures,
        events: queue.SimpleQueue[v.Event],
        turns: TopologyTurns | None = None,
        worker_of: WorkerOf = lambda _: 0,
        aligned: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        """Take what the loop works with. clocks: the core lives by the elapsed time, tasks by the wall clock. poll_ms:
        longest wait for records when nothing is in flight. awaitable: the partitions of tasks that read several, whose
        ends the core wants to know. aligned: others of which it wants to know how far they can be read. figures: counts
        and measures.
        events: for the core, of all threads. turns: that runs take, for which others wait no longer when there is
        nothing to run, and among which the flushes of commits count; None if they take none. worker_of: as for the
        core."""
        self._instance = instance
        self._consumer = consumer
        self._output = output
        self._membership = membership
        self._workers = workers
        self._application = application
        self._clocks = clocks
        self._ahead: dict[TaskId, int] = {}
        """How much (ms) the wall clock of each task is ahead of the core's, as of its last action."""
        self._poll_ms = poll_ms
        self._awaitable = awaitable
        self._with_ends = awaitable | aligned
        self._events = events
        self._positions: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        """The offset behind the last record of each partition that has arrived."""
        self._ends: dict[TopicPartition, int] = {}
        self._out: set[TaskId | None] = set()
        self._ended: v.End | None = None
        self._is_ending = False
        self._ticked_at = 0
        self._looked_at_ms = 0
        self._figures = figures
        self._turns = turns
        self._worker_of = worker_of

    def post(self, event: v.Event) -> None:
        """Give an event to the core; from any thread."""
        self._events.put(event)

    def run(self) -> BaseException | None:
        """Work until the instance has ended; return the error that ended it, None if it was to end."""
        self._membership.start()
        while self._ended is None:
            event = self._next_event()
            if event is not None:
                self._handle(event)
        return self._ended.error

    def _next_event(self) -> v.Event | None:
        """Return the next event, None if there is none yet; a tick where time alone has something to do.

        Records are fetched at once when they can be processed, and from time to time while workers are busy. Until then
        they stay with the consumer, so that one run takes all that has come.
        """
        looks = bool(self._out) and elapsed_milliseconds() - self._looked_at_ms >= _LOOK_MS
        if looks and self._instance.room() is not None:
            self._poll(0)
        with suppress(queue.Empty):
            return self._events.get_nowait()
        wait_ms = self._wait_ms()
        with suppress(queue.Empty):
            if self._out and not self._instance.wants_records():
                waits = self._instance.room() is not None
                return self._events.get(timeout=min(wait_ms / 1000, _LOOK_MS / 1000) if waits else wait_ms / 1000)
            if self._out or self._turns is not None:
                if self._poll(0):
                    return self._events.get_nowait()
                if self._turns is not None:
                    self._turns.rest({self._worker_of(task) for task in self._out if task is not None})
            if self._out:
                return self._events.get(timeout=min(wait_ms / 1000, _BUSY_SECONDS))
            if self._poll(wait_ms):
                return self._events.get_nowait()
        return self._tick()

    def _tick(self) -> v.TimePassed | None:
        """Return a tick if one is due: for the core, or since the last one was long ago."""
        now, due = self._clocks.elapsed.milliseconds(), self._instance.next_due_ms()
        if now < self._ticked_at + self._poll_ms and (due is None or now < due):
            return None
        self._ticked_at = now
        return v.TimePassed()

    def _wait_ms(self) -> int:
        due = self._instance.next_due_ms()
        return self._poll_ms if due is None else max(0, min(self._poll_ms, due - self._clocks.elapsed.milliseconds()))

    def _poll(self, timeout_ms: int) -> bool:
        """Take the records that have arrived; return whether there is something new for the core."""
        room = self._instance.room()
        if not self._positions or room is None:
            if not self._positions and not self._is_ending:
                self._figures.lags({}, {})
            if timeout_ms:
                try:
                    self.post(self._events.get(timeout=timeout_ms / 1000))
                except queue.Empty:
                    return False
                return True
            return False
        try:
            self._figures.poll_began()
            arrived = self._consumer.poll(timeout_ms, *room)
            self._looked_at_ms = elapsed_milliseconds()
            self._figures.poll_ended(sum(len(batch) for _, batch in arrived))
        except OffsetOutOfRangeError as error:
            _log.warning("The offset reset of the source decides where reading continues: %s", error)
            self.post(v.Failed(error) if error.partition is None else v.OutOfRange(error.partition, error))
            return True
        except Exception as error:
            self.post(v.Failed(error))
            return True
        self._look_at_ends()
        for partition, batch in arrived:
            self._next[partition] = int(batch.offsets[-1]) + 1
            self.post(v.Arrived(partition, batch))
        if reached := self._new_ends():
            self.post(v.EndsReached(reached))
        if self._figures.wants_lag():
            self._look_at_lags()
        return bool(arrived or reached)

    def _look_at_lags(self) -> None:
        outside = [p for p in self._positions if not self._figures.is_internal(p.topic)]
        self._figures.lags(self._instance.lags(self._consumer.known_ends(outside)), self._instance.waiting())

    def _new_ends(self) -> dict[TopicPartition, int]:
        """Return the ends that the consumer has reached. Without those that the last record shows already: a consumer
        that keeps up with its input reaches the end behind each record. Tasks that wait for partitions look again at
        each end, so all ends of these partitions are returned."""
        reached = self._consumer.reached_ends()
        return {p: end for p, end in reached.items() if p in self._awaitable or end > self._next.get(p, -1)}

    def _look_at_ends(self) -> None:
        wanted = self._with_ends & self._positions.keys()
        if wanted:
            ends = self._consumer.known_ends(wanted)
            if ends != self._ends:
                self._ends = ends
                self.post(v.EndsKnown(ends))

    def _handle(self, event: v.Event) -> None:
        self._crash_point(event)
        if self._turns is not None and isinstance(event, v.CommitPrepared):
            self._turns.count(event.nanoseconds)
        match event:
            case v.Ran(task) | v.Started(task) | v.CommitPrepared(task) | v.CommitApplied(task) | v.Closed(task):
                self._out.discard(task)
            case v.Failed(task=task):
                self._out.discard(task)
            case v.Hangs(tasks):
                self._out -= tasks
            case v.OffsetsCommitted():
                self._out.discard(None)
            case v.MembershipLost(error):
                self._out.discard(None)
                _log.warning("%s", error)
            case v.MembershipRefused():
                self._out.discard(None)
            case v.ApplicationShutDown(error) if error is not None:
                _log.error("%s", error)
            case v.CutOff():
                _log.warning(
                    "The coordinator of the group has not answered, and other instances may have the tasks of this "
                    "one. Processing stops until it does."
                )
            case v.Reconnected():
                _log.warning("The coordinator of the group answers again. Processing continues.")
            case v.TransactionLost(error=error):
                _log.warning("The records since the last commit are processed again: %s", error)
            case _:
                pass
        self._figures.take(event)
        now_ms = self._clocks.elapsed.milliseconds()
        ahead_ms = self._clocks.wall.milliseconds() - now_ms
        actions = self._instance.handle(self._by_core(event), now_ms, ahead_ms)
        is_running, number = self._instance.phase is Phase.RUNNING, self._figures.commit.number
        if is_running:  # before the tasks run on, whose records are in the next commit
            self._figures.commit_ended(self._clocks.wall.milliseconds())
        if self._instance.phase is Phase.ENDING and not self._is_ending:
            self._is_ending = True
            self._look_at_lags()  # for the last time: it stays what the instance has left to others
        for action in actions:
            self._do(action)
        if is_running and isinstance(event, v.CommitApplied):
            crash_point("commit.ended", number)

    def _crash_point(self, event: v.Event) -> None:
        """Die here if a test asks for it."""
        match event:
            case v.Written():
                crash_point("commit.written", self._figures.commit.number)
            case v.OffsetsCommitted() | v.TransactionCommitted():
                crash_point("commit.committed", self._figures.commit.number)
            case v.CommitApplied():
                crash_point("commit.applied", self._figures.commit.number)
            case v.Assigned():
                crash_point("group.assigned", 0)
            case v.Restored():
                crash_point("state.restored", 0)
            case _:
                pass

    def _wall_clock_of(self, task: TaskId) -> int:
        """Return the wall-clock time (ms), by which tasks live, for an action about `task`."""
        now_ms = self._clocks.wall.milliseconds()
        self._ahead[task] = now_ms - self._clocks.elapsed.milliseconds()
        return now_ms

    def _numbered(self, action: A) -> A:
        now_ms = self._wall_clock_of(action.task)
        return replace(action, now_ms=now_ms, commit=self._figures.commit.number + 1)

    def _by_core(self, event: v.Event) -> v.Event:
        """Return `event` with the core's time for when a task has something to do, which no leap of the wall clock
        since then moves."""
        match event:
            case v.Started(task, due) | v.Ran(task, next_wall_clock_ms=due) | v.CommitApplied(task, due) if (
                due is not None
            ):
                return replace(event, next_wall_clock_ms=due - self._ahead[task])
            case v.Closed(task=task):
                self._ahead.pop(task, None)
            case _:
                pass
        return event

    def _do(self, action: v.Action) -> None:
        match action:
            case v.Prepare(task):
                self._figures.commit_began(self._clocks.wall.milliseconds())
                self._out.add(task)
                self._workers.do(self._numbered(action))
            case v.RunTask(task):
                self._out.add(task)
                self._workers.do(self._numbered(action))
            case v.Start(task):
                self._out.add(task)
                self._workers.do(replace(action, now_ms=self._wall_clock_of(task)))
            case v.Apply() | v.Close():
                self._out.add(action.task)
                self._workers.do(action)
            case v.CancelRestore(task):
                self._workers.cancel_restore(task)
            case v.Restore() | v.StandBy() | v.StandDown():
                self._figures.asked(action)
                self._workers.restore(action)
            case v.Purge() | v.ResetPosition() | v.FindUnread():
                self._workers.restore(action)
            case v.CommitTransaction(offsets):
                crash_point("commit.prepared", self._figures.commit.number)
                self._produce(v.CommitTransaction(self._with_epochs(offsets)))
            case v.Flush():
                crash_point("commit.prepared", self._figures.commit.number)
                self._produce(action)
            case v.Send() | v.Abort():
                self._produce(action)
            case v.CommitOffsets(offsets):
                self._out.add(None)
                self._membership.commit(self._with_epochs(offsets))
            case v.Ask(error):
                self.post(self._application.ask(error))
            case v.TellRetry(error, None):
                _log.warning("All tasks are reopened and continue from the last commit: %s", error)
            case v.TellRetry(error, task):
                _log.warning("Task %s is opened again, and the others go on meanwhile: %s", task, error)
            case v.TellRunning():
                self._application.running()
            case v.TellRebalancing():
                self._application.rebalancing()
            case v.GiveUp(tasks, assignments):
                crash_point("group.given_up", 0)
                self._membership.give_up(tasks, assignments)
            case v.StepBack(error):
                self._membership.step_back(error)
            case v.LookForHung(limit_ms):
                self._workers.look_for_hung(limit_ms)
            case v.EndHung(limit_ms):
                self._workers.end_hung(limit_ms)
            case v.ShutDownApplication():
                self._membership.shut_down()
            case v.Leave():
                self._membership.leave()
            case v.End():
                self._ended = action
            case v.Follow() | v.Unfollow() | v.PauseReading() | v.ResumeReading():
                self._read(action)

    def _with_epochs(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return `offsets` with the epochs of the leaders that have written what is before them. A later one, of a
        record that has arrived and is not processed, finds the same truncations."""
        epochs = self._consumer.leader_epochs()
        return {p: each._replace(leader_epoch=epochs.get(p, each.leader_epoch)) for p, each in offsets.items()}

    def _produce(self, action: v.OutputAction) -> None:
        if isinstance(action, v.Send):
            self._figures.sent(action.output)
        answer = self._output.do(action)
        if answer is not None:
            self.post(answer)

    def _read(self, action: v.ReadAction) -> None:
        try:
            match action:
                case v.Follow(positions):
                    self._positions.update(positions)
                    self._consumer.incremental_assign(positions)
                case v.Unfollow(partitions):
                    for partition in partitions:
                        self._positions.pop(partition, None)
                        self._next.pop(partition, None)
                    self._consumer.incremental_unassign(partitions)
                case v.PauseReading(partitions):
                    self._consumer.pause(partitions)
                case v.ResumeReading(partitions):
                    self._consumer.resume(partitions)
        except Exception as error:
            self.post(v.Failed(error))

    def close(self) -> None:
        """Release the clients."""
        self._consumer.close()
        self._output.close()
