"""The core of an instance: takes events and returns actions (`vocabulary`).

Other modules implement the life of its tasks (`task_life`), commits (`commit_cycle`), errors (`rollback`) and the end
(`ending`), around its phase (`phases`).

No I/O, no clock, no threads, so that a simulation can run any number of instances, and tests can play each event.
Called by one thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.host.deployment.layout import Layout
from penstock.host.threads import vocabulary as v
from penstock.host.threads.active_task import ActiveTaskState
from penstock.host.threads.commit_cycle import CommitCycle
from penstock.host.threads.ending import Ending
from penstock.host.threads.phases import InstancePhase, Phase
from penstock.host.threads.planned_end import PlannedEnd
from penstock.host.threads.rollback import Rollback
from penstock.host.threads.settings import Settings
from penstock.host.threads.task_life import TaskLife
from penstock.host.threads.task_manager import Room, TaskManager, WorkerOf
from penstock.host.threads.task_progress import TaskProgress
from penstock.host.threads.time_rounds import alignment_of
from penstock.host.threads.vocabulary import GLOBAL_TASK
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition


class Instance:
    """One instance of an application; it starts without tasks.

    Args:
        layout: the tasks of the application.
        settings: intervals and limits.
        now: time (ms) of the clock used by all calls.
        until: the planned end of each partition of external topics, None for no planned end.
        worker_of: returns the worker of a task; a worker runs one task at a time.
    """

    def __init__(
        self,
        layout: Layout,
        settings: Settings,
        now: int,
        until: Mapping[TopicPartition, int] | None = None,
        worker_of: WorkerOf = lambda _: 0,
    ) -> None:
        config, topics = layout.config, layout.topology.repartition_topics
        tasks = TaskManager(config, settings.limits, worker_of, alignment_of(layout), topics)
        self.waiting = tasks.waiting
        """Returns the records that have arrived and wait, outside or inside each task."""
        self._actions: list[v.Action] = []
        self._do = do = self._actions.append
        self._tasks = tasks
        self._phase = phase = InstancePhase()
        self._planned = PlannedEnd(until)
        self._progress = progress = TaskProgress(config, settings, tasks, do, now)
        self._life = life = TaskLife(layout, tasks, phase, progress, do)
        self._commit = commit = CommitCycle(layout, settings, tasks, phase, progress, do, now)
        self._ending = ending = Ending(tasks, phase, life, do)
        self._rollback = Rollback(config, tasks, phase, life, commit, ending, do)
        self._exactly_once = settings.exactly_once
        self._is_paused = False
        self._is_settled = False
        """Whether only frequent events have come since the last check of the tasks. Then there is nothing to open, give
        up or report, and a run of a few records needs no other check."""

    @property
    def phase(self) -> Phase:
        """The current phase of the instance."""
        return self._phase.current

    def handle(self, event: v.Event, now: int, ahead_ms: int = 0) -> list[v.Action]:
        """Return the actions that follow `event` at `now` (ms), in order. ahead_ms: the lead of the wall clock over
        `now`."""
        self._tasks.alignment.ahead_ms = ahead_ms
        if self.phase is Phase.ENDED:
            return []
        self._is_settled &= isinstance(event, v.FREQUENT)
        self._take(event, now)
        self._planned.note(self._tasks, self._life.is_assigned, now)
        self._advance(now)
        actions = self._actions.copy()
        self._actions.clear()
        return actions

    def wants_records(self) -> bool:
        """Return whether records that arrive now can be given to a task immediately."""
        return self.phase is Phase.RUNNING and self._tasks.has_room()

    def room(self) -> Room | None:
        """Return the room for records from the consumer, None for no room."""
        return self._tasks.room() if self.phase is Phase.RUNNING else None

    def lags(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the approximate number of records before each end that no task has taken yet."""
        return self._tasks.lags(ends)

    def next_due_ms(self) -> int | None:
        """Return the time (ms) of the next `TimePassed` without another event, None for never."""
        times = [self._rollback.retry_at, self._ending.alone_at]
        if self._phase.current is Phase.RUNNING:
            times += self._times_of_tasks()
        due = [time for time in times if time is not None]
        return min(due) if due else None

    def _times_of_tasks(self) -> list[int | None]:
        """Return the times (ms) at which tasks or their commit are due."""
        times: list[int | None] = [*self._life.retries.due_ms.values()]
        has_changes, is_cut_off = self._commit.has_changes(), self._life.is_cut_off
        if self._planned.is_given and not has_changes:
            times.append(self._planned.next_look_ms(self._tasks))
        if not self._is_paused and not is_cut_off:
            due = self._tasks.next_due_ms()
            times.append(due if due is not None and self._tasks.has_room() else None)
        if has_changes and not is_cut_off:
            times.append(max(self._commit.due_ms, self._round_ends_by_ms()))
        return times

    # ---------------------------------------- events

    def _take(self, event: v.Event, now: int) -> None:
        if isinstance(event, v.RecordEvent):
            self._take_record_event(event, now)
        elif isinstance(event, v.TaskEvent):
            self._take_task_event(event, now)
        elif isinstance(event, v.CommitEvent):
            self._commit.take(event, now)
        elif isinstance(event, v.GroupEvent):
            self._take_group_event(event, now)
        elif isinstance(event, v.ErrorEvent):
            self._rollback.take(event, now)
        elif isinstance(event, v.TimePassed):
            self._progress.watch(now)
        elif isinstance(event, v.CloseRequested):
            self._ending.request(event)
        else:
            self._is_paused = isinstance(event, v.PauseRequested)

    def _take_record_event(self, event: v.RecordEvent, now: int) -> None:
        match event:
            case v.Arrived():
                self._tasks.arrived(event)
            case v.OutOfRange(partition, error):
                self._out_of_range(partition, error, now)
            case v.PositionReset(partition, position):
                self._position_reset(partition, position)
            case v.EndsKnown(ends):
                self._tasks.know_ends(ends)
            case v.EndsReached(ends):
                self._tasks.reached(ends)
            case v.UnreadFound():
                self._planned.looked(event, now)
            case v.Ran():
                self._ran(event, now)

    def _take_task_event(self, event: v.TaskEvent, now: int) -> None:
        match event:
            case v.Restored(task, state):
                self._life.restored(task, state)
            case v.Started(task, due, calls):
                self._life.started(task, due, now)
                self._tasks[task].waiting_calls = calls.waiting
            case v.Closed(task):
                self._life.closed(task, now)
            case v.Hangs(tasks):
                self._go_on_without(tasks)

    def _take_group_event(self, event: v.GroupEvent, now: int) -> None:
        match event:
            case v.Assigned(tasks, standbys):
                self._life.assign(tasks, standbys)
            case v.MembershipLost(error):
                self._life.lose()
                self._rollback.begin(error if self._ending.is_requested else None)
            case v.MembershipRefused(error):
                self._life.lose()
                self._rollback.failed(error, None, now)
            case v.ApplicationShutDown(error):
                self._ending.application_shut_down(error)
            case v.SessionTimedOut() | v.Reconnected():
                self._life.is_cut_off = isinstance(event, v.SessionTimedOut)

    def _out_of_range(self, partition: TopicPartition, error: Exception, now: int) -> None:
        """Reset the position of a partition. Global stores are filled again from the beginning, as in Kafka only if the
        handler says so."""
        task = self._tasks.running_reader(partition)
        if task is not None and task.id == GLOBAL_TASK:
            self._rollback.failed(error, None, now)
        elif task is not None:
            self._do(v.ResetPosition(partition))

    def _position_reset(self, partition: TopicPartition, position: int) -> None:
        task = self._tasks.running_reader(partition)
        if task is None:
            return  # it looks up its positions when it is reopened
        task.reposition(partition, position)
        self._tasks.forget_pauses([partition])
        self._do(v.Unfollow(frozenset([partition])))
        self._do(v.Follow({partition: position}))

    def _ran(self, event: v.Ran, now: int) -> None:
        task = self._tasks[event.task]
        if task.state is not ActiveTaskState.RUNNING:
            return  # the other tasks went on without it, and it is closed next
        self._commit.ran(event)
        task.is_slow &= not task.is_aside
        self._progress.answered(task.id, now)
        task.ran(event)
        if self.phase in (Phase.RUNNING, Phase.QUIESCING):
            self._commit.send(event.task, self._tasks.alignment.sends(event.task, event.output))

    def _go_on_without(self, ids: frozenset[TaskId]) -> None:
        """Run and commit the other tasks while a function does not return. Its work counts when it returns, unless it
        is part of a transaction: then the transaction begins again with all tasks."""
        aside = [task for task in self._tasks.set_aside(ids) if task.state is ActiveTaskState.RUNNING]
        is_begun = self._exactly_once and any(t.had_changed if t.is_out else t.changed for t in aside)
        if is_begun or self.phase not in (Phase.RUNNING, Phase.QUIESCING):
            self._rollback.begin()

    # ---------------------------------------- steps

    def _advance(self, now: int) -> None:
        """Advance as far as possible without another event."""
        instance, phase = self._phase, None
        while phase is not instance.current:
            phase = instance.current
            self._life.start(now)
            match phase:
                case Phase.RUNNING:
                    self._run(now)
                case Phase.QUIESCING if not self._tasks.any_busy():
                    self._commit.begin(now)
                case Phase.APPLYING if self._commit.is_applied():
                    self._go_on_after_commit(now)
                case Phase.DROPPING:
                    self._rollback.go_on(now)
                case Phase.TELLING:
                    self._ending.wait_for_group(now)
                case Phase.WAITING:
                    self._rollback.wait(now)
                case Phase.ENDING:
                    self._ending.go_on(self._rollback.error, now)
                case _:
                    pass  # ended by an event

    def _wants_commit(self, now: int) -> bool:
        if now < self._round_ends_by_ms():
            return False
        if self._ending.is_requested:
            return True
        if self._life.is_cut_off:
            return False  # no coordinator accepts the offsets
        if not self._is_settled and self._life.lost():
            return True
        if self._commit.is_due(now) or self._tasks.waits_for_commit(now) or self._planned.is_at_rest(self._tasks):
            return self._commit.has_changes()
        return False

    def _round_ends_by_ms(self) -> int:
        """Return the time (ms) until which a commit may wait for a round of tasks, 0 without a wait."""
        return 0 if self._is_paused else self._tasks.alignment.ends_by_ms

    def _run(self, now: int) -> None:
        """Open tasks and let them process, until a commit or the planned end is due."""
        if self._wants_commit(now):
            self._phase.change(Phase.QUIESCING)
            return
        if not self._is_settled:
            self._life.open(now)
        if self._planned.is_reached:
            self._ending.request(v.CloseRequested())
            self._phase.change(Phase.QUIESCING)
            return
        if self._planned.is_given and not self._commit.has_changes():
            self._look_at_group(now)
        self._hand_out(now)
        if self._tasks.waits_for_commit(now) and self._wants_commit(now):  # as just found out by the tasks
            self._phase.change(Phase.QUIESCING)
        if not self._is_settled:
            self._life.tell_running()
            self._is_settled = not self._life.retries.due_ms

    def _look_at_group(self, now: int) -> None:
        """Look at the group's committed offsets, if due."""
        if (look := self._planned.look(self._tasks, now)) is not None:
            self._do(look)

    def _hand_out(self, now: int) -> None:
        if not self._is_paused and not self._life.is_cut_off:
            while (run := self._tasks.next_run(now)) is not None:
                self._progress.ask(run, now)
            for task, output in self._tasks.alignment.released():
                self._commit.send(task, output)
        if pause := self._tasks.to_pause():
            self._do(v.PauseReading(pause))
        if resume := self._tasks.to_resume():
            self._do(v.ResumeReading(resume))

    def _go_on_after_commit(self, now: int) -> None:
        if self._commit.finish(now):
            self._rollback.committed()
        self._planned.committed()
        if self._ending.is_requested:
            self._ending.begin()
            return
        self._phase.change(Phase.RUNNING)
        for task in self._life.lost():
            self._life.close(task, now)
