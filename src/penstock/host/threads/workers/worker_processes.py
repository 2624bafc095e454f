"""The worker processes of an instance; each open task is in one of them.

- The base of a task is restored here, closed, and reopened by its worker. Workers close it before they answer.
- The task of the global stores runs here, and each worker has a copy of it for reads by its tasks. The copies receive
  the same records, and an action is answered when all of them have answered.
- The tasks of a worker end with it. Its outstanding actions are answered with WorkerDiedError, and the next task opened
  in its place starts a new worker.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, assert_never

from penstock.errors import InvalidStateStoreError, StreamsError, UnsupportedOperationError
from penstock.host.deployment.layout import Layout
from penstock.host.packing.sent_program import dump_program, parts_of
from penstock.host.packing.tapped_records import decoded_records
from penstock.host.supervision.turns import TopologyTurns
from penstock.host.threads import vocabulary as v
from penstock.host.threads.moving_loop import Loan
from penstock.host.threads.processing import (
    LAST_SECONDS,
    OpenTaskPositions,
    TaskRunner,
    sum_of_known,
)
from penstock.host.threads.queued import QueuedThread
from penstock.host.threads.readable_store import ReadableStore
from penstock.host.threads.visibility import Visibility
from penstock.host.threads.vocabulary import GLOBAL_TASK
from penstock.host.threads.workers.messages import (
    CloseTap,
    Open,
    OpenGlobal,
    ReadPositions,
    ReadStore,
    ReadTap,
    WorkerAction,
    WorkerProgram,
)
from penstock.host.threads.workers.placing import place
from penstock.host.threads.workers.worker_process import (
    StartWorker,
    Worker,
    WorkerDiedError,
    WorkerProcess,
)
from penstock.plan.subtopology import TaskId
from penstock.state.api import CUSTOM, StateStore
from penstock.state.guarded import GuardedReads
from penstock.state.typed_store import ENTRIES, TypedStore
from penstock.task.standby_task import StandbySnapshot, empty_store
from penstock.task.taps import TappedRecord

_NO_WORKER = -1


class WorkerRefusedError(StreamsError):
    """A worker process could not load the program.

    What to do: Read the cause in the message. Functions and classes of the program must be importable, or defined in
    the program itself; what they refer to, such as an open connection, cannot be sent to a process.
    """


class OwnThread(Protocol):
    """A thread that performs one action after another."""

    def put(self, item: v.TaskAction) -> None:
        """Pass an action to the thread."""
        ...

    def close(self, seconds: float) -> bool:
        """End after the pending actions; return whether it has ended in time."""
        ...


def starter_of_workers(layout: Layout, run: str) -> StartWorker:
    """Return a function that starts worker processes for an application. run: see `StateDirectory.run`. Raises
    StreamsError if the program cannot be sent to other processes."""
    parts = parts_of(layout.topology, layout.config)
    level = logging.getLogger().getEffectiveLevel()
    program = WorkerProgram(dump_program(layout, parts, "worker processes"), run, level)
    return partial(WorkerProcess, str(layout.config["application.id"]), program)


class WorkerProcesses:
    """Runs tasks in worker processes (implements Processing).

    The constructor starts the processes, and waits until they have loaded the program.

    Args:
        layout: the layout of the application.
        start: starts a worker.
        workers: the number of workers.
        global_runner: runs the task of the global stores here.
        answer: receives answers, in any thread.
        turns: the turns for runs of tasks, None for no turns.
        make_thread: creates a thread of this process from its name and function.

    Raises:
        StreamsError: the processes cannot load the program.
    """

    def __init__(
        self,
        layout: Layout,
        start: StartWorker,
        workers: int,
        global_runner: TaskRunner,
        answer: Callable[[v.Event], None],
        turns: TopologyTurns | None = None,
        make_thread: Callable[[str, Callable[[v.TaskAction], None]], OwnThread] = QueuedThread,
    ) -> None:
        self._layout = layout
        self._name = str(layout.config["application.id"])
        self._start_worker = start
        self._answer = answer
        self.turns = turns
        self._lock = threading.Lock()
        self._open: dict[TaskId, Worker] = {}
        self._running: dict[TaskId, int] = {}
        self._before: dict[TaskId, int] = {}
        self._deaths: Counter[TaskId] = Counter()
        self._has_processed: set[TaskId] = set()
        self._global_runner = global_runner
        self._global_missing = 0
        self._global_answer: v.Event | None = None
        self._here = make_thread(f"penstock-{self._name}-global", self._do_here)
        self._workers: list[Worker] = []
        try:
            self._workers.extend(self._started(number) for number in range(workers))
            refusals = [refusal for worker in self._workers if (refusal := worker.refusal())]
            if refusals:
                raise WorkerRefusedError(f"A worker process could not load the program: {refusals[0]}")
        except BaseException:
            self.close()
            raise

    @property
    def worker_count(self) -> int:
        """The number of processes."""
        return len(self._workers)

    def pids(self) -> list[int]:
        """Return the ids of the processes."""
        return [worker.pid for worker in self._workers]

    def worker_of(self, task: TaskId) -> int:
        """Return the worker number of an open task. The task of the global stores has no worker."""
        return self._running.get(task, _NO_WORKER)

    def workers(self) -> dict[TaskId, str]:
        """Return the worker number and process id of each open task."""
        with self._lock:
            return {task: f"process {self._running[task]} (pid {worker.pid})" for task, worker in self._open.items()}

    def do(self, action: v.TaskAction) -> None:
        """Pass on `action`; called by the polling thread."""
        match action:
            case v.Close(state=state) if state is not None:  # restored here, and never opened by a worker
                self._here.put(action)
            case _ if action.task == GLOBAL_TASK:
                if isinstance(action, v.Start):
                    for number in range(len(self._workers)):
                        self._living(number)
                self._here.put(action)
            case v.Start():
                self._start(action)
            case v.Close(task):
                with self._lock:
                    worker = self._open.pop(task)
                    self._before[task] = self._running.pop(task)
                self._ask(worker, action)
            case v.RunTask() | v.Prepare() | v.Apply():
                self._ask(self._open[action.task], action)
            case _:
                assert_never(action)

    def lend(self, loan: Loan) -> bool:
        """Return False: tasks run in other processes."""
        return False

    def look_for_hung(self, limit_ms: int) -> None:
        """Report all tasks of a process in which a function hangs for `limit_ms`. A process runs its tasks one after
        another."""
        for number, worker in enumerate(self._workers):
            if worker.is_hung(limit_ms):
                self._answer(v.Hangs(frozenset(task for task, where in self._running.items() if where == number)))

    def end_hung(self, limit_ms: int) -> None:
        """Kill workers that have been performing one action for `limit_ms` (max.poll.interval.ms). Other processes take
        their places."""
        for worker in self._workers:
            worker.kill_if_hung(limit_ms)

    def _start(self, action: v.Start) -> None:
        task, state = action.task, action.state
        state.base.close()
        number = place(task, self._running, self._before.get(task), range(len(self._workers)))
        worker = self._living(number)
        with self._lock:
            self._open[task], self._running[task] = worker, number
        self._ask(worker, Open(task, state.stamp, state.positions, state.checkpoint, action.now_ms, state.ends))

    def _living(self, number: int) -> Worker:
        """Return the worker of this number, a new one if it has died."""
        if not self._workers[number].is_alive:
            self._workers[number].close()
            self._workers[number] = self._started(number)
        return self._workers[number]

    def _started(self, number: int) -> Worker:
        turn = None if self.turns is None else self.turns.of_runner(number)
        return self._start_worker(self._answered, self._died, turn)

    def _ask(self, worker: Worker, action: WorkerAction) -> None:
        if not worker.do(action):
            self._undone(action, WorkerDiedError(f"A worker process of {self._name} has ended."))

    # ---------------------------------------- answers

    def _answered(self, event: v.Event) -> None:
        """Process an answer of a worker, in its receiving thread."""
        match event:
            case v.Failed(error, task) if task == GLOBAL_TASK:
                self._answer(v.Failed(error))
                self._answered_globally(None)
            case v.Started(task) | v.Ran(task) | v.CommitPrepared(task) | v.CommitApplied(task) | v.Closed(task) if (
                task == GLOBAL_TASK
            ):
                self._answered_globally(None)
            case _:
                self._note_progress(event)
                self._answer(event)

    def _note_progress(self, event: v.Event) -> None:
        """Reset the deaths of a task that has committed records since."""
        match event:
            case v.Started(task):
                self._has_processed.discard(task)
            case v.Ran(task, records=records) if records:
                self._has_processed.add(task)
            case v.CommitApplied(task) if task in self._has_processed:
                self._deaths.pop(task, None)
            case _:
                pass

    def _died(self, how: str, pid: int, unanswered: Sequence[WorkerAction]) -> None:
        """Answer the outstanding actions of a worker that has ended."""
        task = next((action.task for action in unanswered), None)
        deaths = 1
        if task is not None:
            self._deaths[task] = deaths = self._deaths[task] + 1
        doing = "no task" if task is None else "the global stores" if task == GLOBAL_TASK else f"task {task}"
        error = WorkerDiedError(
            f"Worker process {pid} of {self._name} {how} while it ran {doing}. Its tasks are opened again from the "
            "last commit, in another process. If that happens again and again, a function or a library of the program "
            "crashes, or does not return, with the records that come next, or there is too little memory.",
            task,
            deaths,
        )
        failed = [self._undone(action, error) for action in unanswered]
        if not any(failed):
            self._answer(v.Failed(error))

    def _undone(self, action: WorkerAction, error: WorkerDiedError) -> bool:
        """Answer an action without a worker; return whether the answer is an error."""
        if isinstance(action, OpenGlobal) or action.task == GLOBAL_TASK:
            self._answered_globally(None)
            return False
        if isinstance(action, v.Close):
            self._answer(v.Closed(action.task))
            return False
        self._answer(v.Failed(error, action.task))
        return True

    # ---------------------------------------- the task of the global stores

    def _do_here(self, action: v.TaskAction) -> None:
        """Perform an action about the global stores here and in all workers. Also close tasks that no worker has
        opened."""
        if action.task != GLOBAL_TASK or (isinstance(action, v.Close) and action.state is not None):
            self._answer(self._global_runner.do(action))
            return
        message = self._open_global(action) if isinstance(action, v.Start) else action
        workers = list(self._workers)
        with self._lock:
            self._global_missing, self._global_answer = len(workers) + 1, None
        for worker in workers:
            if not worker.do(message):
                self._answered_globally(None)
        self._answered_globally(self._global_runner.do(action))

    def _open_global(self, action: v.Start) -> OpenGlobal:
        spec, state = self._layout.topology.global_topology, action.state
        assert spec is not None
        entries = {name: dict(state.base.view(name).range(None, None, False)) for name in spec.stores}
        return OpenGlobal(GLOBAL_TASK, state.stamp, state.positions, entries, action.now_ms)

    def _answered_globally(self, event: v.Event | None) -> None:
        """Count one more answer. event: the answer of the task here."""
        with self._lock:
            self._global_answer = self._global_answer or event
            self._global_missing -= 1
            answer = None if self._global_missing else self._global_answer
        if answer is not None:
            self._answer(answer)

    # ---------------------------------------- queries

    def open_tasks(self) -> list[TaskId]:
        """Return the open tasks of the topology."""
        with self._lock:
            return sorted(self._open)

    def readable(self, store_name: str, visible: Visibility) -> list[ReadableStore]:
        """Return the stores of that name of all open tasks."""
        with self._lock:
            workers = {w for task, w in self._open.items() if store_name in self._layout.spec(task).stores}
        found = self._global_runner.readable(store_name, visible)
        for worker in workers:
            with suppress(InvalidStateStoreError):  # its tasks are being opened again
                for each in worker.read(ReadPositions(store_name, visible)):
                    store = self._remote(worker, each, store_name, visible)
                    found.append(ReadableStore(each.task, store, each.positions))
        return sorted(found, key=lambda each: each.task)

    def entries(self, store_name: str) -> int | None:
        """Return the approximate number of committed entries in the open stores of that name. None if no such store is
        open, or its class is from the program."""
        with self._lock:
            workers = dict(self._open)
        counts = [self._global_runner.entries(store_name)]
        for task, worker in workers.items():
            builder = self._layout.spec(task).stores.get(store_name)
            if builder is not None and builder.supplier.kind != CUSTOM:
                with suppress(InvalidStateStoreError):  # the task is being opened again
                    counts.append(_committed_reads(worker, task, store_name).approximate_num_entries())
        return sum_of_known(counts)

    def tapped(self, node: str, limit: int) -> list[TappedRecord]:
        """Return the last records of a node, and keep such records from now on."""
        found: list[TappedRecord] = []
        for worker in list(self._workers):
            with suppress(InvalidStateStoreError):  # its tasks are being opened again
                found += decoded_records(worker.read(ReadTap(node, limit)))
        return sorted(found, key=lambda record: TaskId.parse(record.task))

    def untap(self, node: str) -> None:
        """Stop keeping the records of a node."""
        for worker in list(self._workers):
            with suppress(InvalidStateStoreError):
                worker.read(CloseTap(node))

    def _remote(self, worker: Worker, found: OpenTaskPositions, name: str, visible: Visibility) -> StateStore:
        """Return a store of a worker, for reads from here."""
        task, config = found.task, self._layout.config
        builders = self._layout.spec(task).stores
        if builders[name].supplier.kind == CUSTOM:
            raise UnsupportedOperationError(
                f"Store {name} is of a class of the program, and in another process: queries can read it only "
                "with num.stream.threads=1."
            )
        if visible is Visibility.COMMITTED:
            entries = _CommittedEntries(worker, task)
            snapshot = StandbySnapshot(task, builders, config, entries, found.processor_metadata).store(name)
            assert snapshot is not None
            return snapshot
        store = empty_store(builders[name], config).exposed()
        assert isinstance(store, TypedStore)
        return store.over(lambda part: _remote_reads(worker, task, name, visible, part))

    def close(self) -> None:
        """End the processes, even if a function of the user does not return."""
        self._here.close(LAST_SECONDS)
        for worker in self._workers:
            worker.close()


class _CommittedEntries:
    """The committed entries of a task in a worker (implements BaseSnapshot)."""

    def __init__(self, worker: Worker, task: TaskId) -> None:
        self._worker = worker
        self._task = task

    def view(self, store_name: str) -> GuardedReads:
        """Return the entries of one store."""
        return _committed_reads(self._worker, self._task, store_name)

    def close(self) -> None:
        """Do nothing: the entries are in the worker."""


def _committed_reads(worker: Worker, task: TaskId, store: str) -> GuardedReads:
    return _remote_reads(worker, task, store, Visibility.COMMITTED, ENTRIES)


def _remote_reads(worker: Worker, task: TaskId, store: str, visible: Visibility, part: str) -> GuardedReads:
    return GuardedReads(_RemoteReads(worker, ReadStore(task, store, visible, part, "")), nullcontext)


class _RemoteReads:
    """Reads the bytes of a store in a worker. A range returns the entries of one read."""

    def __init__(self, worker: Worker, asked: ReadStore) -> None:
        self._worker = worker
        self._asked = asked

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._worker.read(replace(self._asked, name=name, arguments=arguments))

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of `keys`, None for missing keys."""
        found: list[bytes | None] = self._call("multi_get", list(keys))
        return found

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return the first entries with from_key <= key < to_key in byte order, or reversed."""
        return iter(self._call("range", from_key, to_key, reverse))

    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries."""
        return int(self._call("approximate_num_entries"))

    def segments(self, from_time: int, to_time: int) -> list[bytes]:
        """Return the segments with entries from `from_time` to `to_time` (ms), in order."""
        found: list[bytes] = self._call("segments", from_time, to_time)
        return found

    @property
    def observed_time(self) -> int:
        """The clock of the store (ms)."""
        return int(self._call("observed_time"))
