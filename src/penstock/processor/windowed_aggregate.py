"""Aggregations of a stream by key and window: tumbling, hopping, unlimited and users' own windows (Kafka class:
KStreamWindowAggregate).

A record without a key is dropped; one without a value is not. A window takes records until its end and its grace are
behind the largest timestamp that the operator has seen; each update that comes later counts as dropped. The result of
a window carries the largest timestamp of its records.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, cast

from penstock.processor.aggregate import Aggregator, Initializer
from penstock.processor.api import EngineContext, Processor, ProcessorContext
from penstock.processor.operator_time import ObservedStreamTime
from penstock.processor.window_emission import EmitOnUpdate, EmitTimeWindowsOnClose, WindowEmission
from penstock.record import Change, Record, ValueAndTimestamp
from penstock.state.windowed_api import EngineWindowStore
from penstock.windows import TimeWindows, Windowed, Windows


class _TimeWindowAggregation(Processor):
    """What both ways of emitting have in common."""

    def __init__(
        self, name: str, store_name: str, windows: Windows, initializer: Initializer, aggregator: Aggregator
    ) -> None:
        self._name = name
        self._store_name = store_name
        self._windows = windows
        self._initializer = initializer
        self._aggregator = aggregator

    @abstractmethod
    def _emission(self, store: EngineWindowStore, context: EngineContext) -> WindowEmission:
        """Return how results leave."""
        raise NotImplementedError

    def init(self, context: ProcessorContext) -> None:
        """Get the store and what the operator remembers."""
        super().init(context)
        self._engine = cast(EngineContext, context)
        self._store: EngineWindowStore = context.get_state_store(self._store_name)
        self._time = ObservedStreamTime(self._engine.processor_metadata(), self._name)
        self._results = self._emission(self._store, self._engine)

    def process(self, record: Record[Any, Any]) -> None:
        """Update the result of every window of the record that is not closed."""
        key = record.key
        if key is None:
            self._engine.count_dropped(1)
            return
        close_time = self._time.advance(record.timestamp) - self._windows.grace_period_ms
        for start, window in self._windows.windows_for(record.timestamp).items():
            if window.end <= close_time:
                self._engine.count_dropped(1)
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


class TimeWindowAggregate(_TimeWindowAggregation):
    """Aggregates by key and window and emits each update."""

    def __init__(
        self,
        name: str,
        store_name: str,
        windows: Windows,
        initializer: Initializer,
        aggregator: Aggregator,
        send_old_values: bool = False,
    ) -> None:
        """Take the name of the node, and the functions: `initializer()` makes the first aggregate of a window,
        `aggregator(key, value, aggregate)` returns the next (None deletes)."""
        super().__init__(name, store_name, windows, initializer, aggregator)
        self._send_old_values = send_old_values

    def _emission(self, store: EngineWindowStore, context: EngineContext) -> WindowEmission:
        return EmitOnUpdate(store, context, self._send_old_values)


class FinalTimeWindowAggregate(_TimeWindowAggregation):
    """Aggregates by key and window and emits one result for each window, when it is closed."""

    def __init__(
        self, name: str, store_name: str, windows: TimeWindows, initializer: Initializer, aggregator: Aggregator
    ) -> None:
        """Take the name of the node and the functions as TimeWindowAggregate does."""
        super().__init__(name, store_name, windows, initializer, aggregator)
        self._time_windows = windows

    def _emission(self, store: EngineWindowStore, context: EngineContext) -> WindowEmission:
        return EmitTimeWindowsOnClose(store, context, self._name, self._time_windows)


def initial_count() -> int:
    """Return the count of a window without records."""
    return 0


def counted(key: Any, value: Any, count: int) -> int:
    """Return the count of a window with one more record."""
    return count + 1


class TimeWindowCount(TimeWindowAggregate):
    """Counts the records of a key and window and emits each update."""

    def __init__(self, name: str, store_name: str, windows: Windows, send_old_values: bool = False) -> None:
        """Take the name of the node."""
        super().__init__(name, store_name, windows, initial_count, counted, send_old_values)
