"""What kind of store a store is and how its bytes are kept: plain, picklable values that say all that a task needs to
build its own. Builds nothing; `penstock.state.build` does.

The suppliers of users' own stores are in `penstock.state.custom`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

MINIMUM_SEGMENT_INTERVAL_MS = 60_000
"""The shortest segment of a window or session store, as in Kafka."""


class StoreSupplier(Protocol):
    """Name and kind of a store (Kafka class: StoreSupplier)."""

    @property
    def name(self) -> str:
        """The name of the store."""
        ...

    @property
    def kind(self) -> str:
        """What the store is called in descriptions, such as "window"."""
        ...

    @property
    def in_memory(self) -> bool | None:
        """Whether the base is in memory; None for the value of `dsl.store.suppliers.class`."""
        ...


@dataclass(frozen=True)
class KeyValueBytesStoreSupplier:
    """A store of keys and values (Kafka class: KeyValueBytesStoreSupplier).

    keeps_timestamps: where its values have timestamps, whether they are kept; without, they read as -1. keeps_headers:
    whether a table that is kept in it has headers; None for what `dsl.store.format` says, where the base is on disk.
    """

    name: str
    in_memory: bool | None
    keeps_timestamps: bool = True
    keeps_headers: bool | None = False

    @property
    def kind(self) -> str:
        """The kind of the store."""
        return "key_value"


@dataclass(frozen=True)
class TimeOrderedKeyValueBytesStoreSupplier(KeyValueBytesStoreSupplier):
    """A store whose keys begin with the time that its records wait for: of a join with a table that is looked up as of
    a time (Kafka class: RocksDBTimeOrderedKeyValueBytesStoreSupplier)."""


@dataclass(frozen=True)
class LruMapBytesStoreSupplier:
    """A store in memory of the `max_entries` keys that were used last (Kafka class: MemoryNavigableLRUCache)."""

    name: str
    max_entries: int

    @property
    def kind(self) -> str:
        """The kind of the store."""
        return "lru"

    @property
    def in_memory(self) -> bool:
        """Always in memory."""
        return True


@dataclass(frozen=True)
class WindowBytesStoreSupplier:
    """A store of windows, each known by key and start (Kafka class: WindowBytesStoreSupplier).

    retention_ms: how long a window is kept, counted from its start. window_size_ms: how long a window is.
    retain_duplicates: keep every value that is put for a window, not the last. time_ordered: keep an index by time, for
    stores that are mostly read by time, and have reads of several keys in the order of time. keeps_headers: as of a
    store of keys and values.
    """

    name: str
    retention_ms: int
    window_size_ms: int
    retain_duplicates: bool
    in_memory: bool | None
    time_ordered: bool = False
    keeps_headers: bool | None = False

    @property
    def kind(self) -> str:
        """The kind of the store."""
        return "window"

    @property
    def segment_interval_ms(self) -> int:
        """How many ms of windows are dropped together when they expire."""
        return max(self.retention_ms // 2, MINIMUM_SEGMENT_INTERVAL_MS)

    def __str__(self) -> str:
        in_segments = f", segmentInterval={self.segment_interval_ms}", ", windowStoreType=DEFAULT_WINDOW_STORE"
        interval, store_type = ("", "") if self.in_memory else in_segments
        return (
            f"{'InMemory' if self.in_memory else 'RocksDb'}WindowBytesStoreSupplier{{name='{self.name}', "
            f"retentionPeriod={self.retention_ms}{interval}, windowSize={self.window_size_ms}, "
            f"retainDuplicates={str(self.retain_duplicates).lower()}{store_type}}}"
        )


@dataclass(frozen=True)
class SessionBytesStoreSupplier:
    """A store of sessions, each known by key, start and end (Kafka class: SessionBytesStoreSupplier).

    retention_ms: how long a session is kept, counted from its end. time_ordered, keeps_headers: as of a window store.
    """

    name: str
    retention_ms: int
    in_memory: bool | None
    time_ordered: bool = False
    keeps_headers: bool | None = False

    @property
    def kind(self) -> str:
        """The kind of the store."""
        return "session"

    @property
    def segment_interval_ms(self) -> int:
        """How many ms of sessions are dropped together when they expire."""
        return max(self.retention_ms // 2, MINIMUM_SEGMENT_INTERVAL_MS)


@dataclass(frozen=True)
class VersionedBytesStoreSupplier:
    """A store that keeps the versions of each value for `history_retention_ms` (Kafka class:
    VersionedBytesStoreSupplier). segment_interval_ms: how many ms of old versions are dropped together."""

    name: str
    history_retention_ms: int
    segment_interval_ms: int

    @property
    def kind(self) -> str:
        """The kind of the store."""
        return "versioned"

    @property
    def in_memory(self) -> bool:
        """Never in memory."""
        return False


@dataclass(frozen=True)
class TimeOrderedBufferBytesStoreSupplier:
    """A store of updates that wait for their time, in the order of it: of suppress (Kafka class:
    InMemoryTimeOrderedKeyValueChangeBuffer)."""

    name: str

    @property
    def kind(self) -> str:
        """The kind of the store."""
        return "time_ordered_buffer"

    @property
    def in_memory(self) -> None:
        """As `dsl.store.suppliers.class` says."""
        return None
