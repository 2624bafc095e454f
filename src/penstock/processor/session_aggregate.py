"""Aggregations of a stream by key and session (Kafka class: KStreamSessionWindowAggregate).

A record and all sessions of its key within the gap merge into one session; the merged sessions are deleted first.
Records without a key, and those whose merged session is closed, are dropped. The timestamp of a session's result is its
end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import numpy as np

from penstock.metrics.drop_reasons import DropReason
from penstock.processor.aggregate import Aggregator, Initializer
from penstock.processor.api import BatchProcessor, EngineContext, FailureHandler, RowOrigin
from penstock.processor.cached_entries import CachedSessions
from penstock.processor.columns import caused_by_rows, process_each
from penstock.processor.first_results import AGGREGATOR, INITIALIZER, MERGER, Held
from penstock.processor.forwarding import SessionTupleForwarder
from penstock.processor.window_emission import (
    CollectedUpdates,
    EmitOnUpdate,
    EmitSessionsOnClose,
    WindowEmission,
)
from penstock.processor.windowed_operator import WindowedAggregation
from penstock.record import Change, Record, RecordBatch
from penstock.state.windowed_api import EngineSessionStore
from penstock.windows import SessionWindow, SessionWindows, Windowed

Merger = Callable[[Any, Any, Any], Any]
"""Called with a key and the aggregates of two sessions; returns the combined aggregate (Kafka class: Merger)."""


class _Sessions(Protocol):
    """The sessions of one record's key."""

    def find(self, earliest_end: int, latest_start: int) -> list[tuple[SessionWindow, Any]]:
        """Return the sessions that overlap a time range, with their aggregates.

        They end at `earliest_end` (ms) or later and start at `latest_start` or earlier, and are sorted by end and
        start.
        """
        ...

    def remove(self, window: SessionWindow, aggregate: Any) -> None:
        """Remove a session with its `aggregate`."""
        ...

    def put(self, window: SessionWindow, aggregate: Any) -> None:
        """Write the aggregate of a session; None deletes."""
        ...


class _StoredSessions:
    """The stored sessions of a record's key (implements _Sessions).

    It reports every update to the emission.
    """

    def __init__(self, store: EngineSessionStore, emission: WindowEmission, record: Record[Any, Any]) -> None:
        self._store = store
        self._emission = emission
        self._record = record

    def find(self, earliest_end: int, latest_start: int) -> list[tuple[SessionWindow, Any]]:
        with self._store.find_sessions(self._record.key, earliest_end, latest_start) as entries:
            return [(session.window, aggregate) for session, aggregate in entries]

    def remove(self, window: SessionWindow, aggregate: Any) -> None:
        key = Windowed(self._record.key, window)
        self._store.remove(key)
        self._emission.updated(self._record, key, Change(None, aggregate), window.end)

    def put(self, window: SessionWindow, aggregate: Any) -> None:
        key = Windowed(self._record.key, window)
        self._store.put(key, aggregate)
        self._emission.updated(self._record, key, Change(aggregate, None), window.end)


