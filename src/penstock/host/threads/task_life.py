"""The life of an instance's tasks: assigned, restored, started, closed and given up. Part of the core.

A task is given up after a commit, or without one if the membership is lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.host.deployment.layout import Layout
from penstock.host.threads import vocabulary as v
from penstock.host.threads.active_task import ActiveTask, ActiveTaskState
from penstock.host.threads.phases import InstancePhase, Phase
from penstock.host.threads.restore_retries import RestoreRetries
from penstock.host.threads.standby_assignment import StandbyAssignment
from penstock.host.threads.task_manager import TaskManager
from penstock.host.threads.task_progress import TaskProgress
from penstock.host.threads.vocabulary import GLOBAL_TASK
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition


class TaskLife:
    """Opens and closes the tasks that the group assigns.

    Args:
        layout: the tasks of the application.
        tasks: the active tasks.
        phase: of the instance.
        progress: the unanswered actions.
        do: receives the actions.
    """

    def __init__(
        self, layout: Layout, tasks: TaskManager, phase: InstancePhase, progress: TaskProgress, do: v.Do
    ) -> None:
        self.standbys = StandbyAssignment(tasks, do)
        self.retries = RestoreRetries(layout.config)
        self._layout = layout
        self._tasks, self._phase, self._progress, self._do = tasks, phase, progress, do
        self.is_cut_off = False
        """Whether the coordinator does not answer; processing stops until it does."""
        self._assigned: frozenset[TaskId] | None = None
        self._assignments = 0
        self._restored: dict[TaskId, v.OpenedState] = {}
        """The states of restored tasks that have not started."""
        self._global_ends: Mapping[TopicPartition, int] = {}
        self._running_told = False

    @property
    def is_assigned(self) -> bool:
        """Whether the instance has an assignment, which may be empty."""
        return self._assigned is not None

    def _keeps(self, id: TaskId) -> bool:
        """Return whether the instance keeps a task."""
        return id == GLOBAL_TASK or (self._assigned is not None and id in self._assigned)

    def lost(self) -> list[ActiveTask]:
        """Return the running tasks to give up."""
        running = (t for t in self._tasks if t.state is ActiveTaskState.RUNNING and not t.is_aside)
        return [task for task in running if not self._keeps(task.id)]

    def assign(self, tasks: frozenset[TaskId], standbys: frozenset[TaskId]) -> None:
        """Apply an assignment: open new tasks, give up lost tasks after the next commit."""
        self._assigned, self.standbys.assigned, self.is_cut_off = tasks, standbys, False
        self._assignments += 1
        for id in sorted(tasks):
            if id not in self._tasks:
                self._tasks.add(id, self._layout.groups[id], self._layout.task_partitions(id))
        if self._layout.topology.global_topology is not None and GLOBAL_TASK not in self._tasks:
            self._tasks.add(GLOBAL_TASK, self._layout.global_partitions)
        self.cancel_restores()

    def lose(self) -> None:
        """Forget the assignment: the instance is no longer a member of the group."""
        self._assigned, self.is_cut_off = None, False
        self.cancel_restores()

    def cancel_restores(self) -> None:
        """Cancel the restores of tasks that other instances wait for, or all at the end."""
        is_ending = self._phase.current is Phase.ENDING
        for task in self._tasks:
            is_being_restored = task.state is ActiveTaskState.RESTORING and task.id not in self._restored
            if is_being_restored and (is_ending or not self._keeps(task.id)):
                self._do(v.CancelRestore(task.id))

    def open(self, now: int) -> None:
        """Open the tasks without open state, and forget those of other instances."""
        for task in self._tasks:
            if task.state is not ActiveTaskState.CREATED:
                continue
            if not self._keeps(task.id):
                self._give_up(task.id)
            elif self.retries.is_due(task.id, now):
                if self._running_told:
                    self._running_told = False
                    self._do(v.TellRebalancing())
                task.reset()
                task.state = ActiveTaskState.RESTORING
                self._do(v.Restore(task.id))
        self.standbys.open()

    def restored(self, id: TaskId, state: v.OpenedState) -> None:
        """Keep the state of a task until it may start."""
        if id == GLOBAL_TASK:
            self._global_ends = state.ends
        self.retries.forget(id)
        self._restored[id] = state

    def start(self, now: int) -> None:
        """Start restored tasks, stream tasks after the global stores, which they may read."""
        for id, state in list(self._restored.items()):
            task = self._tasks[id]
            if self._phase.current is Phase.ENDING or not self._keeps(id):
                del self._restored[id]
                self.close(task, now, state)
            elif id == GLOBAL_TASK or self._global_is_ready():
                del self._restored[id]
                task.positions = dict(state.positions)
                task.state = ActiveTaskState.STARTING
                self._progress.ask(v.Start(id, state, now), now)

    def _global_is_ready(self) -> bool:
        if self._layout.topology.global_topology is None:
            return True
        task = self._tasks[GLOBAL_TASK]
        lags = any(task.positions.get(p, 0) < end for p, end in self._global_ends.items())
        return task.state is ActiveTaskState.RUNNING and not lags and not task.busy and not task.has_waiting()

    def started(self, id: TaskId, due: int | None, now: int) -> None:
        """Let a task run. due: the time of its next work without records (ms)."""
        task = self._tasks[id]
        self._progress.answered(id, now)
        task.state = ActiveTaskState.RUNNING
        # output and store changes of `init` belong to a run of their own
        task.wake_at(now if due is None else min(due, now))
        self._do(v.Follow(dict(task.positions)))

    def tell_running(self) -> None:
        """Report once that all tasks are being processed."""
        ready = self._assigned is not None and all(task.state is ActiveTaskState.RUNNING for task in self._tasks)
        if ready and not self._running_told:
            self._running_told = True
            self._do(v.TellRunning())

    def close(self, task: ActiveTask, now: int, state: v.OpenedState | None = None) -> None:
        """Close a running task, or a task that was restored to `state`."""
        if task.state is ActiveTaskState.RUNNING:
            self._tasks.forget_pauses(task.partitions)
            self._do(v.Unfollow(task.partitions))
        task.state = ActiveTaskState.CLOSING
        self._progress.ask(v.Close(task.id, state), now)

    def close_running(self, now: int) -> None:
        """Close the running tasks."""
        for task in self._tasks:
            if task.state is ActiveTaskState.RUNNING:
                self.close(task, now)

    def closed(self, id: TaskId, now: int) -> None:
        """Allow a closed task to open again, or give it up."""
        task = self._tasks[id]
        self._tasks.take_back(id)
        if task.busy:  # otherwise its restore was cancelled
            self._progress.answered(id, now)
        task.reset()
        task.state = ActiveTaskState.CREATED
        if not self._keeps(id):
            self._give_up(id)

    def failed(self, id: TaskId, error: BaseException, now: int) -> bool:
        """Handle an error of a task; return whether the other tasks continue regardless."""
        task = self._tasks[id]
        if task.is_aside and task.state is ActiveTaskState.CLOSING:
            return True  # its results were to be discarded
        self._tasks.take_back(id)
        is_restore = task.state is ActiveTaskState.RESTORING
        task.busy = task.is_out = False
        if task.state is not ActiveTaskState.RUNNING:  # its state is already closed
            task.state = ActiveTaskState.CREATED
        if not is_restore or self._phase.current is Phase.ENDING or not self.retries.allow(id, error, now):
            return False
        self._do(v.TellRetry(error, id))
        return True

    def _give_up(self, id: TaskId) -> None:
        """Forget a task without open state."""
        self._tasks.remove(id)
        self.retries.forget(id)
        self._do(v.GiveUp(frozenset([id]), self._assignments))

    def give_up_aside(self) -> None:
        """Give up lost tasks blocked in a function, so that other instances need not wait."""
        for task in self._tasks:
            if task.is_aside and not self._keeps(task.id):
                self._do(v.GiveUp(frozenset([task.id]), self._assignments))
