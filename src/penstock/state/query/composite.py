"""Read-only stores over the stores of all partitions.

Kafka classes: CompositeReadOnlyKeyValueStore, CompositeReadOnlyWindowStore, CompositeReadOnlySessionStore.

Every call uses the current stores at one isolation level. A key is looked up in each partition in
turn; ranges return one partition after another, each in its own order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, Self

from penstock.config.isolation_level import IsolationLevel, checked_level
from penstock.errors import UnsupportedOperationError
from penstock.record import KeyValue
from penstock.state.api import KeyValueIterator, ReadOnlyKeyValueStore
from penstock.state.forwarded import Method, P, R, method_that, needs_key
from penstock.state.query.values import ValueOf
from penstock.state.table import StoreTable
from penstock.state.windowed_api import ReadOnlySessionStore, ReadOnlyWindowStore

Shown = tuple[Any, ValueOf]
"""A store of one partition, and the function for its values in results."""

StoresAt = Callable[[IsolationLevel | None], Iterable[Shown]]
"""Returns the current stores of the partitions for reads at a level, None for the default level.

Raises InvalidStateStoreError if they are unreadable.
"""


class CompositeKeyValueIterator:
    """Chains iterators, each opened on demand (implements KeyValueIterator).

    Args:
        store_name: the name of the store.
        opened: opens the iterators one by one; each comes with the function for its values.
    """

    def __init__(self, store_name: str, opened: Iterator[tuple[KeyValueIterator, ValueOf]]) -> None:
        self._store_name = store_name
        self._rest = opened
        self._current: tuple[KeyValueIterator, ValueOf] | None = None
        self._open = True

    def __iter__(self) -> CompositeKeyValueIterator:
        return self

    def __next__(self) -> KeyValue:
        entries, value_of = self._with_next()
        key, value = next(entries)
        return KeyValue(key, value_of(value))

    def __enter__(self) -> CompositeKeyValueIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def peek_next_key(self) -> Any:
        """Return the next key without consuming it.

        Raises StopIteration at the end, RuntimeError after `close`.
        """
        return self._with_next()[0].peek_next_key()

    def close(self) -> None:
        """Release the iterator; later calls raise RuntimeError."""
        self._open = False
        if self._current is not None:
            self._current[0].close()
        self._current, self._rest = None, iter(())

    def _with_next(self) -> tuple[KeyValueIterator, ValueOf]:
        """Return the first iterator with another entry; raises StopIteration at the end."""
        if not self._open:
            raise RuntimeError(f"Iterator for store {self._store_name} has already been closed.")
        while True:
            if self._current is None:
                self._current = next(self._rest)
            try:
                self._current[0].peek_next_key()
                return self._current
            except StopIteration:
                self._current[0].close()
                self._current = None


class CompositeReadOnlyStore(StoreTable):
    """The common base of composite stores (implements StateStore).

    Args:
        store_name: the name of the store.
        stores: returns the current stores of the partitions.
        isolation_level: the level of the reads; None for the default level.
    """

    def __init__(self, store_name: str, stores: StoresAt, isolation_level: IsolationLevel | None = None) -> None:
        self._name = store_name
        self._stores_at = stores
        self._isolation_level = isolation_level

    @property
    def name(self) -> str:
        """The name of the store."""
        return self._name

    def is_open(self) -> bool:
        """Return True; reads of an unreadable store raise errors."""
        return True

    def persistent(self) -> bool:
        """Return False, since this object stores nothing."""
        return False

    def flush(self) -> None:
        """Raise UnsupportedOperationError: the tasks that write the store flush it."""
        self._refuse()

    def close(self) -> None:
        """Raise UnsupportedOperationError: the tasks that write the store close it."""
        self._refuse()

    def read_only(self, isolation_level: IsolationLevel) -> Self:
        """Return this store for reads at another isolation level (KIP-892); raises TypeError for any other value."""
        return type(self)(self._name, self._stores_at, checked_level(isolation_level))

    def _stores(self) -> Iterable[Shown]:
        return self._stores_at(self._isolation_level)

    def _typed_stores(self) -> list[Any]:
        return [store for store, _ in self._stores()]

    def _refuse(self) -> NoReturn:
        raise UnsupportedOperationError(f"Store {self._name} can only be read here: its tasks flush and close it.")

    def _check_key(self, key: Any) -> None:
        if key is None:
            raise TypeError(f"Store {self._name!r}: key must not be None.")

    def _first_value(self, read: Callable[[Any], Any]) -> Any:
        """Return the result of `read` for the first store that has one."""
        for store, value_of in self._stores():
            value = read(store)
            if value is not None:
                return value_of(value)
        return None

    def _all(self, read: Callable[[Any], KeyValueIterator]) -> CompositeKeyValueIterator:
        """Return the results of `read` for all stores, one after another."""
        stores = list(self._stores())  # the current stores, whenever the caller iterates
        return CompositeKeyValueIterator(self._name, ((read(store), value_of) for store, value_of in stores))


def _first(declared: Method[P, R]) -> Method[P, R]:
    """Return a method that reads the first partition with an entry; rejects None as key."""
    return needs_key(method_that(CompositeReadOnlyStore._first_value, declared))


def _every(declared: Method[P, R]) -> Method[P, R]:
    """Return a method that reads all partitions, one after another."""
    return method_that(CompositeReadOnlyStore._all, declared)


class CompositeReadOnlyKeyValueStore(CompositeReadOnlyStore):
    """A key-value store over all partitions (implements ReadOnlyKeyValueStore)."""

    get = _first(ReadOnlyKeyValueStore.get)
    range = _every(ReadOnlyKeyValueStore.range)
    reverse_range = _every(ReadOnlyKeyValueStore.reverse_range)
    all = _every(ReadOnlyKeyValueStore.all)
    reverse_all = _every(ReadOnlyKeyValueStore.reverse_all)
    prefix_scan = needs_key(_every(ReadOnlyKeyValueStore.prefix_scan))

    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries in all partitions."""
        return sum(store.approximate_num_entries() for store, _ in self._stores())


