"""Kinds of stores and their byte storage: plain, picklable values for building a task's stores.

`penstock.state.build` builds the stores. The suppliers of user-defined stores are in `penstock.state.custom`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.calendar_windows import CalendarWindows
from penstock.windows import TimeWindow

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
        """The name of the kind in descriptions, such as "window"."""
        ...

    @property
    def in_memory(self) -> bool | None:
        """Whether the base is in memory; None follows `dsl.store.suppliers.class`."""
        ...


@dataclass(frozen=True)
class KeyValueBytesStoreSupplier:
    """A store of keys and values (Kafka class: KeyValueBytesStoreSupplier).

    Args:
        keeps_timestamps: whether the store keeps the timestamps of its values, if they have any; otherwise they read as
            -1.
        keeps_headers: whether a table in this store has headers; None follows `dsl.store.format` if the base is on
            disk.
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
    """A store with keys that start with the time until which their records wait.

    It serves joins with versioned tables (Kafka class: RocksDBTimeOrderedKeyValueBytesStoreSupplier).
    """


@dataclass(frozen=True)
class LruMapBytesStoreSupplier:
    """An in-memory store of the `max_entries` most recently used keys (Kafka class: MemoryNavigableLRUCache)."""

    name: str
    max_entries: int

    @property
    def kind(self) -> str:
        """The kind of the store."""
        return "lru"

    @property
    def in_memory(self) -> bool:
        """Always True."""
        return True


@dataclass(frozen=True)
class WindowBytesStoreSupplier:
    """A store of windows, identified by key and start (Kafka class: WindowBytesStoreSupplier).

    Args:
        retention_ms: lifetime of a window, from its start.
        window_size_ms: size of a window, or of the largest one of a calendar.
        retain_duplicates: whether to keep every value that is put for a window, instead of the last.
        time_ordered: whether to keep an index by time, for stores that are mostly read by time, and to return reads of
            several keys in time order.
        keeps_headers: as for a store of keys and values.
        calendar: the windows in the store if their sizes differ; None for windows of one size.
    """

    name: str
    retention_ms: int
    window_size_ms: int
    retain_duplicates: bool
    in_memory: bool | None
    time_ordered: bool = False
    keeps_headers: bool | None = False
    calendar: CalendarWindows | None = None

    @property
    def kind(self) -> str:
        """The kind of the store."""
        return "window"

    @property
    def segment_interval_ms(self) -> int:
        """Time span (ms) of windows that are dropped together at their expiry."""
        return max(self.retention_ms // 2, MINIMUM_SEGMENT_INTERVAL_MS)

    def __str__(self) -> str:
        in_segments = f", segmentInterval={self.segment_interval_ms}", ", windowStoreType=DEFAULT_WINDOW_STORE"
        interval, store_type = ("", "") if self.in_memory else in_segments
        return (
            f"{'InMemory' if self.in_memory else 'RocksDb'}WindowBytesStoreSupplier{{name='{self.name}', "
            f"retentionPeriod={self.retention_ms}{interval}, windowSize={self.window_size_ms}, "
            f"retainDuplicates={str(self.retain_duplicates).lower()}{store_type}}}"
        )

    def window_from(self, start: int) -> TimeWindow:
        """Return the window in the store that begins at `start` (ms)."""
        if self.calendar is None:
            return TimeWindow.of_size(start, self.window_size_ms)
        return self.calendar.window_from(start)


@dataclass(frozen=True)
class SessionBytesStoreSupplier:
    """A store of sessions, identified by key, start and end (Kafka class: SessionBytesStoreSupplier).

    Args:
        retention_ms: lifetime of a session, from its end.
        time_ordered, keeps_headers: as for a window store.
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
        """Time span (ms) of sessions that are dropped together at their expiry."""
        return max(self.retention_ms // 2, MINIMUM_SEGMENT_INTERVAL_MS)


@dataclass(frozen=True)
class VersionedBytesStoreSupplier:
    """A store of each value's versions (Kafka class: VersionedBytesStoreSupplier).

    Args:
        history_retention_ms: lifetime of old versions.
        segment_interval_ms: time span of old versions that are dropped together.
    """

    name: str
    history_retention_ms: int
    segment_interval_ms: int

    @property
    def kind(self) -> str:
        """The kind of the store."""
        return "versioned"

    @property
    def in_memory(self) -> bool:
        """Always False."""
        return False


@dataclass(frozen=True)
class TimeOrderedBufferBytesStoreSupplier:
    """A `suppress` store of waiting updates, in time order (Kafka class: InMemoryTimeOrderedKeyValueChangeBuffer)."""

    name: str

    @property
    def kind(self) -> str:
        """The kind of the store."""
        return "time_ordered_buffer"

    @property
    def in_memory(self) -> None:
        """None: follows `dsl.store.suppliers.class`."""
        return None
