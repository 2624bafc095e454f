"""Aggregations of a stream by key and sliding window (Kafka class: KStreamSlidingWindowAggregate).

Windows come into being by records: with d the difference, a record at t makes the window [t - d, t] that ends with it,
and the window [t + 1, t + 1 + d] that begins right after it as soon as that one has a record; it is added to every
window there is that holds t. The timestamp of a result is that of the latest record of its window, which tells whether
the window has a record after t. Records before d share the window [0, d].

A record without key or value is dropped, and one whose own window is closed; so is each update of a closed window.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from penstock.processor.aggregate import Aggregator, Initializer
from penstock.processor.api import EngineContext, Processor, ProcessorContext
from penstock.processor.operator_time import ObservedStreamTime
from penstock.processor.window_emission import EmitOnUpdate, EmitSlidingWindowsOnClose, WindowEmission
from penstock.record import Change, Record, ValueAndTimestamp
from penstock.state.windowed_api import EngineWindowStore
from penstock.windows import EmitStrategy, SlidingWindows, TimeWindow, Windowed


@dataclass
class _Found:
    """What a record meets in the windows of its key.

    starts: of the windows looked at. before: the timestamp of the latest record before this one, if its right window
    may be missing. left: the result of the latest window that ends before the record. right: the result of a window
    that holds the record and, if its timestamp says so, later ones.
    """

    starts: set[int] = field(default_factory=set)
    before: int | None = None
    left: ValueAndTimestamp | None = None
    right: ValueAndTimestamp | None = None


class SlidingWindowAggregate(Processor):
    """Aggregates by key and sliding window."""

    def __init__(
        self,
        name: str,
        store_name: str,
        windows: SlidingWindows,
        emit_strategy: EmitStrategy,
        initializer: Initializer,
        aggregator: Aggregator,
        send_old_values: bool = False,
    ) -> None:
        """Take the name of the node, and the functions: `initializer()` makes the first aggregate of a window,
        `aggregator(key, value, aggregate)` returns the next (None deletes)."""
        self._name = name
        self._store_name = store_name
        self._windows = windows
        self._emit_strategy = emit_strategy
        self._initializer = initializer
        self._aggregator = aggregator
        self._send_old_values = send_old_values
        self._difference = windows.time_difference_ms

    def init(self, context: ProcessorContext) -> None:
        """Get the store and what the operator remembers."""
        super().init(context)
        self._engine = cast(EngineContext, context)
        self._store: EngineWindowStore = context.get_state_store(self._store_name)
        self._time = ObservedStreamTime(self._engine.processor_metadata(), self._name)
        self._results: WindowEmission = (
            EmitSlidingWindowsOnClose(self._store, self._engine, self._name, self._windows)
            if self._emit_strategy is EmitStrategy.ON_WINDOW_CLOSE
            else EmitOnUpdate(self._store, self._engine, self._send_old_values)
        )

    def process(self, record: Record[Any, Any]) -> None:
        """Update the windows that hold the record and make those that it calls into being."""
        if record.key is None or record.value is None:
            self._engine.count_dropped(1)
            return
        time = record.timestamp
        close_time = self._time.advance(time) - self._windows.grace_period_ms
        if time + self._difference < close_time:
            self._engine.count_dropped(1)
        elif time < self._difference:
            self._process_early(record, close_time)  # as in Kafka, such a record emits no final results
        else:
            self._process(record, close_time)
            self._results.time_passed(record, close_time)

    def _process(self, record: Record[Any, Any], close_time: int) -> None:
        found = self._update_windows(record, close_time)
        if found is None:
            return
        time, difference = record.timestamp, self._difference
        if found.before is not None:
            start = found.before + 1
            if start not in found.starts and start + difference >= time:
                self._update(self._window(start), self._empty(time), record, close_time)
        if time - difference not in found.starts:
            holds_before = found.before is not None and time - difference <= found.before
            aggregate = found.left.value if found.left is not None and holds_before else self._initializer()
            self._update(self._window(time - difference), ValueAndTimestamp(aggregate, time), record, close_time)
        self._make_right_window(found, record)

    def _update_windows(self, record: Record[Any, Any], close_time: int) -> _Found | None:
        """Add the record to the windows that hold it, the latest first; returns None where no new window is needed
        because there was a record at this time before."""
        found, time = _Found(), record.timestamp
        for start, stored in self._fetched(record.key, max(0, time - 2 * self._difference), time + 1):
            found.starts.add(start)
            end = start + self._difference
            if start == time + 1:
                continue
            if end > time:
                found.right = found.right or stored
                self._update(self._window(start), stored, record, close_time)
            elif end == time:
                self._update(self._window(start), stored, record, close_time)
                if stored.timestamp == time:
                    return None
                found.before = stored.timestamp
            else:
                found.left, found.before = stored, stored.timestamp
                break
        return found

    def _fetched(self, key: Any, time_from: int, time_to: int) -> list[tuple[int, ValueAndTimestamp]]:
        with self._store.backward_fetch(key, time_from, time_to) as entries:
            return list(entries)

    def _process_early(self, record: Record[Any, Any], close_time: int) -> None:
        """Process a record that is earlier than the difference: its own window would begin before time does."""
        found, time = _Found(), record.timestamp
        combined: ValueAndTimestamp | None = None
        for start, stored in reversed(self._fetched(record.key, 0, time + 1)):
            found.starts.add(start)
            if start == 0:
                combined = stored
                if stored.timestamp < time:
                    found.before = stored.timestamp
            elif start <= time:
                found.right = stored
                self._update(self._window(start), stored, record, close_time)
        if found.right is None and combined is not None and combined.timestamp > time:
            found.right = combined
        self._make_right_window(found, record)
        if found.before is not None and found.before + 1 not in found.starts:
            self._update(self._window(found.before + 1), self._empty(time), record, close_time)
        self._update(self._window(0), combined or self._empty(time), record, close_time)

    def _make_right_window(self, found: _Found, record: Record[Any, Any]) -> None:
        """Make the window right after the record if there are records for it; it has what a later window had before,
        and is made even where it is closed."""
        start = record.timestamp + 1
        if start not in found.starts and found.right is not None and found.right.timestamp > record.timestamp:
            aggregate, timestamp = found.right
            self._store.put(record.key, found.right, start)
            key = Windowed(record.key, self._window(start))
            self._results.updated(record, key, Change(aggregate, None), timestamp)

    def _update(self, window: TimeWindow, stored: ValueAndTimestamp, record: Record[Any, Any], close_time: int) -> None:
        """Add the record to a window, unless it is closed; `stored`: its result, or what it begins with."""
        if window.end < close_time:
            self._engine.count_dropped(1)
            return
        old = stored.value
        new = self._aggregator(record.key, record.value, old)
        timestamp = record.timestamp if old is None else max(record.timestamp, stored.timestamp)
        self._store.put(record.key, None if new is None else ValueAndTimestamp(new, timestamp), window.start)
        self._results.updated(record, Windowed(record.key, window), Change(new, old), timestamp)

    def _window(self, start: int) -> TimeWindow:
        return TimeWindow(start, start + self._difference)

    def _empty(self, timestamp: int) -> ValueAndTimestamp:
        return ValueAndTimestamp(self._initializer(), timestamp)
