"""Read-only views of stores, such as a task's view of a global store (Kafka class: AbstractReadOnlyDecorator).

Every read goes to the store itself; every write raises UnsupportedOperationError.
"""

from __future__ import annotations

from typing import NoReturn, Self

from penstock.config.isolation_level import IsolationLevel, checked_level
from penstock.errors import UnsupportedOperationError
from penstock.state.api import KeyValueStore, StateStore
from penstock.state.forwarded import Method, P, R, method_of, method_that
from penstock.state.key_value_store import TypedKeyValueStore
from penstock.state.session_store import TypedSessionStore
from penstock.state.table import StoreTable
from penstock.state.versioned_api import VersionedKeyValueStore
from penstock.state.versioned_store import TypedVersionedKeyValueStore
from penstock.state.window_store import TypedWindowStore
from penstock.state.windowed_api import SessionStore, WindowStore


class _ReadOnlyStore(StoreTable):
    """The common part of the views of all kinds of stores."""

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
        """Raise UnsupportedOperationError: the task that owns the store flushes it."""
        self._refuse()

    def close(self) -> None:
        """Raise UnsupportedOperationError: the task that owns the store closes it."""
        self._refuse()

    def read_only(self, isolation_level: IsolationLevel) -> Self:
        """Return this view: tasks see all of a global store at each level; raises TypeError for any other value."""
        checked_level(isolation_level)
        return self

    def _typed_stores(self) -> list[StateStore]:
        return [self._named]

    def _refuse(self) -> NoReturn:
        error = UnsupportedOperationError("Global store is read only")
        error.add_note(f"store {self.name}: only the processor that reads its topic writes to it")
        raise error


def _read(declared: Method[P, R]) -> Method[P, R]:
    return method_of("_named", declared)


def _refused(declared: Method[P, R]) -> Method[P, R]:
    return method_that(lambda view, _: view._refuse(), declared)


class ReadOnlyKeyValueView(_ReadOnlyStore):
    """A read-only key-value store (implements KeyValueStore; Kafka class: KeyValueStoreReadOnlyDecorator)."""

    get = _read(KeyValueStore.get)
    range = _read(KeyValueStore.range)
    reverse_range = _read(KeyValueStore.reverse_range)
    all = _read(KeyValueStore.all)
    reverse_all = _read(KeyValueStore.reverse_all)
    prefix_scan = _read(KeyValueStore.prefix_scan)
    approximate_num_entries = _read(KeyValueStore.approximate_num_entries)
    approximate_num_uncommitted_bytes = _read(KeyValueStore.approximate_num_uncommitted_bytes)
    put = _refused(KeyValueStore.put)
    put_if_absent = _refused(KeyValueStore.put_if_absent)
    put_all = _refused(KeyValueStore.put_all)
    delete = _refused(KeyValueStore.delete)
    clear = _refused(KeyValueStore.clear)


class ReadOnlyWindowView(_ReadOnlyStore):
    """A read-only window store (implements WindowStore; Kafka class: WindowStoreReadOnlyDecorator)."""

    fetch = _read(WindowStore.fetch)
    backward_fetch = _read(WindowStore.backward_fetch)
    fetch_range = _read(WindowStore.fetch_range)
    backward_fetch_range = _read(WindowStore.backward_fetch_range)
    fetch_all = _read(WindowStore.fetch_all)
    backward_fetch_all = _read(WindowStore.backward_fetch_all)
    all = _read(WindowStore.all)
    backward_all = _read(WindowStore.backward_all)
    approximate_num_uncommitted_bytes = _read(WindowStore.approximate_num_uncommitted_bytes)
    put = _refused(WindowStore.put)


class ReadOnlySessionView(_ReadOnlyStore):
    """A read-only session store (implements SessionStore; Kafka class: SessionStoreReadOnlyDecorator)."""

    fetch_session = _read(SessionStore.fetch_session)
    find_sessions = _read(SessionStore.find_sessions)
    backward_find_sessions = _read(SessionStore.backward_find_sessions)
    find_sessions_range = _read(SessionStore.find_sessions_range)
    backward_find_sessions_range = _read(SessionStore.backward_find_sessions_range)
    fetch = _read(SessionStore.fetch)
    backward_fetch = _read(SessionStore.backward_fetch)
    fetch_range = _read(SessionStore.fetch_range)
    backward_fetch_range = _read(SessionStore.backward_fetch_range)
    approximate_num_uncommitted_bytes = _read(SessionStore.approximate_num_uncommitted_bytes)
    put = _refused(SessionStore.put)
    remove = _refused(SessionStore.remove)


class ReadOnlyVersionedView(_ReadOnlyStore):
    """A read-only versioned store (implements VersionedKeyValueStore).

    Kafka class: VersionedKeyValueStoreReadOnlyDecorator.
    """

    get = _read(VersionedKeyValueStore.get)
    approximate_num_uncommitted_bytes = _read(VersionedKeyValueStore.approximate_num_uncommitted_bytes)
    put = _refused(VersionedKeyValueStore.put)
    delete = _refused(VersionedKeyValueStore.delete)


def read_only(store: StateStore) -> StateStore:
    """Return a read-only view of `store`.

    A user-defined store is returned unchanged, since its methods are unknown.
    """
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
