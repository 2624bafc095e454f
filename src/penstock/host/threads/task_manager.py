"""The active tasks of an instance: waiting records, order and size of runs, paused partitions.

Kafka classes: TaskManager, TaskExecutor.

Turns: tasks with work take slices of time in rounds. Tasks that read repartition topics take several slices, otherwise
the writers of these topics would run further and further ahead. Within a round, the task with the most waiting records
goes first, but after tasks with so few that they hardly delay the others. A previously idle task joins one round before
the others. So records of a quiet task wait for the current run only, not for a backlog.

Back-pressure: a record waits until a task has processed it, either here or in the task, which may hold it back for
another partition. A partition with too many waiting records is not fetched, and a task that holds its records gets no
more of them. The limit is a number of records per partition, or a share of the remaining bytes of the instance: so a
backlog leaves room for partitions that have been quiet. A partition without waiting records is always fetched, because
a task that holds records waits for such a partition.

No I/O, no clock, no thread: part of the core.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.config import StreamsConfig
from penstock.host.threads.active_task import ActiveTask, ActiveTaskState
from penstock.host.threads.arrived_records import WaitingTotal
from penstock.host.threads.run_time import RunTime
from penstock.host.threads.time_rounds import TimeAlignment
from penstock.host.threads.vocabulary import Arrived, RunTask
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock.task.partition_group import BufferSize

_SLICES_DOWNSTREAM: Final = 4
"""Slices per round of tasks that read repartition topics: an upstream record often becomes several."""
_SHARE: Final = 2
"""Divisor of the remaining bytes: one partition may take half, all others the rest."""
_LEAST_BYTES: Final = 4096
"""Smallest limit of one fetch (bytes)."""

WorkerOf = Callable[[TaskId], int]
"""Returns the number of an open task's worker; a worker runs tasks one by one."""


@dataclass(frozen=True)
class BufferLimits:
    """Limits of an instance's waiting records, here and in tasks; one fetch may exceed them.

    Args:
        records: the most of one partition.
        bytes: the most of all partitions.
        fetched_records: the most in one fetch.
        fetched_bytes: the most in one fetch.
    """

    records: int
    bytes: int
    fetched_records: int = 25_000
    fetched_bytes: int = 4 * 1024 * 1024


class Room(NamedTuple):
    """The limits of one fetch."""

    records: int
    bytes: int


