"""Performs the task actions of the core: makes tasks, runs, flushes and closes them.

A processing thread calls it; only one thread at a time uses a task.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from penstock.errors import InvalidStateStoreError, StreamsError
from penstock.host.calls.gate import CallGate
from penstock.host.commits.committing import offsets_of
from penstock.host.deployment.layout import Layout
from penstock.host.deployment.lost_topics import topic_entries, used_topics
from penstock.host.measuring.batch_tracing import batch_tracing
from penstock.host.measuring.task_measuring import TaskMeasuring, measured_drops, of_base
from penstock.host.supervision.turns import TopologyTurns
from penstock.host.threads import vocabulary as v
from penstock.host.threads.moving_loop import Loan
from penstock.host.threads.new_calls import NO_CALLS, NewCalls
from penstock.host.threads.readable_store import CommittedEntries, ReadableStore, for_readers, seen
from penstock.host.threads.visibility import Visibility
from penstock.host.threads.vocabulary import GLOBAL_TASK, OpenedState
from penstock.log_context import logged_as
from penstock.metrics.drop_reasons import Dropped
from penstock.plan.subtopology import TaskId
from penstock.record import PartitionBatch, TopicPartition
from penstock.state.api import CUSTOM, Base, Changes, StateStore, StoreBuilder
from penstock.state.change_logging_store import ChangeLog
from penstock.state.guarded import Guard, GuardedReads
from penstock.state.typed_store import TypedStore
from penstock.task.changelog_copy import ChangelogStamp
from penstock.task.environment import TaskEnvironment
from penstock.task.global_task import GlobalStateUpdateTask
from penstock.task.standby_task import StandbySnapshot
from penstock.task.stream_task import StreamTask
from penstock.task.taps import TappedRecord
from penstock_broker.common.clock import SystemClock

_READ_SECONDS = 10.0
"""Longest wait of a query for a task to end its run."""

LAST_SECONDS = 1.0
"""Longest wait for each thread to end, after the end of the instance."""


class _RunningTask(Protocol):
    """A task of any kind, for the core and for queries."""

    def run(self, action: v.RunTask) -> v.Ran: ...
    def prepare(self, now_ms: int) -> v.CommitPrepared: ...
    def apply(self, ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> v.CommitApplied: ...
    def stamp(self) -> ChangelogStamp: ...
    def close(self) -> None: ...
    def next_wall_clock_ms(self) -> int | None: ...
    def new_calls(self) -> NewCalls: ...
    def readable(self, store_name: str, guard: Guard, visible: Visibility) -> ReadableStore | None: ...
    def entries(self, store_name: str) -> int | None: ...


class OpenTasks(Protocol):
    """The open tasks of an instance, for queries from any thread."""

    def open_tasks(self) -> list[TaskId]:
        """Return the tasks of the topology that are open."""
        ...

    def readable(self, store_name: str, visible: Visibility) -> list[ReadableStore]:
        """Return the stores of that name of all open tasks, for reads by any thread.

        The tasks may run meanwhile. visible: the changes that the reads see.
        """
        ...

    def entries(self, store_name: str) -> int | None:
        """Return the approximate committed entry count of all open stores of that name. Returns None without such a
        store, and for stores of the program's own classes."""
        ...

    def tapped(self, node: str, limit: int) -> list[TappedRecord]:
        """Return the last records that have reached a node, up to `limit` per open task.

        From now on such records are kept, also those of tasks that are opened later.
        """
        ...

    def untap(self, node: str) -> None:
        """Stop keeping the records of a node."""
        ...


