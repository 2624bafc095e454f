"""A worker process: runs tasks like a processing thread, and answers reads of their stores.

It ends when its parent ends or closes the connection, even while a function of the user runs. It ignores SIGINT: Ctrl-C
is for the program, which closes its workers.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from penstock import extras
from penstock.client.api import Admin
from penstock.config import StreamsConfig
from penstock.host.packing.sent_program import load_program
from penstock.host.packing.tapped_records import encoded_records
from penstock.host.supervision.switching import switch_threads_often
from penstock.host.threads import vocabulary as v
from penstock.host.threads.directories import StateDirectory
from penstock.host.threads.processing import TaskRunner
from penstock.host.threads.target_topics import PartitionCounts
from penstock.host.threads.vocabulary import GLOBAL_TASK, OpenedState
from penstock.host.threads.workers.messages import (
    CloseTap,
    LogLine,
    Open,
    OpenGlobal,
    ReadPositions,
    ReadStore,
    ReadTap,
    WorkerAction,
    WorkerConnection,
    WorkerProgram,
    WorkerReady,
)
from penstock.log_context import current_work
from penstock.plan.subtopology import TaskId
from penstock.state.api import Base
from penstock.state.guarded import AT_ONCE
from penstock.state.memory import MemoryBase
from penstock.task.task_checkpoint import TaskCheckpoint

OUT_OF_MEMORY = 70
"""The exit code of a worker that ran out of memory. Its end frees the memory."""

_LOOK_MS = 1_000  # interval of checks for the parent: a child of it may hold its end of the connection


def main(arguments: Sequence[str]) -> None:
    """Work for the parent. arguments: the descriptors of two connections, for tasks and for reads, and the parent's
    pid."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    switch_threads_often()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # output of functions appears immediately
    tasks, reads = (socket.socket(fileno=int(each)) for each in arguments[:2])
    threading.Thread(target=_end_with, args=(tasks, int(arguments[2])), daemon=True).start()
    connection = _Answers(tasks)
    with suppress(EOFError):
        worker = _loaded(connection, connection.receive())
        if worker is not None:
            threading.Thread(target=worker.read, args=(WorkerConnection(reads),), daemon=True).start()
            gc.freeze()  # the loaded program is never garbage
            worker.run(connection)
    os._exit(0)  # at once: no thread of a library delays the end


class _Answers(WorkerConnection):
    """A connection on which several threads send."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__(stream)
        self._sending = threading.Lock()

    def send(self, message: object) -> None:
        """Send a message; the process ends if the other end is gone."""
        with self._sending:
            try:
                super().send(message)
            except OSError:
                os._exit(0)


def _end_with(stream: socket.socket, parent: int) -> None:
    """End this process with its parent, even during a function that does not return."""
    hung_up = select.poll()
    hung_up.register(stream, 0)  # this mask reports a close by the other end, but no messages
    while not hung_up.poll(_LOOK_MS):
        if os.getppid() != parent:
            break
    os._exit(0)


def _loaded(connection: _Answers, program: WorkerProgram) -> _Worker | None:
    """Load the program and report whether that was possible."""
    logging.getLogger().setLevel(program.log_level)
    logging.getLogger().addHandler(_LogLines(connection))
    try:
        layout = load_program(program.layout)
    except BaseException:
        connection.send(WorkerReady(traceback.format_exc().strip().splitlines()[-1]))
        return None
    directory = StateDirectory.of_run(layout.config, program.run)
    targets = PartitionCounts(layout.topic_partitions, partial(_admin, layout.config))
    worker = _Worker(TaskRunner(layout, targets), directory.open_base)
    connection.send(WorkerReady())
    return worker


class WorkerTasks:
    """The tasks of a worker process.

    Args:
        runner: runs the open tasks.
        open_base: opens the base of a task.
    """

    def __init__(self, runner: TaskRunner, open_base: Callable[[TaskId], Base]) -> None:
        self._runner = runner
        self._open_base = open_base

    def do(self, action: WorkerAction) -> v.Event:
        """Return the answer to `action`."""
        match action:
            case Open(task):
                try:
                    base = self._open_base(task)
                    state = OpenedState(base, action.stamp, action.positions, action.checkpoint, action.ends)
                except Exception as error:
                    return v.Failed(error, task)
                return self._runner.do(v.Start(task, state, action.now_ms))
            case OpenGlobal():
                base = MemoryBase()
                base.apply(action.entries, action.stamp.encode())
                state = OpenedState(base, action.stamp, action.positions, TaskCheckpoint())
                return self._runner.do(v.Start(GLOBAL_TASK, state, action.now_ms))
            case _:
                return self._runner.do(action)


class _Worker:
    """The actions and reads of this process."""

    def __init__(self, runner: TaskRunner, open_base: Callable[[TaskId], Base]) -> None:
        self._runner = runner
        self._tasks = WorkerTasks(runner, open_base)

    def run(self, connection: _Answers) -> None:
        """Perform incoming actions in order; raises EOFError when the connection ends."""
        while True:
            event = self._tasks.do(connection.receive())
            if isinstance(event, v.Failed) and _is_out_of_memory(event.error):
                os._exit(OUT_OF_MEMORY)
            connection.send(event)

    def read(self, connection: WorkerConnection) -> None:
        """Answer reads with their result, or with the error."""
        with suppress(EOFError, OSError):
            while True:
                asked = connection.receive()
                try:
                    answer = self._answer(asked)
                except Exception as error:
                    answer = error
                connection.send(answer)

    def _answer(self, asked: object) -> object:
        match asked:
            case ReadPositions(store, visible):
                return self._runner.positions(store, visible)
            case ReadTap(node, limit):
                return encoded_records(self._runner.tapped(node, limit))
            case CloseTap(node):
                self._runner.untap(node)
                return None
            case ReadStore():
                return self._read(asked)
            case _:
                raise TypeError(f"A worker cannot answer {asked!r}.")

    def _read(self, asked: ReadStore) -> Any:
        """Return the result of a call, of an iterator the entries of one read."""
        reads = self._runner.reads(asked.task, asked.store, asked.visible, asked.part)
        match asked.name:
            case "range":
                return list(islice(reads.range(*asked.arguments), AT_ONCE))
            case "observed_time":
                return reads.observed_time
            case name:
                return getattr(reads, name)(*asked.arguments)


def _admin(config: StreamsConfig) -> Admin:
    """Return an admin client. It is loaded on demand, because its modules load slowest and few programs need it
    here."""
    module = extras.load("penstock.client.confluent.admin", "A topic that a function names")
    admin: Admin = module.ConfluentAdmin(config)
    return admin


def _is_out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__
    return False


class _LogLines(logging.Handler):
    """Sends log lines to the program."""

    def __init__(self, connection: _Answers) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        """Send one line."""
        self._connection.send(LogLine(record.name, record.levelno, self.format(record), current_work()))
