"""Aggregations of a stream by key and window (Kafka class: KStreamWindowAggregate).

The windows are tumbling, hopping, calendar windows, unlimited or users' own.

Records without a key are dropped; records without a value are not. A window accepts records until the observed stream
time of the operator reaches its end plus grace period; each later update counts as dropped. The result of a window has
the largest timestamp of its records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from penstock.calendar_windows import CalendarWindows
from penstock.metrics.drop_reasons import DropReason
from penstock.processor.aggregate import Aggregator, Initializer
from penstock.processor.api import (
    BatchProcessor,
    EngineContext,
    FailureHandler,
    RowOrigin,
    SerializedBatchProcessor,
)
from penstock.processor.columns import write_contexts
from penstock.processor.forwarding import TimestampedTupleForwarder
from penstock.processor.reduction import counted, initial_count
from penstock.processor.window_columns import WindowColumns, grouped, window_columns
from penstock.processor.window_emission import (
    EmitCalendarWindowsOnClose,
    EmitOnUpdate,
    EmitTimeWindowsOnClose,
    WindowEmission,
)
from penstock.processor.windowed_operator import WindowedAggregation
from penstock.record import (
    Change,
    Int64Array,
    Record,
    RecordBatch,
    ValueAndTimestamp,
    running_maximum,
    take_from,
)
from penstock.serdes import Serde
from penstock.serdes.columns import distinct
from penstock.state.windowed_api import EngineWindowStore
from penstock.windows import TimeWindows, Windowed, Windows


class _TimeWindowAggregation(WindowedAggregation[Windows, EngineWindowStore]):
    """The common base of both emission strategies."""

    def process(self, record: Record[Any, Any]) -> None:
        """Update the result of every open window of the record."""
        key = record.key
        if key is None:
            self._engine.drop(DropReason.NULL_KEY)
            return
        close_time = self._time.advance(record.timestamp) - self._windows.grace_period_ms
        for start, window in self._windows.windows_for(record.timestamp).items():
            if window.end <= close_time:
                self._engine.drop(DropReason.LATE, window, self._time.ms)
                continue
            stored = self._store.fetch(key, start)
            if stored is None:
                old, timestamp = self._initializer(), record.timestamp
            else:
                old, timestamp = stored.value, max(stored.timestamp, record.timestamp)
            new = self._aggregator(key, record.value, old)
            self._store.put(key, None if new is None else ValueAndTimestamp(new, timestamp), start)
            self._results.updated(record, Windowed(key, window), Change(new, old), timestamp)
        self._results.time_passed(record, close_time)


class WindowUpdates(NamedTuple):
    """The updates of open windows by a batch.

    Args:
        columns: row and window of each update.
        entries: the index of each update's entry; an entry is a key and a window.
        keys: the entry keys of the store.
    """

    columns: WindowColumns
    entries: Int64Array
    keys: list[bytes]


class TimeWindowAggregate(_TimeWindowAggregation, BatchProcessor):
    """Aggregates by key and window and emits each update.

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
        windows: Windows,
        initializer: Initializer,
        aggregator: Aggregator,
        send_old_values: bool = False,
    ) -> None:
        super().__init__(name, store_name, windows, initializer, aggregator)
        self._send_old_values = send_old_values

    def _emission(self, store: EngineWindowStore, context: EngineContext) -> WindowEmission:
        return EmitOnUpdate(TimestampedTupleForwarder(store, context, self._send_old_values))

    @property
    def drops_rows(self) -> bool:
        """Whether `process_batch` reports each dropped row: it does."""
        return True

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Update the windows of all rows.

        Reads and writes each window once. Returns the updates if there is no cache.
        """
        updates = self._updates(batch, self._store.serialize_keys(batch.keys))
        old_values, old_timestamps = self._store.get_columns(updates.keys)
        timestamps = old_timestamps.tolist()
        changes, change_times, done = self._aggregate(batch, updates, old_values, timestamps, failures)
        self._write(batch, updates, done, old_values, timestamps)
        if self._store.cached:
            return batch.slice(0, 0), np.empty(0, np.int64)
        return self._changed(batch, updates.columns.take(done), changes, change_times)

    def _updates(self, batch: RecordBatch, keys: Sequence[bytes | None]) -> WindowUpdates:
        """Return the updates by the rows.

        Rows without a key and late updates are counted as dropped.

        Args:
            batch: the rows.
            keys: the keys of all rows as bytes.
        """
        known, places = distinct(keys)
        timestamps, with_key = batch.timestamps, None
        if None in known:
            with_key = np.flatnonzero([key is not None for key in keys])
            self._engine.drop_rows(DropReason.NULL_KEY, np.delete(np.arange(len(keys), dtype=np.int64), with_key))
            timestamps = timestamps[with_key]
        columns = window_columns(self._windows, timestamps)
        if len(timestamps):
            observed = np.maximum(running_maximum(timestamps), self._time.ms)
            self._time.advance(int(observed[-1]))
            live = columns.ends > (observed - self._windows.grace_period_ms)[columns.rows]
            if not live.all():
                late = columns.take(np.flatnonzero(~live))
                self._engine.drop_rows(
                    DropReason.LATE,
                    late.rows if with_key is None else with_key[late.rows],
                    map(late.window_at, late.starts.tolist()),
                    observed[late.rows],
                )
                columns = columns.take(np.flatnonzero(live))
        if with_key is not None:
            columns = columns._replace(rows=with_key[columns.rows])
        entries, key_places, starts = grouped(places[columns.rows].astype(np.int64), columns.starts, len(known))
        return WindowUpdates(columns, entries, self._store.entry_keys(take_from(known, key_places), starts))

    def _aggregate(
        self,
        batch: RecordBatch,
        updates: WindowUpdates,
        aggregates: list[Any],
        timestamps: list[int],
        failures: FailureHandler,
    ) -> tuple[list[Change], list[int], Int64Array]:
        """Run the user's functions.

        Arguments and results are those of `_aggregate_each`.
        """
        return self._aggregate_each(batch, updates, aggregates, timestamps, self._aggregator, failures)

    def _aggregate_each(
        self,
        batch: RecordBatch,
        updates: WindowUpdates,
        aggregates: list[Any],
        timestamps: list[int],
        aggregator: Aggregator,
        failures: FailureHandler,
    ) -> tuple[list[Change], list[int], Int64Array]:
        """Update the aggregates with `aggregator`, one update after the other.

        `aggregates` and `timestamps`, those of the entries, are updated in place.

        Returns the changes and their timestamps if there is no cache, and the updates that did not fail. The remaining
        updates of a failed row are left out.
        """
        changes: list[Change] = []
        change_times: list[int] = []
        failed: list[int] = []
        failed_row = -1
        written = [False] * len(aggregates)
        initializer = self._initializer
        cached, fresh = self._store.cached, self._store.fresh
        keys, values, times = batch.keys, batch.values, batch.timestamps.tolist()
        for update, (row, entry) in enumerate(
            zip(updates.columns.rows.tolist(), updates.entries.tolist(), strict=True)
        ):
            if row == failed_row:
                failed.append(update)
                continue
            old, timestamp = aggregates[entry], times[row]
            try:
                if old is None:
                    old = initializer()
                else:
                    old, timestamp = fresh(old) if written[entry] else old, max(timestamp, timestamps[entry])
                new = aggregator(keys[row], values[row], old)
            except Exception as error:
                failures(row, error)
                failed_row = row
                failed.append(update)
                continue
            aggregates[entry] = new
            written[entry] = True
            timestamps[entry] = timestamp
            if not cached:
                changes.append(Change(new, old if self._send_old_values else None))
                change_times.append(timestamp)
        return changes, change_times, np.delete(np.arange(len(updates.entries), dtype=np.int64), failed)

    def _write(
        self, batch: RecordBatch, updates: WindowUpdates, done: Int64Array, aggregates: list[Any], timestamps: list[int]
    ) -> None:
        """Write the updated entries, ordered by their last updates.

        Each is written in the context of its last update.
        """
        last = np.full(len(updates.keys), -1, np.int64)
        last[updates.entries[done]] = done  # the last update of an entry wins
        order = np.argsort(last)[np.count_nonzero(last < 0) :]
        if len(order):
            self._store.put_columns(
                take_from(updates.keys, order),
                take_from(aggregates, order),
                np.array(timestamps, np.int64)[order],
                write_contexts(self._engine.source_partitions(), batch, updates.columns.rows[last[order]]),
            )

    @staticmethod
    def _changed(
        batch: RecordBatch, columns: WindowColumns, changes: list[Change], timestamps: list[int]
    ) -> tuple[RecordBatch, RowOrigin]:
        """Return the changes as rows with windowed keys, with their rows of origin."""
        rows, starts = columns.rows, columns.starts.tolist()
        windows = {start: columns.window_at(start) for start in set(starts)}
        keys = [Windowed(key, windows[start]) for key, start in zip(take_from(batch.keys, rows), starts, strict=True)]
        result = RecordBatch(
            keys,
            cast("list[Any]", changes),
            np.array(timestamps, np.int64),
            batch.offsets[rows],
            None if batch.headers is None else take_from(batch.headers, rows),
        )
        return result, rows


class TimeWindowCount(TimeWindowAggregate, SerializedBatchProcessor):
    """Counts the records of a key and window and emits each update.

    Args:
        name: the name of the node.
        store_name: the name of the store.
        windows: the windows.
        send_old_values: whether updates include the previous count.
    """

    def __init__(self, name: str, store_name: str, windows: Windows, send_old_values: bool = False) -> None:
        super().__init__(name, store_name, windows, initial_count, counted, send_old_values)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Count the rows.

        With a cache, only the last count of a window is needed, and C loops can compute it.
        """
        if not self._counts_at_once:
            return super().process_batch(batch, failures)
        self._count(batch, self._store.serialize_keys(batch.keys))
        return batch.slice(0, 0), np.empty(0, np.int64)

    def takes_serialized(self, key_serde: Serde) -> bool:
        """Return whether the batch can have keys as the bytes of `key_serde`.

        For that, the store's serde must have the same type, and a cache must make intermediate updates unnecessary.
        """
        return self._counts_at_once and type(self._store.key_serde) is type(key_serde)

    @property
    def _counts_at_once(self) -> bool:
        """Whether only the last count of a window is needed.

        That is so if a cache holds back the updates and the store returns ints unchanged.
        """
        return self._store.cached and self._store.reads_back(int)

    def process_serialized(self, batch: RecordBatch) -> None:
        """Count the rows."""
        self._count(batch, batch.keys)

    def _count(self, batch: RecordBatch, keys: Sequence[bytes | None]) -> None:
        updates = self._updates(batch, keys)
        rows, entries = updates.columns.rows, updates.entries
        counts = np.bincount(entries, minlength=len(updates.keys)).tolist()
        old, timestamps = self._store.get_columns(updates.keys)
        np.maximum.at(timestamps, entries, batch.timestamps[rows])
        values = [count if before is None else before + count for before, count in zip(old, counts, strict=True)]
        self._write(batch, updates, np.arange(len(entries), dtype=np.int64), values, timestamps.tolist())


