"""Dispatches the core's actions in the polling thread. It performs them itself, or passes them to the threads of tasks,
restores and the group."""

from __future__ import annotations

import logging
from dataclasses import replace

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

_log = logging.getLogger(__name__)


class ActionDispatcher:
    """Performs or passes on actions, and tracks the unanswered ones. Called by the polling thread.

    Args:
        inputs: reads the input partitions.
        output: writes records and commits.
        membership: the group member.
        workers: the threads for actions about tasks.
        application: receives state changes and errors.
        figures: counters and timings.
        clocks: the core uses elapsed time, tasks use wall-clock time.
        post: receives answers.
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
        """By task, the lead (ms) of its wall clock over the core's, as last measured."""
        self._out: set[TaskId | None] = set()
        """The tasks with an unanswered action; None is a pending commit of offsets."""
        self.ended: v.End | None = None
        """The end of the instance, None while it runs."""

    @property
    def is_waiting(self) -> bool:
        """Whether an action is unanswered."""
        return bool(self._out)

    def busy_workers(self) -> set[int]:
        """Return the workers with an unanswered action."""
        return {self._workers.worker_of(task) for task in self._out if task is not None}

    def start(self) -> None:
        """Join the group; the answer is an event."""
        self._membership.start()

    def answered(self, event: v.Event) -> None:
        """Note the answer to an action, if `event` is one."""
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
        """Perform an action or pass it on; answers are events."""
        match action:
            # A task has one action at a time, and so has the group: the polling thread waits until it is answered.
            case v.RunTask(task, records, wait):
                self._out.add(task)
                self._workers.do(v.RunTask(task, records, wait, self._wall_clock_of(task), self._next_commit))
            case v.Send() | v.Abort():
                self._produce(action)
            case v.Prepare(task):
                self._figures.commits.began(self._clocks.wall.milliseconds())
                self._out.add(task)
                self._workers.do(v.Prepare(task, self._wall_clock_of(task), self._next_commit))
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
            case v.CommitOffsets(offsets):
                self._out.add(None)
                self._membership.commit(self._inputs.with_epochs(offsets))
            case v.GiveUp(tasks, assignments):
                self._workers.end_calls(tasks)
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
            case v.Leave(operation):
                self._membership.leave(operation)
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
                _log.warning("Task %s is opened again, and the others continue: %s", task, error)
            case v.TellRunning():
                self._application.running()
            case v.TellRebalancing():
                self._application.rebalancing()
            case v.End():
                self.ended = action

    @property
    def _next_commit(self) -> int:
        """The number of the next commit."""
        return self._figures.commits.last.number + 1

    def _wall_clock_of(self, task: TaskId) -> int:
        """Return the wall-clock time (ms) of tasks for an action about `task`."""
        now_ms = self._clocks.wall.milliseconds()
        self._ahead[task] = now_ms - self._clocks.elapsed.milliseconds()
        return now_ms

    def by_core(self, event: v.Event) -> v.Event:
        """Return `event` with its due time converted to the core's clock. Later jumps of the wall clock do not move
        it."""
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
