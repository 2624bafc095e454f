"""The sessions that a batch works on, behind a record cache: each key is looked up once, and what has become of its
sessions is written at the end, each in the context of its last write."""

from __future__ import annotations

from bisect import insort
from operator import itemgetter
from typing import Any

import numpy as np

from penstock.processor.columns import time_bounds, write_contexts
from penstock.record import RecordBatch, TopicPartition
from penstock.serdes.columns import distinct
from penstock.state.windowed_api import EngineSessionStore
from penstock.windows import SessionWindow

_Entry = tuple[int, int, SessionWindow, Any]
"""End, start, window and aggregate of a session: entries of a key stand in the order of a store."""

_order = itemgetter(0, 1)


class CachedSessions:
    """The sessions of the key of one row at a time.

    A session that comes and goes within the batch is never written: it would only leave a deletion of nothing.
    without_key: how many rows have no key.
    """

    def __init__(self, store: EngineSessionStore, batch: RecordBatch, gap_ms: int) -> None:
        """Look at `store` for the rows of `batch`, which find sessions up to `gap_ms` away."""
        self._store = store
        self._batch = batch
        keys, places = distinct(store.serialize_keys(batch.keys))
        self._keys = keys
        self._places: list[int] = places.tolist()
        self._earliest, self._latest = time_bounds(places.astype(np.int64), batch.timestamps, len(keys))
        self._gap = gap_ms
        self._sessions: list[list[_Entry] | None] = [None] * len(keys)
        self._stored: set[tuple[int, int, int]] = set()
        self._writes: dict[tuple[int, int, int], tuple[Any, int]] = {}
        self._place = self._row = 0
        self._own: list[_Entry] = []
        self.without_key = self._places.count(keys.index(None)) if None in keys else 0

    def choose(self, row: int) -> bool:
        """Let the other methods concern the key of `row`; returns whether it has one."""
        place = self._places[row]
        if self._keys[place] is None:
            return False
        own = self._sessions[place]
        if own is None:
            own = self._sessions[place] = self._read(row, place)
        self._place, self._row, self._own = place, row, own
        return True

    def _read(self, row: int, place: int) -> list[_Entry]:
        earliest, latest = int(self._earliest[place]) - self._gap, int(self._latest[place]) + self._gap
        with self._store.find_sessions(self._batch.keys[row], earliest, latest) as entries:
            found = [(key.window.end, key.window.start, key.window, aggregate) for key, aggregate in entries]
        self._stored.update((place, start, end) for end, start, _, _ in found)
        return found

    def find(self, earliest_end: int, latest_start: int) -> list[tuple[SessionWindow, Any]]:
        """Return the sessions that end at `earliest_end` (ms) or later and start at `latest_start` or earlier."""
        return [
            (window, aggregate)
            for end, start, window, aggregate in self._own
            if end >= earliest_end and start <= latest_start
        ]

    def remove(self, window: SessionWindow, aggregate: Any) -> None:
        """Remove a session."""
        self._forget(window)
        self._write(window, None)

    def put(self, window: SessionWindow, aggregate: Any) -> None:
        """Write the aggregate of a session; None deletes."""
        self._forget(window)
        if aggregate is not None:
            insort(self._own, (window.end, window.start, window, aggregate), key=_order)
        self._write(window, aggregate)

    def _forget(self, window: SessionWindow) -> None:
        for at, entry in enumerate(self._own):
            if entry[0] == window.end and entry[1] == window.start:
                del self._own[at]
                return

    def _write(self, window: SessionWindow, aggregate: Any) -> None:
        id = self._place, window.start, window.end
        self._writes.pop(id, None)  # the last write of a session decides its place in the order
        if aggregate is not None or id in self._stored:
            self._writes[id] = aggregate, self._row

    def write(self, partition: TopicPartition) -> None:
        """Write to the store what has become of the sessions; the batch came from `partition`."""
        if not self._writes:
            return
        places, starts, ends = zip(*self._writes, strict=True)
        aggregates, rows = zip(*self._writes.values(), strict=True)
        keys = self._store.entry_keys(
            [self._keys[place] for place in places], np.array(starts, np.int64), np.array(ends, np.int64)
        )
        contexts = write_contexts(partition, self._batch, np.array(rows, np.int64))
        self._store.put_columns(keys, list(aggregates), contexts)
