"""The protocols of state: what user code calls, what a base must offer, and what the layers need of the task.

A store of a task is a buffer of uncommitted writes over a committed base. The layers of this package take what they
need of the task as functions and values, `FlushListener` and `RecordContext`; they never see the task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock.metrics.measurements import Measurement
from penstock.record import Headers, Int64Array, RecordMetadata
from penstock.serdes import Serde
from penstock.state.suppliers import (
    SessionBytesStoreSupplier,
    StoreSupplier,
    VersionedBytesStoreSupplier,
    WindowBytesStoreSupplier,
)

_log = logging.getLogger(__name__)

CUSTOM = "custom"
"""The kind of the stores that users write."""

# ---------- what users call


class StateStore(Protocol):
    """Any store (Kafka class: StateStore)."""

    @property
    def name(self) -> str:
        """The name of the store."""
        ...

    def flush(self) -> None:
        """Write cached entries through and forward them."""
        ...

    def close(self) -> None:
        """Close the store; later calls raise InvalidStateStoreError."""
        ...

    def is_open(self) -> bool:
        """Return whether the store can be used."""
        ...

    def persistent(self) -> bool:
        """Return whether the store's base outlives the process."""
        ...


class KeyValueIterator(Protocol):
    """Iterates over (key, value) pairs; must be closed: a context manager (Kafka class: KeyValueIterator)."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]: ...
    def __next__(self) -> tuple[Any, Any]: ...
    def __enter__(self) -> KeyValueIterator: ...
    def __exit__(self, *_: object) -> None: ...
    def peek_next_key(self) -> Any:
        """Return the next key without taking it; raises StopIteration at the end."""
        ...

    def close(self) -> None:
        """Release the iterator."""
        ...


class ReadOnlyKeyValueStore(StateStore, Protocol):
    """Reads of a key-value store, in the byte order of the serialised keys (Kafka class: ReadOnlyKeyValueStore)."""

    def get(self, key: Any) -> Any:
        """Return the value of `key`, None if there is none; raises TypeError for a None key."""
        ...

    def range(self, from_key: Any, to_key: Any) -> KeyValueIterator:
        """Return the entries from `from_key` to `to_key`, both inclusive, None for an open end."""
        ...

    def reverse_range(self, from_key: Any, to_key: Any) -> KeyValueIterator:
        """As `range`, from the largest key to the smallest."""
        ...

    def all(self) -> KeyValueIterator:
        """Return all entries."""
        ...

    def reverse_all(self) -> KeyValueIterator:
        """Return all entries from the largest key to the smallest."""
        ...

    def prefix_scan(self, prefix: Any, prefix_serde: Serde) -> KeyValueIterator:
        """Return the entries whose serialised key begins with `prefix` as `prefix_serde` writes it."""
        ...

    def approximate_num_entries(self) -> int:
        """Return about how many entries there are."""
        ...


class KeyValueStore(ReadOnlyKeyValueStore, Protocol):
    """A store of keys and values; for a timestamped store the values are ValueAndTimestamp (Kafka classes:
    KeyValueStore, TimestampedKeyValueStore)."""

    def put(self, key: Any, value: Any) -> None:
        """Store `value` under `key`; None deletes. Raises TypeError for a None key."""
        ...

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Store `value` unless `key` has one; return the value that was there, None if there was none."""
        ...

    def put_all(self, entries: Sequence[tuple[Any, Any]]) -> None:
        """Store each (key, value) in turn."""
        ...

    def delete(self, key: Any) -> Any:
        """Remove `key`; return the value that was there, None if there was none."""
        ...

    def clear(self) -> None:
        """Remove all entries, each as `delete` does (KIP-28)."""
        ...


# ---------- how stores are described


@dataclass(frozen=True)
class StoreSource:
    """The topic that fills a store and is its changelog: its records were not written by the store. Serdes of None are
    the defaults of the configuration."""

    topic: str
    key_serde: Serde | None = None
    value_serde: Serde | None = None


