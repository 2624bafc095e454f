"""The typed layer: what user code and processors hold (Kafka classes: MeteredKeyValueStore,
MeteredTimestampedKeyValueStore).

Keys and values become bytes here, by the serdes of the store or the defaults of the configuration; below there are only
bytes. Processors that work column by column use `get_columns` and `put_columns`: the same results, one call a batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from penstock.errors import InvalidStateStoreError, SerializationError, StreamsError
from penstock.record import NO_TIMESTAMP, Int64Array, KeyValue, ValueAndTimestamp
from penstock.serdes import Serde
from penstock.state.api import BytesStore, FlushListener, RecordContext
from penstock.state.caching import CachingKeyValueStore
from penstock.state.layouts import (
    TIMESTAMP_SIZE,
    after,
    after_prefix,
    join_timestamps,
    pack_timestamp,
    split_timestamps,
    timestamp_of,
)
from penstock.state.uncommitted import UncommittedStore

_log = logging.getLogger(__name__)


class MeteredKeyValueStore:
    """A key-value store of objects (implements KeyValueStore and TaskStore; Kafka class: MeteredKeyValueStore)."""

    def __init__(
        self,
        name: str,
        topic: str,
        key_serde: Serde,
        value_serde: Serde,
        buffer: UncommittedStore,
        cache: CachingKeyValueStore | None,
        persistent: bool,
    ) -> None:
        """Hold the store `name` over `buffer`, its uncommitted writes, through `cache` if it has one.

        topic: the changelog topic, which serdes are told. persistent: whether the base outlives the process.
        """
        self._name = name
        self._topic = topic
        self._buffer = buffer
        self._cache = cache
        self._below: BytesStore = buffer if cache is None else cache
        self._persistent = persistent
        self._open = True
        self.key_serde = key_serde
        self.value_serde = value_serde

    # ---------- what users call

    @property
    def name(self) -> str:
        """The name of the store."""
        return self._name

    def is_open(self) -> bool:
        """Return whether the store can be used."""
        return self._open

    def persistent(self) -> bool:
        """Return whether the store's base outlives the process."""
        return self._persistent

    def close(self) -> None:
        """Close the store; what is uncommitted is void. Later calls raise InvalidStateStoreError."""
        self._open = False
        if self._cache is not None:
            self._cache.close()
        self._buffer.clear()

    def get(self, key: Any) -> Any:
        """Return the value of `key`, None if there is none; raises TypeError for a None key."""
        return self.deserialize_value(self._below.get(self._serialize_key(key)))

    def put(self, key: Any, value: Any) -> None:
        """Store `value` under `key`; None deletes. Raises TypeError for a None key."""
        self._below.put(self._serialize_key(key), None if value is None else self._serialize_value(value))

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Store `value` unless `key` has one; return the value that was there, None if there was none."""
        before = self.get(key)
        if before is None:
            self.put(key, value)
        return before

    def put_all(self, entries: Sequence[tuple[Any, Any]]) -> None:
        """Store each (key, value) in turn; raises TypeError before the first if a key is None."""
        if any(key is None for key, _ in entries):
            self._refuse()
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: Any) -> Any:
        """Remove `key`; return the value that was there, None if there was none."""
        before = self.get(key)
        self.put(key, None)
        return before

    def range(self, from_key: Any, to_key: Any) -> MeteredIterator:
        """Return the entries from `from_key` to `to_key` in the byte order of the serialised keys, both inclusive, None
        for an open end."""
        return self._range(from_key, to_key, False)

    def reverse_range(self, from_key: Any, to_key: Any) -> MeteredIterator:
        """As `range`, from the largest key to the smallest."""
        return self._range(from_key, to_key, True)

    def all(self) -> MeteredIterator:
        """Return all entries in the byte order of the serialised keys."""
        return self._range(None, None, False)

    def reverse_all(self) -> MeteredIterator:
        """Return all entries from the largest key to the smallest."""
        return self._range(None, None, True)

    def prefix_scan(self, prefix: Any, prefix_serde: Serde) -> MeteredIterator:
        """Return the entries whose serialised key begins with `prefix` as `prefix_serde` writes it; raises TypeError
        for a None prefix."""
        if prefix is None or not self._open:
            self._refuse("prefix")
        start = self._serialize(prefix_serde, prefix, "prefix")
        return MeteredIterator(self, self._below.range(start, after_prefix(start), False))

    def approximate_num_entries(self) -> int:
        """Return how many entries there are, without those that are only in the record cache."""
        if not self._open:
            self._refuse()
        return self._below.approximate_num_entries()

    # ---------- what tasks and processors call

    @property
    def cached(self) -> bool:
        """Whether updates leave by the flush listener, and not by the processor that writes."""
        return self._cache is not None

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Give each entry that leaves the record cache to `listener`; does nothing for a store without a cache."""
        if self._cache is not None:
            self._cache.set_flush_listener(listener, send_old_values)

    def flush(self) -> None:
        """Write cached entries through and forward them."""
        self._below.flush()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes (after `flush`) in key order, None for a delete."""
        return self._buffer.changes()

    def clear_changes(self) -> None:
        """Forget the uncommitted writes: the base has them now."""
        self._buffer.clear()

    def deserialize_key(self, data: bytes) -> Any:
        """Return the key that `data` stands for; raises SerializationError naming the store."""
        return self._deserialize(self.key_serde, data, "key")

    def deserialize_value(self, data: bytes | None) -> Any:
        """Return the value that `data` stands for, None for None; raises SerializationError naming the store."""
        return None if data is None else self._deserialize(self.value_serde, data, "value")

    # ---------- helpers

    def _serialize_key(self, key: Any) -> bytes:
        if key is None or not self._open:
            self._refuse()
        return self._serialize(self.key_serde, key, "key")

    def _serialize_value(self, value: Any) -> bytes | None:
        return self._serialize(self.value_serde, value, "value")

    def _range(self, from_key: Any, to_key: Any, reverse: bool) -> MeteredIterator:
        if not self._open:
            self._refuse()
        start = None if from_key is None else self._serialize_key(from_key)
        last = None if to_key is None else self._serialize_key(to_key)
        if start is not None and last is not None and start > last:
            _log.warning(
                "Store %s: the range is empty, since its first key is greater than its last (%r > %r). "
                "Are they in the wrong order, or does the key serde not keep the order in its bytes? "
                "Those of numbers do not for negative ones.",
                self._name,
                from_key,
                to_key,
            )
            return MeteredIterator(self, iter(()))
        return MeteredIterator(self, self._below.range(start, None if last is None else after(last), reverse))

    def _serialize(self, serde: Serde, value: Any, what: str) -> bytes:
        try:
            return serde.serialize(self._topic, value)
        except Exception as error:
            raise self._serde_error(f"write {what} {value!r:.200}", error) from error

    def _deserialize(self, serde: Serde, data: bytes, what: str) -> Any:
        try:
            return serde.deserialize(self._topic, data)
        except Exception as error:
            raise self._serde_error(f"read {what} {data!r:.200}", error) from error

    def _serde_error(self, action: str, error: Exception) -> StreamsError:
        return SerializationError(
            f"Store {self._name!r} cannot {action} with {type(self.key_serde).__name__} for keys and "
            f"{type(self.value_serde).__name__} for values: {error} "
            "Give the store the serdes of its keys and values, or convert them before."
        )

    def _refuse(self, what: str = "key") -> None:
        if not self._open:
            raise InvalidStateStoreError(
                f"Store {self._name!r} is not open: its task was closed or has moved. Get the store again in init()."
            )
        raise TypeError(
            f"Store {self._name!r}: {what} must not be None; drop such records, or choose another {what} for them."
        )


class MeteredTimestampedKeyValueStore(MeteredKeyValueStore):
    """A key-value store whose values are ValueAndTimestamp (Kafka class: MeteredTimestampedKeyValueStore)."""

    def deserialize_value(self, data: bytes | None) -> ValueAndTimestamp | None:
        """Return the ValueAndTimestamp that `data` stands for, None for None; raises SerializationError naming the
        store."""
        if data is None:
            return None
        return ValueAndTimestamp(
            self._deserialize(self.value_serde, data[TIMESTAMP_SIZE:], "value"), timestamp_of(data)
        )

    def _serialize_value(self, value: Any) -> bytes | None:
        if type(value) is not ValueAndTimestamp:
            self._refuse_plain(value)
        if value.value is None:
            return None
        return pack_timestamp(value.timestamp) + self._serialize(self.value_serde, value.value, "value")

    # ---------- what aggregations call: columns

    def serialize_keys(self, keys: list[Any]) -> list[bytes | None]:
        """Return each of `keys` as bytes, None for None; raises SerializationError naming the store."""
        return self._column(self.key_serde.serialize_column, keys, "write keys")

    def deserialize_keys(self, keys: list[bytes]) -> list[Any]:
        """Return the key that each of `keys` stands for; raises SerializationError naming the store."""
        return self._column(self.key_serde.deserialize_column, keys, "read keys")

    def deserialize_columns(self, values: list[bytes | None]) -> tuple[list[Any], Int64Array]:
        """Return the values and timestamps (ms) that `values` stand for, None and NO_TIMESTAMP for None; raises
        SerializationError naming the store."""
        present = [value for value in values if value is not None] if None in values else values
        plain, timestamps = split_timestamps(cast("list[bytes]", present))
        read = self._column(self.value_serde.deserialize_column, plain, "read values")
        if len(present) == len(values):
            return read, timestamps
        there = np.fromiter((value is not None for value in values), np.bool_, len(values))
        all_timestamps = np.full(len(values), NO_TIMESTAMP, np.int64)
        all_timestamps[there] = timestamps
        following = iter(read)
        return [next(following) if present else None for present in there.tolist()], all_timestamps

    def get_columns(self, keys: Sequence[bytes]) -> tuple[list[Any], Int64Array]:
        """Return the values and timestamps (ms) of `keys` (bytes), None and NO_TIMESTAMP where there is none.

        The record cache neither counts this as use nor keeps what is read: it is for keys that are put next.
        """
        if not self._open:
            self._refuse()
        return self.deserialize_columns(self._below.multi_get(keys))

    def put_columns(
        self, keys: Sequence[bytes], values: list[Any], timestamps: Int64Array, contexts: Sequence[RecordContext]
    ) -> None:
        """Store each of `values` (None deletes) with its timestamp (ms) in turn, with the context at its place.

        The record cache evicts nothing before `RecordCache.evict`.
        """
        if not self._open:
            self._refuse()
        serialized = self._column(self.value_serde.serialize_column, values, "write values")
        self._below.put_many(keys, join_timestamps(timestamps, serialized), contexts)

    def _column(self, convert: Callable[[str, list[Any]], list[Any]], column: list[Any], what: str) -> list[Any]:
        try:
            return convert(self._topic, column)
        except Exception as error:
            raise self._serde_error(what, error) from error

    def _refuse_plain(self, value: Any) -> None:
        raise TypeError(
            f"Store {self._name!r} holds ValueAndTimestamp, not {type(value).__name__} {value!r:.100}: "
            "put ValueAndTimestamp(value, timestamp_ms), or make a key_value store."
        )


class MeteredIterator:
    """Iterates over the entries of a store as KeyValue (implements KeyValueIterator; Kafka class:
    MeteredKeyValueStoreIterator)."""

    __slots__ = ("_entries", "_next", "_open", "_store")

    def __init__(self, store: MeteredKeyValueStore, entries: Iterator[tuple[bytes, bytes]]) -> None:
        """Read `entries`, which are bytes, for `store`."""
        self._store = store
        self._entries = entries
        self._next: tuple[bytes, bytes] | None = None
        self._open = True

    def __iter__(self) -> MeteredIterator:
        return self

    def __next__(self) -> KeyValue:
        if not self._open or not self._store.is_open():
            self._refuse()
        entry = self._next
        if entry is None:
            entry = next(self._entries)
        else:
            self._next = None
        store = self._store
        return KeyValue(store.deserialize_key(entry[0]), store.deserialize_value(entry[1]))

    def __enter__(self) -> MeteredIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def peek_next_key(self) -> Any:
        """Return the next key without taking it; raises StopIteration at the end."""
        if not self._open or not self._store.is_open():
            self._refuse()
        if self._next is None:
            self._next = next(self._entries)
        return self._store.deserialize_key(self._next[0])

    def close(self) -> None:
        """Release the iterator; later calls raise InvalidStateStoreError."""
        self._open = False
        self._entries = iter(())
        self._next = None

    def _refuse(self) -> None:
        what = "iterator" if self._store.is_open() else "store"
        raise InvalidStateStoreError(
            f"Store {self._store.name!r}: the {what} is closed. Read all that you need before you close it."
        )
