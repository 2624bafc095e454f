"""Views of timestamped stores without timestamps (Kafka classes: the facades of TopologyTestDriver)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.record import NO_TIMESTAMP, KeyValue, ValueAndTimestamp
from penstock.state.api import KeyValueIterator, KeyValueStore, StateStore
from penstock.state.forwarded import Method, P, R, method_of, method_that
from penstock.state.table import StoreTable
from penstock.state.windowed_api import WindowStore


class _Facade(StoreTable):
    """The base of the views."""

    def __init__(self, store: Any) -> None:
        self._whole = store

    @property
    def name(self) -> str:
        """The name of the store."""
        return str(self._whole.name)

    def flush(self) -> None:
        """Write cached entries to the store and forward them."""
        self._whole.flush()

    def close(self) -> None:
        """Close the store; later calls raise InvalidStateStoreError."""
        self._whole.close()

    def is_open(self) -> bool:
        """Return whether the store can be used."""
        return bool(self._whole.is_open())

    def persistent(self) -> bool:
        """Return whether the store's base outlives the process."""
        return bool(self._whole.persistent())

    def _typed_stores(self) -> list[StateStore]:
        return [self._whole]


def _value(declared: Method[P, R]) -> Method[P, R]:
    return method_that(lambda view, read: _plain(read(view._whole)), declared)


def _entries(declared: Method[P, R]) -> Method[P, R]:
    return method_that(lambda view, read: _PlainIterator(read(view._whole)), declared)


def _same(declared: Method[P, R]) -> Method[P, R]:
    return method_of("_whole", declared)


class KeyValueStoreFacade(_Facade):
    """A plain view of a timestamped key-value store, which writes timestamp -1.

    Implements KeyValueStore; Kafka class: TopologyTestDriver.KeyValueStoreFacade.
    """

    def put(self, key: Any, value: Any) -> None:
        """Store `value` under `key`; None deletes."""
        self._whole.put(key, _timed(value))

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Store `value` unless `key` has one; return the previous value, None if absent."""
        return _plain(self._whole.put_if_absent(key, _timed(value)))

    def put_all(self, entries: Sequence[tuple[Any, Any]]) -> None:
        """Store each (key, value) in turn."""
        self._whole.put_all([(key, _timed(value)) for key, value in entries])

    get = _value(KeyValueStore.get)
    delete = _value(KeyValueStore.delete)
    clear = _same(KeyValueStore.clear)
    range = _entries(KeyValueStore.range)
    reverse_range = _entries(KeyValueStore.reverse_range)
    all = _entries(KeyValueStore.all)
    reverse_all = _entries(KeyValueStore.reverse_all)
    prefix_scan = _entries(KeyValueStore.prefix_scan)
    approximate_num_entries = _same(KeyValueStore.approximate_num_entries)


class WindowStoreFacade(_Facade):
    """A plain view of a timestamped window store, which writes timestamp -1.

    Implements WindowStore; Kafka class: TopologyTestDriver.WindowStoreFacade.
    """

    def put(self, key: Any, value: Any, window_start: int) -> None:
        """Store `value` under `key` and `window_start` (ms); None deletes."""
        self._whole.put(key, _timed(value), window_start)

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """Return the value of the window of `key` that starts at `time_from`, None if absent.

        With `time_to` (ms, inclusive), return an iterator over the windows that start between both.
        """
        found = self._whole.fetch(key, time_from, time_to)
        return _plain(found) if time_to is None else _PlainIterator(found)

    backward_fetch = _entries(WindowStore.backward_fetch)
    fetch_range = _entries(WindowStore.fetch_range)
    backward_fetch_range = _entries(WindowStore.backward_fetch_range)
    fetch_all = _entries(WindowStore.fetch_all)
    backward_fetch_all = _entries(WindowStore.backward_fetch_all)
    all = _entries(WindowStore.all)
    backward_all = _entries(WindowStore.backward_all)


class _PlainIterator:
    """Removes the timestamps from the entries of another iterator."""

    def __init__(self, entries: KeyValueIterator) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self

    def __next__(self) -> KeyValue:
        key, value = next(self._entries)
        return KeyValue(key, _plain(value))

    def __enter__(self) -> KeyValueIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def peek_next_key(self) -> Any:
        """Return the next key without consuming it; raises StopIteration at the end."""
        return self._entries.peek_next_key()

    def close(self) -> None:
        """Release the iterator."""
        self._entries.close()


def _plain(value: ValueAndTimestamp | None) -> Any:
    return None if value is None else value.value


def _timed(value: Any) -> ValueAndTimestamp | None:
    return None if value is None else ValueAndTimestamp(value, NO_TIMESTAMP)
