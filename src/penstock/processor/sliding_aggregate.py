"""Aggregations of a stream by key and sliding window (Kafka class: KStreamSlidingWindowAggregate).

Records create windows: with d the difference, a record at t creates the window [t - d, t] that ends with it, and the
window [t + 1, t + 1 + d] right after it as soon as that window has a record. The record is added to every existing
window that contains t. The timestamp of a result is that of the latest record in its window, which shows whether the
window has a record after t. Records before d share the window [0, d].

Records without key or value are dropped, and so are records whose own window is closed, and updates of closed windows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from penstock.metrics.drop_reasons import DropReason, null_part
from penstock.processor.aggregate import Aggregator, Initializer
from penstock.processor.api import BatchProcessor, EngineContext, FailureHandler, RowOrigin
from penstock.processor.cached_entries import CachedWindows
from penstock.processor.columns import caused_by_rows, process_each
from penstock.processor.forwarding import TimestampedTupleForwarder
from penstock.processor.window_emission import (
    CollectedUpdates,
    EmitOnUpdate,
    EmitSlidingWindowsOnClose,
    WindowEmission,
)
from penstock.processor.windowed_operator import WindowedAggregation
from penstock.record import Change, Record, RecordBatch, ValueAndTimestamp
from penstock.state.windowed_api import EngineWindowStore
from penstock.windows import SlidingWindows, TimeWindow, Windowed


class _Windows(Protocol):
    """The windows of one record's key."""

    def backward_fetch(self, time_from: int, time_to: int) -> list[tuple[int, ValueAndTimestamp]]:
        """Return start and result of the windows that start within a time range.

        Args:
            time_from: the earliest start in ms.
            time_to: the latest start in ms.

        Returns:
            The windows, the latest first.
        """
        ...

    def put(self, window: TimeWindow, change: Change, timestamp: int) -> None:
        """Write the new result of a window with its timestamp (ms); None deletes."""
        ...


class _StoredWindows:
    """The stored windows of a record's key (implements _Windows).

    It reports every update to the emission.
    """

    def __init__(self, store: EngineWindowStore, emission: WindowEmission, record: Record[Any, Any]) -> None:
        self._store = store
        self._emission = emission
        self._record = record

    def backward_fetch(self, time_from: int, time_to: int) -> list[tuple[int, ValueAndTimestamp]]:
        with self._store.backward_fetch(self._record.key, time_from, time_to) as entries:
            return list(entries)

    def put(self, window: TimeWindow, change: Change, timestamp: int) -> None:
        new = change.new_value
        self._store.put(self._record.key, None if new is None else ValueAndTimestamp(new, timestamp), window.start)
        self._emission.updated(self._record, Windowed(self._record.key, window), change, timestamp)


@dataclass
class _Found:
    """The existing windows of a record's key, around the record.

    Args:
        starts: the starts of the examined windows.
        before: the timestamp of the latest record before this one, if its right window may be missing.
        left: the result of the latest window that ends before the record.
        right: the result of a window with the record and, if its timestamp shows it, later records.
    """

    starts: set[int] = field(default_factory=set)
    before: int | None = None
    left: ValueAndTimestamp | None = None
    right: ValueAndTimestamp | None = None


