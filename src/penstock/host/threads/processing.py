"""Does what the core asks of tasks: makes them, lets them process, flushes and closes them. A processing thread calls
it; a task is used by one thread at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from penstock.errors import InvalidStateStoreError, StreamsError
from penstock.host.commits.committing import offsets_of
from penstock.host.deployment.layout import Layout
from penstock.host.deployment.lost_topics import topic_entries, used_topics
from penstock.host.measuring.batch_tracing import batch_tracing
from penstock.host.measuring.task_measuring import TaskMeasuring, of_base
from penstock.host.supervision.turns import TopologyTurns
from penstock.host.threads import vocabulary as v
from penstock.host.threads.vocabulary import GLOBAL_TASK, OpenedState
from penstock.log_context import logged_as
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
"""For a query to wait until a task has ended a run."""

LAST_SECONDS = 1.0
"""For each thread to end, behind the end of the instance."""


class ReadableStore(NamedTuple):
    """A store of an open task, to be read by any thread. positions: the next offset of each partition that the task
    reads, before which all records are in the store."""

    task: TaskId
    store: StateStore
    positions: Mapping[TopicPartition, int]


class _RunningTask(Protocol):
    """What the core and queries ask of a task, whatever it is."""

    def run(self, action: v.RunTask) -> v.Ran: ...
    def prepare(self, now_ms: int) -> v.CommitPrepared: ...
    def apply(self, ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> v.CommitApplied: ...
    def stamp(self) -> ChangelogStamp: ...
    def close(self) -> None: ...
    def next_wall_clock_ms(self) -> int | None: ...
    def readable(self, store_name: str, guard: Guard, committed: bool) -> ReadableStore | None: ...
    def entries(self, store_name: str) -> int | None: ...


class OpenTasks(Protocol):
    """The open tasks of an instance, as queries see them; for any thread."""

    def open_tasks(self) -> list[TaskId]:
        """Return the tasks of the topology that are open."""
        ...

    def readable(self, store_name: str, committed: bool) -> list[ReadableStore]:
        """Return the stores of that name of all open tasks, to be read by any thread while the tasks run; committed:
        as of the last commit, and not as they are now."""
        ...

    def entries(self, store_name: str) -> int | None:
        """Return about how many entries the stores of that name of all open tasks have as of the last commit, None if
        there is none, or it is of a class of the program."""
        ...

    def tapped(self, node: str, limit: int) -> list[TappedRecord]:
        """Return the last records that have reached a node, up to `limit` of each open task, and keep such records from
        now on, of tasks that are opened later too."""
        ...

    def untap(self, node: str) -> None:
        """Keep the records of a node no longer."""
        ...


class Processing(OpenTasks, Protocol):
    """Where tasks run: workers, each of which runs one task at a time."""

    @property
    def worker_count(self) -> int:
        """How many there are."""
        ...

    def worker_of(self, task: TaskId) -> int:
        """Return the number of the worker that an open task runs in."""
        ...

    @property
    def turns(self) -> TopologyTurns | None:
        """What runs take where topologies share the processing time of this process; None if they do not."""
        ...

    def workers(self) -> dict[TaskId, str]:
        """Return what people call the worker of each open task of the topology; from any thread."""
        ...

    def do(self, action: v.TaskAction) -> None:
        """Have `action` done; the answer is an event, `Failed` with the error of the task if it failed."""
        ...

    def look_for_hung(self, limit_ms: int) -> None:
        """Tell, as `Hangs`, of the tasks that cannot go on because a function has not returned for `limit_ms`."""
        ...

    def end_hung(self, limit_ms: int) -> None:
        """End what has been doing one action for `limit_ms` (max.poll.interval.ms), where it can be ended: its actions
        are then answered."""
        ...

    def close(self) -> None:
        """Run no task any more, and release everything."""
        ...


class OpenTaskPositions(NamedTuple):
    """How far an open task is: the next offset of each partition as it is now and as of the last commit, and what
    stores and processors remember as of the last commit."""

    task: TaskId
    now: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    processor_metadata: Mapping[str, int]


class TaskRunner:
    """The open tasks of an instance."""

    def __init__(self, layout: Layout, partitions: Mapping[str, int]) -> None:
        """Start without tasks. partitions: the number of partitions of each output topic; may look it up."""
        self._layout = layout
        self._application_id: str = layout.config["application.id"]
        self._partitions = partitions
        self._tasks: dict[TaskId, _RunningTask] = {}
        self._global: GlobalTask | None = None
        self._taps: dict[str, int] = {}
        self._locks: dict[TaskId, threading.RLock] = {}  # a function of the user may read stores while its task runs

    def do(self, action: v.TaskAction) -> v.Event:
        """Return what the core is to know when `action` is done, `Failed` with the error of the task if it failed."""
        commit = action.commit if isinstance(action, v.RunTask | v.Prepare) else ""
        with self._lock(action.task), logged_as(self._application_id, str(action.task), commit):
            try:
                return self._do(action)
            except Exception as error:
                return v.Failed(error, action.task)
            except BaseException as error:  # it would end this thread alone, and nobody would answer the core
                ended = StreamsError(
                    f"A function of task {action.task} raised {error!r}. That does not end the program, because tasks "
                    "have threads of their own: raise an error instead, or call close() from another thread."
                )
                ended.__cause__ = error
                return v.Failed(ended, action.task)

    def open_tasks(self) -> list[TaskId]:
        """Return the tasks of the topology that are open; from any thread, also while a function does not return."""
        return sorted(task for task in tuple(self._tasks) if task != GLOBAL_TASK)  # the copy is made in one step

    def readable(self, store_name: str, committed: bool) -> list[ReadableStore]:
        """Return the stores of that name of all open tasks, to be read by any thread while the tasks run; committed:
        as of the last commit, and not as they are now."""
        found = [
            task.readable(store_name, partial(self._reading, id, task), committed) for id, task in self._each_open()
        ]
        return [each for each in found if each is not None]

    def entries(self, store_name: str) -> int | None:
        """Return about how many entries the stores of that name of all open tasks have as of the last commit, None if
        there is none, or it is of a class of the program; from any thread, between two runs."""
        return sum_of_known([task.entries(store_name) for _, task in self._each_open()])

    def positions(self, store_name: str) -> list[OpenTaskPositions]:
        """Return how far each open task of the topology is that has a store of that name; from any thread."""
        tasks = (task for _, task in self._each_open() if isinstance(task, ActiveStreamTask))
        return [task.task_positions() for task in tasks if task.has(store_name)]

    def reads(self, id: TaskId, store_name: str, part: str | None) -> GuardedReads:
        """Return the bytes of a store of a task of the topology, to be read by any thread. part: which of them, see
        `TypedStore.over`; None for all as of the last commit. Raises InvalidStateStoreError if the task is not open."""
        task = self._tasks.get(id)
        if not isinstance(task, ActiveStreamTask):
            raise _migrated(id)
        with self._reading(id, task):
            return task.reads(store_name, partial(self._reading, id, task), part)

    def tapped(self, node: str, limit: int) -> list[TappedRecord]:
        """Return the last records that have reached a node, up to `limit` of each open task, and keep such records from
        now on, of tasks that are opened later too; from any thread, between two runs."""
        self._taps = {**self._taps, node: limit}
        tasks = (task for _, task in self._each_open() if isinstance(task, ActiveStreamTask))
        return [record for task in tasks for record in task.tapped(node, limit)]

    def untap(self, node: str) -> None:
        """Keep the records of a node no longer; from any thread, between two runs."""
        self._taps = {other: limit for other, limit in self._taps.items() if other != node}
        for _, task in self._each_open():
            if isinstance(task, ActiveStreamTask):
                task.untap(node)

    def _each_open(self) -> Iterator[tuple[TaskId, _RunningTask]]:
        """Yield the open tasks, each while it does nothing else."""
        for id in sorted(self._tasks):  # which copies them in one step
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
        """Return what a task is used under: each has one, for the function of another one may not return."""
        return self._locks.setdefault(id, threading.RLock())

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
        return v.Started(id, task.next_wall_clock_ms())

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
            with suppress(StreamsError):  # of a processor's `close`; what is committed stands
                task.close()
        return v.Closed(id, stamp)


class ActiveStreamTask:
    """A task of the topology, with its changelogs."""

    def __init__(
        self,
        layout: Layout,
        id: TaskId,
        state: OpenedState,
        partitions: Mapping[str, int],
        global_stores: Mapping[str, StateStore],
        now_ms: int,
    ) -> None:
        """Make the task over `state` and initialise its processors; raises StreamsError naming the one that fails."""
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
        self._changes: Changes = {}
        self._metadata: Mapping[str, int] = {}
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

    def stores(self) -> Mapping[str, StateStore]:
        """Return the stores by name."""
        return {name: self._task.store(name) for name in self._names}

    def readable(self, store_name: str, guard: Guard, committed: bool) -> ReadableStore | None:
        """Return the store `store_name` for other threads, None if the task has none of that name."""
        if store_name not in self._names:
            return None
        store = self._task.store(store_name)
        if not committed:
            return ReadableStore(self._id, _for_readers(store, guard), self._positions_now())
        if isinstance(store, TypedStore):
            base = CommittedEntries(self._base, guard)
            snapshot = StandbySnapshot(self._id, self._builders, self._config, base, self._stamp.processor_metadata)
            store = snapshot.store(store_name) or store
        return ReadableStore(self._id, store, self._committed)

    def entries(self, store_name: str) -> int | None:
        """Return how many entries the store `store_name` has as of the last commit, None if the task has none of that
        name, or it is of a class of the program."""
        return _entries(self._base, self._builders.get(store_name))

    def tapped(self, node: str, limit: int) -> list[TappedRecord]:
        """Return the last records that have reached a node, and keep up to `limit` of them from now on."""
        self._task.tap(node, limit)
        return self._task.tapped(node)

    def untap(self, node: str) -> None:
        """Keep the records of a node no longer."""
        self._task.untap(node)

    def has(self, store_name: str) -> bool:
        """Return whether the task has a store of that name."""
        return store_name in self._names

    def reads(self, store_name: str, guard: Guard, part: str | None) -> GuardedReads:
        """Return a part of the bytes of a store for other threads, None for all as of the last commit."""
        store = self._task.store(store_name)
        if part is None or not isinstance(store, TypedStore):
            return CommittedEntries(self._base, guard).view(store_name)
        return store.reads(part, guard)

    def task_positions(self) -> OpenTaskPositions:
        """Return how far the task is."""
        return OpenTaskPositions(self._id, self._positions_now(), self._committed, self._stamp.processor_metadata)

    def next_wall_clock_ms(self) -> int | None:
        """Return when the task has something to do though no record arrives (ms)."""
        return self._task.next_wall_clock_ms()

    def run(self, action: v.RunTask) -> v.Ran:
        """Process what `action` brings."""
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
            task.positions(),
            task.waiting(),
            task.next_wall_clock_ms(),
            task.commit_requested,
            task.uncommitted_bytes,
            records,
            time.perf_counter_ns() - began,
            tuple(sorted(task.awaited)),
            task.punctuation_nanoseconds - punctuated,
        )

    def prepare(self, now_ms: int) -> v.CommitPrepared:
        """Flush the caches, and keep the changes for `apply`."""
        began = time.perf_counter_ns()
        commit = self._task.prepare_commit()
        self._changes, self._metadata = commit.changes, commit.checkpoint.processor_metadata
        changelog = [
            PartitionBatch(topic, self._id.partition, batch)
            for topic, batch in self._change_log.take_batches(now_ms).items()
        ]
        offsets = offsets_of(self._id, self._positions_now(), commit.checkpoint, self._topics)
        self._measuring.prepared(commit, now_ms)
        measured = {**commit.measured, **self._measuring.take(), **of_base(str(self._id), self._base.measured())}
        dropped = sum(commit.dropped_records.values())
        before, self._dropped = self._dropped, dropped
        output = [*commit.output, *changelog]
        took = time.perf_counter_ns() - began
        return v.CommitPrepared(self._id, output, offsets, measured, commit.sensors, dropped - before, took)

    def apply(self, ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> v.CommitApplied:
        """Apply the changes of the commit to the base, with how far the changelogs have them, and the inputs are
        `committed`."""
        known = {**self._positions_now(), **ends}
        own = set(self._changelogs.values())
        offsets = {**self._stamp.offsets, **{p: offset for p, offset in known.items() if p in own}}
        self._committed = {**self._positions_now(), **committed}
        metadata = dict(self._metadata)
        self._stamp = replace(self._stamp, offsets=offsets, processor_metadata=metadata, inputs=self._committed)
        self._task.committed(self._changes, self._stamp.encode())
        self._changes = {}
        return v.CommitApplied(self._id, self._task.next_wall_clock_ms())

    def _positions_now(self) -> dict[TopicPartition, int]:
        """Return the next offset of every partition, of those without new records as they were."""
        return {**self._positions, **self._task.positions()}

    def stamp(self) -> ChangelogStamp:
        """Return what the base holds."""
        return self._stamp

    def close(self) -> None:
        """Close the processors, the stores and the base."""
        try:
            self._task.close()
        finally:
            self._base.close()


class GlobalTask:
    """The task of the global stores: its positions are in the stamp of its base, and nowhere else."""

    def __init__(self, layout: Layout, state: OpenedState, now_ms: int) -> None:
        """Make the task over `state`."""
        assert layout.topology.global_topology is not None
        self._base = state.base
        self._builders = layout.topology.global_topology.stores
        self._stamp = state.stamp
        self._positions = dict(state.positions)
        self._changes: Changes = {}
        self._dropped = 0
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

    def readable(self, store_name: str, guard: Guard, committed: bool) -> ReadableStore | None:
        """Return the store `store_name` for other threads, None if there is no global store of that name; it has what
        was read of its topics, which others have committed."""
        store = self.stores().get(store_name)
        return None if store is None else ReadableStore(GLOBAL_TASK, _for_readers(store, guard), dict(self._positions))

    def entries(self, store_name: str) -> int | None:
        """Return how many entries the global store `store_name` has as of the last commit, None if there is none of
        that name, or it is of a class of the program."""
        return _entries(self._base, self._builders.get(store_name))

    def read_only_stores(self) -> Mapping[str, StateStore]:
        """Return the stores as the processors of other tasks see them."""
        return self._task.read_only_stores()

    def next_wall_clock_ms(self) -> int | None:
        """Return None: no processor of a global store has schedules."""
        return None

    def run(self, action: v.RunTask) -> v.Ran:
        """Take records of global topics."""
        records = 0
        for partition, batch in action.records:
            self._task.update(*partition, batch, action.now_ms)
            self._positions[partition] = int(batch.offsets[-1]) + 1
            records += len(batch)
        return v.Ran(GLOBAL_TASK, positions=dict(self._positions), records=records)

    def prepare(self, now_ms: int) -> v.CommitPrepared:
        """Keep the changes for `apply`."""
        self._changes = self._task.changes()
        dropped = sum(self._task.dropped_records.values())
        before, self._dropped = self._dropped, dropped
        return v.CommitPrepared(GLOBAL_TASK, (), {}, dropped=dropped - before)

    def apply(self, ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> v.CommitApplied:
        """Apply the changes to the base."""
        metadata = dict(self._task.processor_metadata)
        self._stamp = replace(self._stamp, offsets=dict(self._positions), processor_metadata=metadata)
        self._task.committed(self._changes, self._stamp.encode())
        return v.CommitApplied(GLOBAL_TASK, None)

    def stamp(self) -> ChangelogStamp:
        """Return what the base holds."""
        return self._stamp

    def close(self) -> None:
        """Close the processors, the stores and the base."""
        try:
            self._task.close()
        finally:
            self._base.close()


class CommittedEntries:
    """The committed entries of a task for readers (implements BaseSnapshot)."""

    def __init__(self, base: Base, guard: Guard) -> None:
        """Read `base`; guard: what each read is done in."""
        self._base = base
        self._guard = guard

    def view(self, store_name: str) -> GuardedReads:
        """Return the committed entries of one store."""
        return GuardedReads(self._base.view(store_name), self._guard)

    def close(self) -> None:
        """Do nothing: the base belongs to the task."""


def sum_of_known(counts: Iterable[int | None]) -> int | None:
    """Return the sum of those that are known, None if none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _entries(base: Base, builder: StoreBuilder | None) -> int | None:
    """Return how many entries of a store are committed to `base`, None where the base does not have them."""
    if builder is None or builder.supplier.kind == CUSTOM:
        return None
    return base.view(builder.name).approximate_num_entries()


def _migrated(id: TaskId) -> InvalidStateStoreError:
    return InvalidStateStoreError(
        f"Task {id} was closed here and may have migrated to another instance: get its stores again."
    )


def _for_readers(store: StateStore, guard: Guard) -> StateStore:
    """Return `store` for other threads than that of its task; one that a user has written is as it is, as in Kafka."""
    return store.for_readers(guard) if isinstance(store, TypedStore) else store
