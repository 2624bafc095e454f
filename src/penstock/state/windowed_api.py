"""The protocols of window and session stores, for user code and operators.

Times are ms. Reads omit entries older than the store's retention; a record cache may still return them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.config.isolation_level import IsolationLevel
from penstock.record import Headers, Int64Array
from penstock.state.api import EngineColumnStore, KeyValueIterator, RecordContext, StateStore, WritableStateStore
from penstock.state.duplicates import Entry
from penstock.windows import Windowed


class ReadOnlyWindowStore(StateStore, Protocol):
    """Read access to a window store (Kafka class: ReadOnlyWindowStore).

    Iterators of one key yield (window start, value), those of several keys (Windowed, value), in the order of the base:
    on disk by time segment and then by key bytes, in memory by time and then by key.
    """

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """Return the value of the window of `key` starting at `time_from`, or None if absent.

        With `time_to`, returns an iterator over windows of `key` starting from `time_from` to `time_to`, both
        inclusive.
        """
        ...

    def backward_fetch(self, key: Any, time_from: int, time_to: int) -> KeyValueIterator:
        """Return the windows of `key` starting from `time_from` to `time_to`, latest first."""
        ...

    def fetch_range(self, key_from: Any, key_to: Any, time_from: int, time_to: int) -> KeyValueIterator:
        """Return the windows of a key range starting from `time_from` to `time_to`.

        The keys are from `key_from` to `key_to`, inclusive; None leaves an end open.
        """
        ...

    def backward_fetch_range(self, key_from: Any, key_to: Any, time_from: int, time_to: int) -> KeyValueIterator:
        """Like `fetch_range`, in reverse."""
        ...

    def fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator:
        """Return all windows starting from `time_from` to `time_to`, both inclusive."""
        ...

    def backward_fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator:
        """Like `fetch_all`, in reverse."""
        ...

    def all(self) -> KeyValueIterator:
        """Return all windows."""
        ...

    def backward_all(self) -> KeyValueIterator:
        """Return all windows in reverse."""
        ...

    def read_only(self, isolation_level: IsolationLevel) -> ReadOnlyWindowStore:
        """Return this store for reads at an isolation level, as `ReadOnlyKeyValueStore.read_only` (KIP-892)."""
        ...


class WindowStore(ReadOnlyWindowStore, WritableStateStore, Protocol):
    """A store of windows, identified by key and start (Kafka classes: WindowStore, TimestampedWindowStore).

    The values of a timestamped store are ValueAndTimestamp.
    """

    def put(self, key: Any, value: Any, window_start: int) -> None:
        """Store `value` for the window of `key` that starts at `window_start`.

        None deletes. Raises TypeError for a None key.
        """
        ...


class ReadOnlySessionStore(StateStore, Protocol):
    """Read access to a session store (Kafka class: ReadOnlySessionStore).

    Iterators yield (Windowed, aggregate).
    """

    def fetch_session(self, key: Any, session_start: int, session_end: int) -> Any:
        """Return the aggregate of one session, or None if absent."""
        ...

    def find_sessions(self, key: Any, earliest_session_end: int, latest_session_start: int) -> KeyValueIterator:
        """Return the sessions of `key` that end and start within the bounds.

        They end at `earliest_session_end` or later and start at `latest_session_start` or earlier.
        """
        ...

    def backward_find_sessions(
        self, key: Any, earliest_session_end: int, latest_session_start: int
    ) -> KeyValueIterator:
        """Like `find_sessions`, in reverse."""
        ...

    def find_sessions_range(
        self, key_from: Any, key_to: Any, earliest_session_end: int, latest_session_start: int
    ) -> KeyValueIterator:
        """Like `find_sessions`, for the keys from `key_from` to `key_to`.

        Both bounds are inclusive; None leaves an end open.
        """
        ...

    def backward_find_sessions_range(
        self, key_from: Any, key_to: Any, earliest_session_end: int, latest_session_start: int
    ) -> KeyValueIterator:
        """Like `find_sessions_range`, in reverse."""
        ...

    def fetch(self, key: Any) -> KeyValueIterator:
        """Return all sessions of `key`."""
        ...

    def backward_fetch(self, key: Any) -> KeyValueIterator:
        """Return all sessions of `key` in reverse."""
        ...

    def fetch_range(self, key_from: Any, key_to: Any) -> KeyValueIterator:
        """Return all sessions of the keys from `key_from` to `key_to`.

        Both bounds are inclusive; None leaves an end open.
        """
        ...

    def backward_fetch_range(self, key_from: Any, key_to: Any) -> KeyValueIterator:
        """Like `fetch_range`, in reverse."""
        ...

    def read_only(self, isolation_level: IsolationLevel) -> ReadOnlySessionStore:
        """Return this store for reads at an isolation level, as `ReadOnlyKeyValueStore.read_only` (KIP-892)."""
        ...


class SessionStore(ReadOnlySessionStore, WritableStateStore, Protocol):
    """A store of sessions, identified by key, start and end (Kafka class: SessionStore)."""

    def put(self, session_key: Windowed[Any], aggregate: Any) -> None:
        """Store `aggregate` for the session; None deletes. Raises TypeError for None as Windowed or key."""
        ...

    def remove(self, session_key: Windowed[Any]) -> None:
        """Remove the session."""
        ...


# ---------- interface for operators


class EngineWindowStore(WindowStore, EngineColumnStore, Protocol):
    """The operators' view of a window store.

    In columns an entry is identified by its *entry key*, bytes of key and start: `entry_keys` creates it,
    `deserialize_keys` reads it.
    """

    def serialize_keys(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Serialise each key; None stays None."""
        ...

    def entry_keys(self, keys: Sequence[bytes], window_starts: Int64Array) -> list[bytes]:
        """Return the entry key of each key's window with its start in `window_starts`."""
        ...

    def is_late(self, window_start: int) -> bool:
        """Return whether a window that starts at `window_start` (ms) is too old to be stored."""
        ...

    def fetch_duplicates(self, key: Any, time_from: int, time_to: int) -> list[tuple[int, Any]]:
        """Like `fetch` with both times, as a list; only for stores that keep duplicates."""
        ...

    def duplicates_of(self, keys: Sequence[bytes], are_read: Sequence[bool]) -> list[list[Entry] | None]:
        """Return the entries of each key (bytes), as lists for the entries that `put_duplicates` will write.

        A list may begin with expired entries. It is None if `are_read` is false and no list is known.
        """
        ...

    def next_numbers(self, count: int) -> Int64Array:
        """Return the sequence numbers of the next `count` duplicates."""
        ...

    def oldest_visible_at(self, times: Int64Array) -> Int64Array:
        """Return the oldest readable time while writes advance the clock to each of `times`, which ascend."""
        ...

    def serialize_kept(self, values: Sequence[Any], headers: Sequence[Headers] | None) -> list[bytes | None]:
        """Serialise each value as `put_duplicates` takes it; None stays None. `headers` are those of the rows."""
        ...

    def put_duplicates(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        window_starts: Int64Array,
        contexts: Callable[[], Sequence[RecordContext]],
    ) -> None:
        """Store each value for the window of its key that starts at its time in `window_starts`, as `put`.

        contexts: returns those of the writes; called only if the store is logged.
        """
        ...

    def settle(self, keys: Sequence[bytes], lists: Sequence[list[Entry] | None], added: int) -> None:
        """Count the entries that have been added to the lists of `duplicates_of`, after they are written."""
        ...

    def get_columns(self, keys: Sequence[bytes]) -> tuple[list[Any], Int64Array]:
        """Return the values and timestamps of entry keys, or None and NO_TIMESTAMP if absent.

        The record cache neither counts this as use nor keeps the result, since the same keys are put next.
        """
        ...

    def put_columns(
        self, keys: Sequence[bytes], values: list[Any], timestamps: Int64Array, contexts: Sequence[RecordContext]
    ) -> None:
        """Store each value (None deletes) with its timestamp, under its entry key and context.

        A cache evicts nothing: the task calls `RecordCache.evict` after its batch.
        """
        ...


class EngineSessionStore(SessionStore, EngineColumnStore, Protocol):
    """The operators' view of a session store, with *entry keys* as in a window store."""

    def serialize_keys(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Serialise each key; None stays None."""
        ...

    def entry_keys(self, keys: Sequence[bytes], starts: Int64Array, ends: Int64Array) -> list[bytes]:
        """Return the entry key of each key's session with its start and end."""
        ...

    def put_columns(self, keys: Sequence[bytes], aggregates: list[Any], contexts: Sequence[RecordContext]) -> None:
        """Store each aggregate (None deletes) under its entry key and in its context.

        A cache evicts nothing: the task calls `RecordCache.evict` after its batch.
        """
        ...

    def find_sessions_by_time(self, earliest_session_end: int, latest_session_end: int) -> KeyValueIterator:
        """Return all sessions that end from `earliest_session_end` to `latest_session_end`, in time order."""
        ...
