"""Access to the results of windowed aggregations from other nodes.

They are read from their stores, by Windowed keys (Kafka classes: KStreamWindowAggregateValueGetter,
KTableSessionWindowValueGetter).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.processor.api import ProcessorContext
from penstock.record import ValueAndTimestamp
from penstock.state.windowed_api import EngineSessionStore, EngineWindowStore
from penstock.windows import Windowed


class _WindowedValueGetter:
    """A getter without versions."""

    is_versioned = False

    def __init__(self, store_name: str) -> None:
        self._store_name = store_name

    def get_as_of(self, key: Any, timestamp_ms: int) -> ValueAndTimestamp | None:
        """Raise TypeError: windowed tables have no versions."""
        raise TypeError(f"Store {self._store_name!r} keeps windows, not versions: read it with get(key).")

    def close(self) -> None:
        """Do nothing: the task closes its stores."""


class WindowStoreValueGetter(_WindowedValueGetter):
    """Reads the results of time windows (implements ValueGetter)."""

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        self._store: EngineWindowStore = context.get_state_store(self._store_name)

    def get(self, key: Windowed[Any]) -> ValueAndTimestamp | None:
        """Return the result of the window of `key`."""
        stored: ValueAndTimestamp | None = self._store.fetch(key.key, key.window.start)
        return stored


class SessionStoreValueGetter(_WindowedValueGetter):
    """Reads the results of sessions (implements ValueGetter)."""

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        self._store: EngineSessionStore = context.get_state_store(self._store_name).of_operators()

    def get(self, key: Windowed[Any]) -> ValueAndTimestamp | None:
        """Return the result of the session `key`; its timestamp is the end of the session."""
        aggregate = self._store.fetch_session(key.key, key.window.start, key.window.end)
        return None if aggregate is None else ValueAndTimestamp(aggregate, key.window.end)


@dataclass(frozen=True)
class WindowStoreValueGetterSupplier:
    """Makes getters of a table of time windows (implements ValueGetterSupplier)."""

    store_name: str

    def get(self) -> WindowStoreValueGetter:
        """Return a new getter."""
        return WindowStoreValueGetter(self.store_name)

    def store_names(self) -> tuple[str, ...]:
        """Return the name of the store."""
        return (self.store_name,)


@dataclass(frozen=True)
class SessionStoreValueGetterSupplier:
    """Makes getters of a table of sessions (implements ValueGetterSupplier)."""

    store_name: str

    def get(self) -> SessionStoreValueGetter:
        """Return a new getter."""
        return SessionStoreValueGetter(self.store_name)

    def store_names(self) -> tuple[str, ...]:
        """Return the name of the store."""
        return (self.store_name,)
