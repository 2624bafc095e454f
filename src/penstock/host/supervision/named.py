"""Runs the hosts of an application's named topologies as one.

Each has its own query, checkpoint and pace. The application is running while no topology is rebalancing; one that ends
with an error ends all. Rule: hosts are called without holding a lock, because they call back from their threads.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from penstock.host.api import (
    Host,
    HostListener,
    HostStatistics,
    State,
    StreamThreadExceptionResponse,
    WatchedStatistics,
)
from penstock.host.group_membership_operation import GroupMembershipOperation

_FAILED_CLOSE_MS = 60_000
_SEEN_STATES = (State.REBALANCING, State.RUNNING, None, State.NOT_RUNNING)
"""Possible states of topologies in other processes, by precedence.

The first one present applies to all. None is the state of a topology that is not visible, and may be running.
"""


class NamedHosts:
    """Hosts by the names of their topologies (implements HostLife)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: dict[str, Host] = {}
        self._states: dict[str, State] = {}
        self._listener: HostListener | None = None
        self._failed = False
        self._errors: Counter[str] = Counter()

    # ---------------------------------------- one by one

    def add(self, name: str, host: Host) -> None:
        """Add a host, and start it if the others have been started.

        Raises StreamsError if the host must not start; it is not added then.
        """
        with self._lock:
            self._hosts[name] = host
            self._states[name] = State.CREATED
            started = self._listener is not None
        if started:
            try:
                self._start(name, host)
            except BaseException:
                self._forget(name)
                raise

    def remove(self, name: str, timeout_ms: int) -> bool:
        """Stop the host `name` after its current commit and remove it. Returns whether it ended within `timeout_ms`."""
        host = self.find(name)
        if host is None:
            return True
        stopped = host.close(timeout_ms)
        self._forget(name)
        return stopped

    def find(self, name: str) -> Host | None:
        """Return the host `name`, None if absent."""
        with self._lock:
            return self._hosts.get(name)

    def state_of(self, name: str) -> State:
        """Return the state of the host `name`, CREATED if absent."""
        with self._lock:
            return self._states.get(name, State.CREATED)

    def errors_of(self, name: str) -> int:
        """Return the number of errors that have stopped all tasks of the host `name`."""
        with self._lock:
            return self._errors[name]

    def _start(self, name: str, host: Host) -> None:
        self.changed(name, State.REBALANCING)
        host.start(_Listener(self, name))

    def _forget(self, name: str) -> None:
        with self._lock:
            del self._hosts[name]
            del self._states[name]
            del self._errors[name]
        self._tell()

    # ---------------------------------------- all topologies

    def start(self, listener: HostListener) -> None:
        """Start all hosts; raises StreamsError if one must not start."""
        with self._lock:
            self._listener = listener
            hosts = dict(self._hosts)
            self._states = dict.fromkeys(hosts, State.REBALANCING)
        for name, host in hosts.items():
            self._start(name, host)
        self._tell()

    def pause(self) -> None:
        """Pause all tasks."""
        for host in self._all():
            host.pause()

    def resume(self) -> None:
        """Resume all tasks."""
        for host in self._all():
            host.resume()

    def clean_up(self) -> None:
        """Delete the files that each host can rebuild."""
        for host in self._all():
            host.clean_up()

    def close(self, timeout_ms: int, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> bool:
        """Close all hosts; return whether all ended within `timeout_ms`."""
        deadline = time.monotonic() + timeout_ms / 1000
        ended = True
        for host in self._all():
            ended = host.close(max(0, int((deadline - time.monotonic()) * 1000)), operation) and ended
        return ended

    def rebalance(self, reason: str) -> None:
        """Rebalance the tasks of all hosts."""
        for host in self._all():
            host.rebalance(reason)

    def summary(self) -> str:
        """Return a line for each topology."""
        with self._lock:
            hosts = dict(self._hosts)
        lines = [f"\n  {name}: {host.summary()}" for name, host in hosts.items()]
        return f"{len(lines)} named topologies{''.join(lines)}"

    def statistics(self) -> HostStatistics:
        """Return the statistics, summed over the hosts, and those of each host.

        All watching hosts see or miss the same figures of an application.
        """
        with self._lock:
            hosts = dict(self._hosts)
        each = {name: host.statistics() for name, host in hosts.items()}
        seen = [figures.watched for figures in each.values() if figures.watched is not None]
        state = next((state for state in _SEEN_STATES if state in {watched.state for watched in seen}), None)
        return HostStatistics(
            records_in=sum(figures.records_in for figures in each.values()),
            bytes_in=sum(figures.bytes_in for figures in each.values()),
            records_out=sum(figures.records_out for figures in each.values()),
            answers_in=sum(figures.answers_in for figures in each.values()),
            records_per_second=sum(figures.records_per_second or 0 for figures in each.values()),
            lag=sum(figures.lag or 0 for figures in each.values()),
            watched=WatchedStatistics(state=state, unseen=seen[-1].unseen) if seen else None,
            topologies=each,
        )

    def _all(self) -> list[Host]:
        with self._lock:
            return list(self._hosts.values())

    # ---------------------------------------- reports of hosts

    def changed(self, name: str, state: State) -> None:
        """Set the state of the host `name`."""
        with self._lock:
            if name not in self._states:
                return
            self._states[name] = state
        self._tell()

    def _tell(self) -> None:
        """Report the state of all hosts to the application."""
        with self._lock:
            listener, states = self._listener, set(self._states.values())
        if listener is None:
            return
        if State.REBALANCING in states:
            listener.on_rebalancing()
        elif states == {State.NOT_RUNNING}:
            listener.on_stopped()
        else:
            listener.on_running()

    def response_to(self, name: str, error: BaseException) -> StreamThreadExceptionResponse:
        """Return the application's response to an error of the host `name`."""
        assert self._listener is not None
        with self._lock:
            self._errors[name] += 1
        error.add_note(f"in the named topology {name}")
        return self._listener.on_failure(error)

    def failed(self, name: str, error: BaseException) -> None:
        """End all hosts after the host `name` has ended with `error`."""
        with self._lock:
            first, self._failed = not self._failed, True
            others = [host for other, host in self._hosts.items() if other != name]
        if first:
            for host in others:
                host.close(_FAILED_CLOSE_MS)
            assert self._listener is not None
            self._listener.on_error(error)


class _Listener:
    """Receives the reports of one host."""

    def __init__(self, hosts: NamedHosts, name: str) -> None:
        self._hosts = hosts
        self._name = name

    def on_running(self) -> None:
        """Report that the tasks of the host are running."""
        self._hosts.changed(self._name, State.RUNNING)

    def on_rebalancing(self) -> None:
        """Report that the tasks of the host are rebalancing."""
        self._hosts.changed(self._name, State.REBALANCING)

    def on_stopped(self) -> None:
        """Report the planned end of the host."""
        self._hosts.changed(self._name, State.NOT_RUNNING)

    def on_failure(self, error: BaseException) -> StreamThreadExceptionResponse:
        """Return the response to `error`."""
        return self._hosts.response_to(self._name, error)

    def on_error(self, error: BaseException) -> None:
        """Report that the host has ended with `error`."""
        self._hosts.failed(self._name, error)
