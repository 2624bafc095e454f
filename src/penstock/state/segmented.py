"""Stores of expiring entries: uncommitted writes in time segments, and their record cache.

Kafka classes: AbstractRocksDBSegmentedBytesStore, the in-memory window and session stores, SegmentedCacheFunction.

Rules:
- The clock of a store is the largest time ever written to it. Reads omit entries older than the clock minus the
  retention.
- On disk a write is rejected, and counted as dropped, if its whole segment has expired; in memory, if the entry itself
  has expired.
- An expired segment is removed piece by piece: every flush removes a bounded number of entries, but at least as many as
  were written.
- A cache does not know the retention: it returns everything it contains.

Keys are those of `layouts`: segment, key, and a suffix that starts with the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from itertools import compress, islice
from typing import NamedTuple, TypeVar

import numpy as np

from penstock.record import NO_TIMESTAMP, Int64Array
from penstock.state.api import BaseView, RecordContext
from penstock.state.caching_store import CachingKeyValueStore
from penstock.state.change_logging_store import StoreChangeLog
from penstock.state.layouts import AFTER_SEGMENTS, SEGMENT_SIZE, pack_segment, times_of
from penstock.state.record_cache import RecordCache
from penstock.state.uncommitted import UncommittedStore

EXPIRED_PER_FLUSH = 10_000
"""Maximum number of expired entries removed by a flush after few writes."""

_MOST_KNOWN_SEGMENTS = 64


Time = TypeVar("Time", int, Int64Array)


class Segmentation(NamedTuple):
    """The expiry of entries.

    Args:
        suffix_size: bytes of a key after the user's key.
        retention_ms: lifetime of an entry.
        segment_interval_ms: time span of a segment, whose entries are removed together.
    """

    suffix_size: int
    retention_ms: int
    segment_interval_ms: int


class SegmentedStore:
    """Uncommitted writes of entries that expire by segment, as on disk (implements BufferedBytesStore).

    Args:
        name: the name of the store.
        view: the committed entries.
        buffer: the writes over `view`.
        segmentation: the expiry of entries.
        metadata: contains the clock of the store.
        count_dropped: receives the number of late writes.
        log: receives every write, as in Kafka: also late ones, but not the removal of expired entries.
    """

    def __init__(
        self,
        name: str,
        view: BaseView,
        buffer: UncommittedStore,
        segmentation: Segmentation,
        metadata: MutableMapping[str, int],
        count_dropped: Callable[[int], None],
        log: StoreChangeLog | None = None,
    ) -> None:
        self._log = log
        self.suffix_size, self._retention, self.segment_interval_ms = segmentation
        self._view = view
        self._buffer = buffer
        self._metadata = metadata
        self._clock = f"{name}/observed_stream_time"
        self.count_dropped = count_dropped
        self._segments: set[bytes] = set()
        self._knows_committed = False
        self._set_clock(metadata.get(self._clock, NO_TIMESTAMP))

    @property
    def logged(self) -> bool:
        """Whether writes go to a changelog."""
        return self._log is not None

    # ---------- the clock

    def _set_clock(self, time: int) -> None:
        self._observed = time
        self._oldest_visible = self._visible_at(time)
        self._oldest_accepted = self._accepted_at(time)
        self._visible_segment = self._segment(max(self._oldest_visible, 0))

    def observe(self, time: int) -> None:
        """Set the clock to `time` (ms) unless it is later already."""
        if time > self._observed:
            self._metadata[self._clock] = time
            self._set_clock(time)

    def accepts(self, time: int) -> bool:
        """Advance the clock to `time` (ms) and return whether entries of that time are accepted.

        A rejected entry counts as dropped.
        """
        if time > self._observed:
            self.observe(time)
        if time >= self._oldest_accepted:
            return True
        self.count_dropped(1)
        return False

    @property
    def oldest_accepted(self) -> int:
        """The oldest time (ms) that writes may have."""
        return self._oldest_accepted

    @property
    def oldest_visible(self) -> int:
        """The oldest time (ms) that reads return."""
        return self._oldest_visible

    @property
    def observed_time(self) -> int:
        """The clock of the store (ms), NO_TIMESTAMP before the first write."""
        return self._observed

    def oldest_visible_at(self, times: Int64Array) -> Int64Array:
        """Return the oldest readable time (ms) while the clock advances to each of `times`, which ascend."""
        return self._visible_at(np.maximum(times, self._observed))

    def _visible_at(self, time: Time) -> Time:
        """Return the oldest readable time (ms) for a clock at `time`."""
        return time - self._retention + 1

    def _accepted_at(self, time: int) -> int:
        """Return the oldest writable time (ms) for a clock at `time`."""
        return max(time - self._retention, 0) // self.segment_interval_ms * self.segment_interval_ms

    def _segment(self, time: int) -> bytes:
        return pack_segment(time // self.segment_interval_ms)

    def _time(self, key: bytes) -> int:
        at = len(key) - self.suffix_size
        return int.from_bytes(key[at : at + 8], "big", signed=True)

    def keeps(self, keys: Sequence[bytes]) -> bool:
        """Return whether all of `keys` will be visible after all are written."""
        times = times_of(keys, self.suffix_size)
        return int(times.min()) > max(int(times.max()), self._observed) - self._retention

    def kept_runs(self, keys: Sequence[bytes]) -> Iterator[tuple[int, int]]:
        """Yield start and end of runs of `keys` that stay visible while written in order.

        An expired key is a separate run.
        """
        if self.keeps(keys):
            yield 0, len(keys)
            return
        times: list[int] = times_of(keys, self.suffix_size).tolist()
        start, lowest, newest = 0, times[0], max(times[0], self._observed)
        for place, time in enumerate(times):
            lowest, newest = min(lowest, time), max(newest, time)
            if place > start and lowest <= newest - self._retention:
                yield start, place
                start, lowest = place, time
        yield start, len(keys)

    # ---------- reads

    def segments(self, from_time: int, to_time: int) -> list[bytes]:
        """Return the segments with entries from `from_time` to `to_time` (ms), in order."""
        first, last = self._segment(max(from_time, self._oldest_visible, 0)), self._segment(to_time)
        return sorted(segment for segment in self._known_segments() if first <= segment <= last)

    def _known_segments(self) -> set[bytes]:
        if not self._knows_committed:
            self._segments.update(_segments_of(self._view))
            self._knows_committed = True
        return self._segments

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None if absent or expired."""
        return None if self._time(key) < self._oldest_visible else self._buffer.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None if absent or expired."""
        if not keys or min(keys)[:SEGMENT_SIZE] > self._visible_segment:
            return self._buffer.multi_get(keys)
        visible = times_of(keys, self.suffix_size) >= self._oldest_visible
        if visible.all():
            return self._buffer.multi_get(keys)
        found = iter(self._buffer.multi_get(list(compress(keys, visible))))
        return [next(found) if there else None for there in visible.tolist()]

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the unexpired entries with from_key <= key < to_key."""
        entries = self._buffer.range(from_key, to_key, reverse)
        if from_key is not None and from_key[:SEGMENT_SIZE] > self._visible_segment:
            return entries
        oldest, time = self._oldest_visible, self._time
        return (entry for entry in entries if time(entry[0]) >= oldest)

    def entries_by_time(self, from_time: int, to_time: int) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the entries from `from_time` to `to_time` (ms), by segment.

        It includes all entries that a write at their time could still change, even those hidden from other reads.
        """
        oldest = max(from_time, self._oldest_accepted, 0)
        first, last = self._segment(oldest), self._segment(to_time)
        for segment in sorted(segment for segment in self._known_segments() if first <= segment <= last):
            for entry in self._buffer.range(segment, _following(segment), False):
                if oldest <= self._time(entry[0]) <= to_time:
                    yield entry

    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries, including expired ones not yet removed."""
        return self._buffer.approximate_num_entries()

    # ---------- writes

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key` (None deletes) unless it is late."""
        self.put_at(self._time(key), key, value)

    def put_at(self, time: int, key: bytes, value: bytes | None) -> None:
        """Like `put`, for callers that know the time (ms) of `key`."""
        self._write(time, key, value)
        if self._log is not None:
            self._log.put(key, value)

    def _write(self, time: int, key: bytes, value: bytes | None) -> None:
        if self.accepts(time):
            self._segments.add(key[:SEGMENT_SIZE])
            self._buffer.put(key, value)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each value under its key, in order, unless it is late."""
        if not keys:
            return
        if self._log is not None:
            self._log.put_many(keys, values, contexts)
        times = times_of(keys, self.suffix_size)
        newest = max(int(times.max()), self._observed)
        if int(times.min()) < self._accepted_at(newest):
            for key, value, time in zip(keys, values, times.tolist(), strict=True):
                self._write(time, key, value)
            return
        self.observe(newest)
        self._segments.update({key[:SEGMENT_SIZE] for key in keys})
        self._buffer.put_many(keys, values)

    def remove(self, key: bytes) -> None:
        """Delete `key`; an expired one is not counted as dropped."""
        time = self._time(key)
        self.observe(time)
        self._delete(time, key)

    def _delete(self, time: int, key: bytes) -> None:
        if time >= self._oldest_accepted:
            self._buffer.put(key, None)
        if self._log is not None:
            self._log.put(key, None)

    # ---------- the commit

    def flush(self) -> None:
        """Remove expired entries: as many as were written, and at least EXPIRED_PER_FLUSH."""
        live = self._segment(max(self._observed - self._retention, 0))
        left = max(EXPIRED_PER_FLUSH, 2 * self._buffer.uncommitted_count())
        for segment in sorted(segment for segment in self._known_segments() if segment < live):
            entries = self._buffer.range(segment, _following(segment), False)
            expired = [key for key, _ in islice(entries, left)]
            self._buffer.put_many(expired, [None] * len(expired))
            left -= len(expired)
            if left == 0:
                return
            self._segments.discard(segment)

    def uncommitted_bytes(self) -> int:
        """Return the approximate memory size (bytes) of the uncommitted writes."""
        return self._buffer.uncommitted_bytes()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes, None for a delete."""
        return self._buffer.changes()

    def clear(self) -> None:
        """Forget the uncommitted writes: the base has them, or they are discarded."""
        self._buffer.clear()


class TimeOrderedSegmentedStore(SegmentedStore):
    """Uncommitted writes of windows that are read by time at their close.

    They stay visible for one more ms, so that a window can be read at exactly its closing time (Kafka class:
    AbstractDualSchemaRocksDBSegmentedBytesStore with time-first keys).
    """

    def _visible_at(self, time: Time) -> Time:
        return time - self._retention


class InMemorySegmentedStore(SegmentedStore):
    """Uncommitted writes of entries that expire individually, as in memory."""

    def _accepted_at(self, time: int) -> int:
        return time - self._retention + 1

    def remove(self, key: bytes) -> None:
        """Delete `key` without setting the clock; an expired one is not counted as dropped."""
        self._delete(self._time(key), key)


class CachingSegmentedStore(CachingKeyValueStore):
    """Reads and writes through a named cache over a store with expiring entries.

    Kafka classes: CachingWindowStore, CachingSessionStore.

    Args:
        name: the name of the store.
        below: the store below.
        cache: the record cache of the task.
        context: returns the record that causes a write.
    """

    def __init__(
        self, name: str, below: SegmentedStore, cache: RecordCache, context: Callable[[], RecordContext]
    ) -> None:
        super().__init__(name, below, cache, context)
        self._segmented = below
        self._segments: set[bytes] = set()
        self._most_segments = _MOST_KNOWN_SEGMENTS

    def segments(self, from_time: int, to_time: int) -> list[bytes]:
        """Return the segments with entries from `from_time` to `to_time` (ms), here or below, in order."""
        interval = self._segmented.segment_interval_ms
        first, last = pack_segment(max(from_time, 0) // interval), pack_segment(to_time // interval)
        cached = {segment for segment in self._segments if first <= segment <= last}
        return sorted(cached.union(self._segmented.segments(from_time, to_time)))

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`; the cache does not keep values read from below."""
        entry = self._cache.get(key)
        return self._below.get(key) if entry is None else entry[0]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write an entry (None deletes) with the current context."""
        self._segments.add(key[:SEGMENT_SIZE])
        super().put(key, value)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each entry in order, with its own or the current context; evicts nothing."""
        self._segments.update({key[:SEGMENT_SIZE] for key in keys})
        super().put_many(keys, values, contexts)

    def flush(self) -> None:
        """Write all dirty entries below, forward them, and remove some expired entries."""
        super().flush()
        if len(self._segments) > self._most_segments:
            self._segments = {key[:SEGMENT_SIZE] for key in self._cache}
            self._most_segments = max(_MOST_KNOWN_SEGMENTS, 2 * len(self._segments))
        self._below.flush()

    def _write_below(self, keys: list[bytes], values: list[bytes | None], contexts: list[RecordContext]) -> None:
        for start, stop in self._segmented.kept_runs(keys):  # a write may expire other entries
            super()._write_below(keys[start:stop], values[start:stop], contexts[start:stop])


def _following(segment: bytes) -> bytes:
    return pack_segment(int.from_bytes(segment, "big") + 1)


def _segments_of(view: BaseView) -> Iterator[bytes]:
    entry = next(view.range(None, AFTER_SEGMENTS, False), None)
    while entry is not None:
        segment = entry[0][:SEGMENT_SIZE]
        yield segment
        entry = next(view.range(_following(segment), AFTER_SEGMENTS, False), None)


def in_segments(
    read: Callable[[bytes, bytes, bool], Iterator[tuple[bytes, bytes]]],
    segments: Sequence[bytes],
    first: bytes,
    last: bytes | None,
    reverse: bool,
) -> Iterator[tuple[bytes, bytes]]:
    """Return an iterator over the results of `read` for each segment in order.

    Without the segment, the keys are from `first` up to, excluding, `last`; None means the end of the segment.
    """
    for segment in segments:
        yield from read(segment + first, _following(segment) if last is None else segment + last, reverse)
