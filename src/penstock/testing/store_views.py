"""Views of timestamped stores as tests see them without timestamps (Kafka classes: the facades of
TopologyTestDriver)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.record import NO_TIMESTAMP, KeyValue, ValueAndTimestamp
from penstock.serdes import Serde
from penstock.state.api import KeyValueIterator, KeyValueStore, StateStore
from penstock.state.table import StoreTable
from penstock.state.windowed_api import WindowStore


class _Facade(StoreTable):
    """What the views share."""

    def __init__(self, store: StateStore) -> None:
        self._whole = store

    @property
    def name(self) -> str:
        """The name of the store."""
        return self._whole.name

    def flush(self) -> None:
        """Write cached entries through and forward them."""
        self._whole.flush()

    def close(self) -> None:
        """Close the store; later calls raise InvalidStateStoreError."""
        self._whole.close()

    def is_open(self) -> bool:
        """Return whether the store can be used."""
        return self._whole.is_open()

    def persistent(self) -> bool:
        """Return whether the store's base outlives the process."""
        return self._whole.persistent()

    def _typed_stores(self) -> list[StateStore]:
        return [self._whole]


class KeyValueStoreFacade(_Facade):
    """A timestamped key-value store seen as a plain one (implements KeyValueStore; Kafka class:
    TopologyTestDriver.KeyValueStoreFacade).
    """

    def __init__(self, store: KeyValueStore) -> None:
        """Show `store`, which stays its own master: writes go to it with timestamp -1."""
        super().__init__(store)
        self._store = store

    def get(self, key: Any) -> Any:
        """Return the value of `key`, None if there is none; raises TypeError for a None key."""
        return _plain(self._store.get(key))

    def put(self, key: Any, value: Any) -> None:
        """Store `value` under `key`; None deletes. Raises TypeError for a None key."""
        self._store.put(key, _timed(value))

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Store `value` unless `key` has one; return the value that was there, None if there was none."""
        return _plain(self._store.put_if_absent(key, _timed(value)))

    def put_all(self, entries: Sequence[tuple[Any, Any]]) -> None:
        """Store each (key, value) in turn."""
        self._store.put_all([(key, _timed(value)) for key, value in entries])

    def delete(self, key: Any) -> Any:
        """Remove `key`; return the value that was there, None if there was none."""
        return _plain(self._store.delete(key))

    def clear(self) -> None:
        """Remove all entries."""
        self._store.clear()

    def range(self, from_key: Any, to_key: Any) -> KeyValueIterator:
        """Return the entries from `from_key` to `to_key`, both inclusive, None for an open end."""
        return _PlainIterator(self._store.range(from_key, to_key))

    def reverse_range(self, from_key: Any, to_key: Any) -> KeyValueIterator:
        """As `range`, from the largest key to the smallest."""
        return _PlainIterator(self._store.reverse_range(from_key, to_key))

    def all(self) -> KeyValueIterator:
        """Return all entries."""
        return _PlainIterator(self._store.all())

    def reverse_all(self) -> KeyValueIterator:
        """Return all entries from the largest key to the smallest."""
        return _PlainIterator(self._store.reverse_all())

    def prefix_scan(self, prefix: Any, prefix_serde: Serde) -> KeyValueIterator:
        """Return the entries whose serialised key begins with `prefix` as `prefix_serde` writes it."""
        return _PlainIterator(self._store.prefix_scan(prefix, prefix_serde))

    def approximate_num_entries(self) -> int:
        """Return about how many entries there are."""
        return self._store.approximate_num_entries()


class WindowStoreFacade(_Facade):
    """A timestamped window store seen as a plain one (implements WindowStore; Kafka class:
    TopologyTestDriver.WindowStoreFacade)."""

    def __init__(self, store: WindowStore) -> None:
        """Show `store`, which stays its own master: writes go to it with timestamp -1."""
        super().__init__(store)
        self._store = store

    def put(self, key: Any, value: Any, window_start: int) -> None:
        """Store `value` under `key` and `window_start` (ms); None deletes."""
        self._store.put(key, _timed(value), window_start)

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """Return the value of the window of `key` that starts at `time_from`, None if there is none; with `time_to`
        (ms, inclusive) an iterator over the windows that start between both."""
        found = self._store.fetch(key, time_from, time_to)
        return _plain(found) if time_to is None else _PlainIterator(found)

    def backward_fetch(self, key: Any, time_from: int, time_to: int) -> KeyValueIterator:
        """As `fetch` with `time_to`, from the last window to the first."""
        return _PlainIterator(self._store.backward_fetch(key, time_from, time_to))

    def fetch_range(self, key_from: Any, key_to: Any, time_from: int, time_to: int) -> KeyValueIterator:
        """Return the windows of the keys from `key_from` to `key_to` that start from `time_from` to `time_to` (ms)."""
        return _PlainIterator(self._store.fetch_range(key_from, key_to, time_from, time_to))

    def backward_fetch_range(self, key_from: Any, key_to: Any, time_from: int, time_to: int) -> KeyValueIterator:
        """As `fetch_range`, in the other order."""
        return _PlainIterator(self._store.backward_fetch_range(key_from, key_to, time_from, time_to))

    def fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator:
        """Return the windows of all keys that start from `time_from` to `time_to` (ms)."""
        return _PlainIterator(self._store.fetch_all(time_from, time_to))

    def backward_fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator:
        """As `fetch_all`, in the other order."""
        return _PlainIterator(self._store.backward_fetch_all(time_from, time_to))

    def all(self) -> KeyValueIterator:
        """Return all windows."""
        return _PlainIterator(self._store.all())

    def backward_all(self) -> KeyValueIterator:
        """Return all windows in the other order."""
        return _PlainIterator(self._store.backward_all())


class _PlainIterator:
    """Takes the timestamps from what another iterator gives."""

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
        """Return the next key without taking it; raises StopIteration at the end."""
        return self._entries.peek_next_key()

    def close(self) -> None:
        """Release the iterator."""
        self._entries.close()


def _plain(value: ValueAndTimestamp | None) -> Any:
    return None if value is None else value.value


def _timed(value: Any) -> ValueAndTimestamp | None:
    return None if value is None else ValueAndTimestamp(value, NO_TIMESTAMP)
