"""The key-value stores of user code and processors.

Kafka classes: MeteredKeyValueStore, MeteredTimestampedKeyValueStore.

Columnar processors use `get_columns` and `put_columns`: one call per batch, with unchanged results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from penstock.record import Int64Array
from penstock.serdes import Serde
from penstock.state.api import RecordContext
from penstock.state.layouts import after, after_prefix
from penstock.state.table import StoreTable
from penstock.state.typed_store import TypedIterator, TypedStore


class TypedKeyValueStore(TypedStore, StoreTable):
    """A key-value store of objects (implements KeyValueStore and EngineKeyValueStore).

    Its serdes determine whether it is timestamped.
    """

    kind_name = "key-value"
    _calls: ClassVar[Mapping[str, str]] = {
        **TypedStore._calls,
        "get": "get",
        "put": "put",
        "put_if_absent": "put-if-absent",
        "put_all": "put-all",
        "delete": "delete",
        "range": "range",
        "reverse_range": "range",
        "all": "all",
        "reverse_all": "all",
        "prefix_scan": "prefix-scan",
        "entries": "all",
        "delete_entry": "put",
    }
    _column_calls: ClassVar[Mapping[str, str]] = {"get_columns": "get", "put_columns": "put"}

    # ---------- interface for users

    def get(self, key: Any) -> Any:
        """Return the value of `key`, or None if absent; raises TypeError for a None key."""
        return self._serdes.deserialize_value(self._below.get(self._serialize_key(key)))

    def put(self, key: Any, value: Any) -> None:
        """Store `value` under `key`; None deletes the key. Raises TypeError for a None key."""
        self._below.put(self._serialize_key(key), self._serdes.serialize_value(value))

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Store `value` unless `key` has a value; return the existing value, or None if absent."""
        serialized = self._serialize_key(key)
        before = self._serdes.deserialize_value(self._below.get(serialized))
        if before is None:
            self._below.put(serialized, self._serdes.serialize_value(value))
        return before

    def put_all(self, entries: Sequence[tuple[Any, Any]]) -> None:
        """Store each (key, value) pair in order.

        Raises TypeError before the first write if a key is None.
        """
        if any(key is None for key, _ in entries):
            self._refuse()
        keys = [self._serialize_key(key) for key, _ in entries]
        values = [self._serdes.serialize_value(value) for _, value in entries]
        if self._cache is None:
            self._below.put_many(keys, values)
            return
        for serialized, data in zip(keys, values, strict=True):
            self._below.put(serialized, data)

    def delete(self, key: Any) -> Any:
        """Remove `key`; return its value, or None if absent."""
        serialized = self._serialize_key(key)
        before = self._serdes.deserialize_value(self._value_to_delete(serialized))
        self._below.put(serialized, None)
        return before

    def _value_to_delete(self, key: bytes) -> bytes | None:
        """Return the value of a serialised key that the caller deletes next, or None if absent."""
        return self._below.get(key)

    def clear(self) -> None:
        """Remove all entries, each like `delete` (KIP-28)."""
        self._check_open()
        keys = [key for key, _ in self._below.range(None, None, False)]
        for key in keys:
            self._below.put(key, None)

    def range(self, from_key: Any, to_key: Any) -> TypedIterator:
        """Return the entries from `from_key` to `to_key`, in byte order of the serialised keys.

        Both bounds are inclusive; None leaves an end open.
        """
        return self._range(from_key, to_key, False)

    def reverse_range(self, from_key: Any, to_key: Any) -> TypedIterator:
        """Like `range`, in descending order of keys."""
        return self._range(from_key, to_key, True)

    def all(self) -> TypedIterator:
        """Return all entries in byte order of the serialised keys."""
        return self._range(None, None, False)

    def reverse_all(self) -> TypedIterator:
        """Return all entries in descending order of keys."""
        return self._range(None, None, True)

    def prefix_scan(self, prefix: Any, prefix_serde: Serde) -> TypedIterator:
        """Return the entries whose serialised key starts with `prefix`, serialised by `prefix_serde`.

        Raises TypeError for a None prefix.
        """
        if prefix is None or not self._open:
            self._refuse("prefix cannot be null")
        start = self._serdes.serialize_prefix(prefix_serde, prefix)
        return self._entries(start, after_prefix(start), False)

    def approximate_num_entries(self) -> int:
        """Return the number of entries, without those that are only in the record cache."""
        self._check_open()
        return self._below.approximate_num_entries()

    # ---------- interface for joins: entries by serialised key

    def entries(self) -> TypedIterator:
        """Like `all`, with keys as bytes: these find the entry, whatever bytes the serde would write for the key."""
        self._check_open()
        return TypedIterator(self, self._below.range(None, None, False), _as_it_is, self._serdes.deserialize_value)

    def deserialize_key(self, key: bytes) -> Any:
        """Deserialise the key of an entry; raises the errors of the serde."""
        return self._serdes.deserialize_key(key)

    def delete_entry(self, key: bytes) -> None:
        """Remove the entry whose serialised key is `key`."""
        self._check_open()
        self._below.put(key, None)

    # ---------- interface for processors: columns

    def serialize_keys(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Serialise each key; None stays None. Raises the errors of the serde."""
        return self._serdes.serialize_keys(keys)

    def get_columns(self, keys: Sequence[bytes]) -> tuple[list[Any], Int64Array]:
        """Return the values and timestamps (ms) of `keys` (bytes), or None and NO_TIMESTAMP if absent.

        The record cache neither counts this as use nor keeps the result, since the same keys are put next.
        """
        self._check_open()
        return self._serdes.deserialize_values(self._below.multi_get(keys))

    def put_columns(
        self, keys: Sequence[bytes], values: list[Any], timestamps: Int64Array, contexts: Sequence[RecordContext]
    ) -> None:
        """Store each value (None deletes) with its timestamp (ms) and context, in order.

        The record cache evicts nothing before `RecordCache.evict`.
        """
        self._check_open()
        self._below.put_many(keys, self._serdes.serialize_values(values, timestamps), contexts)

    # ---------- helpers

    def _range(self, from_key: Any, to_key: Any, reverse: bool) -> TypedIterator:
        bounds = self._serialize_bounds(from_key, to_key)
        if bounds is None:
            return TypedIterator(self, iter(()), self._serdes.deserialize_key, self._serdes.deserialize_value)
        first, last = bounds
        return self._entries(first, None if last is None else after(last), reverse)

    def _entries(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> TypedIterator:
        entries = self._below.range(from_key, to_key, reverse)
        return TypedIterator(self, entries, self._serdes.deserialize_key, self._serdes.deserialize_value)


class TypedTimestampedKeyValueStore(TypedKeyValueStore):
    """A key-value store whose values are ValueAndTimestamp."""


class TypedExpiringKeyValueStore(TypedTimestampedKeyValueStore):
    """A timestamped key-value store whose entries have a time to live."""

    def _value_to_delete(self, key: bytes) -> bytes | None:
        return self._below.multi_get([key])[0]  # unlike get, it does not renew an entry, which is a write


def _as_it_is(key: bytes) -> bytes:
    return key