class Processing(OpenTasks, Protocol):
    """The workers of tasks; each worker runs one task at a time."""

    @property
    def worker_count(self) -> int:
        """The number of workers."""
        ...

    def worker_of(self, task: TaskId) -> int:
        """Return the number of the worker that runs an open task."""
        ...

    @property
    def turns(self) -> TopologyTurns | None:
        """The turns of runs if topologies share the processing time of this process, otherwise None."""
        ...

    def workers(self) -> dict[TaskId, str]:
        """Return the display name of each open task's worker; from any thread."""
        ...

    def do(self, action: v.TaskAction) -> None:
        """Queue `action`; its answer is an event, `Failed` after an error of the task."""
        ...

    def lend(self, loan: Loan) -> bool:
        """Give the polling loop to the thread of the tasks; return False without such a thread."""
        ...

    def look_for_hung(self, limit_ms: int) -> None:
        """Report the tasks blocked in a function for `limit_ms`, as `Hangs`."""
        ...

    def end_hung(self, limit_ms: int) -> None:
        """End workers busy with one action for `limit_ms` (max.poll.interval.ms), if possible; their actions are
        answered."""
        ...

    def close(self) -> None:
        """Stop running tasks and release everything."""
        ...


class OpenTaskPositions(NamedTuple):
    """The progress of an open task. positions: see `ReadableStore`. processor_metadata: of stores and processors, as of
    the last commit."""

    task: TaskId
    positions: Mapping[TopicPartition, int]
    processor_metadata: Mapping[str, int]


