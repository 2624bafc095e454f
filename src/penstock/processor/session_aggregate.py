"""Aggregations of a stream by key and session (Kafka class: KStreamSessionWindowAggregate).

A record makes one session of itself and all sessions of its key that are no further away than the gap; the sessions
that were merged are deleted first. A record without a key is dropped, and one whose merged session is closed. The
result of a session carries its end as timestamp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from penstock.processor.aggregate import Aggregator, Initializer
from penstock.processor.api import EngineContext, Processor, ProcessorContext
from penstock.processor.operator_time import ObservedStreamTime
from penstock.processor.window_emission import EmitSessionsOnClose, EmitSessionsOnUpdate, WindowEmission
from penstock.record import Change, Record
from penstock.state.windowed_api import EngineSessionStore
from penstock.windows import EmitStrategy, SessionWindow, SessionWindows, Windowed

Merger = Callable[[Any, Any, Any], Any]
"""Called with a key and the aggregates of two sessions; returns that of both together (Kafka class: Merger)."""


class SessionWindowAggregate(Processor):
    """Aggregates by key and session."""

    def __init__(
        self,
        name: str,
        store_name: str,
        windows: SessionWindows,
        emit_strategy: EmitStrategy,
        initializer: Initializer,
        aggregator: Aggregator,
        merger: Merger,
        send_old_values: bool = False,
    ) -> None:
        """Take the name of the node, and the functions: `initializer()` makes the aggregate to begin with, `merger(key,
        one, other)` merges two, `aggregator(key, value, aggregate)` adds the record (None deletes)."""
        self._name = name
        self._store_name = store_name
        self._windows = windows
        self._emit_strategy = emit_strategy
        self._initializer = initializer
        self._aggregator = aggregator
        self._merger = merger
        self._send_old_values = send_old_values

    def init(self, context: ProcessorContext) -> None:
        """Get the store and what the operator remembers."""
        super().init(context)
        self._engine = cast(EngineContext, context)
        self._store: EngineSessionStore = context.get_state_store(self._store_name)
        self._time = ObservedStreamTime(self._engine.processor_metadata(), self._name)
        self._results: WindowEmission = (
            EmitSessionsOnClose(self._store, self._engine, self._name)
            if self._emit_strategy is EmitStrategy.ON_WINDOW_CLOSE
            else EmitSessionsOnUpdate(self._store, self._engine, self._send_old_values)
        )

    def process(self, record: Record[Any, Any]) -> None:
        """Merge the record and the sessions near it."""
        key, time, gap = record.key, record.timestamp, self._windows.inactivity_gap_ms
        if key is None:
            self._engine.count_dropped(1)
            return
        close_time = self._time.advance(time) - self._windows.grace_period_ms - gap
        aggregate = self._initializer()
        with self._store.find_sessions(key, time - gap, time + gap) as entries:
            found = list(entries)
        for _, value in found:
            aggregate = self._merger(key, aggregate, value)
        windows = [session.window for session, _ in found]
        start = min((window.start for window in windows), default=time)
        end = max((window.end for window in windows), default=time)
        merged = Windowed(key, SessionWindow(min(start, time), max(end, time)))
        if merged.window.end < close_time:
            self._engine.count_dropped(1)
        else:
            self._replace(record, found, merged, aggregate)
        self._results.time_passed(record, close_time)

    def _replace(
        self, record: Record[Any, Any], found: list[tuple[Windowed[Any], Any]], merged: Windowed[Any], aggregate: Any
    ) -> None:
        """Put the merged session in the place of those that were found; one of the record's own time alone is simply
        written again."""
        if merged.window.start != merged.window.end:
            for session, value in found:
                self._store.remove(session)
                self._results.updated(record, session, Change(None, value), session.window.end)
        aggregate = self._aggregator(record.key, record.value, aggregate)
        self._store.put(merged, aggregate)
        self._results.updated(record, merged, Change(aggregate, None), merged.window.end)
