"""What `KafkaStreams` needs of a host. A host is opened by name, so that the packages of one are not those of
another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol


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


HostFactory = Callable[..., Host]