@dataclass(frozen=True)
class StoreBuilder:
    """Describes one store so that each task can build its own; plain data, picklable (Kafka class: StoreBuilder).

    supplier: name and kind of the store, and how its bytes are kept. Serdes of None are the defaults of the
    configuration. timestamped: whether values are ValueAndTimestamp. caching, logging: as the user or the DSL set them.
    changelog_config: extra configs of the changelog topic. with_headers: whether headers are kept with values; None,
    for stores of the DSL, is what their supplier says. logs_headers: whether changelog records have the headers of
    the record that was written, though the store does not keep them. source: for a store whose changelog is the topic
    that fills it.
    """

    supplier: StoreSupplier
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    timestamped: bool = False
    caching: bool = False
    logging: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    with_headers: bool | None = False
    logs_headers: bool = False
    source: StoreSource | None = None

    def __post_init__(self) -> None:
        if getattr(self.supplier, "name", None) is None:
            kind = type(self.supplier).__name__
            raise TypeError(f"A {kind} has no name: call super().__init__(name) in {kind}.__init__.")

    @property
    def name(self) -> str:
        """The name of the store."""
        return self.supplier.name

    @property
    def kind(self) -> str:
        """The kind of the store, such as "key_value" or "timestamped_window"."""
        kind = f"timestamped_{self.supplier.kind}" if self.timestamped else self.supplier.kind
        return f"{kind}_with_headers" if self.with_headers else kind

    @property
    def in_memory(self) -> bool | None:
        """Whether the base is in memory; None for the value of `dsl.store.suppliers.class`."""
        return self.supplier.in_memory

    @property
    def layout(self) -> str:
        """What the bytes of the store depend on, in words; state that was kept in another layout cannot be read."""
        parts = [self.kind, "in memory"] if self.in_memory else [self.kind]
        match self.supplier:
            case (
                WindowBytesStoreSupplier(segment_interval_ms=interval)
                | SessionBytesStoreSupplier(segment_interval_ms=interval)
                | VersionedBytesStoreSupplier(segment_interval_ms=interval)
            ):
                parts.append(f"in segments of {interval} ms")
            case _:
                pass
        return ", ".join(parts)

    def with_caching_enabled(self) -> StoreBuilder:
        """Return a copy whose store has a record cache; a store that keeps duplicates stays without, which is logged.

        Raises RuntimeError for a versioned store, and for one of a user's own.
        """
        match self.supplier:
            case VersionedBytesStoreSupplier():
                raise RuntimeError("Versioned stores do not support caching")
            case WindowBytesStoreSupplier(retain_duplicates=True):
                _log.warning("Disabling caching for %s since store was configured to retain duplicates", self.name)
                return self
            case supplier if supplier.kind == CUSTOM:
                raise RuntimeError(
                    f"Store {self.name!r} is of your own kind and cannot have a record cache: hold updates back in the "
                    "store itself, until `flush`."
                )
            case _:
                return replace(self, caching=True)

    def with_caching_disabled(self) -> StoreBuilder:
        """Return a copy whose store has no record cache."""
        return replace(self, caching=False)

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> StoreBuilder:
        """Return a copy whose store has a changelog topic, made with the extra topic configs `config`."""
        return replace(self, logging=True, changelog_config=dict(config or {}))

    def with_logging_disabled(self) -> StoreBuilder:
        """Return a copy whose store has no changelog topic."""
        return replace(self, logging=False, changelog_config={})


# ---------- what a base offers


class BaseView(Protocol):
    """The committed entries of one store, as bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`."""
        ...

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of `keys`."""
        ...

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with from_key <= key < to_key in byte order, or reversed; None is an open end."""
        ...

    def approximate_num_entries(self) -> int:
        """Return about how many entries the store has."""
        ...


Changes = Mapping[str, Mapping[bytes, bytes | None]]
"""Changes of a task by store name: key -> new value, None for a delete."""


class Entries(Protocol):
    """Committed entries of stores by name."""

    def view(self, store_name: str) -> BaseView:
        """Return the committed entries of one store."""
        ...


