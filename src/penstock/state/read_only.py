"""Views of stores that can be read and not written: what a task sees of a global store (Kafka class:
AbstractReadOnlyDecorator).

Every read goes to the store itself; every write raises UnsupportedOperationError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from penstock.errors import UnsupportedOperationError
from penstock.serdes import Serde
from penstock.state.api import KeyValueIterator, KeyValueStore, StateStore
from penstock.state.key_value_store import TypedKeyValueStore
from penstock.state.session_store import TypedSessionStore
from penstock.state.table import StoreTable
from penstock.state.versioned_api import VersionedKeyValueStore, VersionedRecord
from penstock.state.versioned_store import TypedVersionedKeyValueStore
from penstock.state.window_store import TypedWindowStore
from penstock.state.windowed_api import SessionStore, WindowStore
from penstock.windows import Windowed


class _ReadOnlyStore(StoreTable):
    """What the views of all kinds of stores share."""

    def __init__(self, store: StateStore) -> None:
        self._named = store

    @property
    def name(self) -> str:
        """The name of the store."""
        return self._named.name

    def is_open(self) -> bool:
        """Return whether the store can be used."""
        return self._named.is_open()

    def persistent(self) -> bool:
        """Return whether the store's base outlives the process."""
        return self._named.persistent()

    def flush(self) -> None:
        """Raise UnsupportedOperationError: the task that keeps the store flushes it."""
        self._refuse()

    def close(self) -> None:
        """Raise UnsupportedOperationError: the task that keeps the store closes it."""
        self._refuse()

    def _typed_stores(self) -> list[StateStore]:
        return [self._named]

    def _refuse(self) -> NoReturn:
        error = UnsupportedOperationError("Global store is read only")
        error.add_note(f"store {self.name}: only the processor that reads its topic writes to it")
        raise error


