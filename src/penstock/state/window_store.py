"""The window stores of user code and processors.

Kafka classes: MeteredWindowStore, MeteredTimestampedWindowStore, RocksDBWindowStore, InMemoryWindowStore.

An entry is identified by key, start of its window and, with duplicates, a sequence number. `segmented` implements
retention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from itertools import compress
from typing import Any, ClassVar, Self

import numpy as np

from penstock.record import Headers, Int64Array
from penstock.state.api import RecordContext
from penstock.state.change_logging_store import StoreChangeLog
from penstock.state.duplicates import Entry, RecentDuplicates
from penstock.state.guarded import GuardedReads
from penstock.state.layouts import (
    LAST_SUFFIX,
    MAX_SEQUENCE,
    SEGMENT_SIZE,
    SEQUENCE_SIZE,
    WINDOW_SUFFIX_SIZE,
    after,
    after_last,
    duplicate_keys,
    pack_segment,
    pack_timestamp,
    pack_window,
    sequence_of,
    window_keys,
    window_start_of,
)
from penstock.state.segmented import CachingSegmentedStore, SegmentedStore, in_segments
from penstock.state.state_serdes import StateSerdes
from penstock.state.suppliers import WindowBytesStoreSupplier
from penstock.state.table import StoreTable
from penstock.state.typed_store import ENTRIES, TypedIterator, TypedStore
from penstock.windows import LONG_MAX, Windowed

Entries = Iterator[tuple[bytes, bytes]]


class TypedWindowStore(TypedStore, StoreTable):
    """A window store of objects (implements WindowStore and EngineWindowStore).

    Its serdes determine whether it is timestamped.

    Args:
        serdes: the serdes of the store.
        supplier: the description of the store.
        buffer: the uncommitted writes.
        cache: the record cache over `buffer`, if any.
        persistent: whether the base outlives the process.
        metadata: contains the sequence number of the last duplicate.
        duplicates_log: receives the writes of duplicates.
    """

    kind_name = "window"
    _calls: ClassVar[Mapping[str, str]] = {
        **TypedStore._calls,
        "put": "put",
        **dict.fromkeys(("fetch", "fetch_range", "fetch_all", "all", "fetch_duplicates"), "fetch"),
        **dict.fromkeys(("backward_fetch", "backward_fetch_range", "backward_fetch_all", "backward_all"), "fetch"),
    }
    _column_calls: ClassVar[Mapping[str, str]] = {
        "get_columns": "fetch",
        "put_columns": "put",
        "duplicates_of": "fetch",
        "put_duplicates": "put",
    }

    def __init__(
        self,
        serdes: StateSerdes,
        supplier: WindowBytesStoreSupplier,
        buffer: SegmentedStore,
        cache: CachingSegmentedStore | None,
        persistent: bool,
        metadata: MutableMapping[str, int],
        duplicates_log: StoreChangeLog | None,
    ) -> None:
        super().__init__(serdes, buffer, cache, persistent, buffer.logged)
        self._uncommitted = buffer
        self._windows: SegmentedStore | CachingSegmentedStore | GuardedReads = buffer if cache is None else cache
        self._interval = supplier.segment_interval_ms
        self._window = supplier.window_from
        self._duplicates = supplier.retain_duplicates
        self._by_time = supplier.time_ordered or not persistent
        self._metadata = metadata
        self._sequence_name, self._logged_name = f"{self._name}/sequence", f"{self._name}/logged_sequence"
        self._sequence = metadata.get(self._sequence_name, 0)
        self._duplicates_log = duplicates_log
        self._recent = RecentDuplicates()

    # ---------- interface for users

    def put(self, key: Any, value: Any, window_start: int) -> None:
        """Store `value` for the window of `key` that starts at `window_start` (ms).

        None deletes, or does nothing if duplicates are kept. Raises TypeError for a None key.
        """
        serialized = self._serialize_key(key)
        data = self._serdes.serialize_value(value)
        if self._duplicates:
            if self._duplicates_log is not None:
                self._log_duplicate(self._duplicates_log, serialized, data, window_start)
            if data is None:
                if not self._persistent:  # Kafka's in-memory store checks the time first
                    self._uncommitted.accepts(window_start)
                return
            self._sequence = self._metadata[self._sequence_name] = (self._sequence + 1) & MAX_SEQUENCE
            self._uncommitted.put_at(window_start, self._entry_key(serialized, window_start), data)
            self._recent.add(serialized, (window_start, self._sequence, data), self._uncommitted.oldest_visible)
            return
        self._below.put(self._entry_key(serialized, window_start), data)

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """Return the value of one window of `key`, or None if absent.

        The window starts at `time_from` (ms). With `time_to`, returns an iterator of (start, value) over windows
        starting from `time_from` to `time_to`, both inclusive.
        """
        if time_to is not None:
            return self._fetch(key, time_from, time_to, False)
        serialized = self._serialize_key(key)
        if self._duplicates and not self._persistent:
            return None  # like Kafka's in-memory store, which has no entry without a sequence number
        return self._serdes.deserialize_value(self._below.get(self._entry_key(serialized, time_from)))

    def backward_fetch(self, key: Any, time_from: int, time_to: int) -> TypedIterator:
        """Return the windows of `key` starting from `time_from` to `time_to` (ms), latest first."""
        return self._fetch(key, time_from, time_to, True)

    def fetch_range(self, key_from: Any, key_to: Any, time_from: int, time_to: int) -> TypedIterator:
        """Return the windows of a key range starting from `time_from` to `time_to` (ms).

        The keys are from `key_from` to `key_to`, inclusive; None leaves an end open.
        """
        return self._fetch_range(key_from, key_to, time_from, time_to, False)

    def backward_fetch_range(self, key_from: Any, key_to: Any, time_from: int, time_to: int) -> TypedIterator:
        """Like `fetch_range`, in reverse."""
        return self._fetch_range(key_from, key_to, time_from, time_to, True)

    def fetch_all(self, time_from: int, time_to: int) -> TypedIterator:
        """Return all windows starting from `time_from` to `time_to` (ms), both inclusive."""
        return self._fetch_range(None, None, time_from, time_to, False)

    def backward_fetch_all(self, time_from: int, time_to: int) -> TypedIterator:
        """Like `fetch_all`, in reverse."""
        return self._fetch_range(None, None, time_from, time_to, True)

    def all(self) -> TypedIterator:
        """Return all windows."""
        return self._fetch_range(None, None, 0, LONG_MAX, False)

    def backward_all(self) -> TypedIterator:
        """Return all windows in reverse."""
        return self._fetch_range(None, None, 0, LONG_MAX, True)

    # ---------- interface for processors: columns

    def serialize_keys(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Serialise each key (without window); None stays None. Raises the errors of the serde."""
        return self._serdes.serialize_keys(keys)

    def entry_keys(self, keys: Sequence[bytes], window_starts: Int64Array) -> list[bytes]:
        """Return the entry key of each key's window with its start in `window_starts` (ms)."""
        return window_keys(keys, window_starts, self._interval)

    def deserialize_keys(self, keys: list[bytes], headers: Sequence[Headers] | None = None) -> list[Any]:
        """Deserialise entry keys to Windowed; raises the errors of the serde.

        headers: one per key, for the serde.
        """
        plain = self._serdes.deserialize_keys([key[SEGMENT_SIZE:-WINDOW_SUFFIX_SIZE] for key in keys], headers)
        starts = [key[-WINDOW_SUFFIX_SIZE:-SEQUENCE_SIZE] for key in keys]
        windows = {start: self._window(int.from_bytes(start, "big")) for start in set(starts)}  # usually few
        return list(map(Windowed, plain, map(windows.__getitem__, starts)))

    def get_columns(self, keys: Sequence[bytes]) -> tuple[list[Any], Int64Array]:
        """Return values and timestamps (ms) of entry keys, or None and NO_TIMESTAMP if absent.

        The record cache neither counts this as use nor keeps the result, since the same keys are put next.
        """
        self._check_open()
        return self._serdes.deserialize_values(self._below.multi_get(keys))

    def put_columns(
        self, keys: Sequence[bytes], values: list[Any], timestamps: Int64Array, contexts: Sequence[RecordContext]
    ) -> None:
        """Store each value (None deletes) with its timestamp (ms) under its entry key, in order.

        Each write has its own context. Not for stores that keep duplicates. The record cache evicts nothing before
        `RecordCache.evict`.
        """
        self._check_open()
        self._below.put_many(keys, self._serdes.serialize_values(values, timestamps), contexts)

    def beneath_cache(self) -> Self:
        """Return a view of the store below the record cache, which hides expired entries."""
        beneath = super().beneath_cache()
        beneath._windows = self._uncommitted
        return beneath

    def over(self, reads: Callable[[str], GuardedReads]) -> Self:
        """Return a view of the store for readers, see `TypedStore`."""
        shown = super().over(reads)
        shown._windows = reads(ENTRIES)
        return shown

    # ---------- interface for joins

    def is_late(self, window_start: int) -> bool:
        """Return whether a window that starts at `window_start` (ms) is too old to be stored."""
        return window_start < self._uncommitted.oldest_accepted

    def fetch_duplicates(self, key: Any, time_from: int, time_to: int) -> list[tuple[int, Any]]:
        """Return a list of (start, value) for windows of `key` between two times (ms).

        Like `fetch` from `time_from` to `time_to`; only for stores that keep duplicates. The value serde receives the
        headers that the store keeps, as in Kafka: none, unless it is a TypedJoinWindowStore.
        """
        serialized = self._serialize_key(key)
        oldest = self._uncommitted.oldest_visible
        found = self._recent.between(serialized, time_from if time_from > oldest else oldest, time_to, self._all_of)
        deserialize = self._serdes.deserialize_kept
        return [(start, deserialize(data)) for start, _, data in found]

    # ---------- interface for joins: columns

    def duplicates_of(self, keys: Sequence[bytes], are_read: Sequence[bool]) -> list[list[Entry] | None]:
        """Return the entries of each key (bytes), as lists for the entries that `put_duplicates` will write.

        A list may begin with expired entries. It is None if `are_read` is false and no list is known.
        """
        self._check_open()
        return self._recent.of_each(keys, are_read, self._all_of)

    def next_numbers(self, count: int) -> Int64Array:
        """Return the sequence numbers of the next `count` duplicates."""
        return _numbers_after(self._sequence, count)

    def settle(self, keys: Sequence[bytes], lists: Sequence[list[Entry] | None], added: int) -> None:
        """Count the entries that have been added to the lists of `duplicates_of`, after they are written."""
        self._recent.settle(keys, lists, added, self._uncommitted.oldest_visible)

    def oldest_visible_at(self, times: Int64Array) -> Int64Array:
        """Return the oldest readable time (ms) while writes advance the clock to each of `times`, which ascend."""
        return self._uncommitted.oldest_visible_at(times)

    def serialize_kept(self, values: Sequence[Any], headers: Sequence[Headers] | None) -> list[bytes | None]:
        """Serialise each value as `put_duplicates` takes it; None stays None. `headers` are those of the rows."""
        return self._serdes.serialize_kept(values, headers)

    def put_duplicates(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        window_starts: Int64Array,
        contexts: Callable[[], Sequence[RecordContext]],
    ) -> None:
        """Store each value for the window of its key that starts at its time in `window_starts` (ms), as `put`."""
        self._check_open()
        if self._duplicates_log is not None:
            logged = _numbers_after(self._metadata.get(self._logged_name, 0), len(keys))
            self._metadata[self._logged_name] = int(logged[-1])
            places = duplicate_keys(keys, window_starts, logged, self._interval)
            self._duplicates_log.put_many(places, values, contexts())
        if None in values:
            there = [value is not None for value in values]
            if not self._persistent:  # Kafka's in-memory store checks the time of each
                self._put_each(keys, values, window_starts.tolist())
                return
            keys, values = list(compress(keys, there)), list(compress(values, there))
            window_starts = window_starts[there]
        if keys:
            numbers = _numbers_after(self._sequence, len(keys))
            self._sequence = self._metadata[self._sequence_name] = int(numbers[-1])
            self._uncommitted.put_many(self._duplicate_keys(keys, window_starts, numbers), values)

    def _put_each(self, keys: Sequence[bytes], values: Sequence[bytes | None], starts: Sequence[int]) -> None:
        for key, value, start in zip(keys, values, starts, strict=True):
            if value is None:
                self._uncommitted.accepts(start)
            else:
                self._sequence = self._metadata[self._sequence_name] = (self._sequence + 1) & MAX_SEQUENCE
                self._uncommitted.put_at(start, self._entry_key(key, start), value)

    def _duplicate_keys(self, keys: Sequence[bytes], starts: Int64Array, numbers: Int64Array) -> list[bytes]:
        return duplicate_keys(keys, starts, numbers, self._interval)

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Int64Array) -> None:
        """Write the entries of changelog records of `timestamps` (ms), in order.

        Later duplicates continue the sequence numbers.
        """
        super().restore(keys, values, timestamps)
        if self._duplicates and keys:
            self._sequence = sequence_of(keys[-1])
            self._metadata[self._sequence_name] = self._metadata[self._logged_name] = self._sequence

    # ---------- helpers

    def _log_duplicate(self, log: StoreChangeLog, key: bytes, data: bytes | None, window_start: int) -> None:
        """Add a write to the changelog; as in Kafka, None values count as duplicates too."""
        name = self._logged_name
        sequence = self._metadata[name] = (self._metadata.get(name, 0) + 1) & MAX_SEQUENCE
        log.put(pack_segment(window_start // self._interval) + key + pack_window(window_start, sequence), data)

    def _all_of(self, key: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Return start, sequence number and value of all unexpired duplicates of `key` (bytes)."""
        size = SEGMENT_SIZE + len(key) + WINDOW_SUFFIX_SIZE
        last = after(key + pack_timestamp(LONG_MAX) + LAST_SUFFIX)
        for entry, data in self._in_segments(0, LONG_MAX, key + pack_window(0, 0), last, False):
            if len(entry) == size:
                yield window_start_of(entry), sequence_of(entry), data

    def _entry_key(self, key: bytes, window_start: int) -> bytes:
        return pack_segment(window_start // self._interval) + key + pack_window(window_start, self._sequence)

    def _fetch(self, key: Any, time_from: int, time_to: int, reverse: bool) -> TypedIterator:
        serialized = self._serialize_key(key)
        size = SEGMENT_SIZE + len(serialized) + WINDOW_SUFFIX_SIZE
        first = serialized + pack_window(max(time_from, 0), 0)
        last = after(serialized + pack_timestamp(time_to) + LAST_SUFFIX)
        entries = self._in_segments(time_from, time_to, first, last, reverse)
        found = (entry for entry in entries if len(entry[0]) == size)  # longer keys may contain the same bytes
        return TypedIterator(self, found, window_start_of, self._serdes.deserialize_value)

    def _fetch_range(self, key_from: Any, key_to: Any, time_from: int, time_to: int, reverse: bool) -> TypedIterator:
        bounds = self._serialize_bounds(key_from, key_to)
        return TypedIterator(
            self,
            iter(()) if bounds is None else self._entries_between(*bounds, time_from, time_to, reverse),
            self._windowed,
            self._serdes.deserialize_value,
        )

    def _entries_between(
        self, key_from: bytes | None, key_to: bytes | None, time_from: int, time_to: int, reverse: bool
    ) -> Entries:
        first = key_from or b""
        last = None if key_to is None else after_last(key_to, pack_timestamp(time_to) + LAST_SUFFIX)
        found = (
            entry
            for entry in self._in_segments(time_from, time_to, first, last, reverse)
            if time_from <= window_start_of(entry[0]) <= time_to
            and (key_from is None or entry[0][SEGMENT_SIZE:-WINDOW_SUFFIX_SIZE] >= key_from)
            and (key_to is None or entry[0][SEGMENT_SIZE:-WINDOW_SUFFIX_SIZE] <= key_to)
        )
        return iter(sorted(found, key=_time_key_sequence, reverse=reverse)) if self._by_time else found

    def _in_segments(self, time_from: int, time_to: int, first: bytes, last: bytes | None, reverse: bool) -> Entries:
        """Return the entries of each segment with times from `time_from` to `time_to`.

        Without the segment, the keys are from `first` up to, excluding, `last`; None means the end of the segment.
        """
        segments = self._windows.segments(time_from, time_to) if time_from <= time_to else []
        if reverse:
            segments.reverse()
        return in_segments(self._windows.range, segments, first, last, reverse)

    def _windowed(self, data: bytes) -> Windowed[Any]:
        key = self._serdes.deserialize_key(data[SEGMENT_SIZE:-WINDOW_SUFFIX_SIZE])
        return Windowed(key, self._window(window_start_of(data)))


class TypedTimestampedWindowStore(TypedWindowStore):
    """A window store whose values are ValueAndTimestamp."""


def _numbers_after(last: int, count: int) -> Int64Array:
    numbers: Int64Array = (np.arange(1, count + 1, dtype=np.int64) + last) & MAX_SEQUENCE
    return numbers


def _time_key_sequence(entry: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    key = entry[0]
    return key[-WINDOW_SUFFIX_SIZE:-4], key[SEGMENT_SIZE:-WINDOW_SUFFIX_SIZE] + key[-4:]
