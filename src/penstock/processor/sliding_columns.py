"""The sliding windows that a batch works on, behind a record cache: each key is looked up once, and what has become of
its windows is written at the end, each in the context of its last write."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Any

import numpy as np

from penstock.processor.columns import time_bounds, write_contexts
from penstock.record import Change, RecordBatch, TopicPartition, ValueAndTimestamp
from penstock.serdes.columns import distinct
from penstock.state.windowed_api import EngineWindowStore
from penstock.windows import TimeWindow


class _KeyWindows:
    """The windows of one key: their starts in order, and their results."""

    def __init__(self, entries: list[tuple[int, ValueAndTimestamp]]) -> None:
        self.results = dict(entries)
        self.starts = sorted(self.results)


class CachedWindows:
    """The windows of the key of one row at a time; row: which one."""

    def __init__(self, store: EngineWindowStore, batch: RecordBatch, difference_ms: int) -> None:
        """Look at `store` for the rows of `batch`, whose windows are `difference_ms` long."""
        self._store = store
        self._batch = batch
        keys, places = distinct(store.serialize_keys(batch.keys))
        self._keys = keys
        self._places: list[int] = places.tolist()
        self._earliest, self._latest = time_bounds(places.astype(np.int64), batch.timestamps, len(keys))
        self._difference = difference_ms
        self._windows: list[_KeyWindows | None] = [None] * len(keys)
        self._writes: dict[tuple[int, int], tuple[Any, int, int]] = {}
        self.row = 0

    def _own(self) -> tuple[int, _KeyWindows]:
        place = self._places[self.row]
        own = self._windows[place]
        if own is None:
            first = max(0, int(self._earliest[place]) - 2 * self._difference)
            with self._store.fetch(self._batch.keys[self.row], first, int(self._latest[place]) + 1) as entries:
                own = self._windows[place] = _KeyWindows(list(entries))
        return place, own

    def backward_fetch(self, time_from: int, time_to: int) -> list[tuple[int, ValueAndTimestamp]]:
        """Return start and result of the windows that start from `time_from` to `time_to` (ms), the latest first."""
        _, own = self._own()
        starts = own.starts[bisect_left(own.starts, time_from) : bisect_right(own.starts, time_to)]
        return [(start, own.results[start]) for start in reversed(starts)]

    def put(self, window: TimeWindow, change: Change, timestamp: int) -> None:
        """Write the new result of a window with its timestamp (ms); None deletes."""
        place, own = self._own()
        start, new = window.start, change.new_value
        if new is not None:
            if start not in own.results:
                insort(own.starts, start)
            own.results[start] = ValueAndTimestamp(new, timestamp)
        elif own.results.pop(start, None) is not None:
            own.starts.remove(start)
        self._writes.pop((place, start), None)  # the last write of a window decides its place in the order
        self._writes[place, start] = new, timestamp, self.row

    def write(self, partition: TopicPartition) -> None:
        """Write to the store what has become of the windows; the batch came from `partition`."""
        if not self._writes:
            return
        places, starts = zip(*self._writes, strict=True)
        values, timestamps, rows = zip(*self._writes.values(), strict=True)
        keys = self._store.entry_keys([self._keys[place] for place in places], np.array(starts, np.int64))
        contexts = write_contexts(partition, self._batch, np.array(rows, np.int64))
        self._store.put_columns(keys, list(values), np.array(timestamps, np.int64), contexts)
