"""One worker process, as seen by the instance."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from penstock.errors import InvalidStateStoreError, StreamsError
from penstock.host.packing.sent_program import module_path
from penstock.host.supervision.turns import Turn
from penstock.host.threads import vocabulary as v
from penstock.host.threads.queued import QueuedThread
from penstock.host.threads.vocabulary import GLOBAL_TASK
from penstock.host.threads.workers.messages import LogLine, WorkerAction, WorkerConnection, WorkerProgram, WorkerReady
from penstock.host.threads.workers.worker import OUT_OF_MEMORY
from penstock.log_context import logged_as
from penstock.plan.subtopology import TaskId
from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)

_START = """
import sys
sys.path[:] = sys.argv[4:]
from penstock.host.threads.workers.worker import main
main(sys.argv[1:4])
"""
MOST_DEATHS = 3
"""The number of deaths after which the handler of uncaught exceptions decides. They count worker processes that run the
same task and end, without a commit of the task in between."""

_START_SECONDS = 120.0
_END_SECONDS = 5.0

Died = Callable[[str, int, list[WorkerAction]], None]
"""Receives a description of a worker's end, its pid and unanswered actions, the current first."""


class WorkerDiedError(StreamsError):
    """A worker process of the threads host has ended unexpectedly.

    What to do: Look for what ended it: a function that crashes the interpreter, or the kernel when memory is short. The
    message names the task that was running. Tasks are opened again from the last commit.

    task: what it was running, None for nothing. deaths: how many processes have ended in a row while they ran it.
    """

    def __init__(self, message: str, task: TaskId | None = None, deaths: int = 1) -> None:
        super().__init__(message)
        self.task = task
        self.deaths = deaths

    @property
    def is_first(self) -> bool:
        """Whether so few processes have ended that the tasks are reopened without asking the handler."""
        return self.deaths < MOST_DEATHS


class Worker(Protocol):
    """A worker, as seen by its instance."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether the worker can still do anything."""
        ...

    def refusal(self) -> str:
        """Wait until the program is loaded; return the reason for a failure, empty on success."""
        ...

    def do(self, action: WorkerAction) -> bool:
        """Pass `action` to the worker; return False if it has ended."""
        ...

    def is_hung(self, limit_ms: int) -> bool:
        """Return whether its current action has taken at least `limit_ms`."""
        ...

    def kill_if_hung(self, limit_ms: int) -> None:
        """End it if its current action has taken at least `limit_ms`."""
        ...

    def read(self, question: object) -> Any:
        """Return the answer to a read; raises InvalidStateStoreError if the worker is gone."""
        ...

    def close(self) -> None:
        """End the worker."""
        ...


StartWorker = Callable[[Callable[[v.Event], None], Died, Turn | None], Worker]
"""Starts a worker. The arguments receive its answers and its end, and give turns to its runs; see `WorkerProcess`."""