class ReadOnlyKeyValueView(_ReadOnlyStore):
    """A key-value store to read (implements KeyValueStore; Kafka class: KeyValueStoreReadOnlyDecorator)."""

    def __init__(self, store: KeyValueStore) -> None:
        """Show `store`."""
        super().__init__(store)
        self._store = store

    def get(self, key: Any) -> Any:
        """Return the value of `key`, None if there is none; raises TypeError for a None key."""
        return self._store.get(key)

    def range(self, from_key: Any, to_key: Any) -> KeyValueIterator:
        """Return the entries from `from_key` to `to_key`, both inclusive, None for an open end."""
        return self._store.range(from_key, to_key)

    def reverse_range(self, from_key: Any, to_key: Any) -> KeyValueIterator:
        """As `range`, from the largest key to the smallest."""
        return self._store.reverse_range(from_key, to_key)

    def all(self) -> KeyValueIterator:
        """Return all entries."""
        return self._store.all()

    def reverse_all(self) -> KeyValueIterator:
        """Return all entries from the largest key to the smallest."""
        return self._store.reverse_all()

    def prefix_scan(self, prefix: Any, prefix_serde: Serde) -> KeyValueIterator:
        """Return the entries whose serialised key begins with `prefix` as `prefix_serde` writes it."""
        return self._store.prefix_scan(prefix, prefix_serde)

    def approximate_num_entries(self) -> int:
        """Return about how many entries there are."""
        return self._store.approximate_num_entries()

    def put(self, key: Any, value: Any) -> None:
        """Raise UnsupportedOperationError."""
        self._refuse()

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Raise UnsupportedOperationError."""
        self._refuse()

    def put_all(self, entries: Sequence[tuple[Any, Any]]) -> None:
        """Raise UnsupportedOperationError."""
        self._refuse()

    def delete(self, key: Any) -> Any:
        """Raise UnsupportedOperationError."""
        self._refuse()

    def clear(self) -> None:
        """Raise UnsupportedOperationError."""
        self._refuse()


class ReadOnlyWindowView(_ReadOnlyStore):
    """A window store to read (implements WindowStore; Kafka class: WindowStoreReadOnlyDecorator)."""

    def __init__(self, store: WindowStore) -> None:
        """Show `store`."""
        super().__init__(store)
        self._store = store

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """Return the value of the window of `key` that starts at `time_from` (ms), None if there is none; with
        `time_to` (inclusive) an iterator over the windows that start between both."""
        return self._store.fetch(key, time_from, time_to)

    def backward_fetch(self, key: Any, time_from: int, time_to: int) -> KeyValueIterator:
        """As `fetch` with `time_to`, from the last window to the first."""
        return self._store.backward_fetch(key, time_from, time_to)

    def fetch_range(self, key_from: Any, key_to: Any, time_from: int, time_to: int) -> KeyValueIterator:
        """Return the windows of the keys from `key_from` to `key_to` that start from `time_from` to `time_to` (ms)."""
        return self._store.fetch_range(key_from, key_to, time_from, time_to)

    def backward_fetch_range(self, key_from: Any, key_to: Any, time_from: int, time_to: int) -> KeyValueIterator:
        """As `fetch_range`, in the other order."""
        return self._store.backward_fetch_range(key_from, key_to, time_from, time_to)

    def fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator:
        """Return the windows of all keys that start from `time_from` to `time_to` (ms)."""
        return self._store.fetch_all(time_from, time_to)

    def backward_fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator:
        """As `fetch_all`, in the other order."""
        return self._store.backward_fetch_all(time_from, time_to)

    def all(self) -> KeyValueIterator:
        """Return all windows."""
        return self._store.all()

    def backward_all(self) -> KeyValueIterator:
        """Return all windows in the other order."""
        return self._store.backward_all()

    def put(self, key: Any, value: Any, window_start: int) -> None:
        """Raise UnsupportedOperationError."""
        self._refuse()


class ReadOnlySessionView(_ReadOnlyStore):
    """A session store to read (implements SessionStore; Kafka class: SessionStoreReadOnlyDecorator)."""

    def __init__(self, store: SessionStore) -> None:
        """Show `store`."""
        super().__init__(store)
        self._store = store

    def fetch_session(self, key: Any, session_start: int, session_end: int) -> Any:
        """Return the aggregate of the session of `key` with exactly this start and end (ms), None if there is none."""
        return self._store.fetch_session(key, session_start, session_end)

    def find_sessions(self, key: Any, earliest_session_end: int, latest_session_start: int) -> KeyValueIterator:
        """Return the sessions of `key` that end at or after the one time and start at or before the other (ms)."""
        return self._store.find_sessions(key, earliest_session_end, latest_session_start)

    def backward_find_sessions(
        self, key: Any, earliest_session_end: int, latest_session_start: int
    ) -> KeyValueIterator:
        """As `find_sessions`, in the other order."""
        return self._store.backward_find_sessions(key, earliest_session_end, latest_session_start)

    def find_sessions_range(
        self, key_from: Any, key_to: Any, earliest_session_end: int, latest_session_start: int
    ) -> KeyValueIterator:
        """As `find_sessions`, of the keys from `key_from` to `key_to`."""
        return self._store.find_sessions_range(key_from, key_to, earliest_session_end, latest_session_start)

    def backward_find_sessions_range(
        self, key_from: Any, key_to: Any, earliest_session_end: int, latest_session_start: int
    ) -> KeyValueIterator:
        """As `find_sessions_range`, in the other order."""
        return self._store.backward_find_sessions_range(key_from, key_to, earliest_session_end, latest_session_start)

    def fetch(self, key: Any) -> KeyValueIterator:
        """Return all sessions of `key`."""
        return self._store.fetch(key)

    def backward_fetch(self, key: Any) -> KeyValueIterator:
        """As `fetch`, in the other order."""
        return self._store.backward_fetch(key)

    def fetch_range(self, key_from: Any, key_to: Any) -> KeyValueIterator:
        """Return all sessions of the keys from `key_from` to `key_to`."""
        return self._store.fetch_range(key_from, key_to)

    def backward_fetch_range(self, key_from: Any, key_to: Any) -> KeyValueIterator:
        """As `fetch_range`, in the other order."""
        return self._store.backward_fetch_range(key_from, key_to)

    def put(self, session_key: Windowed[Any], aggregate: Any) -> None:
        """Raise UnsupportedOperationError."""
        self._refuse()

    def remove(self, session_key: Windowed[Any]) -> None:
        """Raise UnsupportedOperationError."""
        self._refuse()


class ReadOnlyVersionedView(_ReadOnlyStore):
    """A versioned store to read (implements VersionedKeyValueStore; Kafka class:
    VersionedKeyValueStoreReadOnlyDecorator)."""

    def __init__(self, store: VersionedKeyValueStore) -> None:
        """Show `store`."""
        super().__init__(store)
        self._store = store

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None:
        """Return the version of `key` that is valid at `as_of` (ms), the latest if not given; None if there is none."""
        return self._store.get(key, as_of)

    def put(self, key: Any, value: Any, timestamp: int) -> int:
        """Raise UnsupportedOperationError."""
        self._refuse()

    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None:
        """Raise UnsupportedOperationError."""
        self._refuse()


def read_only(store: StateStore) -> StateStore:
    """Return `store` to be read only; a store of a user's own is returned as it is: its methods are not known."""
    match store:
        case TypedKeyValueStore():
            return ReadOnlyKeyValueView(store)
        case TypedWindowStore():
            return ReadOnlyWindowView(store)
        case TypedSessionStore():
            return ReadOnlySessionView(store)
        case TypedVersionedKeyValueStore():
            return ReadOnlyVersionedView(store)
        case _:
            return store