class Base(Protocol):
    """The committed state of one task: one database, with a key prefix for each store."""

    def stamp(self) -> bytes | None:
        """Return the stamp of the last commit applied, None if there was none."""
        ...

    def view(self, store_name: str) -> BaseView:
        """Return the committed entries of one store."""
        ...

    def apply(self, changes: Changes, stamp: bytes) -> None:
        """Apply the changes of one commit and set the stamp, in one atomic step."""
        ...

    def rebuild(self, commits: Callable[[], Iterable[Changes]], stamp: bytes) -> None:
        """Drop all entries, apply the changes of `commits` in order and set the stamp, in one atomic step; `commits`
        may be called more than once."""
        ...

    def clear(self) -> None:
        """Drop all entries and the stamp, in one atomic step."""
        ...

    def measured(self) -> Mapping[str, Measurement]:
        """Return what was measured of the database since the last call, by the names of `metrics.host_metrics`; after
        `close`, what was left. Empty if it measures nothing."""
        ...

    def close(self) -> None:
        """Release the database."""
        ...


class DiskBase(Base, Protocol):
    """A base in files."""

    @property
    def is_damaged(self) -> bool:
        """Whether damage was found in the files since the base was opened: it is to be made again."""
        ...


class BaseSnapshot(Protocol):
    """The committed state of one task as it was when the snapshot was taken, whatever is committed after; may be read
    from several threads."""

    def view(self, store_name: str) -> BaseView:
        """Return the entries of one store."""
        ...

    def close(self) -> None:
        """Release the snapshot; later reads raise InvalidStateStoreError."""
        ...


class SnapshotBase(Base, Protocol):
    """A base of which snapshots can be taken."""

    def snapshot(self) -> BaseSnapshot:
        """Return the committed state as it is now; close it, for the space of what has changed since is kept."""
        ...


# ---------- what the layers need of the task


class RecordContext(msgspec.Struct, frozen=True, gc=False):  # gc: caches keep many, which are in no cycle
    """What is known of the record that is being processed, besides key and value: shown to topic name extractors; that
    of a write is kept beside a cached entry, given back when it is flushed (Kafka classes: RecordContext,
    ProcessorRecordContext).

    timestamp: in ms. topic, partition, offset: where the input record came from; None and -1 where there is none.
    """

    timestamp: int
    headers: Headers
    topic: str | None = None
    partition: int = -1
    offset: int = -1

    @property
    def metadata(self) -> RecordMetadata:
        """Where the input record came from."""
        return RecordMetadata(self.topic, self.partition, self.offset)


class FlushedEntries(NamedTuple):
    """Entries that leave the record cache, as columns: serialised keys, new values (None: deleted), old values (None:
    not asked for), contexts of the last writes."""

    keys: list[bytes]
    new_values: list[bytes | None]
    old_values: list[bytes | None] | None
    contexts: list[RecordContext]


FlushListener = Callable[[FlushedEntries], None]
"""Called with the entries that leave the record cache, in the order of their last write, after they were written to the
layer below (Kafka class: CacheFlushListener)."""


class EngineStore(StateStore, Protocol):
    """What the operators and the task need of every store besides what users call."""

    def exposed(self) -> StateStore:
        """Return what processors get: the store itself, or the user's own object."""
        ...

    @property
    def key_serde(self) -> Serde:
        """The serde of the keys."""
        ...

    @property
    def timestamped(self) -> bool:
        """Whether the values are ValueAndTimestamp."""
        ...

    @property
    def with_headers(self) -> bool:
        """Whether headers are kept with the values."""
        ...

    @property
    def cached(self) -> bool:
        """Whether a record cache stands before the store."""
        ...

    @property
    def uses_headers(self) -> bool:
        """Whether a serde of the store uses the headers of the record that is being processed: columns do not show
        them."""
        ...

    @property
    def logged(self) -> bool:
        """Whether writes go to a changelog, so that the record that causes one must be known."""
        ...

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Have `listener` called for what leaves the cache, with old values if `send_old_values`."""
        ...

    def uncommitted_bytes(self) -> int:
        """Return about how many bytes of memory the uncommitted changes take; those in a record cache do not count."""
        ...

    def changes(self) -> Mapping[bytes, bytes | None]:
        """Return the uncommitted changes."""
        ...

    def clear_changes(self) -> None:
        """Forget the uncommitted changes: they are in the base now."""
        ...

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Int64Array) -> None:
        """Write the entries that changelog records of `timestamps` (ms) stand for, in turn; None deletes."""
        ...

    def deserialize_keys(self, keys: list[bytes], headers: Sequence[Headers] | None = None) -> list[Any]:
        """Return the key that each of `keys` stands for, as FlushedEntries have them: a Windowed for stores of windows
        and sessions. headers: those that the serde receives for each, None if no record has any."""
        ...

    def deserialize_columns(
        self, values: list[bytes | None], headers: Sequence[Headers] | None = None
    ) -> tuple[list[Any], Int64Array]:
        """Return the values that `values` stand for, without their timestamps, and these (ms), NO_TIMESTAMP where the
        store keeps none. headers: those that the serde receives for each, None if no record has any."""
        ...


class EngineColumnStore(EngineStore, Protocol):
    """What aggregations of whole batches need of every kind of store."""

    def fresh(self, value: Any) -> Any:
        """Return `value` (without a timestamp), which is being written, as it will come back from the store: the serde
        may read something else than was written, and users' functions may change what they are given."""
        ...

    def reads_back(self, kind: type) -> bool:
        """Return whether values of type `kind` come back from the store as they were written."""
        ...

    @property
    def repeatable(self) -> bool:
        """Whether a value from the store, if it is written again, comes back the same."""
        ...