class _SlidingAggregation(WindowedAggregation[SlidingWindows, EngineWindowStore]):
    """The common base of both emission strategies."""

    def __init__(
        self, name: str, store_name: str, windows: SlidingWindows, initializer: Initializer, aggregator: Aggregator
    ) -> None:
        super().__init__(name, store_name, windows, initializer, aggregator)
        self._difference = windows.time_difference_ms

    def process(self, record: Record[Any, Any]) -> None:
        """Update the windows that contain the record, and create its new windows."""
        close_time = self._add(record, _StoredWindows(self._store, self._results, record))
        if close_time is not None:
            self._results.time_passed(record, close_time)

    def _add(self, record: Record[Any, Any], windows: _Windows) -> int | None:
        """Add the record to its windows.

        Returns the close time: windows that end before it (ms) are closed. Returns None if, as in Kafka, no final
        results are emitted: after dropped and early records.
        """
        if record.key is None or record.value is None:
            self._engine.drop(null_part(record.key))
            return None
        time = record.timestamp
        close_time = self._time.advance(time) - self._windows.grace_period_ms
        if time + self._difference < close_time:
            self._engine.drop(DropReason.LATE, self._window(time), self._time.ms)
            return None
        if time < self._difference:
            self._add_early(record, windows, close_time)
            return None
        found = self._update_windows(record, windows, close_time)
        if found is not None:
            self._make_windows(record, windows, found, close_time)
        return close_time

    def _update_windows(self, record: Record[Any, Any], windows: _Windows, close_time: int) -> _Found | None:
        """Add the record to the windows that contain it, the latest first.

        Returns None if no new window is needed because of an earlier record with the same timestamp.
        """
        found, time = _Found(), record.timestamp
        for start, stored in windows.backward_fetch(max(0, time - 2 * self._difference), time + 1):
            found.starts.add(start)
            end = start + self._difference
            if start == time + 1:
                continue
            if end > time:
                found.right = found.right or stored
                self._update(windows, start, stored, record, close_time)
            elif end == time:
                self._update(windows, start, stored, record, close_time)
                if stored.timestamp == time:
                    return None
                found.before = stored.timestamp
            else:
                found.left, found.before = stored, stored.timestamp
                break
        return found

    def _make_windows(self, record: Record[Any, Any], windows: _Windows, found: _Found, close_time: int) -> None:
        """Create the windows that the record requires.

        These are the window right after the previous record, the one that ends with the record, and the one right after
        it.
        """
        time, difference = record.timestamp, self._difference
        if found.before is not None:
            start = found.before + 1
            if start not in found.starts and start + difference >= time:
                self._update(windows, start, self._empty(time), record, close_time)
        if time - difference not in found.starts:
            holds_before = found.before is not None and time - difference <= found.before
            aggregate = found.left.value if found.left is not None and holds_before else self._initializer()
            self._update(windows, time - difference, ValueAndTimestamp(aggregate, time), record, close_time)
        self._make_right_window(windows, found, time)

    def _add_early(self, record: Record[Any, Any], windows: _Windows, close_time: int) -> None:
        """Add a record earlier than the difference, whose own window would start before time 0."""
        found, time = _Found(), record.timestamp
        combined: ValueAndTimestamp | None = None
        for start, stored in reversed(windows.backward_fetch(0, time + 1)):
            found.starts.add(start)
            if start == 0:
                combined = stored
                if stored.timestamp < time:
                    found.before = stored.timestamp
            elif start <= time:
                found.right = stored
                self._update(windows, start, stored, record, close_time)
        if found.right is None and combined is not None and combined.timestamp > time:
            found.right = combined
        self._make_right_window(windows, found, time)
        if found.before is not None and found.before + 1 not in found.starts:
            self._update(windows, found.before + 1, self._empty(time), record, close_time)
        self._update(windows, 0, combined or self._empty(time), record, close_time)

    def _make_right_window(self, windows: _Windows, found: _Found, time: int) -> None:
        """Create the window right after a record at `time` if it has records.

        It gets the previous result of a later window, and is created even if it is closed.
        """
        if time + 1 not in found.starts and found.right is not None and found.right.timestamp > time:
            windows.put(self._window(time + 1), Change(found.right.value, None), found.right.timestamp)

    def _update(
        self, windows: _Windows, start: int, stored: ValueAndTimestamp, record: Record[Any, Any], close_time: int
    ) -> None:
        """Add the record to a window, unless it is closed.

        Args:
            windows: the windows of the record's key.
            start: the start of the window in ms.
            stored: the result or the initial aggregate of the window.
            record: the record.
            close_time: windows that end before this time (ms) are closed.
        """
        window = self._window(start)
        if window.end < close_time:
            self._engine.drop(DropReason.LATE, window, self._time.ms)
            return
        old = stored.value
        new = self._aggregator(record.key, record.value, old)
        timestamp = record.timestamp if old is None else max(record.timestamp, stored.timestamp)
        windows.put(window, Change(new, old), timestamp)

    def _window(self, start: int) -> TimeWindow:
        return TimeWindow(start, start + self._difference)

    def _empty(self, timestamp: int) -> ValueAndTimestamp:
        return ValueAndTimestamp(self._initializer(), timestamp)


class SlidingWindowAggregate(_SlidingAggregation, BatchProcessor):
    """Aggregates by key and sliding window and emits each update.

    Args:
        name: the name of the node.
        store_name: the name of the store.
        windows: the windows.
        initializer: returns the first aggregate of a window.
        aggregator: returns the next aggregate from key, value and aggregate; None deletes it.
        send_old_values: whether updates include the previous value.
    """

    def __init__(
        self,
        name: str,
        store_name: str,
        windows: SlidingWindows,
        initializer: Initializer,
        aggregator: Aggregator,
        send_old_values: bool = False,
    ) -> None:
        super().__init__(name, store_name, windows, initializer, aggregator)
        self._send_old_values = send_old_values

    def _emission(self, store: EngineWindowStore, context: EngineContext) -> WindowEmission:
        return EmitOnUpdate(TimestampedTupleForwarder(store, context, self._send_old_values))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Add all rows.

        With a cache, the windows of each key are looked up once, and their final state is written once. Without a
        cache, rows are processed one by one and the updates are returned.
        """
        rows = zip(batch.keys, batch.values, batch.timestamps.tolist(), strict=True)
        records = [Record(key, value, timestamp) for key, value, timestamp in rows]
        if not self._store.cached:
            updates = CollectedUpdates(self._send_old_values)
            caused = caused_by_rows(self._engine, self._store, batch)
            for row, (record, caused_by_row) in enumerate(zip(records, caused, strict=True)):
                updates.row = row
                try:
                    with caused_by_row:
                        self._add(record, _StoredWindows(self._store, updates, record))
                except Exception as error:
                    failures(row, error)
            return updates.as_batch(batch)
        if not self._store.repeatable:
            return process_each(self, self._engine, batch, failures)
        windows = CachedWindows(self._store, batch, self._difference)
        for row, record in enumerate(records):
            windows.row = row
            try:
                self._add(record, windows)
            except Exception as error:
                failures(row, error)
        windows.write(self._engine.source_partitions())
        return batch.slice(0, 0), np.empty(0, np.int64)


class FinalSlidingWindowAggregate(_SlidingAggregation):
    """Aggregates by key and sliding window and emits one result per window when it closes.

    The arguments are those of SlidingWindowAggregate, without `send_old_values`.
    """

    def _emission(self, store: EngineWindowStore, context: EngineContext) -> WindowEmission:
        return EmitSlidingWindowsOnClose(store, context, self._name, self._store_name, self._windows)
