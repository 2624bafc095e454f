"""The session store of user code and processors.

Kafka classes: MeteredSessionStore, RocksDBSessionStore, InMemorySessionStore.

An entry is identified by key, end and start of the session, and expires by its end. `segmented` implements retention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from penstock.record import Headers, Int64Array
from penstock.state.api import RecordContext
from penstock.state.guarded import GuardedReads
from penstock.state.layouts import (
    SEGMENT_SIZE,
    SESSION_SUFFIX_SIZE,
    after,
    after_last,
    pack_segment,
    pack_session,
    session_keys,
    session_of,
)
from penstock.state.segmented import CachingSegmentedStore, SegmentedStore, in_segments
from penstock.state.state_serdes import StateSerdes
from penstock.state.suppliers import SessionBytesStoreSupplier
from penstock.state.table import StoreTable
from penstock.state.typed_store import ENTRIES, TypedIterator, TypedStore
from penstock.windows import LONG_MAX, SessionWindow, Windowed

_Order = Callable[[tuple[bytes, bytes]], Any]


class TypedSessionStore(TypedStore, StoreTable):
    """A session store of objects (implements SessionStore and EngineSessionStore).

    Args:
        serdes: the serdes of the store.
        supplier: the description of the store.
        buffer: the uncommitted writes.
        cache: the record cache over `buffer`, if any.
        persistent: whether the base outlives the process.
    """

    kind_name = "session"
    _calls: ClassVar[Mapping[str, str]] = {
        **TypedStore._calls,
        "put": "put",
        "remove": "remove",
        **dict.fromkeys(("fetch", "fetch_range", "fetch_session"), "fetch"),
        **dict.fromkeys(("find_sessions", "find_sessions_range", "find_sessions_by_time"), "fetch"),
        **dict.fromkeys(("backward_fetch", "backward_fetch_range"), "fetch"),
        **dict.fromkeys(("backward_find_sessions", "backward_find_sessions_range"), "fetch"),
    }
    _column_calls: ClassVar[Mapping[str, str]] = {"put_columns": "put"}

    def __init__(
        self,
        serdes: StateSerdes,
        supplier: SessionBytesStoreSupplier,
        buffer: SegmentedStore,
        cache: CachingSegmentedStore | None,
        persistent: bool,
    ) -> None:
        super().__init__(serdes, buffer, cache, persistent, buffer.logged)
        self._uncommitted = buffer
        self._sessions: SegmentedStore | CachingSegmentedStore | GuardedReads = buffer if cache is None else cache
        self._interval = supplier.segment_interval_ms
        self._order: _Order | None = None  # order by segment and key
        if not persistent:
            self._order = _end_key_latest_start if cache is None else _end_key_start
        elif supplier.time_ordered:
            self._order = _end_start_key

    # ---------- interface for users

    def put(self, session_key: Windowed[Any], aggregate: Any) -> None:
        """Store `aggregate` for the session; None deletes. Raises TypeError for None as Windowed or key."""
        self._below.put(self._session_key(session_key), self._serdes.serialize_value(aggregate))

    def remove(self, session_key: Windowed[Any]) -> None:
        """Remove the session; raises TypeError for None as Windowed or key."""
        key = self._session_key(session_key)
        if self._cache is None:
            self._uncommitted.remove(key)
        else:
            self._cache.put(key, None)

    def fetch_session(self, key: Any, session_start: int, session_end: int) -> Any:
        """Return the aggregate of one session of `key` (times in ms), or None if absent."""
        data = self._below.get(self._entry_key(self._serialize_key(key), session_start, session_end))
        return self._serdes.deserialize_value(data)

    def find_sessions(self, key: Any, earliest_session_end: int, latest_session_start: int) -> TypedIterator:
        """Return the sessions of `key` that end and start within the bounds.

        They end at `earliest_session_end` (ms) or later and start at `latest_session_start` (ms) or earlier.
        """
        return self._find(key, earliest_session_end, latest_session_start, False)

    def backward_find_sessions(self, key: Any, earliest_session_end: int, latest_session_start: int) -> TypedIterator:
        """Like `find_sessions`, in reverse."""
        return self._find(key, earliest_session_end, latest_session_start, True)

    def find_sessions_range(
        self, key_from: Any, key_to: Any, earliest_session_end: int, latest_session_start: int
    ) -> TypedIterator:
        """Like `find_sessions`, for the keys from `key_from` to `key_to`.

        Both bounds are inclusive; None leaves an end open.
        """
        return self._find_range(key_from, key_to, earliest_session_end, latest_session_start, False)

    def backward_find_sessions_range(
        self, key_from: Any, key_to: Any, earliest_session_end: int, latest_session_start: int
    ) -> TypedIterator:
        """Like `find_sessions_range`, in reverse."""
        return self._find_range(key_from, key_to, earliest_session_end, latest_session_start, True)

    def fetch(self, key: Any) -> TypedIterator:
        """Return all sessions of `key`."""
        return self._find(key, 0, LONG_MAX, False)

    def backward_fetch(self, key: Any) -> TypedIterator:
        """Return all sessions of `key` in reverse."""
        return self._find(key, 0, LONG_MAX, True)

    def fetch_range(self, key_from: Any, key_to: Any) -> TypedIterator:
        """Return all sessions of the keys from `key_from` to `key_to`.

        Both bounds are inclusive; None leaves an end open.
        """
        return self._find_range(key_from, key_to, 0, LONG_MAX, False)

    def backward_fetch_range(self, key_from: Any, key_to: Any) -> TypedIterator:
        """Like `fetch_range`, in reverse."""
        return self._find_range(key_from, key_to, 0, LONG_MAX, True)

    # ---------- interface for processors

    def find_sessions_by_time(self, earliest_session_end: int, latest_session_end: int) -> TypedIterator:
        """Return all sessions that end from `earliest_session_end` to `latest_session_end` (ms).

        They include expired sessions that can still be written. On disk they are ordered by end, start and key; in
        memory by end, key and start. Not for stores with a cache.
        """
        self._check_open()
        found = self._uncommitted.entries_by_time(earliest_session_end, latest_session_end)
        return self._iterator(iter(sorted(found, key=self._order or _end_start_key)))

    def serialize_keys(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Serialise each key (without session); None stays None. Raises the errors of the serde."""
        return self._serdes.serialize_keys(keys)

    def entry_keys(self, keys: Sequence[bytes], starts: Int64Array, ends: Int64Array) -> list[bytes]:
        """Return the entry key of each key's session with its start and end (ms)."""
        return session_keys(keys, starts, ends, self._interval)

    def put_columns(self, keys: Sequence[bytes], aggregates: list[Any], contexts: Sequence[RecordContext]) -> None:
        """Store each aggregate (None deletes) under its entry key and in its context, in order.

        The record cache evicts nothing before `RecordCache.evict`.
        """
        self._check_open()
        no_timestamps = np.empty(0, np.int64)
        self._below.put_many(keys, self._serdes.serialize_values(aggregates, no_timestamps), contexts)

    def deserialize_keys(self, keys: list[bytes], headers: Sequence[Headers] | None = None) -> list[Any]:
        """Deserialise entry keys to Windowed; raises the errors of the serde.

        headers: one per key, for the serde.
        """
        plain = self._serdes.deserialize_keys([key[SEGMENT_SIZE:-SESSION_SUFFIX_SIZE] for key in keys], headers)
        return [Windowed(key, _window(entry)) for key, entry in zip(plain, keys, strict=True)]

    def beneath_cache(self) -> Self:
        """Return a view of the store below the record cache, which hides expired entries."""
        beneath = super().beneath_cache()
        beneath._sessions = self._uncommitted
        if beneath._order is _end_key_start:
            beneath._order = _end_key_latest_start
        return beneath

    def over(self, reads: Callable[[str], GuardedReads]) -> Self:
        """Return a view of the store for readers, see `TypedStore`."""
        shown = super().over(reads)
        shown._sessions = reads(ENTRIES)
        return shown

    # ---------- helpers

    def _session_key(self, session_key: Windowed[Any] | None) -> bytes:
        if session_key is None:
            self._refuse("sessionKey can't be null")
        key = self._serialize_key(session_key.key, "sessionKey.key() can't be null")
        return self._entry_key(key, session_key.window.start, session_key.window.end)

    def _entry_key(self, key: bytes, start: int, end: int) -> bytes:
        return pack_segment(end // self._interval) + key + pack_session(end, start)

    def _find(self, key: Any, earliest_end: int, latest_start: int, reverse: bool) -> TypedIterator:
        serialized = self._serialize_key(key)
        size = SEGMENT_SIZE + len(serialized) + SESSION_SUFFIX_SIZE
        first = serialized + pack_session(max(earliest_end, 0), 0)
        last = after(serialized + pack_session(LONG_MAX, latest_start))
        entries = self._in_segments(earliest_end, first, last, reverse)
        found = (  # longer keys may contain the same bytes
            entry for entry in entries if len(entry[0]) == size and session_of(entry[0])[1] <= latest_start
        )
        return self._iterator(self._in_order(found, reverse))

    def _find_range(
        self, key_from: Any, key_to: Any, earliest_end: int, latest_start: int, reverse: bool
    ) -> TypedIterator:
        bounds = self._serialize_bounds(key_from, key_to)
        if bounds is None:
            return self._iterator(iter(()))
        lowest, highest = bounds
        last = None if highest is None else after_last(highest, pack_session(LONG_MAX, latest_start))
        found = (
            entry
            for entry in self._in_segments(earliest_end, lowest or b"", last, reverse)
            if _overlaps(entry[0], earliest_end, latest_start)
            and (lowest is None or entry[0][SEGMENT_SIZE:-SESSION_SUFFIX_SIZE] >= lowest)
            and (highest is None or entry[0][SEGMENT_SIZE:-SESSION_SUFFIX_SIZE] <= highest)
        )
        return self._iterator(self._in_order(found, reverse))

    def _in_order(self, entries: Iterator[tuple[bytes, bytes]], reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return entries in the order of segment and key in the order of the store."""
        return entries if self._order is None else iter(sorted(entries, key=self._order, reverse=reverse))

    def _in_segments(
        self, earliest_end: int, first: bytes, last: bytes | None, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        segments = self._sessions.segments(earliest_end, LONG_MAX)
        if reverse:
            segments.reverse()
        return in_segments(self._sessions.range, segments, first, last, reverse)

    def _iterator(self, entries: Iterator[tuple[bytes, bytes]]) -> TypedIterator:
        return TypedIterator(self, entries, self._windowed, self._serdes.deserialize_value)

    def _windowed(self, data: bytes) -> Windowed[Any]:
        return Windowed(self._serdes.deserialize_key(data[SEGMENT_SIZE:-SESSION_SUFFIX_SIZE]), _window(data))


def _window(data: bytes) -> SessionWindow:
    end, start = session_of(data)
    return SessionWindow(start, end)


def _overlaps(data: bytes, earliest_end: int, latest_start: int) -> bool:
    end, start = session_of(data)
    return end >= earliest_end and start <= latest_start


def _end_start_key(entry: tuple[bytes, bytes]) -> tuple[int, int, bytes]:
    end, start = session_of(entry[0])
    return end, start, entry[0][SEGMENT_SIZE:-SESSION_SUFFIX_SIZE]


def _end_key_start(entry: tuple[bytes, bytes]) -> tuple[int, bytes, int]:
    end, start = session_of(entry[0])
    return end, entry[0][SEGMENT_SIZE:-SESSION_SUFFIX_SIZE], start


def _end_key_latest_start(entry: tuple[bytes, bytes]) -> tuple[int, bytes, int]:
    end, start = session_of(entry[0])
    return end, entry[0][SEGMENT_SIZE:-SESSION_SUFFIX_SIZE], -start
