"""KafkaStreams: the life of an application, from `start` to `close`, as a table of states.

Here live the states' order, the listener, the handler of what ended the application, and waiting for its end. Where
tasks run is the host's business (host/api.py); it is opened by name when the application starts. Rules: a state is
changed in one place, by the table; user code (listener, handler) is called without a lock held; every wait has a bound
where the caller gives one.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self

from penstock.config import StreamsConfig
from penstock.errors import StreamsError, StreamsNotStartedError
from penstock.host.api import Host, Staleness, State, StateQueries
from penstock.host.open import open_host
from penstock.plan.topology import Topology
from penstock.state.query.queryable import StoreQueryParameters

_log = logging.getLogger(__name__)

DEFAULT_CLOSE_TIMEOUT_MS: Final = 60_000
"""How long `close` waits where it is not told."""

_NEXT: Final[Mapping[State, frozenset[State]]] = {
    State.CREATED: frozenset((State.REBALANCING, State.PENDING_SHUTDOWN)),
    State.REBALANCING: frozenset((State.RUNNING, State.PENDING_SHUTDOWN, State.PENDING_ERROR)),
    State.RUNNING: frozenset((State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN, State.PENDING_ERROR)),
    State.PENDING_SHUTDOWN: frozenset((State.NOT_RUNNING,)),
    State.PENDING_ERROR: frozenset((State.ERROR,)),
    State.NOT_RUNNING: frozenset(),
    State.ERROR: frozenset(),
}
"""Which states may follow which (Kafka class: KafkaStreams.State)."""

_ENDED: Final = frozenset((State.NOT_RUNNING, State.ERROR))

StateListener = Callable[[State, State], None]
"""Called with the new and the old state, from any thread (Kafka class: KafkaStreams.StateListener)."""


class StreamThreadExceptionResponse(Enum):
    """What a handler of uncaught exceptions decides (Kafka class: StreamThreadExceptionResponse).

    Both end this application, in the state ERROR; nothing is replaced, for Spark has tried a failed task again already.
    """

    SHUTDOWN_CLIENT = "SHUTDOWN_CLIENT"
    SHUTDOWN_APPLICATION = "SHUTDOWN_APPLICATION"


StreamsUncaughtExceptionHandler = Callable[[BaseException], StreamThreadExceptionResponse]
"""Called with the error that ends the application, from any thread (Kafka class: StreamsUncaughtExceptionHandler)."""


class KafkaStreams:
    """Runs a topology (Kafka class: KafkaStreams).

    `with KafkaStreams(topology, config) as streams:` starts it at the beginning of the block and closes it at the end.
    An application that was started keeps the program alive until it ends, as in Java.
    """

    def __init__(self, topology: Topology, config: StreamsConfig | Mapping[str, Any], spark: Any = None) -> None:
        """Check and build the topology; nothing runs yet.

        Args:
            topology: what to run.
            config: the configuration, with application.id and bootstrap.servers.
            spark: a pyspark.sql.SparkSession to run in, which stays open; None for one of the application's own.

        Raises:
            ConfigError: a key is missing or has a value that cannot be.
            TopologyError: the topology cannot be run.
        """
        self._config = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        self._application_id: str = self._config.required("application.id")
        self._built = topology.build(self._application_id)
        self._config = self._config.overridden(self._built.config_overrides)
        self._spark = spark
        self._changed = threading.Condition()
        self._state = State.CREATED
        self._host: Host | None = None
        self._released = False
        self._error: BaseException | None = None
        self._listener: StateListener | None = None
        self._handler: StreamsUncaughtExceptionHandler | None = None

    # ---------------------------------------- before the start

    def set_state_listener(self, listener: StateListener | None) -> None:
        """Call `listener(new, old)` at every change of state; raises RuntimeError after the start."""
        self._only_before_the_start("set_state_listener")
        self._listener = listener

    def set_uncaught_exception_handler(self, handler: StreamsUncaughtExceptionHandler | None) -> None:
        """Call `handler(error)` with the error that ends the application; raises RuntimeError after the start."""
        self._only_before_the_start("set_uncaught_exception_handler")
        self._handler = handler

    def _only_before_the_start(self, method: str) -> None:
        if self.state() is not State.CREATED:
            raise RuntimeError(f"{method} can only be called before the start; the state is {self.state().value}.")

    # ---------------------------------------- start and end

    def start(self) -> Self:
        """Start in the background and return this application.

        Raises:
            RuntimeError: it was started or closed before; an application starts once.
            StreamsError: it must not start: a source topic is missing, no broker answers, the checkpoint belongs to
                another topology ...; the message says what to do. The state is ERROR then.
        """
        self._start(until_end=False)
        return self

    def run_to_end(self, timeout_ms: int | None = None) -> None:
        """Process what the source topics hold at this moment, commit, close, and return.

        Args:
            timeout_ms: longest time (ms) it may take; None for no limit.

        Raises:
            RuntimeError: it was started or closed before.
            TimeoutError: it was not done in time; it is closed then, and goes on from its last commit when run again.
            StreamsError: it must not start, or failed.
        """
        try:
            self._start(until_end=True)
            if not self.await_termination(timeout_ms):
                raise TimeoutError(f"{self._application_id} did not reach the end of its inputs in {timeout_ms} ms.")
        finally:
            self.close()

    def _start(self, until_end: bool) -> None:
        if not self._move(State.REBALANCING, State.CREATED):
            raise RuntimeError(
                f"An application starts once: {self._application_id} is {self.state().value}. Make a new KafkaStreams."
            )
        try:
            host = open_host(self._built, self._config, session=self._spark, until_end=until_end)
            with self._changed:
                self._host = host
            host.start(_Listener(self))
        except BaseException as error:
            self._fail(error)
            self._release(DEFAULT_CLOSE_TIMEOUT_MS)
            raise
        atexit.register(self._keep_the_program_alive)
        # For a person at the terminal, whatever logging is set to: what is promised, where records come from, where
        # state is kept.
        print(f"{self._application_id}: {host.summary()}", file=sys.stderr, flush=True)

    def close(self, timeout_ms: int | None = None) -> bool:
        """Stop after the running commit and release everything; harmless when called again.

        Args:
            timeout_ms: longest wait (ms), 0 for none; None for DEFAULT_CLOSE_TIMEOUT_MS.

        Returns:
            Whether all has ended in time.
        """
        timeout = DEFAULT_CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms
        if timeout < 0:
            raise ValueError(f"A time-out cannot be negative: expected 0 ms or more, got {timeout}.")
        deadline = time.monotonic() + timeout / 1000
        self._move(State.PENDING_SHUTDOWN)
        released = self._release(timeout)
        if released:
            self._move(State.NOT_RUNNING)
        left = max(0, int((deadline - time.monotonic()) * 1000))
        return self._wait_until_ended(left) and released

    def await_termination(self, timeout_ms: int | None = None) -> bool:
        """Wait until the application has ended, by `close`, at the end of its inputs or by an error.

        Args:
            timeout_ms: longest wait (ms); None for no limit.

        Returns:
            True if it has ended, False if `timeout_ms` passed first.

        Raises:
            BaseException: the error that ended it.
        """
        ended = self._wait_until_ended(timeout_ms)
        if ended and self._error is not None:
            raise self._error
        return ended

    def __enter__(self) -> Self:
        if self.state() is State.CREATED:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ---------------------------------------- what is going on

    def state(self) -> State:
        """Return the state of the application."""
        with self._changed:
            return self._state

    def statistics(self) -> Mapping[str, Any]:
        """Return a snapshot of the host's figures (records, bytes, ms by name), and the state under `state`."""
        with self._changed:
            host, state = self._host, self._state
        figures = {} if host is None else dict(host.statistics())
        return {**figures, "state": state.value}

    # ---------------------------------------- interactive queries

    def store(self, parameters: StoreQueryParameters) -> Any:
        """Return a store to be read, as of the newest commit at each read.

        Args:
            parameters: its name, its type, and one partition or all.

        Returns:
            What the type makes: a ReadOnlyKeyValueStore, ReadOnlyWindowStore or ReadOnlySessionStore; reads raise
            InvalidStateStoreError where the store is of another type, or has no such partition.

        Raises:
            StreamsNotStartedError: the application was not started yet.
            RuntimeError: it neither runs nor rebalances.
            UnknownStateStoreError: the topology has no store of that name.
        """
        state = self.state()
        if state is State.CREATED:
            raise StreamsNotStartedError("KafkaStreams has not been started, you can retry after calling start()")
        if state not in (State.RUNNING, State.REBALANCING):
            raise RuntimeError(f"KafkaStreams is not running. State is {state.value}.")
        return self._queries().store(parameters)

    def staleness(self) -> Staleness:
        """Return as of when state is read now: epoch, time (ms) of its commit, and age (ms); raises as `store`."""
        return self._queries().staleness()

    def _queries(self) -> StateQueries:
        with self._changed:
            host = self._host
        if host is None:
            raise StreamsNotStartedError("KafkaStreams has not been started, you can retry after calling start()")
        return host.queries()

    # ---------------------------------------- inside

    def _move(self, state: State, only_from: State | None = None) -> bool:
        """Change the state if the table allows it, tell the listener, and return whether it was changed."""
        with self._changed:
            old = self._state
            if state not in _NEXT[old] or only_from not in (None, old):
                return False
            self._state = state
            self._changed.notify_all()
        if self._listener is not None and state is not old:
            try:
                self._listener(state, old)
            except Exception:
                _log.exception("The state listener of %s failed; it is told the next change.", self._application_id)
        return True

    def _fail(self, error: BaseException) -> None:
        """End in ERROR because of `error`, which `await_termination` raises."""
        with self._changed:
            if self._error is None:
                self._error = error
        if self._move(State.PENDING_ERROR):
            self._move(State.ERROR)

    def _failed_while_running(self, error: BaseException) -> None:
        """Ask the handler, then end; called by the host."""
        if self._handler is not None:
            try:
                self._handler(error)
            except Exception:
                _log.exception("The uncaught exception handler of %s failed itself.", self._application_id)
        else:
            notes = "".join(f"\n{note}" for note in vars(error).get("__notes__", ()))
            _log.error("%s ends: %s%s", self._application_id, error, notes)
        self._fail(error)

    def _reached_the_end(self) -> None:
        """End without an error; called by the host."""
        if self._move(State.PENDING_SHUTDOWN):
            self._move(State.NOT_RUNNING)

    def _release(self, timeout_ms: int) -> bool:
        """Close the host, once, and return whether all of it has ended."""
        with self._changed:
            host = self._host
            if host is None or self._released:
                return True
        try:
            self._released = host.close(timeout_ms)
        except StreamsError:
            _log.exception("The host of %s could not be closed in order.", self._application_id)
            self._released = True
        if self._released:
            atexit.unregister(self._keep_the_program_alive)
        return self._released

    def _keep_the_program_alive(self) -> None:
        """Wait at the end of the program until the application has ended, as Java does; Ctrl-C closes it."""
        try:
            self._wait_until_ended()
        except KeyboardInterrupt:
            _log.info("Interrupted: %s is being closed.", self._application_id)
        finally:
            self.close()

    def _wait_until_ended(self, timeout_ms: int | None = None) -> bool:
        with self._changed:
            seconds = None if timeout_ms is None else timeout_ms / 1000
            return self._changed.wait_for(lambda: self._state in _ENDED, seconds)


class _Listener:
    """Takes what the host tells and changes the state by it."""

    def __init__(self, streams: KafkaStreams) -> None:
        self._streams = streams

    def on_running(self) -> None:
        """Tell that tasks are being processed."""
        self._streams._move(State.RUNNING)

    def on_rebalancing(self) -> None:
        """Tell that tasks stand still while they are set up anew."""
        self._streams._move(State.REBALANCING)

    def on_stopped(self) -> None:
        """Tell that everything up to the planned end has been processed."""
        self._streams._reached_the_end()

    def on_error(self, error: BaseException) -> None:
        """Tell that the host has ended with `error`."""
        self._streams._failed_while_running(error)