class TaskRunner:
    """The open tasks of an instance. partitions: the number of partitions of each output topic; may look it up."""

    def __init__(self, layout: Layout, partitions: Mapping[str, int]) -> None:
        self._layout = layout
        self._application_id: str = layout.config["application.id"]
        self._partitions = partitions
        self._tasks: dict[TaskId, _RunningTask] = {}
        self._global: GlobalTask | None = None
        self._taps: dict[str, int] = {}
        self._locks: dict[TaskId, threading.RLock] = {}  # a function of the user may read stores while its task runs

    def do(self, action: v.TaskAction) -> v.Event:
        """Perform `action` and return its event, `Failed` after an error of the task."""
        commit = action.commit if isinstance(action, (v.RunTask, v.Prepare)) else ""
        with self._lock(action.task), logged_as(self._application_id, str(action.task), commit):
            try:
                return self._do(action)
            except Exception as error:
                return v.Failed(error, action.task)
            except BaseException as error:  # it would end only this thread, and the core would get no answer
                ended = StreamsError(
                    f"A function of task {action.task} raised {error!r}. That does not end the program, because tasks "
                    "have threads of their own: raise an error instead, or call close() from another thread."
                )
                ended.__cause__ = error
                return v.Failed(ended, action.task)

    def open_tasks(self) -> list[TaskId]:
        """Return the open tasks of the topology; from any thread, also while a function hangs."""
        return sorted(task for task in tuple(self._tasks) if task != GLOBAL_TASK)  # `tuple` copies the dict in one step

    def readable(self, store_name: str, visible: Visibility) -> list[ReadableStore]:
        """Return the stores of that name of all open tasks; see `OpenTasks.readable`."""
        found = [task.readable(store_name, partial(self._reading, id, task), visible) for id, task in self._each_open()]
        return [each for each in found if each is not None]

    def entries(self, store_name: str) -> int | None:
        """Return the committed entry count, from any thread between two runs; see `OpenTasks.entries`."""
        return sum_of_known([task.entries(store_name) for _, task in self._each_open()])

    def positions(self, store_name: str, visible: Visibility) -> list[OpenTaskPositions]:
        """Return the progress of each open stream task with that store; from any thread."""
        tasks = (task for _, task in self._each_open() if isinstance(task, ActiveStreamTask))
        return [task.task_positions(store_name, visible) for task in tasks if task.has(store_name)]

    def reads(self, id: TaskId, store_name: str, visible: Visibility, part: str) -> GuardedReads:
        """Return the bytes of a store of a stream task, for reads by any thread.

        part: the part of the store, see `TypedStore.over`; of the last commit all entries are read, whatever the part.
        Raises InvalidStateStoreError if the task is not open.
        """
        task = self._tasks.get(id)
        if not isinstance(task, ActiveStreamTask):
            raise _migrated(id)
        with self._reading(id, task):
            return task.reads(store_name, partial(self._reading, id, task), visible, part)

    def tapped(self, node: str, limit: int) -> list[TappedRecord]:
        """Return the last records at a node; see `OpenTasks.tapped`. From any thread, between two runs."""
        self._taps = {**self._taps, node: limit}
        tasks = (task for _, task in self._each_open() if isinstance(task, ActiveStreamTask))
        return [record for task in tasks for record in task.tapped(node, limit)]

    def untap(self, node: str) -> None:
        """Stop keeping the records of a node; from any thread, between two runs."""
        self._taps = {other: limit for other, limit in self._taps.items() if other != node}
        for _, task in self._each_open():
            if isinstance(task, ActiveStreamTask):
                task.untap(node)

    def _each_open(self) -> Iterator[tuple[TaskId, _RunningTask]]:
        """Yield the open tasks, each while it is idle."""
        for id in sorted(self._tasks):  # `sorted` copies the dict in one step
            with self._held(id):
                if (task := self._tasks.get(id)) is not None:
                    yield id, task

    @contextmanager
    def _reading(self, id: TaskId, task: _RunningTask) -> Iterator[None]:
        with self._held(id):
            if self._tasks.get(id) is not task:
                raise _migrated(id)
            yield

    @contextmanager
    def _held(self, id: TaskId) -> Iterator[None]:
        lock = self._lock(id)
        if not lock.acquire(timeout=_READ_SECONDS):
            raise InvalidStateStoreError(
                f"Task {id} has been busy for {int(_READ_SECONDS)} s, because a function does not return: read its "
                "stores later, or ask another instance."
            )
        try:
            yield
        finally:
            lock.release()

    def _lock(self, id: TaskId) -> threading.RLock:
        """Return the task's own lock: a function of another task may not return."""
        return self._locks.get(id) or self._locks.setdefault(id, threading.RLock())

    def stores(self, task: TaskId) -> Mapping[str, StateStore]:
        """Return the stores of an open task by name."""
        found = self._tasks[task]
        return found.stores() if isinstance(found, (ActiveStreamTask, GlobalTask)) else {}

    def _do(self, action: v.TaskAction) -> v.Event:
        match action:
            case v.Start(id, state, now_ms):
                return self._start(id, state, now_ms)
            case v.RunTask(id):
                return self._tasks[id].run(action)
            case v.Prepare(id, now_ms):
                return self._tasks[id].prepare(now_ms)
            case v.Apply(id, ends, committed):
                return self._tasks[id].apply(ends, committed)
            case v.Close(id, state):
                return self._close(id, state)

    def _start(self, id: TaskId, state: OpenedState, now_ms: int) -> v.Started:
        try:
            task: _RunningTask
            if id == GLOBAL_TASK:
                task = self._global = GlobalTask(self._layout, state, now_ms)
            else:
                stores = {} if self._global is None else self._global.read_only_stores()
                task = active = ActiveStreamTask(self._layout, id, state, self._partitions, stores, now_ms)
                for node, limit in self._taps.items():
                    active.tapped(node, limit)
        except BaseException:
            state.base.close()
            raise
        self._tasks[id] = task
        return v.Started(id, task.next_wall_clock_ms(), task.new_calls())

    def _close(self, id: TaskId, state: OpenedState | None) -> v.Closed:
        stamp = None
        if state is not None:
            stamp = state.stamp
            state.base.close()
        task = self._tasks.pop(id, None)
        if id == GLOBAL_TASK:
            self._global = None
        if task is not None:
            stamp = task.stamp()
            with suppress(StreamsError):  # from a processor's `close`; committed results remain valid
                task.close()
        return v.Closed(id, stamp)


