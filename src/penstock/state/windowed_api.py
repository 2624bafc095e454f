"""The protocols of stores whose entries belong to windows of time: what user code calls, and what operators need
besides.

Times are ms. Reads leave out what is older than the retention of the store; a record cache may still show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.record import Int64Array
from penstock.state.api import EngineColumnStore, KeyValueIterator, RecordContext, StateStore
from penstock.windows import Windowed


class ReadOnlyWindowStore(StateStore, Protocol):
    """Reads of a window store (Kafka class: ReadOnlyWindowStore).

    Iterators of one key give (window start, value), those of several keys (Windowed, value), in the order of the base:
    by segments of time and then by the bytes of the key on disk, by time and then key in memory.
    """

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """Return the value of the window of `key` that starts at `time_from`, None if there is none; with `time_to`
        an iterator over the windows of `key` that start from `time_from` to `time_to`, both inclusive."""
        ...

    def backward_fetch(self, key: Any, time_from: int, time_to: int) -> KeyValueIterator:
        """Return the windows of `key` that start from `time_from` to `time_to`, the latest first."""
        ...

    def fetch_range(self, key_from: Any, key_to: Any, time_from: int, time_to: int) -> KeyValueIterator:
        """Return the windows of the keys from `key_from` to `key_to` (inclusive, None for an open end) that start from
        `time_from` to `time_to`."""
        ...

    def backward_fetch_range(self, key_from: Any, key_to: Any, time_from: int, time_to: int) -> KeyValueIterator:
        """As `fetch_range`, in reverse."""
        ...

    def fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator:
        """Return all windows that start from `time_from` to `time_to`, both inclusive."""
        ...

    def backward_fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator:
        """As `fetch_all`, in reverse."""
        ...

    def all(self) -> KeyValueIterator:
        """Return all windows."""
        ...

    def backward_all(self) -> KeyValueIterator:
        """Return all windows in reverse."""
        ...


class WindowStore(ReadOnlyWindowStore, Protocol):
    """A store of windows, each known by key and start; for a timestamped store the values are ValueAndTimestamp (Kafka
    classes: WindowStore, TimestampedWindowStore)."""

    def put(self, key: Any, value: Any, window_start: int) -> None:
        """Store `value` for the window of `key` that starts at `window_start`; None deletes. Raises TypeError for a
        None key."""
        ...


class ReadOnlySessionStore(StateStore, Protocol):
    """Reads of a session store; iterators give (Windowed, aggregate) (Kafka class: ReadOnlySessionStore)."""

    def fetch_session(self, key: Any, session_start: int, session_end: int) -> Any:
        """Return the aggregate of one session, None if there is none."""
        ...

    def find_sessions(self, key: Any, earliest_session_end: int, latest_session_start: int) -> KeyValueIterator:
        """Return the sessions of `key` that end at `earliest_session_end` or later and start at `latest_session_start`
        or earlier."""
        ...

    def backward_find_sessions(
        self, key: Any, earliest_session_end: int, latest_session_start: int
    ) -> KeyValueIterator:
        """As `find_sessions`, in reverse."""
        ...

    def find_sessions_range(
        self, key_from: Any, key_to: Any, earliest_session_end: int, latest_session_start: int
    ) -> KeyValueIterator:
        """As `find_sessions`, of the keys from `key_from` to `key_to` (inclusive, None for an open end)."""
        ...

    def backward_find_sessions_range(
        self, key_from: Any, key_to: Any, earliest_session_end: int, latest_session_start: int
    ) -> KeyValueIterator:
        """As `find_sessions_range`, in reverse."""
        ...

    def fetch(self, key: Any) -> KeyValueIterator:
        """Return all sessions of `key`."""
        ...

    def backward_fetch(self, key: Any) -> KeyValueIterator:
        """Return all sessions of `key` in reverse."""
        ...

    def fetch_range(self, key_from: Any, key_to: Any) -> KeyValueIterator:
        """Return all sessions of the keys from `key_from` to `key_to` (inclusive, None for an open end)."""
        ...

    def backward_fetch_range(self, key_from: Any, key_to: Any) -> KeyValueIterator:
        """As `fetch_range`, in reverse."""
        ...


class SessionStore(ReadOnlySessionStore, Protocol):
    """A store of sessions, each known by key, start and end (Kafka class: SessionStore)."""

    def put(self, session_key: Windowed[Any], aggregate: Any) -> None:
        """Store `aggregate` for the session; None deletes. Raises TypeError for None as Windowed or key."""
        ...

    def remove(self, session_key: Windowed[Any]) -> None:
        """Remove the session."""
        ...


# ---------- what operators need besides


class EngineWindowStore(WindowStore, EngineColumnStore, Protocol):
    """A window store as operators see it. In columns an entry is known by its *entry key*, bytes of key and start that
    `entry_keys` makes and `deserialize_keys` reads."""

    def serialize_keys(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Return each key as bytes, None for None."""
        ...

    def entry_keys(self, keys: Sequence[bytes], window_starts: Int64Array) -> list[bytes]:
        """Return the entry key of the window of each of `keys` (bytes) that starts at its place in `window_starts`."""
        ...

    def fetch_duplicates(self, key: Any, time_from: int, time_to: int) -> list[tuple[int, Any]]:
        """As `fetch` with both times, as a list; only for stores that keep duplicates."""
        ...

    def get_columns(self, keys: Sequence[bytes]) -> tuple[list[Any], Int64Array]:
        """Return the values and timestamps of entry keys, None and NO_TIMESTAMP where there is none.

        The record cache does not count this as use and does not keep the result: it is for keys that are put next.
        """
        ...

    def put_columns(
        self, keys: Sequence[bytes], values: list[Any], timestamps: Int64Array, contexts: Sequence[RecordContext]
    ) -> None:
        """Store each value (None deletes) with its timestamp under its entry key in the context given. A cache is not
        evicted: the task calls `RecordCache.evict` after its batch."""
        ...


class EngineSessionStore(SessionStore, EngineColumnStore, Protocol):
    """A session store as operators see it. In columns an entry is known by its *entry key*, as in a window store."""

    def serialize_keys(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Return each key as bytes, None for None."""
        ...

    def entry_keys(self, keys: Sequence[bytes], starts: Int64Array, ends: Int64Array) -> list[bytes]:
        """Return the entry key of the session of each of `keys` (bytes) with start and end at its place."""
        ...

    def put_columns(self, keys: Sequence[bytes], aggregates: list[Any], contexts: Sequence[RecordContext]) -> None:
        """Store each aggregate (None deletes) under its entry key in the context given. A cache is not evicted: the
        task calls `RecordCache.evict` after its batch."""
        ...

    def find_sessions_by_time(self, earliest_session_end: int, latest_session_end: int) -> KeyValueIterator:
        """Return the sessions of all keys that end from `earliest_session_end` to `latest_session_end`, in the order of
        time."""
        ...
