"""The sessions and sliding windows of a batch with a record cache.

Each key is looked up once. The final state of its entries is written at the end, each in the context of its last write.

Entries do not expire within a batch if there is a cache, so the results equal those of record by record processing.
User functions get values as fresh as from the store, since they may change them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from operator import itemgetter
from typing import Any, Generic, TypeVar

import numpy as np

from penstock.processor.columns import write_contexts
from penstock.processor.row_partitions import RowPartitions
from penstock.record import Change, Int64Array, RecordBatch, ValueAndTimestamp
from penstock.serdes.columns import distinct
from penstock.state.windowed_api import EngineSessionStore, EngineWindowStore
from penstock.windows import SessionWindow, TimeWindow

S = TypeVar("S", bound=EngineSessionStore | EngineWindowStore)
E = TypeVar("E")
Id = TypeVar("Id")
W = TypeVar("W")


class _CachedEntries(Generic[S, E, Id, W]):
    """Entries by key; a look-up reads those of the current row's key.

    S is the store, E the entries of one key, Id the identity of a write and W its content.

    Args:
        store: the store of the entries.
        batch: the rows.

    Attributes:
        row: the index of the current row.
    """

    def __init__(self, store: S, batch: RecordBatch) -> None:
        keys, places = distinct(store.serialize_keys(batch.keys))
        self.row = 0
        self._store = store
        self._batch = batch
        self._keys = keys
        self._places: list[int] = places.tolist()
        self._earliest, self._latest = _time_bounds(places.astype(np.int64), batch.timestamps, len(keys))
        self._held: list[E | None] = [None] * len(keys)
        self._writes: dict[Id, W] = {}

    def _read(self, place: int, earliest: int, latest: int) -> E:
        """Return the stored entries of the key at `place`.

        Its rows have timestamps from `earliest` to `latest` (ms).
        """
        raise NotImplementedError

    def _own(self) -> tuple[int, E]:
        """Return the place of the row's key and its entries."""
        place = self._places[self.row]
        own = self._held[place]
        if own is None:
            own = self._held[place] = self._read(place, int(self._earliest[place]), int(self._latest[place]))
        return place, own

    def _put_last(self, id: Id, written: W) -> None:
        """Record a write; the last write of an entry determines its place in the order."""
        self._writes.pop(id, None)
        self._writes[id] = written


def _time_bounds(places: Int64Array, times: Int64Array, count: int) -> tuple[Int64Array, Int64Array]:
    """Return the earliest and latest time (ms) of each key.

    Args:
        places: the index of the key of each time.
        times: the times in ms.
        count: the number of keys.
    """
    earliest, latest = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(earliest, places, times)
    np.maximum.at(latest, places, times)
    return earliest, latest


# ---------- sessions

_Session = tuple[int, int, SessionWindow, Any]
"""End, start, window and aggregate; sorted by end and start, as in a store."""

_end_and_start = itemgetter(0, 1)