class ActiveStreamTask:
    """A task of the topology, with its changelogs.

    Raises StreamsError, with the name of the processor, if a processor fails to initialise.

    state: its opened state. partitions: the number of partitions of each output topic. global_stores: by name,
    read-only. now_ms: wall-clock time.
    """

    def __init__(
        self,
        layout: Layout,
        id: TaskId,
        state: OpenedState,
        partitions: Mapping[str, int],
        global_stores: Mapping[str, StateStore],
        now_ms: int,
    ) -> None:
        self._id = id
        self._base = state.base
        self._stamp = state.stamp
        self._positions = state.positions
        self._change_log = ChangeLog(layout.written_changelogs(id))
        self._changelogs = layout.changelogs(id)
        self._builders = layout.spec(id).stores
        self._config = layout.config
        self._names = tuple(self._builders)
        self._committed: Mapping[TopicPartition, int] = dict(state.positions)
        self._topics = topic_entries(layout.topic_ids, used_topics(layout.topology, layout.spec(id)))
        self._gate = CallGate(state.ends)
        self._changes: Changes = {}
        self._prepared_stamp = state.stamp
        self._dropped = 0
        self._measuring = TaskMeasuring(layout.spec(id), layout.topology.repartition_topics)
        self._task = StreamTask(
            layout.spec(id),
            id,
            layout.config,
            state.base,
            partitions,
            state.checkpoint,
            wall_clock_ms=now_ms,
            environment=TaskEnvironment(
                global_stores=global_stores,
                input_partitions=layout.groups[id],
                change_log=self._change_log,
                nanoseconds=SystemClock().nanoseconds,
                cache_bytes=layout.cache_bytes,
                node_lines=layout.topology.node_lines,
                tracing=batch_tracing(layout.config),
            ),
        )
        self._task.initialize()
        self._task.call_again_before(state.ends)

    def stores(self) -> Mapping[str, StateStore]:
        """Return the stores by name."""
        return {name: self._task.store(name) for name in self._names}

    def readable(self, store_name: str, guard: Guard, visible: Visibility) -> ReadableStore | None:
        """Return the store `store_name` for other threads, or None if the task lacks it."""
        if store_name not in self._names:
            return None
        store, positions = self._task.store(store_name), self._positions_seen(store_name, visible)
        if visible is not Visibility.COMMITTED:
            return ReadableStore(self._id, for_readers(seen(store, visible), guard), positions)
        if isinstance(store, TypedStore):
            base = CommittedEntries(self._base, guard)
            snapshot = StandbySnapshot(self._id, self._builders, self._config, base, self._stamp.processor_metadata)
            store = snapshot.store(store_name) or store
        return ReadableStore(self._id, store, positions)

    def _positions_seen(self, store_name: str, visible: Visibility) -> Mapping[TopicPartition, int]:
        """Return the positions up to which readers see all records; a commit flushes the record cache."""
        store = self._task.store(store_name)
        is_cached = isinstance(store, TypedStore) and store.cached
        if visible is Visibility.WRITTEN or (visible is Visibility.FLUSHED and not is_cached):
            return self._positions_now()
        return self._committed

    def entries(self, store_name: str) -> int | None:
        """Return the number of committed entries; None without the store or for a program's class."""
        return _entries(self._base, self._builders.get(store_name))

    def tapped(self, node: str, limit: int) -> list[TappedRecord]:
        """Return the last records at a node, and keep the last `limit` from now on."""
        self._task.tap(node, limit)
        return self._task.tapped(node)

    def untap(self, node: str) -> None:
        """Stop keeping the records of a node."""
        self._task.untap(node)

    def has(self, store_name: str) -> bool:
        """Return whether the task has a store of that name."""
        return store_name in self._names

    def reads(self, store_name: str, guard: Guard, visible: Visibility, part: str) -> GuardedReads:
        """Return a part of a store's bytes for other threads, or all committed bytes."""
        store = self._task.store(store_name)
        if visible is Visibility.COMMITTED or not isinstance(store, TypedStore):
            return CommittedEntries(self._base, guard).view(store_name)
        return seen(store, visible).reads(part, guard)

    def task_positions(self, store_name: str, visible: Visibility) -> OpenTaskPositions:
        """Return the progress of the task."""
        positions = self._positions_seen(store_name, visible)
        return OpenTaskPositions(self._id, positions, self._stamp.processor_metadata)

    def next_wall_clock_ms(self) -> int | None:
        """Return the time of the next work that is due without records (ms)."""
        return self._task.next_wall_clock_ms()

    def run(self, action: v.RunTask) -> v.Ran:
        """Process the records of `action`."""
        began = time.perf_counter_ns()
        task = self._task
        punctuated = task.punctuation_nanoseconds
        task.advance_wall_clock(action.now_ms)
        for (topic, partition), batch in action.records:
            task.add_records(topic, partition, batch)
        before = time.perf_counter_ns()
        records = task.process(action.wait)
        now = time.perf_counter_ns()
        self._measuring.processed(records, now - before)
        output = task.take_output()
        self._measuring.written(output, action.now_ms + (now - began) // 1_000_000)
        return v.Ran(
            self._id,
            output,
            task.waiting(),
            task.next_wall_clock_ms(),
            task.commit_requested,
            task.uncommitted_bytes,
            records,
            time.perf_counter_ns() - began,
            tuple(sorted(task.awaited)) if task.awaited else (),
            task.punctuation_nanoseconds - punctuated,
            task.adds_calls or (self._gate.was_closed and task.waiting_calls > 0),
        )

    def prepare(self, now_ms: int) -> v.CommitPrepared:
        """Flush the caches and keep the changes for `apply`."""
        began = time.perf_counter_ns()
        commit = self._task.prepare_commit()
        self._changes, metadata = commit.changes, dict(commit.checkpoint.processor_metadata)
        number = self._stamp.next_commit(now_ms) if commit.changes else self._stamp.commit
        self._prepared_stamp = replace(self._stamp, processor_metadata=metadata, commit=number)
        changelog = [
            PartitionBatch(topic, self._id.partition, batch)
            for topic, batch in self._change_log.take_batches(now_ms).items()
        ]
        offsets = offsets_of(self._id, self._positions_now(), commit.checkpoint, self._topics, number)
        self._measuring.prepared(commit, now_ms)
        measured = {**commit.measured, **self._measuring.take(), **of_base(str(self._id), self._base.measured())}
        dropped = sum(commit.dropped_records.values())
        before, self._dropped = self._dropped, dropped
        output = [*commit.output, *changelog]
        took = time.perf_counter_ns() - began
        return v.CommitPrepared(self._id, output, offsets, measured, commit.sensors, dropped - before, took)

    def apply(self, ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> v.CommitApplied:
        """Apply the changes of the commit to the base, with changelog ends and `committed` inputs."""
        known = {**self._positions_now(), **ends}
        own = set(self._changelogs.values())
        offsets = {**self._stamp.offsets, **{p: offset for p, offset in known.items() if p in own}}
        self._committed = {**self._positions_now(), **committed}
        self._stamp = replace(self._prepared_stamp, offsets=offsets, inputs=self._committed)
        self._task.committed(self._changes, self._stamp.encode())
        self._changes = {}
        return v.CommitApplied(self._id, self._task.next_wall_clock_ms(), self.new_calls())

    def new_calls(self) -> NewCalls:
        """Return the records whose calls may be made since the last commit, once earlier answers are used."""
        added = self._task.take_calls() if self._gate.is_open(self._committed) else {}
        return NewCalls(added, self._task.waiting_calls)

    def _positions_now(self) -> dict[TopicPartition, int]:
        """Return the next offset of every partition; unchanged for partitions without new records."""
        return {**self._positions, **self._task.positions()}

    def stamp(self) -> ChangelogStamp:
        """Return the stamp of the base."""
        return self._stamp

    def close(self) -> None:
        """Close the processors, the stores and the base."""
        try:
            self._task.close()
        finally:
            self._base.close()


class GlobalTask:
    """The task of the global stores; its positions are only in the base's stamp. state: its opened state. now_ms:
    wall-clock time."""

    def __init__(self, layout: Layout, state: OpenedState, now_ms: int) -> None:
        assert layout.topology.global_topology is not None
        self._base = state.base
        self._builders = layout.topology.global_topology.stores
        self._stamp = state.stamp
        self._positions = dict(state.positions)
        self._changes: Changes = {}
        self._dropped: Mapping[Dropped, int] = {}
        self._task = GlobalStateUpdateTask(
            layout.topology.global_topology,
            layout.config,
            state.base,
            layout.config["deserialization.exception.handler"],
            now_ms,
            state.stamp.processor_metadata,
            layout.topology.node_lines,
        )
        self._task.initialize()

    def stores(self) -> Mapping[str, StateStore]:
        """Return the stores by name."""
        return self._task.stores()

    def readable(self, store_name: str, guard: Guard, visible: Visibility) -> ReadableStore | None:
        """Return the global store `store_name` for other threads, or None if absent.

        It has all records read from its topics, which other applications have committed.
        """
        store = self.stores().get(store_name)
        return None if store is None else ReadableStore(GLOBAL_TASK, for_readers(store, guard), dict(self._positions))

    def entries(self, store_name: str) -> int | None:
        """Return the number of committed entries; None without the store or for a program's class."""
        return _entries(self._base, self._builders.get(store_name))

    def read_only_stores(self) -> Mapping[str, StateStore]:
        """Return the stores for the processors of other tasks, read-only."""
        return self._task.read_only_stores()

    def next_wall_clock_ms(self) -> int | None:
        """Return None: processors of global stores have no schedules."""
        return None

    def new_calls(self) -> NewCalls:
        """Return no calls."""
        return NO_CALLS

    def run(self, action: v.RunTask) -> v.Ran:
        """Apply records of global topics to the stores."""
        records = 0
        for partition, batch in action.records:
            self._task.update(*partition, batch, action.now_ms)
            self._positions[partition] = int(batch.offsets[-1]) + 1
            records += len(batch)
        return v.Ran(GLOBAL_TASK, records=records)

    def prepare(self, now_ms: int) -> v.CommitPrepared:
        """Keep the changes for `apply`."""
        self._changes = self._task.changes()
        before, self._dropped = self._dropped, dict(self._task.dropped_records)
        measured = dict(measured_drops(before, self._dropped))
        dropped = sum(self._dropped.values()) - sum(before.values())
        return v.CommitPrepared(GLOBAL_TASK, (), {}, measured, dropped=dropped)

    def apply(self, ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> v.CommitApplied:
        """Apply the changes to the base."""
        metadata = dict(self._task.processor_metadata)
        self._stamp = replace(self._stamp, offsets=dict(self._positions), processor_metadata=metadata)
        self._task.committed(self._changes, self._stamp.encode())
        return v.CommitApplied(GLOBAL_TASK, None)

    def stamp(self) -> ChangelogStamp:
        """Return the stamp of the base."""
        return self._stamp

    def close(self) -> None:
        """Close the processors, the stores and the base."""
        try:
            self._task.close()
        finally:
            self._base.close()


def sum_of_known(counts: Iterable[int | None]) -> int | None:
    """Return the sum of the known counts, or None if all are unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _entries(base: Base, builder: StoreBuilder | None) -> int | None:
    """Return the number of a store's entries in `base`, or None if absent there."""
    if builder is None or builder.supplier.kind == CUSTOM:
        return None
    return base.view(builder.name).approximate_num_entries()


def _migrated(id: TaskId) -> InvalidStateStoreError:
    return InvalidStateStoreError(
        f"Task {id} was closed here and may have migrated to another instance: get its stores again."
    )