class WorkerProcess:
    """A worker process, from its start to its end (implements Worker).

    The constructor starts it; it is ready later.

    Args:
        name: the name of the application, for threads and errors.
        program: the first message to the process.
        answer: receives the answers to actions, in a thread of this process.
        died: called in the same thread after an unrequested end.
        turn: the turn for runs of tasks, None for no turns. Updates of global stores, which each worker has, take no
            turn.
    """

    def __init__(
        self,
        name: str,
        program: WorkerProgram,
        answer: Callable[[v.Event], None],
        died: Died,
        turn: Turn | None = None,
    ) -> None:
        self._name = name
        self._answer = answer
        self._died = died
        self._turn = turn
        self._lock = threading.Lock()
        self._unanswered: deque[WorkerAction] = deque()
        self._busy_since_ms = 0
        """The start (ms) of the first of these actions."""
        self._is_closed = False
        self._has_ended = False
        self._killed_after = ""
        self._ready = threading.Event()
        self._refusal = ""
        ends = [socket.socketpair() for _ in range(2)]
        theirs = [str(their.fileno()) for _, their in ends]
        command = [sys.executable, "-c", _START, *theirs]
        try:
            self._process = subprocess.Popen(
                [*command, str(os.getpid()), *module_path()],
                stdin=subprocess.DEVNULL,
                pass_fds=[their.fileno() for _, their in ends],
                process_group=0,  # Ctrl-C is for the program only
            )
        finally:
            for _, their in ends:
                their.close()
        self._tasks, self._reads = (WorkerConnection(our) for our, _ in ends)
        self._reading = threading.Lock()
        self._sender: QueuedThread[object] = QueuedThread(f"penstock-{name}-to-worker-{self.pid}", self._send)
        self._receiver = threading.Thread(
            target=self._receive, name=f"penstock-{name}-from-worker-{self.pid}", daemon=True
        )
        self._receiver.start()
        self._sender.put(program)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the worker can still do anything."""
        return not self._has_ended

    def refusal(self) -> str:
        """Wait until the program is loaded; return the reason for a failure, empty on success."""
        if not self._ready.wait(_START_SECONDS):
            return f"a worker process was not up within {int(_START_SECONDS)} s"
        return self._refusal

    def do(self, action: WorkerAction) -> bool:
        """Pass `action` to the worker; return False if it has ended."""
        with self._lock:
            if self._has_ended:
                return False
            if not self._unanswered:
                self._busy_since_ms = elapsed_milliseconds()
            self._unanswered.append(action)
            self._sender.put(action)
            return True

    def is_hung(self, limit_ms: int) -> bool:
        """Return whether its current action has taken at least `limit_ms`."""
        with self._lock:
            return bool(self._unanswered) and elapsed_milliseconds() - self._busy_since_ms >= limit_ms

    def kill_if_hung(self, limit_ms: int) -> None:
        """Kill the process if its current action has taken at least `limit_ms` (max.poll.interval.ms)."""
        is_hung = self.is_hung(limit_ms)
        with self._lock:
            if is_hung and not self._has_ended:
                _log.warning(
                    "Worker process %d of %s is killed: a function of task %s has not returned for "
                    "max.poll.interval.ms=%d.",
                    self.pid,
                    self._name,
                    self._unanswered[0].task,
                    limit_ms,
                )
                self._killed_after = f"max.poll.interval.ms={limit_ms} without progress"
                self._process.kill()

    def read(self, question: object) -> Any:
        """Return the answer to a read; from any thread. Raises the error of the read, InvalidStateStoreError if the
        worker is gone."""
        with self._reading:
            try:
                self._reads.send(question)
                answer = self._reads.receive()
            except (OSError, EOFError) as error:
                raise InvalidStateStoreError(
                    f"A worker process of {self._name} has ended, and its tasks are being opened again: get their "
                    "stores again."
                ) from error
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """End the process, even if a function of the user does not return."""
        self._is_closed = True
        if self._turn is not None:
            self._turn.leave()
        self._tasks.close()
        self._reads.close()
        self._sender.close(_END_SECONDS)
        self._wait()
        if threading.current_thread() is not self._receiver:
            self._receiver.join(_END_SECONDS)

    def _wait(self) -> int:
        try:
            return self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _send(self, message: object) -> None:
        if self._turn is not None and _takes_turn(message):
            self._turn.begin()
            with self._lock:
                if self._unanswered and self._unanswered[0] is message:
                    self._busy_since_ms = elapsed_milliseconds()
        try:
            self._tasks.send(message)
        except OSError:  # the process has ended, as the other thread notices
            self._tasks.close()

    def _receive(self) -> None:
        try:
            while True:
                match self._tasks.receive():
                    case WorkerReady(error):
                        self._refusal = error
                        self._busy_since_ms = elapsed_milliseconds()
                        self._ready.set()
                    case LogLine(logger, level, text, work):
                        with logged_as(*work):
                            logging.getLogger(logger).log(level, "%s", text)
                    case event:
                        with self._lock:
                            action = self._unanswered.popleft()
                            self._busy_since_ms = elapsed_milliseconds()
                        if self._turn is not None and _takes_turn(action):
                            self._turn.end()
                        self._answer(event)
        except EOFError:
            pass
        self._ended()

    def _ended(self) -> None:
        """Report the end of the process, unless it was requested."""
        if self._turn is not None:
            self._turn.leave()
        if self._is_closed:
            return
        how = _how(self._wait())
        if self._killed_after:
            how = f"was killed after {self._killed_after}"
        with self._lock:
            self._has_ended = True
            unanswered, self._unanswered = list(self._unanswered), deque()
        self._refusal = self._refusal or f"it {how} while it loaded the program"
        self._ready.set()
        self._reads.close()
        self._died(how, self.pid, unanswered)


def _takes_turn(action: object) -> bool:
    return isinstance(action, v.RunTask) and action.task != GLOBAL_TASK


def _how(code: int) -> str:
    """Return a description of the end of a process, to follow "it"."""
    if code == OUT_OF_MEMORY:
        return "ran out of memory"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