class FinalTimeWindowAggregate(_TimeWindowAggregation):
    """Aggregates by key and window and emits one result per window when it closes.

    Args:
        name: the name of the node.
        store_name: the name of the store.
        windows: the windows.
        initializer: returns the first aggregate of a window.
        aggregator: returns the next aggregate from key, value and aggregate; None deletes it.
    """

    def __init__(
        self, name: str, store_name: str, windows: TimeWindows, initializer: Initializer, aggregator: Aggregator
    ) -> None:
        super().__init__(name, store_name, windows, initializer, aggregator)
        self._time_windows = windows

    def _emission(self, store: EngineWindowStore, context: EngineContext) -> WindowEmission:
        return EmitTimeWindowsOnClose(store, context, self._name, self._store_name, self._time_windows)


class FinalCalendarWindowAggregate(_TimeWindowAggregation):
    """Aggregates by key and calendar window and emits one result per window when it closes.

    Args:
        name: the name of the node.
        store_name: the name of the store.
        windows: the windows.
        initializer: returns the first aggregate of a window.
        aggregator: returns the next aggregate from key, value and aggregate; None deletes it.
    """

    def __init__(
        self, name: str, store_name: str, windows: CalendarWindows, initializer: Initializer, aggregator: Aggregator
    ) -> None:
        super().__init__(name, store_name, windows, initializer, aggregator)
        self._calendar_windows = windows

    def _emission(self, store: EngineWindowStore, context: EngineContext) -> WindowEmission:
        return EmitCalendarWindowsOnClose(store, context, self._name, self._store_name, self._calendar_windows)
