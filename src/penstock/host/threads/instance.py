"""The core of an instance: takes events and returns actions (`vocabulary`). The whole life of the tasks is here, from
the assignment to the end, with commits and errors.

No I/O, no clock, no thread, so that a simulation can run any number of instances, and tests can play each event. One
thread calls it. The rules:

- A commit is one of all tasks. It stands between runs: nothing runs from the first flush of a cache until each base has
  its changes. Its steps are phases; an error in any of them undoes all of it.
- After an error all tasks are closed without a commit, and opened again from the last one, if the handler says so. A
  restore that brokers do not serve is tried again alone, for `task.timeout.ms`.
- A task is given up behind a commit. Where the membership is lost, it is given up without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.client.api import OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.errors import LockError, RetriableError, TaskMigratedError
from penstock.host.api import StreamThreadExceptionResponse
from penstock.host.layout import Layout
from penstock.host.restarts import Restarts, TaskTimeout
from penstock.host.threads import vocabulary as v
from penstock.host.threads.planned_end import PlannedEnd
from penstock.host.threads.task_manager import ActiveTask, Limits, Room, TaskManager, TaskState, WorkerOf
from penstock.host.threads.time_rounds import alignment_of
from penstock.host.threads.vocabulary import GLOBAL_TASK
from penstock.plan.subtopology import TaskId
from penstock.record import PartitionBatch, TopicPartition

MAX_POLL_INTERVAL_MS = 300_000
"""The default of max.poll.interval.ms."""

_MOST_TELLING_MS = 10_000
"""How long an instance tries to tell the others that the application ends, before it ends alone."""

_MOST_FENCED_MS = 60_000
"""Within this time, a second producer that fences that of the instance is no accident."""


class Phase(Enum):
    """What the instance is doing. A commit goes through QUIESCING, PREPARING, WRITING, COMMITTING and APPLYING."""

    RUNNING = "RUNNING"
    QUIESCING = "QUIESCING"
    """Nothing is handed out; runs in flight come back."""
    PREPARING = "PREPARING"
    """Tasks flush their caches."""
    WRITING = "WRITING"
    """All that was sent is being written."""
    COMMITTING = "COMMITTING"
    """Offsets are being committed."""
    APPLYING = "APPLYING"
    """Bases take their changes."""
    DROPPING = "DROPPING"
    """Tasks are closed without a commit."""
    ASKING = "ASKING"
    """The handler of uncaught exceptions decides."""
    TELLING = "TELLING"
    """The group learns that the application ends."""
    WAITING = "WAITING"
    """A time passes before tasks are opened again."""
    ENDING = "ENDING"
    """Tasks are closed behind the last commit."""
    ENDED = "ENDED"


_OF_RECORDS = (v.Arrived, v.Ran, v.EndsReached, v.EndsKnown)
"""Events that change neither the tasks of the instance nor their states."""


@dataclass(frozen=True)
class Settings:
    """What the core is set up with. commit_interval_ms: between two commits; 0 commits after each run. restarts: most
    restarts in a row without a commit between them, and the wait before the first and at most (ms)."""

    commit_interval_ms: int
    limits: Limits
    restart_attempts: int
    restart_backoff_ms: int
    restart_backoff_max_ms: int
    exactly_once: bool = False
    """Whether a commit is one transaction."""
    task_timeout_ms: int = 0
    """For how long what brokers do not serve is tried again, before the handler of uncaught exceptions decides."""
    max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS
    """How long an action about a task may take before the tasks are left to other instances."""
    stuck_ms: int = MAX_POLL_INTERVAL_MS
    """How long it may take before the other tasks go on without it."""

    @staticmethod
    def of(
        config: StreamsConfig,
        commit_interval_ms: int,
        limits: Limits,
        exactly_once: bool = False,
        max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS,
    ) -> Settings:
        """Return the settings that `config` asks for."""
        return Settings(
            commit_interval_ms,
            limits,
            config["penstock.restart.max.attempts"],
            config["penstock.restart.backoff.ms"],
            config["penstock.restart.backoff.max.ms"],
            exactly_once,
            config["task.timeout.ms"],
            max_poll_interval_ms,
            config["penstock.task.stuck.ms"],
        )


class Instance:
    """One instance of an application; see the module."""

    def __init__(
        self,
        layout: Layout,
        settings: Settings,
        now: int,
        until: Mapping[TopicPartition, int] | None = None,
        worker_of: WorkerOf = lambda _: 0,
    ) -> None:
        """Start without tasks. now: time (ms) by the clock that all calls use. until: the planned end of each partition
        of the topics of others; None for never. worker_of: returns which worker a task runs in, of those that run
        one task at a time."""
        self._layout = layout
        self._settings = settings
        self._planned = PlannedEnd(until)
        topics = layout.topology.repartition_topics
        self._tasks = TaskManager(layout.config, settings.limits, worker_of, alignment_of(layout), topics)
        self.waiting = self._tasks.waiting
        """Returns how much has arrived and waits for each task, or in it."""
        self._assigned: frozenset[TaskId] | None = None
        self._assignments = 0
        self._standbys: frozenset[TaskId] = frozenset()
        self._standing: set[TaskId] = set()
        self._held_starts: dict[TaskId, v.OpenedState] = {}
        self._global_ends: Mapping[TopicPartition, int] = {}
        self._phase = Phase.RUNNING
        self._actions: list[v.Action] = []
        self._committed_at = now
        self._commit_requested = False
        self._offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self._ends_written: Mapping[TopicPartition, int] = {}
        self._committing: set[TaskId] = set()
        self._waiting_for: set[TaskId] = set()
        self._paused = self._is_cut_off = False
        self._closing: v.CloseRequested | None = None
        self._shut_down: Exception | None = None
        """Of the instance that has shut down the application, if that was another one."""
        self._running_told = False
        self._is_settled = False
        """Whether only such events have come since the last look at the tasks and their states: there is nothing to
        open, to give up or to tell, and a run of a few records needs no other look."""
        self._error: BaseException | None = None
        self._restarts = Restarts(
            settings.restart_attempts, settings.restart_backoff_ms, settings.restart_backoff_max_ms
        )
        self._timeout = TaskTimeout(settings.task_timeout_ms)
        self._restore_timeouts: dict[TaskId, TaskTimeout] = {}
        self._retries: dict[TaskId, int] = {}
        """When (ms) tasks are opened again whose restore has failed alone."""
        self._has_timed_out = False
        self._commits = 0
        self._has_processed = False
        self._retry_at: int | None = None
        self._fenced_at: int | None = None
        self._now = self._got_on_at = now
        self._has_stepped_back = False

    @property
    def phase(self) -> Phase:
        """What the instance is doing."""
        return self._phase

    def handle(self, event: v.Event, now: int, ahead_ms: int = 0) -> list[v.Action]:
        """Return what is to be done after `event`, at `now` (ms), in this order. ahead_ms: how much the wall clock is
        ahead of `now`."""
        self._tasks.alignment.ahead_ms = ahead_ms
        if self._phase is Phase.ENDED:
            return []
        self._now = now
        self._is_settled &= isinstance(event, _OF_RECORDS)
        self._take(event, now)
        self._planned.note(self._tasks, self._assigned is not None, now)
        self._advance(now)
        actions, self._actions = self._actions, []
        return actions

    def wants_records(self) -> bool:
        """Return whether records that arrive now can be given to a task at once."""
        return self._phase is Phase.RUNNING and self._tasks.has_room()

    def room(self) -> Room | None:
        """Return how much may be taken from the consumer now, None for nothing."""
        return self._tasks.room() if self._phase is Phase.RUNNING else None

    def lags(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return about how many records of each partition before its end no task has taken yet."""
        return self._tasks.lags(ends)

    def next_due_ms(self) -> int | None:
        """Return when a `Tick` is needed if nothing else happens (ms), None for never."""
        times = [self._retry_at]
        if self._phase is Phase.RUNNING:
            times += [*self._retries.values(), None if self._has_changes() else self._planned.next_look_ms(self._tasks)]
        if self.wants_records() and not self._paused and not self._is_cut_off:
            times.append(self._tasks.next_due_ms())
        if self._phase is Phase.RUNNING and self._has_changes() and not self._is_cut_off:
            times.append(self._committed_at + self._settings.commit_interval_ms)
        return min((time for time in times if time is not None), default=None)

    # ---------------------------------------- events

    def _take(self, event: v.Event, now: int) -> None:
        match event:
            case v.Arrived():
                self._tasks.arrived(event)
            case v.OutOfRange(partition, error):
                self._out_of_range(partition, error)
            case v.PositionReset(partition, position):
                self._position_reset(partition, position)
            case v.EndsKnown(ends):
                self._tasks.know_ends(ends)
            case v.EndsReached(ends):
                self._tasks.reached(ends)
            case v.UnreadFound():
                self._planned.looked(event, now)
            case v.Ran():
                self._ran(event)
            case v.Hangs(tasks):
                self._go_on_without(tasks)
            case v.CutOff():
                self._is_cut_off = True
            case v.Reconnected():
                self._is_cut_off = False
            case v.Assigned(tasks, standbys):
                self._is_cut_off = False
                self._standbys = standbys
                self._assign(tasks)
            case v.Restored(task, state):
                self._restored(task, state)
            case v.Started(task, due):
                self._started(task, due, now)
            case v.Prepared():
                self._prepared(event)
            case v.Written(ends):
                self._written(ends)
            case v.OffsetsCommitted():
                self._offsets_committed()
            case v.TransactionCommitted(ends):
                self._sent_is_durable(ends)
                self._offsets_committed()
            case v.TransactionLost(error, is_fenced):
                self._transaction_lost(error, is_fenced, now)
            case v.Applied(task, due):
                self._tasks[task].due_ms = due
                self._answered(task)
            case v.Closed(task=task):
                self._closed(task)
            case v.ApplicationShutDown(error):
                self._application_shut_down(error)
            case v.MembershipLost(error):
                self._lose_tasks()
                self._drop(None if self._closing is None else error)
            case v.MembershipRefused(error):
                self._lose_tasks()
                self._failed(error, None)
            case v.Failed(error, task):
                self._failed(error, task)
            case v.StandbysFailed(error):
                self._stand_down()  # whatever becomes of the error, they are asked for again
                self._failed(error, None)
            case v.Decided(response):
                self._decided(response, now)
            case v.PauseRequested() | v.ResumeRequested():
                self._paused = isinstance(event, v.PauseRequested)
            case v.OutputLags():
                self._commit_requested = True
            case v.CloseRequested():
                self._closing = event
            case v.Tick():
                self._watch_progress(now)

    def _do(self, action: v.Action) -> None:
        if isinstance(action, v.Start | v.Run | v.Prepare | v.Apply | v.Close):
            self._got_on_at = self._now
        self._actions.append(action)

    def _watch_progress(self, now: int) -> None:
        """Leave the tasks to other instances where a function of the user does not return for too long, and have it
        ended; at each tick, for `now` may have jumped, and whoever ends it measures by another clock."""
        limit = self._settings.max_poll_interval_ms
        busy = [str(task.id) for task in self._tasks if task.busy]
        if not busy:
            self._has_stepped_back = False
        elif now - self._got_on_at < limit:
            if now - self._got_on_at >= self._settings.stuck_ms:
                self._do(v.LookForHung(self._settings.stuck_ms))
        else:
            if not self._has_stepped_back:
                self._has_stepped_back = True
                error = TaskMigratedError(
                    f"Processing has not got on for max.poll.interval.ms={limit} (tasks {', '.join(busy)}): this "
                    "instance leaves its tasks to others, and joins the group again when processing gets on. Let "
                    "processors return sooner, or set a larger max.poll.interval.ms."
                )
                self._do(v.StepBack(error))
            self._do(v.EndHung(limit))

    def _go_on_without(self, ids: frozenset[TaskId]) -> None:
        """Let the others run and be committed while a function does not return. What it does counts when it returns,
        unless a transaction has a part of it: that is begun again, with all tasks."""
        aside = [task for task in self._tasks.set_aside(ids) if task.state is TaskState.RUNNING]
        is_begun = self._settings.exactly_once and any(t.had_changed if t.is_out else t.changed for t in aside)
        if is_begun or self._phase not in (Phase.RUNNING, Phase.QUIESCING):
            self._drop(None)

    def _assign(self, tasks: frozenset[TaskId]) -> None:
        """Take what the group has given; what is new is opened, what is lost is given up behind the next commit."""
        self._assigned = tasks
        self._assignments += 1
        for id in sorted(tasks):
            if id not in self._tasks:
                self._tasks.add(id, self._layout.groups[id])
        if self._layout.topology.global_topology is not None and GLOBAL_TASK not in self._tasks:
            self._tasks.add(GLOBAL_TASK, self._layout.global_partitions)
        self._cancel_restores()

    def _lose_tasks(self) -> None:
        """Take that the group has given nothing to the instance."""
        self._assigned, self._is_cut_off = None, False
        self._cancel_restores()

    def _cancel_restores(self) -> None:
        """Give up the restores of tasks that others are to have, which wait for them, and all of them at the end."""
        is_ending = self._phase is Phase.ENDING
        for task in self._tasks:
            is_being_restored = task.state is TaskState.RESTORING and task.id not in self._held_starts
            if is_being_restored and (is_ending or not self._keeps(task.id)):
                self._do(v.CancelRestore(task.id))

    def _keeps(self, id: TaskId) -> bool:
        """Return whether the instance is to have a task."""
        return id == GLOBAL_TASK or (self._assigned is not None and id in self._assigned)

    def _give_up(self, id: TaskId) -> None:
        """Forget a task that has nothing open."""
        self._tasks.remove(id)
        self._retries.pop(id, None)
        self._restore_timeouts.pop(id, None)
        self._do(v.GiveUp(frozenset([id]), self._assignments))

    def _open_created(self) -> None:
        """Open the tasks that have nothing open, and forget those of others."""
        for task in self._tasks:
            if task.state is not TaskState.CREATED:
                continue
            if not self._keeps(task.id):
                self._give_up(task.id)
                continue
            if self._retries.get(task.id, self._now) > self._now:
                continue
            self._retries.pop(task.id, None)
            if self._running_told:
                self._running_told = False
                self._do(v.TellRebalancing())
            task.reset()
            task.state = TaskState.RESTORING
            self._do(v.Restore(task.id))

    def _stand_by(self) -> None:
        """Have copies of the tasks of others kept up; that of a task which is to run is taken over by its restore."""
        for id in sorted(self._standbys - self._standing):
            if id not in self._tasks:
                self._standing.add(id)
                self._do(v.StandBy(id))
        for id in sorted(self._standing - self._standbys):
            self._standing.remove(id)
            if id not in self._tasks:
                self._do(v.StandDown(id))

    def _restored(self, id: TaskId, state: v.OpenedState) -> None:
        if id == GLOBAL_TASK:
            self._global_ends = state.ends
        self._restore_timeouts.pop(id, None)
        self._held_starts[id] = state

    def _started(self, id: TaskId, due: int | None, now: int) -> None:
        task = self._tasks[id]
        self._answered(id)
        task.state = TaskState.RUNNING
        # what `init` has sent, or put into stores, is of a run of its own
        task.due_ms = now if due is None else min(due, now)
        self._do(v.Follow(dict(task.positions)))

    def _out_of_range(self, partition: TopicPartition, error: Exception) -> None:
        """Have the position of a partition reset; global stores are filled again from the beginning, as in Kafka only
        if the handler says so."""
        task = self._tasks.running_reader(partition)
        if task is not None and task.id == GLOBAL_TASK:
            self._failed(error, None)
        elif task is not None:
            self._do(v.ResetPosition(partition))

    def _position_reset(self, partition: TopicPartition, position: int) -> None:
        task = self._tasks.running_reader(partition)
        if task is None:
            return  # it finds out about its positions when it is opened again
        task.reposition(partition, position)
        self._tasks.forget_pauses([partition])
        self._do(v.Unfollow(frozenset([partition])))
        self._do(v.Follow({partition: position}))

    def _ran(self, event: v.Ran) -> None:
        task = self._tasks[event.task]
        if task.state is not TaskState.RUNNING:
            return  # the others went on without it, and it is closed next
        self._commit_requested |= event.commit_requested or task.is_slow
        task.is_slow &= not task.is_aside
        self._tasks.take_back(task.id)
        task.ran(event)
        self._got_on_at = self._now
        self._has_processed |= event.records > 0
        if event.uncommitted_bytes > self._layout.config["penstock.uncommitted.max.bytes"]:
            self._commit_requested = True
        if self._phase in (Phase.RUNNING, Phase.QUIESCING):
            self._send(event.task, self._tasks.alignment.sends(event.task, event.output))

    def _send(self, task: TaskId, output: Sequence[PartitionBatch]) -> None:
        if output:
            self._do(v.Send(output, task))

    # ---------------------------------------- commit

    def _has_changes(self) -> bool:
        return any(task.changed and not task.is_aside for task in self._tasks)

    def _lost(self) -> list[ActiveTask]:
        """Return the tasks that run and are to be given up."""
        running = (t for t in self._tasks if t.state is TaskState.RUNNING and not t.is_aside)
        return [task for task in running if not self._keeps(task.id)]

    def _wants_commit(self, now: int) -> bool:
        if self._tasks.alignment.is_going_on(now) and not self._paused:
            return False
        if self._closing is not None:
            return True
        if self._is_cut_off:
            return False  # nobody takes the offsets
        if not self._is_settled and self._lost():
            return True
        if not self._has_changes():
            return False
        due = now - self._committed_at >= self._settings.commit_interval_ms
        is_asked_for = self._commit_requested or self._tasks.waits_for_commit(now)
        return due or is_asked_for or self._planned.is_at_rest(self._tasks)

    def _prepare(self, now: int) -> None:
        for task, output in self._tasks.alignment.release():
            self._send(task, output)
        self._offsets = {}
        changed = [task for task in self._tasks if task.changed and not task.is_aside]
        self._committing = {task.id for task in changed if task.state is TaskState.RUNNING}
        self._waiting_for = set(self._committing)
        if not self._committing:
            self._commit_done(now)
            return
        self._phase = Phase.PREPARING
        for id in sorted(self._committing):
            self._tasks[id].busy = True
            self._do(v.Prepare(id, now))

    def _prepared(self, event: v.Prepared) -> None:
        self._answered(event.task)
        if self._phase is not Phase.PREPARING:
            return
        self._offsets.update(self._tasks[event.task].committable(event.offsets))
        self._send(event.task, event.output)
        if self._waiting_for:
            return
        if not self._offsets:  # only the global stores have changed, which needs no member of the group
            self._phase, self._ends_written = Phase.COMMITTING, {}
            self._offsets_committed()
        elif self._settings.exactly_once:
            self._phase = Phase.COMMITTING
            self._do(v.CommitTransaction(dict(self._offsets)))
        else:
            self._phase = Phase.WRITING
            self._do(v.Flush())

    def _written(self, ends: Mapping[TopicPartition, int]) -> None:
        if self._phase is not Phase.WRITING:
            return
        self._sent_is_durable(ends)
        self._phase = Phase.COMMITTING
        self._do(v.CommitOffsets(dict(self._offsets)))

    def _sent_is_durable(self, ends: Mapping[TopicPartition, int]) -> None:
        self._ends_written = ends
        self._tasks.written(ends)

    def _offsets_committed(self) -> None:
        if self._phase is not Phase.COMMITTING:
            return
        self._phase = Phase.APPLYING
        self._waiting_for = set(self._committing)
        for id in sorted(self._committing):
            self._tasks[id].busy = True
            committed = {p: self._offsets[p].offset for p in self._tasks[id].partitions if p in self._offsets}
            self._do(v.Apply(id, self._ends_written, committed))

    def _answered(self, id: TaskId) -> None:
        self._tasks.take_back(id)
        self._tasks[id].busy = False
        self._got_on_at = self._now
        self._waiting_for.discard(id)

    def _commit_done(self, now: int) -> None:
        for id in self._committing:
            self._tasks[id].changed = False
        if self._committing:
            self._timeout.succeeded()
        if self._has_processed:
            self._commits, self._has_processed = self._commits + 1, False
        read = {
            p: each.offset for p, each in self._offsets.items() if p.topic in self._layout.topology.repartition_topics
        }
        if read:
            self._do(v.Purge(read))
        self._committed_at, self._commit_requested = now, False
        self._planned.committed()
        self._committing = set()
        if self._closing is not None:
            self._begin_to_end()
            return
        self._phase = Phase.RUNNING
        for task in self._lost():
            self._close(task)

    # ---------------------------------------- closing

    def _close(self, task: ActiveTask, state: v.OpenedState | None = None) -> None:
        """Close a task that runs, or that was restored to `state`."""
        if task.state is TaskState.RUNNING:
            self._tasks.forget_pauses(task.partitions)
            self._do(v.Unfollow(task.partitions))
        task.state = TaskState.CLOSING
        task.busy = True
        self._do(v.Close(task.id, state))

    def _closed(self, id: TaskId) -> None:
        task = self._tasks[id]
        self._tasks.take_back(id)
        if task.busy:
            task.busy = False
            self._got_on_at = self._now
        task.reset()
        task.state = TaskState.CREATED
        if not self._keeps(id):
            self._give_up(id)

    def _close_running(self) -> None:
        for task in self._tasks:
            if task.state is TaskState.RUNNING:
                self._close(task)

    def _drop(self, error: BaseException | None) -> None:
        """Close all tasks without a commit, and ask about `error` if there is one."""
        if self._phase in (Phase.ASKING, Phase.TELLING, Phase.ENDING, Phase.ENDED):
            return  # nothing runs, and what follows is decided about the error before
        self._error = self._error or error
        self._has_processed = False
        self._committing, self._waiting_for, self._offsets = set(), set(), {}
        self._tasks.alignment.forget()
        self._phase, self._retry_at = Phase.DROPPING, None

    def _failed(self, error: BaseException, id: TaskId | None) -> None:
        if id is not None:
            task = self._tasks[id]
            if task.is_aside and task.state is TaskState.CLOSING:
                return  # nothing of it was to count
            self._tasks.take_back(id)
            is_restore = task.state is TaskState.RESTORING
            task.busy = task.is_out = False
            if task.state is not TaskState.RUNNING:  # what it had open is closed
                task.state = TaskState.CREATED
            if is_restore and self._restores_again(id, error):
                return
        if self._phase is Phase.ENDING:
            self._error = self._error or error
        elif self._phase in (Phase.ASKING, Phase.TELLING, Phase.WAITING):
            pass  # all tasks are opened again anyway, if the answer for the error before says so
        elif id is not None or self._phase is not Phase.DROPPING:
            self._drop(error)

    def _restores_again(self, id: TaskId, error: BaseException) -> bool:
        """Return whether the restore of a task alone is tried again after an error; the others go on meanwhile."""
        if self._phase is Phase.ENDING or not isinstance(error, RetriableError):
            return False
        timeout = self._restore_timeouts.setdefault(id, TaskTimeout(self._settings.task_timeout_ms))
        if not timeout.allows(error, self._now):
            self._has_timed_out = True
            return False
        self._retries[id] = self._now + self._settings.restart_backoff_ms
        self._do(v.TellRetry(error, id))
        return True

    def _transaction_lost(self, error: Exception, is_fenced: bool, now: int) -> None:
        """Begin again from the last commit; if another producer with the same id goes on as well, end."""
        if not is_fenced or self._fenced_at is None or now - self._fenced_at > _MOST_FENCED_MS:
            self._fenced_at = now if is_fenced else self._fenced_at
            self._drop(None)
            return
        twice = LockError(
            f"Two instances of {self._layout.config['application.id']} write with the same transactional id: they have "
            "copies of one state directory. Give one of them an empty state.dir."
        )
        twice.__cause__ = error
        self._drop(twice)

    def _decided(self, response: StreamThreadExceptionResponse, now: int) -> None:
        replaces = response is StreamThreadExceptionResponse.REPLACE_THREAD
        wait = self._restarts.next_wait_ms(self._commits) if replaces else None
        if response is StreamThreadExceptionResponse.SHUTDOWN_APPLICATION:
            self._phase, self._retry_at = Phase.TELLING, now + _MOST_TELLING_MS
            self._do(v.ShutDownApplication())
        elif wait is None:
            self._begin_to_end()
        else:
            self._open_again(now + wait)

    def _application_shut_down(self, error: Exception | None) -> None:
        """End: at once where this instance has asked for it, else behind a commit."""
        if self._phase is Phase.TELLING:
            self._begin_to_end()
        self._shut_down = self._shut_down or error
        self._closing = self._closing or v.CloseRequested()

    def _open_again(self, when: int) -> None:
        """Open all tasks again at `when` (ms)."""
        self._error, self._has_timed_out = None, False
        self._retries.clear()
        self._stand_down()  # one of them may be what has failed
        self._phase, self._retry_at = Phase.WAITING, when

    def _stand_down(self) -> None:
        """Close all copies; those that are still wanted are asked for again."""
        for id in sorted(self._standing):
            self._do(v.StandDown(id))
        self._standing.clear()

    def _begin_to_end(self) -> None:
        """Close what runs, and wait for no restore."""
        self._phase = Phase.ENDING
        self._cancel_restores()

    def _end(self) -> None:
        self._phase = Phase.ENDED
        if self._closing is None or self._closing.leave:
            self._do(v.Leave())
        self._do(v.End(self._error or self._shut_down))

    # ---------------------------------------- what follows

    def _advance(self, now: int) -> None:
        """Go as far as possible without another event."""
        phase = None
        while phase is not self._phase:
            phase = self._phase
            self._start_restored(now)
            if phase is Phase.RUNNING and self._wants_commit(now):
                self._phase = Phase.QUIESCING
            elif phase is Phase.RUNNING:
                self._run(now)
            elif phase is Phase.QUIESCING and not self._tasks.any_busy():
                self._prepare(now)
            elif phase is Phase.APPLYING and not self._waiting_for:
                self._commit_done(now)
            elif phase is Phase.DROPPING and not self._tasks.any_busy():
                self._dropped()
            elif phase is Phase.TELLING and self._retry_at is not None and now >= self._retry_at:
                self._retry_at = None
                self._begin_to_end()
            elif phase is Phase.WAITING and self._has_waited(now):
                self._retry_at, self._phase = None, Phase.RUNNING
            elif phase is Phase.ENDING:
                self._close_running()
                if all(task.state is TaskState.CREATED or task.is_aside for task in self._tasks):
                    self._end()

    def _has_waited(self, now: int) -> bool:
        """Return whether tasks may be opened again, or are not to be: an end waits for nothing."""
        return self._closing is not None or (self._retry_at is not None and now >= self._retry_at)

    def _run(self, now: int) -> None:
        """Open tasks and let them process; begin to end at the planned end."""
        if not self._is_settled:
            self._open_created()
            self._stand_by()
        if self._planned.is_reached:
            self._closing, self._phase = v.CloseRequested(), Phase.QUIESCING
            return
        if not self._has_changes() and (look := self._planned.look(self._tasks, now)) is not None:
            self._do(look)
        self._hand_out(now)
        if self._tasks.waits_for_commit(now) and self._wants_commit(now):  # which the tasks just found out
            self._phase = Phase.QUIESCING
        if not self._is_settled:
            self._tell()
            self._is_settled = not self._retries

    def _start_restored(self, now: int) -> None:
        """Make the tasks that are restored; those of the topology behind the global stores, which they may read."""
        for id, state in list(self._held_starts.items()):
            task = self._tasks[id]
            if self._phase is Phase.ENDING or not self._keeps(id):
                del self._held_starts[id]
                self._close(task, state)
            elif id == GLOBAL_TASK or self._global_is_ready():
                del self._held_starts[id]
                task.positions = dict(state.positions)
                task.state = TaskState.STARTING
                task.busy = True
                self._do(v.Start(id, state, now))

    def _global_is_ready(self) -> bool:
        if self._layout.topology.global_topology is None:
            return True
        task = self._tasks[GLOBAL_TASK]
        behind = any(task.positions.get(p, 0) < end for p, end in self._global_ends.items())
        return task.state is TaskState.RUNNING and not behind and not task.busy and not task.has_waiting()

    def _hand_out(self, now: int) -> None:
        if not self._paused and not self._is_cut_off:
            while (run := self._tasks.next_run(now)) is not None:
                self._do(run)
            for task, output in self._tasks.alignment.released():
                self._send(task, output)
        if pause := self._tasks.to_pause():
            self._do(v.PauseReading(pause))
        if resume := self._tasks.to_resume():
            self._do(v.ResumeReading(resume))

    def _dropped(self) -> None:
        """Go on when no action is in flight: close what runs, then ask, or open again."""
        self._close_running()
        if self._tasks.any_busy():
            return
        # what was sent is before the ends up to which stores are restored, or it is never read
        self._do(v.Abort())
        for task in self._tasks:
            if task.is_aside and not self._keeps(task.id):  # others need not wait for the function
                self._do(v.GiveUp(frozenset([task.id]), self._assignments))
        if self._closing is not None:
            self._begin_to_end()
        elif self._error is None:
            self._phase = Phase.RUNNING
        elif not self._has_timed_out and self._timeout.allows(self._error, self._now):
            self._do(v.TellRetry(self._error))
            self._open_again(self._now + self._settings.restart_backoff_ms)
        else:
            self._phase = Phase.ASKING
            self._do(v.Ask(self._error))

    def _tell(self) -> None:
        """Tell once that all tasks are being processed."""
        ready = self._assigned is not None and all(task.state is TaskState.RUNNING for task in self._tasks)
        if ready and not self._running_told:
            self._running_told = True
            self._do(v.TellRunning())