class CachedSessions(_CachedEntries[EngineSessionStore, list[_Session], tuple[int, int, int], tuple[Any, int]]):
    """The sessions of the current row's key.

    A session that appears and disappears within the batch is never written: that would only delete an absent entry.

    Args:
        store: the session store.
        batch: the rows.
        gap_ms: the inactivity gap (ms), the distance at which rows find sessions.
    """

    def __init__(self, store: EngineSessionStore, batch: RecordBatch, gap_ms: int) -> None:
        super().__init__(store, batch)
        self._gap = gap_ms
        self._stored: set[tuple[int, int, int]] = set()

    def _read(self, place: int, earliest: int, latest: int) -> list[_Session]:
        key = self._batch.keys[self.row]
        with self._store.find_sessions(key, earliest - self._gap, latest + self._gap) as entries:
            found = [(entry.window.end, entry.window.start, entry.window, aggregate) for entry, aggregate in entries]
        self._stored.update((place, start, end) for end, start, _, _ in found)
        return found

    def find(self, earliest_end: int, latest_start: int) -> list[tuple[SessionWindow, Any]]:
        """Return the sessions that overlap a time range.

        They end at `earliest_end` (ms) or later and start at `latest_start` or earlier.
        """
        _, own = self._own()
        fresh = self._store.fresh
        return [
            (window, fresh(aggregate))
            for end, start, window, aggregate in own
            if end >= earliest_end and start <= latest_start
        ]

    def remove(self, window: SessionWindow, aggregate: Any) -> None:
        """Remove a session."""
        self.put(window, None)

    def put(self, window: SessionWindow, aggregate: Any) -> None:
        """Write the aggregate of a session; None deletes."""
        place, own = self._own()
        for at, (end, start, _, _) in enumerate(own):
            if end == window.end and start == window.start:
                del own[at]
                break
        id = place, window.start, window.end
        if aggregate is not None:
            insort(own, (window.end, window.start, window, aggregate), key=_end_and_start)
        elif id not in self._stored:
            self._writes.pop(id, None)
            return
        self._put_last(id, (aggregate, self.row))

    def write(self, partitions: RowPartitions) -> None:
        """Write the final state of the sessions to the store.

        Args:
            partitions: the source partitions of the batch.
        """
        if not self._writes:
            return
        places, starts, ends = zip(*self._writes, strict=True)
        aggregates, rows = zip(*self._writes.values(), strict=True)
        keys = self._store.entry_keys(
            [self._keys[place] for place in places], np.array(starts, np.int64), np.array(ends, np.int64)
        )
        contexts = write_contexts(partitions, self._batch, np.array(rows, np.int64))
        self._store.put_columns(keys, list(aggregates), contexts)


# ---------- sliding windows


class _KeyWindows:
    """The windows of one key: their starts in order, and their results."""

    def __init__(self, entries: list[tuple[int, ValueAndTimestamp]]) -> None:
        self.results = dict(entries)
        self.starts = sorted(self.results)


class CachedWindows(_CachedEntries[EngineWindowStore, _KeyWindows, tuple[int, int], tuple[Any, int, int]]):
    """The sliding windows of the current row's key.

    Args:
        store: the window store.
        batch: the rows.
        difference_ms: the length of the windows in ms.
    """

    def __init__(self, store: EngineWindowStore, batch: RecordBatch, difference_ms: int) -> None:
        super().__init__(store, batch)
        self._difference = difference_ms

    def _read(self, place: int, earliest: int, latest: int) -> _KeyWindows:
        key = self._batch.keys[self.row]
        with self._store.fetch(key, max(0, earliest - 2 * self._difference), latest + 1) as entries:
            return _KeyWindows(list(entries))

    def backward_fetch(self, time_from: int, time_to: int) -> list[tuple[int, ValueAndTimestamp]]:
        """Return start and result of the windows that start within a time range.

        Args:
            time_from: the earliest start in ms.
            time_to: the latest start in ms.

        Returns:
            The windows, the latest first.
        """
        _, own = self._own()
        starts = own.starts[bisect_left(own.starts, time_from) : bisect_right(own.starts, time_to)]
        found = [(start, own.results[start]) for start in reversed(starts)]
        return [(start, ValueAndTimestamp(self._store.fresh(value), time)) for start, (value, time) in found]

    def put(self, window: TimeWindow, change: Change, timestamp: int) -> None:
        """Write the new result of a window with its timestamp (ms); None deletes."""
        place, own = self._own()
        start, new = window.start, self._store.fresh(change.new_value)
        if new is not None:
            if start not in own.results:
                insort(own.starts, start)
            own.results[start] = ValueAndTimestamp(new, timestamp)
        elif own.results.pop(start, None) is not None:
            own.starts.remove(start)
        self._put_last((place, start), (new, timestamp, self.row))

    def write(self, partitions: RowPartitions) -> None:
        """Write the final state of the windows to the store.

        Args:
            partitions: the source partitions of the batch.
        """
        if not self._writes:
            return
        places, starts = zip(*self._writes, strict=True)
        values, timestamps, rows = zip(*self._writes.values(), strict=True)
        keys = self._store.entry_keys([self._keys[place] for place in places], np.array(starts, np.int64))
        contexts = write_contexts(partitions, self._batch, np.array(rows, np.int64))
        self._store.put_columns(keys, list(values), np.array(timestamps, np.int64), contexts)