class CompositeReadOnlyWindowStore(CompositeReadOnlyStore):
    """A window store over all partitions (implements ReadOnlyWindowStore). Times are ms."""

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """Return the value of the window of `key` starting at `time_from`, or None if absent.

        With `time_to`, returns an iterator over windows starting between both, inclusive. Raises TypeError for a None
        key.
        """
        self._check_key(key)
        if time_to is None:
            return self._first_value(lambda store: store.fetch(key, time_from))
        return self._all(lambda store: store.fetch(key, time_from, time_to))

    backward_fetch = needs_key(_every(ReadOnlyWindowStore.backward_fetch))
    fetch_range = _every(ReadOnlyWindowStore.fetch_range)
    backward_fetch_range = _every(ReadOnlyWindowStore.backward_fetch_range)
    fetch_all = _every(ReadOnlyWindowStore.fetch_all)
    backward_fetch_all = _every(ReadOnlyWindowStore.backward_fetch_all)
    all = _every(ReadOnlyWindowStore.all)
    backward_all = _every(ReadOnlyWindowStore.backward_all)


class CompositeReadOnlySessionStore(CompositeReadOnlyStore):
    """A session store over all partitions (implements ReadOnlySessionStore). Times are ms."""

    fetch_session = _first(ReadOnlySessionStore.fetch_session)
    find_sessions = needs_key(_every(ReadOnlySessionStore.find_sessions))
    backward_find_sessions = needs_key(_every(ReadOnlySessionStore.backward_find_sessions))
    find_sessions_range = _every(ReadOnlySessionStore.find_sessions_range)
    backward_find_sessions_range = _every(ReadOnlySessionStore.backward_find_sessions_range)
    fetch = needs_key(_every(ReadOnlySessionStore.fetch))
    backward_fetch = needs_key(_every(ReadOnlySessionStore.backward_fetch))
    fetch_range = _every(ReadOnlySessionStore.fetch_range)
    backward_fetch_range = _every(ReadOnlySessionStore.backward_fetch_range)