class TaskManager:
    """The active tasks of an instance, and the order of their runs.

    Args:
        config: of the application.
        limits: of the waiting records.
        worker_of: returns the worker of an open task; the default has one worker.
        alignment: of the tasks that read history together; None without such tasks.
        repartition_topics: of the topology.
    """

    def __init__(
        self,
        config: StreamsConfig,
        limits: BufferLimits,
        worker_of: WorkerOf = lambda _: 0,
        alignment: TimeAlignment | None = None,
        repartition_topics: Iterable[str] = (),
    ) -> None:
        self.alignment = alignment or TimeAlignment({}, {}, 0)
        self._repartition_topics = frozenset(repartition_topics)
        self._behind: frozenset[str] = frozenset()
        self._worker_of = worker_of
        self._idle_ms: int = config["max.task.idle.ms"]
        self._slice_ms: int = config["penstock.task.slice.ms"]
        self._slice_ns = self._slice_ms * 1_000_000
        self._limits = limits
        self._reached_ns: dict[int, int] = {}
        """By worker, the least processing time of a task with work."""
        self._tasks: dict[TaskId, ActiveTask] = {}
        self._woken: set[TaskId] = set()
        """The tasks that may have work, so that no event has to ask each task."""
        self._out: set[TaskId] = set()
        """The tasks with a run that may be unanswered."""
        self._readers: dict[TopicPartition, ActiveTask] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._total = WaitingTotal()

    def __iter__(self) -> Iterator[ActiveTask]:
        return iter(list(self._tasks.values()))

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task: object) -> bool:
        return task in self._tasks

    def __getitem__(self, task: TaskId) -> ActiveTask:
        return self._tasks[task]

    def add(
        self, id: TaskId, partitions: Collection[TopicPartition], answers: Iterable[TopicPartition] = ()
    ) -> ActiveTask:
        """Add a task with its input partitions, and those of answers."""
        is_downstream = any(partition.topic in self._repartition_topics for partition in partitions)
        time = RunTime(self._slice_ms, _SLICES_DOWNSTREAM if is_downstream else 1)
        task = self._tasks[id] = ActiveTask(id, partitions, self._idle_ms, time, self._total, answers, self._woken)
        self._readers.update(dict.fromkeys(task.partitions, task))
        self.alignment.add(task)
        return task

    def remove(self, id: TaskId) -> None:
        """Remove a task."""
        task = self._tasks.pop(id)
        self._woken.discard(id)
        self._out.discard(id)
        task.arrived.clear()
        self.alignment.remove(id)
        for partition in task.partitions:
            self._readers.pop(partition, None)
            self._paused.discard(partition)

    def arrived(self, arrived: Arrived) -> None:
        """Add records to their task, or drop those of a partition without a task."""
        task = self.running_reader(arrived.partition)
        if task is not None:
            task.add(arrived)

    def running_reader(self, partition: TopicPartition) -> ActiveTask | None:
        """Return the task that reads `partition`, or None if it does not run."""
        task = self._readers.get(partition)
        return task if task is not None and task.state is ActiveTaskState.RUNNING else None

    def reached(self, ends: Mapping[TopicPartition, int]) -> None:
        """Record the positions up to which partitions were read, even without records."""
        for partition, end in ends.items():
            task = self._readers.get(partition)
            if task is not None and partition in task.positions:
                task.reach(partition, end)

    def know_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Record the end offsets of partitions."""
        for partition in ends.keys() - self._ends.keys():  # until then, the task waits for its end
            task = self._readers.get(partition)
            if task is not None:
                task.look_again()
        self._ends.update({p: max(end, self._written.get(p, 0)) for p, end in ends.items()})

    def written(self, ends: Mapping[TopicPartition, int]) -> None:
        """Record the end offsets of written records in partitions that tasks of this instance read.

        They are known earlier than from a fetch.
        """
        self._written.update({p: end for p, end in ends.items() if p in self._readers})
        self.know_ends(self._written)
        self.alignment.written()

    def next_run(self, now: int) -> RunTask | None:
        """Return the next run in turn, or None if no free worker has work."""
        if self.alignment.is_used:
            if not self.has_room():
                return None
            self._look_at_history(now)
        if not self._woken:
            return None
        most_held = self._most_held()
        ready = self._ready(now, most_held)
        if not ready:
            return None
        self._take_rounds(ready)

        def turn(task: ActiveTask) -> tuple[int, bool, int, TaskId]:
            weight = task.weight(most_held)
            return task.time.used_ns // self._slice_ns, not task.time.is_little(weight), -weight, task.id

        chosen = min(ready, key=turn) if len(ready) > 1 else ready[0]
        self._out.add(chosen.id)
        return chosen.next_run(self._ends, now, most_held, self.alignment.share(chosen), self._behind)

    def _ready(self, now: int, most_held: int) -> list[ActiveTask]:
        """Return the tasks that free workers may run now. most_held: see `ActiveTask.next_run`."""
        ready = [task for task in self._tasks_with_work() if task.is_ready(now, most_held)]
        if not ready:
            return ready
        busy, admitted = self._busy_workers(), self.alignment.admitted(ready, now)
        return [task for task in admitted if self._worker_of(task.id) not in busy] if busy else admitted

    def _tasks_with_work(self) -> list[ActiveTask]:
        """Return the tasks that may have work now or later, and forget the others until they wake."""
        woken = [self._tasks[id] for id in self._woken]
        for task in woken:
            if not task.may_get_work():
                self._woken.discard(task.id)
        return woken

    def waits_for_commit(self, now: int) -> bool:
        """Return whether a task holds records until the instance commits its progress in history."""
        sent = self.alignment.topics_on_the_way(now) if self._behind else self._behind
        return bool(sent) and any(task.held and not sent.isdisjoint(task.topics) for task in self._tasks.values())

    def _look_at_history(self, now: int) -> None:
        """Find the tasks that read history, and recheck the tasks that waited for it."""
        self.alignment.look(self._ends, now)
        before, self._behind = self._behind, self.alignment.topics_behind(now)
        if arrived := before - self._behind:
            for task in self._tasks.values():
                if not arrived.isdisjoint(task.topics):
                    task.look_again()

    def _take_rounds(self, ready: Iterable[ActiveTask]) -> None:
        """Place previously idle tasks one round before the others of their worker."""
        least: dict[int, int] = {}
        for task in ready:
            worker = self._worker_of(task.id)
            time = task.time
            time.used_ns = max(time.used_ns, self._reached_ns.get(worker, 0) - self._slice_ns)
            least[worker] = min(least.get(worker, time.used_ns), time.used_ns)
        for worker, used_ns in least.items():
            self._reached_ns[worker] = max(self._reached_ns.get(worker, 0), used_ns)

    def _busy_workers(self) -> set[int]:
        """Return the workers that run a task."""
        if not self._out:
            return set()
        self._out = {id for id in self._out if self._tasks[id].is_out}
        return {self._worker_of(id) for id in self._out if self._tasks[id].state is ActiveTaskState.RUNNING}

    def room(self) -> Room | None:
        """Return the next fetch's limits, or None if all partitions have many waiting records."""
        share, total = self._share_bytes(), self._total
        have_all_little = total.records <= self._limits.records // 2 and total.bytes <= share // 2
        for partition, task in self._readers.items():
            has_little = task.is_open and (have_all_little or self._has_little(partition, task, share))
            if has_little and partition not in self._paused:
                break
        else:
            return None
        return Room(self._limits.fetched_records, max(_LEAST_BYTES, min(share, self._limits.fetched_bytes)))

    def _has_little(self, partition: TopicPartition, task: ActiveTask, share: int) -> bool:
        """Return whether at most half of the limit of `partition` waits. share: see `_share_bytes`."""
        return (
            task.state is ActiveTaskState.RUNNING
            and task.records(partition) <= self._limits.records // 2
            and task.bytes(partition) <= share // 2
        )

    def has_room(self) -> bool:
        """Return whether an idle task could run at once."""
        busy, worker_of = self._busy_workers(), self._worker_of
        for task in self._tasks.values():
            is_idle = not task.busy and task.state is ActiveTaskState.RUNNING
            if is_idle and (not busy or worker_of(task.id) not in busy):
                return True
        return False

    def have_changes(self) -> bool:
        """Return whether the next commit includes changes of any task."""
        return any(task.changed and task.is_committed for task in self._tasks.values())

    def any_busy(self) -> bool:
        """Return whether an action on a task is unanswered, except restores and hung tasks."""
        return any(task.busy and not task.is_aside for task in self._tasks.values())

    def set_aside(self, ids: Iterable[TaskId]) -> list[ActiveTask]:
        """Exclude the remaining tasks of `ids`, so that the others continue, and return them."""
        aside = [self._tasks[id] for id in ids if id in self._tasks]
        for task in aside:
            task.is_aside = task.is_slow = True
        return aside

    def take_back(self, id: TaskId) -> None:
        """Include a task again after its answer, with the others of its worker."""
        if self._tasks[id].is_aside:
            worker = self._worker_of(id)
            for task in self._tasks.values():
                task.is_aside = task.is_aside and self._worker_of(task.id) != worker

    def next_due_ms(self) -> int | None:
        """Return the time of the next work that is due without records (ms)."""
        woken = self._tasks_with_work() if self._woken else ()
        due = [t.due_ms for t in woken if t.due_ms is not None and t.is_open and not t.busy]
        if (of_rounds := self.alignment.next_due_ms()) is not None:
            due.append(of_rounds)
        return min(due, default=None)

    def is_idle(self, now: int) -> bool:
        """Return whether all tasks run, and have no work at `now` (ms), no waiting records and no calls."""
        return not any(
            task.busy
            or task.state is not ActiveTaskState.RUNNING
            or task.waiting_calls
            or task.has_waiting()
            or task.is_ready(now, 0)
            for task in self._tasks.values()
        )

    def forget_pauses(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the pauses of `partitions`, which the consumer no longer reads."""
        self._paused.difference_update(partitions)

    def to_pause(self) -> frozenset[TopicPartition]:
        """Return the partitions to pause, which have too many waiting records."""
        share, total = self._share_bytes(), self._total
        if total.records <= self._limits.records and total.bytes <= share:
            return frozenset()
        new = {
            partition
            for partition, task in self._readers.items()
            if partition not in self._paused
            and (task.records(partition) > self._limits.records or task.bytes(partition) > share)
        }
        self._paused |= new
        return frozenset(new)

    def to_resume(self) -> frozenset[TopicPartition]:
        """Return the partitions to resume: at most half of their limit waits.

        While too many bytes wait in total, only partitions without waiting records resume, and only if a task may wait
        for one of them.
        """
        if not self._paused:
            return frozenset()
        share = self._share_bytes()
        if share == 0 and not self._total.held and not self.alignment.waits():
            return frozenset()
        again = {each for each in self._paused if self._has_little(each, self._readers[each], share)}
        self._paused -= again
        return frozenset(again)

    def _share_bytes(self) -> int:
        """Return the most waiting bytes of one partition."""
        return max(0, self._limits.bytes - self._total.bytes) // _SHARE

    def lags(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the approximate number of unprocessed records before the `ends` of partitions."""
        return {
            p: max(end - self._readers[p].positions.get(p, end), 0) + self._readers[p].records(p)
            for p, end in ends.items()
            if p in self._readers
        }

    def waiting(self) -> dict[TaskId, BufferSize]:
        """Return the size of the waiting records of each task, here and in the task."""
        return {id: task.waiting() for id, task in self._tasks.items()}

    def _most_held(self) -> int:
        """Return the most held records of a partition with which a task still gets more."""
        is_full = self._total.held and self._total.bytes > self._limits.bytes
        return 0 if is_full else self._limits.records
