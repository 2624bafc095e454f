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


class _ReadOnlyStore:
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

    def _refuse(self) -> NoReturn:
        error = UnsupportedOperationError("Global store is read only")
        error.add_note(f"store {self.name}: only the processor that keeps it from its topic writes to it")
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
