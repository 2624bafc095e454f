"""The protocols of state: stores for user code, bases, and the layers between them.

A task's store is a buffer of uncommitted writes over a committed base. The layers of this package depend on the task
only through functions and values, such as `FlushListener` and `RecordContext`; they never see the task itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock.config.isolation_level import IsolationLevel
from penstock.metrics.measurements import Measurement
from penstock.record import Headers, Int64Array, RecordMetadata
from penstock.serdes import Serde
from penstock.state.suppliers import (
    KeyValueBytesStoreSupplier,
    SessionBytesStoreSupplier,
    StoreSupplier,
    VersionedBytesStoreSupplier,
    WindowBytesStoreSupplier,
)
from penstock.state.ttl import OnExpiry, Ttl, TtlClock, TtlRenewal, check_has_timestamps, checked_ttl
from penstock_broker.common.durations import Duration

_log = logging.getLogger(__name__)

CUSTOM = "custom"
"""The kind of user-defined stores."""

# ---------- interfaces for users


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


class WritableStateStore(StateStore, Protocol):
    """A store to which a task writes."""

    def approximate_num_uncommitted_bytes(self) -> int:
        """Return the approximate size (bytes) of the writes since the last commit, without those in a record cache.

        KIP-892; Kafka method: StateStore.approximateNumUncommittedBytes.
        """
        ...


class KeyValueIterator(Protocol):
    """Iterates over (key, value) pairs; must be closed: a context manager (Kafka class: KeyValueIterator)."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]: ...
    def __next__(self) -> tuple[Any, Any]: ...
    def __enter__(self) -> KeyValueIterator: ...
    def __exit__(self, *_: object) -> None: ...
    def peek_next_key(self) -> Any:
        """Return the next key without consuming it; raises StopIteration at the end."""
        ...

    def close(self) -> None:
        """Release the iterator."""
        ...


class ReadOnlyKeyValueStore(StateStore, Protocol):
    """Read access to a key-value store, in byte order of the serialised keys (Kafka class: ReadOnlyKeyValueStore)."""

    def get(self, key: Any) -> Any:
        """Return the value of `key`, or None if absent; raises TypeError for a None key."""
        ...

    def range(self, from_key: Any, to_key: Any) -> KeyValueIterator:
        """Return the entries from `from_key` to `to_key`, both inclusive; None leaves an end open."""
        ...

    def reverse_range(self, from_key: Any, to_key: Any) -> KeyValueIterator:
        """Like `range`, in descending order of keys."""
        ...

    def all(self) -> KeyValueIterator:
        """Return all entries."""
        ...

    def reverse_all(self) -> KeyValueIterator:
        """Return all entries in descending order of keys."""
        ...

    def prefix_scan(self, prefix: Any, prefix_serde: Serde) -> KeyValueIterator:
        """Return the entries whose serialised key starts with `prefix`, serialised by `prefix_serde`."""
        ...

    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries."""
        ...

    def read_only(self, isolation_level: IsolationLevel) -> ReadOnlyKeyValueStore:
        """Return this store for reads at an isolation level (KIP-892).

        Inside a task it is the store itself, since a task sees its own writes. Raises TypeError for any other value.
        """
        ...


class KeyValueStore(ReadOnlyKeyValueStore, WritableStateStore, Protocol):
    """A store of keys and values (Kafka classes: KeyValueStore, TimestampedKeyValueStore).

    The values of a timestamped store are ValueAndTimestamp.
    """

    def put(self, key: Any, value: Any) -> None:
        """Store `value` under `key`; None deletes the key. Raises TypeError for a None key."""
        ...

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Store `value` unless `key` has a value; return the existing value, or None if absent."""
        ...

    def put_all(self, entries: Sequence[tuple[Any, Any]]) -> None:
        """Store each (key, value) pair in order."""
        ...

    def delete(self, key: Any) -> Any:
        """Remove `key`; return its value, or None if absent."""
        ...

    def clear(self) -> None:
        """Remove all entries, each like `delete` (KIP-28)."""
        ...


