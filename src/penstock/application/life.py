"""The life of an application, from `start` to `close`, as a state machine.

This module has the order of states, the listener and the wait for the end; uncaught_errors.py has the errors that stop
tasks. Subclasses define the topologies to run (`KafkaStreams`: one); the host defines where tasks run (host/api.py).
Rules: a single method changes the state, according to the table; user code (listener, handler) is called without a lock
held; every wait is bounded if the caller gives a bound.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar
from weakref import WeakValueDictionary

from penstock.application.close_options import DEFAULT_CLOSE_TIMEOUT_MS, CloseOptions
from penstock.application.loading import current_refusal
from penstock.application.program_end import FORGOTTEN, ended_with, is_in_a_test
from penstock.application.servers import Exposed, Server, close_servers, open_servers
from penstock.application.uncaught_errors import StreamsUncaughtExceptionHandler, UncaughtError, UncaughtErrors
from penstock.config import StreamsConfig
from penstock.errors import StreamsError, StreamsNotStartedError
from penstock.host.api import HostLife, HostStatistics, State, StreamThreadExceptionResponse
from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.host.storage.directories import application_path
from penstock.host.supervision.progress import late_end
from penstock.log_context import mark_log_records
from penstock.metrics import Metric, MetricName
from penstock.notebook import is_in_notebook
from penstock.plan.topology import Topology
from penstock.state.restore_listener import StateRestoreListener
from penstock.termination import terminating
from penstock_broker.common.clock import SystemClock
from penstock_broker.common.durations import Duration, milliseconds
from penstock_broker.common.forks import stay_in_this_process

if TYPE_CHECKING:
    from penstock.application.comparison import Compare
    from penstock.application.running_topology import RunningTopology

_log = logging.getLogger(__name__)

VALID_TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.CREATED: frozenset((State.REBALANCING, State.PENDING_SHUTDOWN)),
    State.REBALANCING: frozenset((State.RUNNING, State.PENDING_SHUTDOWN, State.PENDING_ERROR)),
    State.RUNNING: frozenset((State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN, State.PENDING_ERROR)),
    State.PENDING_SHUTDOWN: frozenset((State.NOT_RUNNING,)),
    State.PENDING_ERROR: frozenset((State.ERROR,)),
    State.NOT_RUNNING: frozenset((State.CREATED,)),
    State.ERROR: frozenset((State.CREATED,)),
}
"""The allowed transitions of states (Kafka class: KafkaStreams.State). Only an edit leads back to CREATED."""

StateListener = Callable[[State, State], None]
"""Called with the new and the old state, from any thread (Kafka class: KafkaStreams.StateListener)."""


_HostType = TypeVar("_HostType", bound=HostLife)

_STARTED_IN_NOTEBOOK: Final[WeakValueDictionary[str, ApplicationLife[Any]]] = WeakValueDictionary()
"""The application last started from a notebook, by its state directory."""


class ApplicationLife(ABC, Generic[_HostType]):
    """Starts, watches, pauses and closes everything under one application.id; see the module.

    It is CREATED at first; nothing runs yet.

    Args:
        config: the configuration; ConfigError if a key is missing or its value is invalid.
    """

    def __init__(self, config: StreamsConfig | Mapping[str, Any]) -> None:
        self._config = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        self._application_id: str = self._config.required("application.id")
        self._servers: list[Server] = []
        self._ended = threading.Event()
        self._changed = threading.Condition()
        self._state = State.CREATED
        self._state_since_ms = SystemClock().milliseconds()
        self._host: _HostType | None = None
        self._told_by: _Listener | None = None
        self._released = False
        self._is_of_a_test = False
        self._refusal = current_refusal()
        self._paused_since_ms: int | None = None
        self._error: BaseException | None = None
        self._uncaught = UncaughtErrors(self._application_id)
        self._listener: StateListener | None = None
        self._restore_listener: StateRestoreListener | None = None
        self._block = ExitStack()

    @abstractmethod
    def _open_host(self, until_end: bool) -> _HostType:
        """Return a new host for the tasks. `until_end` stops it at the topics' end offsets as of the start."""

    @abstractmethod
    def _shown_metrics(self) -> Mapping[MetricName, Metric]:
        """Return the metrics of all topologies, by their names."""

    @abstractmethod
    def _current_topologies(self) -> Mapping[str, Topology]:
        """Return each topology by name. The name is empty for KafkaStreams."""

    @abstractmethod
    def running_topologies(self) -> Mapping[str, RunningTopology]:
        """Return the interface to each topology, by name. The name is empty for KafkaStreams."""

    def _compare(self) -> Compare | None:
        """Return the comparison of the saved program with the running one, if possible."""
        return None

    # ---------------------------------------- before the start

    def set_state_listener(self, listener: StateListener | None) -> None:
        """Call `listener(new, old)` at every change of state; raises RuntimeError after the start."""
        self._only_before_the_start("set_state_listener")
        self._listener = listener

    def set_uncaught_exception_handler(self, handler: StreamsUncaughtExceptionHandler | None) -> None:
        """Call `handler(error)` with each error that stops all tasks, and follow its response.

        Without a handler, or if the handler itself fails, the response is SHUTDOWN_CLIENT. Raises RuntimeError after
        the start.
        """
        self._only_before_the_start("set_uncaught_exception_handler")
        self._uncaught.handler = handler

    def set_global_state_restore_listener(self, listener: StateRestoreListener | None) -> None:
        """Notify `listener` of the restoration of stores, global stores included; raises RuntimeError after the
        start.
        """
        self._only_before_the_start("set_global_state_restore_listener")
        self._restore_listener = listener

    def _only_before_the_start(self, method: str) -> None:
        if self.state() is not State.CREATED:
            raise RuntimeError(f"{method} can only be called before the start; the state is {self.state().value}.")

    def _only_outside_of_loading(self) -> None:
        if self._refusal is not None:
            raise self._refusal()

    # ---------------------------------------- start and end

    def start(self) -> Self:
        """Start in the background and return this application.

        Raises:
            RuntimeError: it was already started or closed; an application starts once.
            StreamsError: it must not start: a source topic is missing, no broker answers, the checkpoint belongs to
                another topology ...; the message has the remedy. The state is then ERROR.
        """
        self._start(until_end=False)
        return self

    def run_to_end(self, timeout_ms: Duration | None = None) -> None:
        """Process the current content of the source topics, commit, close, and return.

        Args:
            timeout_ms: the maximum duration (ms); None for no limit.

        Raises:
            RuntimeError: it was already started or closed.
            TimeoutError: it did not finish in time, and is closed; the next run continues from its last commit.
            StreamsError: it must not start, or failed.
        """
        with terminating():
            try:
                limit = None if timeout_ms is None else milliseconds(timeout_ms, "time-out")
                self._start(until_end=True)
                if not self.await_termination(limit):
                    raise TimeoutError(late_end(self._application_id, limit, self.host_statistics()))
            except KeyboardInterrupt:
                self._announce_close()
                raise
            finally:
                self.close()

    def _start(self, until_end: bool) -> None:
        self._only_outside_of_loading()
        if not self._move(State.REBALANCING, State.CREATED):
            raise RuntimeError(
                f"An application starts once: {self._application_id} is {self.state().value}. Create a new one."
            )
        mark_log_records()
        if is_in_notebook():
            self._close_the_one_before()
        self._is_of_a_test = is_in_a_test()
        stay_in_this_process(self)
        try:
            host, listener = self._open_host(until_end), _Listener(self)
            self._serve()
            with self._changed:
                self._host, self._told_by = host, listener
                if self._paused_since_ms is not None:
                    host.pause()
            host.start(listener)
        except BaseException as error:
            if isinstance(error, Exception):  # SIGTERM and Ctrl-C are no failures
                self._fail(error)
            self.close()
            raise
        atexit.register(self._keep_the_program_alive)
        self._tell(host.summary())

    def _close_the_one_before(self) -> None:
        """Close the application started by an earlier run of the same cell."""
        path = str(application_path(self._config))
        before = _STARTED_IN_NOTEBOOK.get(path)
        if before is not None and before is not self and not before.state().has_completed_shutdown():
            self._tell("closing the application that this notebook has started before.")
            before.close()
        _STARTED_IN_NOTEBOOK[path] = self

    def _start_again(self, change: Callable[[], None]) -> None:
        """Close, call `change`, and start.

        Raises TimeoutError if it has not ended in time, and the errors of `start`.
        """
        if not self.close():
            raise TimeoutError(
                f"{self._application_id} did not end within {DEFAULT_CLOSE_TIMEOUT_MS} ms, so nothing has changed yet."
            )
        if not self._move(State.CREATED):
            raise RuntimeError(f"{self._application_id} is {self.state().value}: another thread starts it again.")
        with self._changed:
            self._host, self._told_by, self._released, self._error = None, None, False, None
        change()
        self._start(until_end=False)

    def close(self, timeout_ms: Duration | CloseOptions | None = None) -> bool:
        """Stop after the current commit and release everything; harmless when called again.

        Ctrl-C meanwhile aborts the current commit: the next start continues from the previous one. After the timeout,
        the application continues to shut down, but the end of the program no longer waits for it.

        Args:
            timeout_ms: the maximum wait (ms), 0 for no wait; None for DEFAULT_CLOSE_TIMEOUT_MS. Or CloseOptions.

        Returns:
            Whether everything has ended in time.
        """
        options = timeout_ms if isinstance(timeout_ms, CloseOptions) else CloseOptions().with_timeout(timeout_ms)
        timeout = DEFAULT_CLOSE_TIMEOUT_MS if options.timeout_ms is None else options.timeout_ms
        if timeout < 0:
            raise ValueError(f"A time-out cannot be negative: expected 0 ms or more, got {timeout}.")
        deadline = time.monotonic() + timeout / 1000
        self._move(State.PENDING_SHUTDOWN)
        operation = options.operation or GroupMembershipOperation.DEFAULT
        try:
            released = self._release(timeout, operation)
        except (KeyboardInterrupt, SystemExit):
            try:
                self._release(0)
            finally:
                self._move(State.NOT_RUNNING)
                atexit.unregister(self._keep_the_program_alive)
            raise
        if released:
            self._move(State.NOT_RUNNING)
        left = max(0, int((deadline - time.monotonic()) * 1000))
        has_ended = self._wait_until_ended(left) and released
        if timeout and not has_ended:  # a function that never returns must not block the end of the program
            atexit.unregister(self._keep_the_program_alive)
        return has_ended

    def await_termination(self, timeout_ms: Duration | None = None) -> bool:
        """Wait for the end of the application: by `close`, the end of its inputs or an error. SIGTERM closes it.

        Args:
            timeout_ms: the maximum wait (ms); None for no limit.

        Returns:
            True if it has ended, False after a timeout.

        Raises:
            StreamsNotStartedError: the application has not been started, so it has no end to wait for.
            BaseException: the error that ended it.
        """
        if self.state() is State.CREATED:
            raise StreamsNotStartedError(
                f"{self._application_id} has not been started, so there is no end to wait for: call start() first, or "
                "use `with KafkaStreams(...) as streams`, which starts it."
            )
        limit = None if timeout_ms is None else milliseconds(timeout_ms, "time-out")
        with terminating():
            try:
                ended = self._wait_until_ended(limit)
            except SystemExit:
                self.close()
                raise
        if ended and self._error is not None:
            raise self._error
        return ended

    def clean_up(self) -> None:
        """Delete the local files that can be rebuilt: bases of stores, logs of Spark.

        The checkpoint stays.

        Raises:
            RuntimeError: the application runs: its state is not CREATED, NOT_RUNNING or ERROR.
            LockError: another program runs with this application.id.
        """
        self._only_outside_of_loading()
        state = self.state()
        if state.is_running_or_rebalancing() or state.is_shutting_down():
            raise RuntimeError(f"Cannot clean up while running: {self._application_id} is {state.value}.")
        self._open_host(until_end=False).clean_up()

    # ---------------------------------------- pause

    def pause(self) -> None:
        """Pause processing and punctuation after the current commit, until `resume` (KIP-834).

        If called before the start, the application starts paused. The state stays RUNNING.
        """
        with self._changed:
            self._paused_since_ms = self._paused_since_ms or SystemClock().milliseconds()
        self._pause_or_resume_host()

    def resume(self) -> None:
        """Continue after `pause`."""
        with self._changed:
            self._paused_since_ms = None
        self._pause_or_resume_host()

    def _pause_or_resume_host(self) -> None:
        """Pause or resume the host, again if another thread has decided otherwise meanwhile."""
        is_paused: bool | None = None
        while (host := self._host) is not None and is_paused is not self.is_paused():
            is_paused = self.is_paused()
            (host.pause if is_paused else host.resume)()

    def is_paused(self) -> bool:
        """Return whether the application is paused."""
        return self.paused_since_ms() is not None

    def paused_since_ms(self) -> int | None:
        """Return the time of `pause` (ms since the epoch); None if not paused."""
        return self._paused_since_ms

    def __enter__(self) -> Self:
        with ExitStack() as block:
            block.enter_context(terminating())
            try:
                if self.state() is State.CREATED:
                    self.start()
            except BaseException:  # SIGTERM may arrive after the start
                self.close()
                raise
            self._block = block.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._block:
            if kind is KeyboardInterrupt:
                self._announce_close()
            self.close()

    # ---------------------------------------- state

    def state(self) -> State:
        """Return the state of the application."""
        with self._changed:
            return self._state

    def state_since_ms(self) -> int:
        """Return the time of the last change of state (ms since the epoch)."""
        with self._changed:
            return self._state_since_ms

    def statistics(self) -> Mapping[str, Any]:
        """Return a snapshot of the host's statistics (records, bytes, ms by name) and the `state`."""
        with self._changed:
            host, state = self._host, self._state
        return {**({} if host is None else host.statistics().by_name()), "state": state.value}

    def host_statistics(self) -> HostStatistics:
        """Return the statistics of the host as a value, without figures before the start."""
        host = self._host
        return HostStatistics() if host is None else host.statistics()

    def error(self) -> BaseException | None:
        """Return the error that ended the application, if any. `await_termination` raises it."""
        with self._changed:
            return self._error

    def uncaught_errors(self) -> tuple[int, Sequence[UncaughtError]]:
        """Return the number of errors that stopped all tasks since the start. The last 50 follow, newest last."""
        return self._uncaught.kept()

    def _running_host(self) -> _HostType:
        with self._changed:
            host = self._host
        if host is None:
            raise StreamsNotStartedError("KafkaStreams has not been started, you can retry after calling start()")
        return host

    # ---------------------------------------- inside

    def _move(self, state: State, only_from: State | None = None) -> bool:
        """Change the state if the table allows it, and notify the listener. Returns whether it changed."""
        with self._changed:
            old = self._state
            if state not in VALID_TRANSITIONS[old] or only_from not in (None, old):
                return False
            if state is not old:
                self._state, self._state_since_ms = state, SystemClock().milliseconds()
            if state.has_completed_shutdown():
                self._ended.set()
            self._changed.notify_all()
        if self._listener is not None and state is not old:
            try:
                self._listener(state, old)
            except Exception:
                _log.exception(
                    "The state listener of %s failed; it will receive the next change.", self._application_id
                )
        return True

    def _fail(self, error: BaseException) -> None:
        """End in ERROR because of `error`, for `await_termination`."""
        with self._changed:
            if self._error is None:
                self._error = error
        if self._move(State.PENDING_ERROR):
            self._move(State.ERROR)

    def _reached_the_end(self) -> None:
        """End without an error; called by the host."""
        if self._move(State.PENDING_SHUTDOWN):
            self._move(State.NOT_RUNNING)

    def _serve(self) -> None:
        """Start the configured servers; raises ConfigError if a port is taken, or a package is missing."""
        self._ended = threading.Event()
        exposed = Exposed(self, self._shown_metrics, self._current_topologies, self._compare, self._ended)
        for server in open_servers(exposed, self._config):
            self._servers.append(server)

    def _release(self, timeout_ms: int, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> bool:
        """Close the host and the servers, once, and return whether everything has ended."""
        deadline = time.monotonic() + timeout_ms / 1000
        released = self._release_host(timeout_ms, operation)
        if released:
            with self._changed:
                servers, self._servers = self._servers, []
            close_servers(servers, deadline)
        return released

    def _release_host(self, timeout_ms: int, operation: GroupMembershipOperation) -> bool:
        with self._changed:
            host = self._host
            if host is None or self._released:
                return True
        try:
            self._released = host.close(timeout_ms, operation)
        except StreamsError:
            _log.exception("The host of %s could not be closed properly.", self._application_id)
            self._released = True
        if self._released:
            atexit.unregister(self._keep_the_program_alive)
        return self._released

    def _keep_the_program_alive(self) -> None:
        """Wait for the end of the application at program exit, as in Java.

        Ctrl-C and SIGTERM close it.

        The application is closed at once if the main thread has failed, or if a test has started it and not closed it.
        """
        close_ms = DEFAULT_CLOSE_TIMEOUT_MS
        with terminating():
            try:
                reason = ended_with(self._is_of_a_test)
                if reason is not None and not self.state().has_completed_shutdown():
                    close_ms = FORGOTTEN.close_timeout_ms()
                    self._tell(f"{reason}, so the application is closed now.")
                    return
                is_closing = self.state() is State.PENDING_SHUTDOWN
                self._wait_until_ended(close_ms if is_closing else None)
            except KeyboardInterrupt:
                self._announce_close()
            except SystemExit:
                _log.info("SIGTERM: %s is being closed.", self._application_id)
            finally:
                with suppress(KeyboardInterrupt, SystemExit):  # the program ends, and `close` has hurried
                    self.close(close_ms)

    def _leave_to_the_parent(self) -> None:
        """Mark the application as ended in a forked process: its threads run only in the parent."""
        atexit.unregister(self._keep_the_program_alive)
        self._changed = threading.Condition()  # a thread of the parent may have held its lock
        if self._state is not State.ERROR:
            self._state = State.NOT_RUNNING
        self._host, self._servers = None, []

    def _announce_close(self) -> None:
        """Print the reason for the wait after Ctrl-C, and the effect of a second Ctrl-C."""
        self._tell("Ctrl-C: stopping after the running commit; Ctrl-C again gives that commit up.")

    def _tell(self, text: str) -> None:
        """Print a message to the terminal, independently of the logging configuration."""
        print(f"{self._application_id}: {text}", file=sys.stderr, flush=True)

    def _wait_until_ended(self, timeout_ms: int | None = None) -> bool:
        with self._changed:
            seconds = None if timeout_ms is None else timeout_ms / 1000
            return self._changed.wait_for(lambda: self._state.has_completed_shutdown(), seconds)


class _Listener:
    """Changes the state on reports of a host, until another host replaces it."""

    def __init__(self, streams: ApplicationLife[Any]) -> None:
        self._streams = streams

    def _is_current(self) -> bool:
        return self._streams._told_by is self

    def on_running(self) -> None:
        """Report that tasks are being processed."""
        if self._is_current():
            self._streams._move(State.RUNNING)

    def on_rebalancing(self) -> None:
        """Report that tasks are stopped while they are set up again."""
        if self._is_current():
            self._streams._move(State.REBALANCING)

    def on_stopped(self) -> None:
        """Report that everything up to the planned end has been processed."""
        if self._is_current():
            self._streams._reached_the_end()

    def on_failure(self, error: BaseException) -> StreamThreadExceptionResponse:
        """Return the response to `error`, which has stopped all tasks."""
        return self._streams._uncaught.response_to(error)

    def on_error(self, error: BaseException) -> None:
        """Report the end of the host with `error`."""
        if self._is_current():
            self._streams._fail(error)
