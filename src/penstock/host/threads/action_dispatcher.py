"""Does the actions of the core in the polling thread, or gives them to the threads that do: those of the tasks, of
their restores and of the group."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TypeVar

from penstock.host.crashpoints import crash_point
from penstock.host.threads import vocabulary as v
from penstock.host.threads.figures import InstanceFigures
from penstock.host.threads.input_consumer import InputConsumer
from penstock.host.threads.instance_application import InstanceApplication
from penstock.host.threads.membership import Membership, Post
from penstock.host.threads.output import Output
from penstock.host.threads.task_threads import TaskThreads
from penstock.plan.subtopology import TaskId
from penstock_broker.common.clock import Clocks

A = TypeVar("A", v.RunTask, v.Prepare)

_log = logging.getLogger(__name__)


class ActionDispatcher:
    """Takes actions, and knows which have not been answered yet. The polling thread calls it.

    Args:
        inputs: the partitions that are read.
        output: takes records and commits.
        membership: of the group.
        workers: the threads for actions about tasks.
        application: hears of changes and errors.
        figures: counts and measures.
        clocks: the core lives by the elapsed time, tasks by the wall clock.
        post: takes answers.
    """

    def __init__(
        self,
        inputs: InputConsumer,
        output: Output,
        membership: Membership,
        workers: TaskThreads,
        application: InstanceApplication,
        figures: InstanceFigures,
        clocks: Clocks,
        post: Post,
    ) -> None:
        self._inputs = inputs
        self._output = output
        self._membership = membership
        self._workers = workers
        self._application = application
        self._figures = figures
        self._clocks = clocks
        self._post = post
        self._ahead: dict[TaskId, int] = {}
        """How much (ms) the wall clock of each task is ahead of the core's, as of its last action."""
        self._out: set[TaskId | None] = set()
        """The tasks of which an action is not answered; None: offsets are being committed."""
        self.ended: v.End | None = None
        """How the instance has ended, None while it has not."""

    @property
    def is_waiting(self) -> bool:
        """Whether an action is not answered."""
        return bool(self._out)

    def busy_workers(self) -> set[int]:
        """Return the workers that have not answered."""
        return {self._workers.worker_of(task) for task in self._out if task is not None}

    def start(self) -> None:
        """Join the group; the answer is an event."""
        self._membership.start()

    def answered(self, event: v.Event) -> None:
        """Take that an event may answer an action."""
        match event:
            case v.Ran(task) | v.Started(task) | v.CommitPrepared(task) | v.CommitApplied(task) | v.Closed(task):
                self._out.discard(task)
            case v.Failed(task=task):
                self._out.discard(task)
            case v.Hangs(tasks):
                self._out -= tasks
            case v.OffsetsCommitted() | v.MembershipLost() | v.MembershipRefused():
                self._out.discard(None)
            case _:
                pass

    def do(self, action: v.Action) -> None:
        """Do an action, or have it done; answers are events."""
        match action:
            # A task, and the group, have one action at a time: until it is answered, the polling thread waits for it.
            case v.Prepare(task):
                self._figures.commits.began(self._clocks.wall.milliseconds())
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
                crash_point("commit.prepared", self._figures.commits.last.number)
                self._produce(v.CommitTransaction(self._inputs.with_epochs(offsets)))
            case v.Flush():
                crash_point("commit.prepared", self._figures.commits.last.number)
                self._produce(action)
            case v.Send() | v.Abort():
                self._produce(action)
            case v.CommitOffsets(offsets):
                self._out.add(None)
                self._membership.commit(self._inputs.with_epochs(offsets))
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
            case v.Ask() | v.TellRetry() | v.TellRunning() | v.TellRebalancing() | v.End():
                self._tell(action)
            case v.Follow() | v.Unfollow() | v.PauseReading() | v.ResumeReading():
                self._inputs.do(action)

    def _tell(self, action: v.TellAction) -> None:
        match action:
            case v.Ask(error):
                self._post(self._application.ask(error))
            case v.TellRetry(error, None):
                _log.warning("All tasks are reopened and continue from the last commit: %s", error)
            case v.TellRetry(error, task):
                _log.warning("Task %s is opened again, and the others go on meanwhile: %s", task, error)
            case v.TellRunning():
                self._application.running()
            case v.TellRebalancing():
                self._application.rebalancing()
            case v.End():
                self.ended = action

    def _numbered(self, action: A) -> A:
        now_ms = self._wall_clock_of(action.task)
        return replace(action, now_ms=now_ms, commit=self._figures.commits.last.number + 1)

    def _wall_clock_of(self, task: TaskId) -> int:
        """Return the wall-clock time (ms), by which tasks live, for an action about `task`."""
        now_ms = self._clocks.wall.milliseconds()
        self._ahead[task] = now_ms - self._clocks.elapsed.milliseconds()
        return now_ms

    def by_core(self, event: v.Event) -> v.Event:
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

    def _produce(self, action: v.OutputAction) -> None:
        if isinstance(action, v.Send):
            self._figures.sent(action.output)
        answer = self._output.do(action)
        if answer is not None:
            self._post(answer)

    def close(self) -> None:
        """Release the clients."""
        self._inputs.close()
        self._output.close()