class _SessionAggregation(WindowedAggregation[SessionWindows, EngineSessionStore]):
    """The common base of both emission strategies."""

    held: ClassVar[tuple[Held, ...]] = (INITIALIZER, AGGREGATOR, MERGER)

    def __init__(
        self,
        name: str,
        store_name: str,
        windows: SessionWindows,
        initializer: Initializer,
        aggregator: Aggregator,
        merger: Merger,
    ) -> None:
        super().__init__(name, store_name, windows, initializer, aggregator)
        self._merger = merger

    def process(self, record: Record[Any, Any]) -> None:
        """Merge the record and the sessions near it."""
        if record.key is None:
            self._engine.drop(DropReason.NULL_KEY)
            return
        sessions = _StoredSessions(self._store, self._results, record)
        close_time = self._add(record.key, record.value, record.timestamp, sessions)
        self._results.time_passed(record, close_time)

    def _add(self, key: Any, value: Any, time: int, sessions: _Sessions) -> int:
        """Replace a record at `time` (ms) and the sessions near it by one session.

        Returns the close time: sessions that end before it (ms) are closed. A session that only has the record's own
        time is overwritten.
        """
        gap = self._windows.inactivity_gap_ms
        close_time = self._time.advance(time) - self._windows.grace_period_ms - gap
        aggregate = self._initializer()
        found = sessions.find(time - gap, time + gap)
        start = end = time
        for window, other in found:
            aggregate = self._merger(key, aggregate, other)
            start, end = min(start, window.start), max(end, window.end)
        if end < close_time:
            self._engine.drop(DropReason.LATE, SessionWindow(start, end), self._time.ms)
            return close_time
        if start != end:
            for window, other in found:
                sessions.remove(window, other)
        sessions.put(SessionWindow(start, end), self._aggregator(key, value, aggregate))
        return close_time


class SessionWindowAggregate(_SessionAggregation, BatchProcessor):
    """Aggregates by key and session and emits each update.

    Args:
        name: the name of the node.
        store_name: the name of the store.
        windows: the sessions.
        initializer: returns the initial aggregate.
        aggregator: returns the next aggregate from key, value and aggregate; None deletes it.
        merger: combines two aggregates of a key.
        send_old_values: whether updates include the previous value.
    """

    def __init__(
        self,
        name: str,
        store_name: str,
        windows: SessionWindows,
        initializer: Initializer,
        aggregator: Aggregator,
        merger: Merger,
        send_old_values: bool = False,
    ) -> None:
        super().__init__(name, store_name, windows, initializer, aggregator, merger)
        self._send_old_values = send_old_values

    def _emission(self, store: EngineSessionStore, context: EngineContext) -> WindowEmission:
        return EmitOnUpdate(SessionTupleForwarder(store, context, self._send_old_values))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Merge all rows.

        With a cache, the sessions of each key are looked up once, and their final state is written once. Without a
        cache, rows are processed one by one and the updates are returned.
        """
        if self._store.cached:
            if not self._store.repeatable:
                return process_each(self, self._engine, batch, failures)
            self._process_cached(batch, failures)
            return batch.slice(0, 0), np.empty(0, np.int64)
        return self._process_rows(batch, failures)

    def _process_cached(self, batch: RecordBatch, failures: FailureHandler) -> None:
        sessions = CachedSessions(self._store, batch, self._windows.inactivity_gap_ms)
        for row, (key, value, time) in enumerate(zip(batch.keys, batch.values, batch.timestamps.tolist(), strict=True)):
            if key is None:
                self._engine.count_dropped(DropReason.NULL_KEY)
                continue
            sessions.row = row
            try:
                self._add(key, value, time, sessions)
            except Exception as error:
                failures(row, error)
        sessions.write(self._engine.source_partitions())

    def _process_rows(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        updates = CollectedUpdates(self._send_old_values)
        caused = caused_by_rows(self._engine, self._store, batch)
        rows = zip(batch.keys, batch.values, batch.timestamps.tolist(), caused, strict=True)
        for row, (key, value, time, caused_by_row) in enumerate(rows):
            if key is None:
                self._engine.count_dropped(DropReason.NULL_KEY)
                continue
            updates.row = row
            try:
                with caused_by_row:
                    self._add(key, value, time, _StoredSessions(self._store, updates, Record(key, value, time)))
            except Exception as error:
                failures(row, error)
        result, origin = updates.as_batch(batch)
        return replace(result, headers=None), origin  # as in Kafka without a cache


class FinalSessionWindowAggregate(_SessionAggregation):
    """Aggregates by key and session and emits one result per session when it closes.

    The arguments are those of SessionWindowAggregate, without `send_old_values`.
    """

    def _emission(self, store: EngineSessionStore, context: EngineContext) -> WindowEmission:
        return EmitSessionsOnClose(store, context, self._name, self._store_name)