# ---------- descriptions of stores


@dataclass(frozen=True)
class StoreSource:
    """The topic that fills a store and serves as its changelog.

    The store does not write the topic's records. A serde of None means the configured default.
    """

    topic: str
    key_serde: Serde | None = None
    value_serde: Serde | None = None


@dataclass(frozen=True)
class StoreBuilder:
    """Describes a store, so that each task can build its own (Kafka class: StoreBuilder).

    Plain data, picklable. A serde of None means the configured default.

    Args:
        supplier: name, kind and byte storage of the store.
        timestamped: whether values are ValueAndTimestamp.
        caching, logging: the settings of the user or the DSL.
        changelog_config: extra configs of the changelog topic.
        with_headers: whether headers are kept with values; None, for stores of the DSL, leaves it to the supplier.
        logs_headers: whether changelog records carry the headers of the written record although the store drops them.
        source: the topic that fills the store, if that topic is its changelog.
        ttl: the time to live of the entries; None keeps them.
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
    ttl: Ttl | None = None

    def __post_init__(self) -> None:
        if getattr(self.supplier, "name", None) is None:
            kind = type(self.supplier).__name__
            raise TypeError(f"A {kind} has no name: call super().__init__(name) in {kind}.__init__.")
        if self.ttl is not None:
            check_has_timestamps(self.supplier, self.timestamped)

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
        """Whether the base is in memory; None follows `dsl.store.suppliers.class`."""
        return self.supplier.in_memory

    @property
    def layout(self) -> str:
        """A description of everything that affects the store's bytes; state in another layout is unreadable."""
        parts = [self.kind, "in memory"] if self.in_memory else [self.kind]
        match self.supplier:
            case (
                WindowBytesStoreSupplier(segment_interval_ms=interval)
                | SessionBytesStoreSupplier(segment_interval_ms=interval)
                | VersionedBytesStoreSupplier(segment_interval_ms=interval)
            ):
                parts.append(f"in segments of {interval} ms")
            case KeyValueBytesStoreSupplier(keeps_timestamps=False) if self.timestamped:
                parts.append("without timestamps")
            case _:
                pass
        return ", ".join(parts)

    def with_caching_enabled(self) -> StoreBuilder:
        """Return a copy with a record cache.

        A store that keeps duplicates stays uncached, with a log line. Raises RuntimeError for versioned and
        user-defined stores.
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
        """Return a copy without a record cache."""
        return replace(self, caching=False)

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> StoreBuilder:
        """Return a copy with a changelog topic, created with the extra topic configs `config`."""
        return replace(self, logging=True, changelog_config=dict(config or {}))

    def with_logging_disabled(self) -> StoreBuilder:
        """Return a copy without a changelog topic."""
        return replace(self, logging=False, changelog_config={})

    def with_ttl(
        self,
        ttl: Duration,
        *,
        clock: TtlClock = TtlClock.STREAM_TIME,
        renewal: TtlRenewal = TtlRenewal.WRITES,
    ) -> StoreBuilder:
        """Return a copy whose entries expire after `ttl`, counted from their timestamps.

        An expired entry is no longer read. Sweeps delete expired entries from the store and its changelog, and forward
        nothing.

        Args:
            ttl: the lifetime of an entry, at least 1 ms.
            clock: the clock that measures it.
            renewal: whether reads by key begin the lifetime again, as writes do.

        Raises:
            TypeError: the store is no key-value store with timestamps, or an argument has another type.
            ValueError: the lifetime is below 1 ms.
        """
        return replace(self, ttl=checked_ttl(ttl, clock, OnExpiry.DROP, renewal))


def filled_by_topic(builder: StoreBuilder) -> StoreBuilder:
    """Return a copy for a store that a topic fills: without a changelog.

    Raises TypeError for a time to live, since the store could not delete the records of the topic.
    """
    if builder.ttl is not None:
        raise TypeError(
            f"Store {builder.name!r} cannot have a time to live (with_ttl): its topic fills it again, and the store "
            "does not write there. Set retention.ms of the topic, or let a table with a time to live write the topic."
        )
    return builder.with_logging_disabled()


# ---------- interface of a base


class BaseView(Protocol):
    """The committed entries of one store, as bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`."""
        ...

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of `keys`."""
        ...

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with from_key <= key < to_key, in byte order or reversed.

        None leaves an end open.
        """
        ...

    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries."""
        ...


Changes = Mapping[str, Mapping[bytes, bytes | None]]
"""A task's changes by store name: key -> new value, None for a delete."""


class Entries(Protocol):
    """Committed entries by store name."""

    def view(self, store_name: str) -> BaseView:
        """Return the committed entries of one store."""
        ...


class Base(Protocol):
    """The committed state of one task: one database, with a key prefix for each store."""

    def stamp(self) -> bytes | None:
        """Return the stamp of the last applied commit, or None before the first."""
        ...

    def view(self, store_name: str) -> BaseView:
        """Return the committed entries of one store."""
        ...

    def apply(self, changes: Changes, stamp: bytes) -> None:
        """Apply the changes of one commit and set the stamp, atomically."""
        ...

    def rebuild(self, commits: Callable[[], Iterable[Changes]], stamp: bytes) -> None:
        """Replace all entries by the changes of `commits`, in order, and set the stamp, atomically.

        `commits` may be called more than once.
        """
        ...

    def clear(self) -> None:
        """Drop all entries and the stamp, atomically."""
        ...

    def measured(self) -> Mapping[str, Measurement]:
        """Return the measurements since the last call, by the names in `metrics.host_metrics`.

        After `close`, returns the remaining ones. Empty if the base measures nothing.
        """
        ...

    def close(self) -> None:
        """Release the database."""
        ...


class DiskBase(Base, Protocol):
    """A base in files."""

    @property
    def is_damaged(self) -> bool:
        """Whether the files have been found damaged since the opening. A damaged base must be rebuilt."""
        ...


class BaseSnapshot(Protocol):
    """The committed state of one task at one moment, unaffected by later commits. Several threads may read it."""

    def view(self, store_name: str) -> BaseView:
        """Return the entries of one store."""
        ...

    def close(self) -> None:
        """Release the snapshot; later reads raise InvalidStateStoreError."""
        ...


class SnapshotBase(Base, Protocol):
    """A base that supports snapshots."""

    def snapshot(self) -> BaseSnapshot:
        """Return a snapshot of the committed state. Until it is closed, changed data keeps its space."""
        ...


# ---------- the layers' view of the task


class RecordContext(msgspec.Struct, frozen=True, gc=False):  # gc: caches keep many, never in cycles
    """Metadata of the record being processed (Kafka classes: RecordContext, ProcessorRecordContext).

    Topic name extractors receive it. A cached entry keeps the context of its write, which is restored at the flush.

    Args:
        timestamp: in ms.
        topic, partition, offset: the origin of the input record; None and -1 if it has no origin.
    """

    timestamp: int
    headers: Headers
    topic: str | None = None
    partition: int = -1
    offset: int = -1

    @property
    def metadata(self) -> RecordMetadata:
        """The origin of the input record."""
        return RecordMetadata(self.topic, self.partition, self.offset)


class FlushedEntries(NamedTuple):
    """Entries leaving the record cache, as columns.

    Serialised keys, new values (None: deleted), old values (None: not requested), and contexts of the last writes.
    """

    keys: list[bytes]
    new_values: list[bytes | None]
    old_values: list[bytes | None] | None
    contexts: list[RecordContext]


FlushListener = Callable[[FlushedEntries], None]
"""Receives the entries leaving the record cache, ordered by last write (Kafka class: CacheFlushListener).

They have already been written to the layer below.
"""


class EngineStore(StateStore, Protocol):
    """The operators' and tasks' view of any store, in addition to the user's."""

    def exposed(self) -> StateStore:
        """Return the object for processors: the store itself, or the user's own object."""
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
        """Whether the store keeps headers with the values."""
        ...

    @property
    def cached(self) -> bool:
        """Whether the store has a record cache."""
        ...

    @property
    def uses_headers(self) -> bool:
        """Whether a serde of the store uses the current record's headers, which columns lack."""
        ...

    @property
    def logged(self) -> bool:
        """Whether writes go to a changelog, which requires the record that causes them."""
        ...

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Call `listener` for entries leaving the cache, with old values if `send_old_values`."""
        ...

    def set_expiry_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Call `listener` for expired entries that a store without a cache deletes."""
        ...

    def uncommitted_bytes(self) -> int:
        """Return the approximate memory size (bytes) of the uncommitted changes, without a record cache."""
        ...

    def changes(self) -> Mapping[bytes, bytes | None]:
        """Return the uncommitted changes."""
        ...

    def clear_changes(self) -> None:
        """Forget the uncommitted changes, which the base now has."""
        ...

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Int64Array) -> None:
        """Write the entries of changelog records of `timestamps` (ms), in order; None deletes."""
        ...

    def deserialize_keys(self, keys: list[bytes], headers: Sequence[Headers] | None = None) -> list[Any]:
        """Deserialise the keys of FlushedEntries; window and session stores return Windowed.

        headers: one per key, for the serde; None if no record has headers.
        """
        ...

    def deserialize_columns(
        self, values: list[bytes | None], headers: Sequence[Headers] | None = None
    ) -> tuple[list[Any], Int64Array]:
        """Deserialise `values`; return them and their timestamps (ms), NO_TIMESTAMP if the store keeps no timestamps.

        headers: one per value, for the serde; None if no record has headers.
        """
        ...


class EngineColumnStore(EngineStore, Protocol):
    """The interface of batch aggregations to stores of every kind."""

    def fresh(self, value: Any) -> Any:
        """Return `value` (without a timestamp), about to be written, as the store will return it.

        The serde's round trip may change it, and user functions may modify their arguments.
        """
        ...

    def reads_back(self, kind: type) -> bool:
        """Return whether values of type `kind` survive the store's round trip unchanged."""
        ...

    @property
    def repeatable(self) -> bool:
        """Whether a value read from the store survives being written again unchanged."""
        ...


class EngineKeyValueStore(KeyValueStore, EngineStore, Protocol):
    """The operators' and tasks' view of a key-value store.

    Waiting entries are removed by the bytes of their keys: a serde need not reproduce the bytes that it has read, nor
    under the headers of another record.
    """

    def entries(self) -> KeyValueIterator:
        """Return all entries in key order; the keys are bytes."""
        ...

    def deserialize_key(self, key: bytes) -> Any:
        """Deserialise the key of an entry."""
        ...

    def delete_entry(self, key: bytes) -> None:
        """Remove the entry whose serialised key is `key`."""
        ...


class EngineTimestampedKeyValueStore(EngineKeyValueStore, EngineColumnStore, Protocol):
    """The aggregations' view of a timestamped key-value store: one call per batch, with unchanged results.

    Keys are bytes; values and their timestamps (ms) are columns; a missing value is None with NO_TIMESTAMP.
    """

    def serialize_keys(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Serialise each key; None stays None."""
        ...

    def get_columns(self, keys: Sequence[bytes]) -> tuple[list[Any], Int64Array]:
        """Return the values and timestamps of `keys`.

        The record cache neither counts this as use nor keeps the result, since the same keys are put next.
        """
        ...

    def put_columns(
        self, keys: Sequence[bytes], values: list[Any], timestamps: Int64Array, contexts: Sequence[RecordContext]
    ) -> None:
        """Store each value (None deletes) with its timestamp, under its key and in its context.

        A cache evicts nothing: the task calls `RecordCache.evict` after its batch.
        """
        ...
