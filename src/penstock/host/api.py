"""What `KafkaStreams` needs of a host. A host is opened by name, so that the packages of one are not those of
another."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol, Self

from penstock.state.query.queryable import StoreQueryParameters


class State(Enum):
    """The states of an application (Kafka class: KafkaStreams.State)."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


class HostListener(Protocol):
    """What a host tells the application, from any thread."""

    def on_running(self) -> None:
        """Tell that tasks are being processed."""
        ...

    def on_rebalancing(self) -> None:
        """Tell that tasks stand still while they are set up anew; `on_running` follows, or `on_error`."""
        ...

    def on_stopped(self) -> None:
        """Tell that the host ended by itself without an error: everything up to the planned end has been
        processed."""
        ...

    def on_error(self, error: BaseException) -> None:
        """Tell that the host has ended with `error`."""
        ...


class Staleness(NamedTuple):
    """As of when state is read: the number of the newest commit that is known (0: none yet), when it was made, and how
    long ago that is (ms; None before the first)."""

    epoch: int
    committed_ms: int
    age_ms: int | None


class StateQueries(Protocol):
    """Answers interactive queries of one application; every answer is as of one commit."""

    def store(self, parameters: StoreQueryParameters) -> Any:
        """Return the store that is asked for, to be read; raises UnknownStateStoreError if the topology has none of
        that name."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def staleness(self) -> Staleness:
        """Return as of when queries are answered now; raises StateStoreNotAvailableError where nothing can be read."""
        ...

    def close(self) -> None:
        """Release what was opened; stores that were handed out cannot be read any more."""
        ...


class Host(Protocol):
    """Runs the tasks of one topology: fills them, drains them, commits."""

    def start(self, listener: HostListener) -> None:
        """Check the topology against brokers and checkpoint, then start in the background; raises StreamsError when it
        must not start."""
        ...

    def close(self, timeout_ms: int) -> bool:
        """Stop after the running commit and release everything; return whether all had ended within `timeout_ms`."""
        ...

    def rebalance(self, reason: str) -> None:
        """Set the tasks up anew, after the running commit, for what topics and brokers are now; returns at once.
        reason: why, for the log."""
        ...

    def summary(self) -> str:
        """Return one line for people: guarantee, broker, checkpoint."""
        ...

    def statistics(self) -> Mapping[str, Any]:
        """Return a snapshot of figures: records, bytes and ms by name."""
        ...

    def queries(self) -> StateQueries:
        """Return what answers interactive queries, for as long as the host is open."""
        ...