class EngineKeyValueStore(KeyValueStore, EngineStore, Protocol):
    """A key-value store as operators and tasks see it.

    What waits in a store is removed by the bytes of its key: a serde need not write the same bytes again for what it
    has read, or under the headers of another record.
    """

    def entries(self) -> KeyValueIterator:
        """Return all entries in the order of their keys, which are bytes."""
        ...

    def deserialize_key(self, key: bytes) -> Any:
        """Return the key that the bytes of an entry stand for."""
        ...

    def delete_entry(self, key: bytes) -> None:
        """Remove the entry with a key of these bytes."""
        ...


class EngineTimestampedKeyValueStore(EngineKeyValueStore, EngineColumnStore, Protocol):
    """What the aggregations need of a timestamped key-value store: the same results as one by one, one call a batch.

    Keys are bytes; values and their timestamps (ms) are columns; None is no value, with NO_TIMESTAMP.
    """

    def serialize_keys(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Return each key as bytes, None for None."""
        ...

    def get_columns(self, keys: Sequence[bytes]) -> tuple[list[Any], Int64Array]:
        """Return the values and timestamps of `keys`.

        The record cache does not count this as use and does not keep the result: it is for keys that are put next.
        """
        ...

    def put_columns(
        self, keys: Sequence[bytes], values: list[Any], timestamps: Int64Array, contexts: Sequence[RecordContext]
    ) -> None:
        """Store each value (None deletes) with its timestamp under its key in the context given. A cache is not
        evicted: the task calls `RecordCache.evict` after its batch."""
        ...


class BytesStore(Protocol):
    """A layer below the typed one: a store of bytes, read and written by the task that owns it (Kafka:
    KeyValueStore<Bytes, byte[]>)."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if there is none."""
        ...

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of `keys`, None if there is none."""
        ...

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key`; None deletes."""
        ...

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each of `values` under the key at its place, with the context at its place or, without contexts, that
        of now."""
        ...

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the entries with from_key <= key < to_key in byte order, or reversed; None is an open
        end."""
        ...

    def approximate_num_entries(self) -> int:
        """Return about how many entries there are."""
        ...

    def flush(self) -> None:
        """Write what is held back to the layer below, and forward it."""
        ...


class BufferedBytesStore(BytesStore, Protocol):
    """A store of bytes whose writes wait for the commit."""

    def uncommitted_bytes(self) -> int:
        """Return about how many bytes of memory the uncommitted writes take."""
        ...

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes, None for a delete."""
        ...

    def clear(self) -> None:
        """Forget the uncommitted writes: they are in the base now, or discarded."""
        ...


class CachingBytesStore(BytesStore, Protocol):
    """A store of bytes behind a record cache."""

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Give each entry that leaves the cache to `listener`, with its old value only if `send_old_values`."""
        ...

    def close(self) -> None:
        """Give up the cache; nothing is flushed."""
        ...
