"""The emission of window results: at each update, or once when the window closes.

Kafka: EmitStrategy, AbstractKStreamTimeWindowAggregateProcessor.

An aggregation reports every update to its emission, and after every record the time up to which windows are closed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from penstock.calendar_windows import CalendarWindows
from penstock.processor.api import EngineContext
from penstock.processor.forwarding import TimestampedTupleForwarder
from penstock.processor.operator_time import EmissionInterval
from penstock.record import NO_TIMESTAMP, Change, Int64Array, Record, RecordBatch, take_from
from penstock.state.windowed_api import EngineSessionStore, EngineWindowStore
from penstock.windows import SlidingWindows, TimeWindows, Windowed


class WindowEmission(Protocol):
    """The interface through which an aggregation reports on its windows."""

    def updated(self, record: Record[Any, Any], key: Windowed[Any], change: Change, timestamp: int) -> None:
        """Report that `record` updated the result of a window.

        Args:
            record: the record.
            key: the key and window.
            change: the update.
            timestamp: the timestamp of the result in ms.
        """
        ...

    def time_passed(self, record: Record[Any, Any], close_time: int) -> None:
        """Report the close time (ms), by which windows are closed, after the processing of `record`."""
        ...


# ---------- at each update


class EmitOnUpdate:
    """Forwards every update of the results (implements WindowEmission).

    It forwards them when they leave the cache, or immediately without one.

    Args:
        forwarder: forwards the updates.
    """

    def __init__(self, forwarder: TimestampedTupleForwarder) -> None:
        self._forwarder = forwarder

    def updated(self, record: Record[Any, Any], key: Windowed[Any], change: Change, timestamp: int) -> None:
        """Forward the update, unless the cache holds it back."""
        self._forwarder.maybe_forward(Record(key, change, timestamp, record.headers))

    def time_passed(self, record: Record[Any, Any], close_time: int) -> None:
        """Do nothing: the result has been forwarded."""


class CollectedUpdates:
    """Collects the updates of a batch as rows, for stores without a cache (implements WindowEmission).

    Args:
        send_old_values: whether updates include the previous result.

    Attributes:
        row: the current row of the batch.
    """

    def __init__(self, send_old_values: bool) -> None:
        self.row = 0
        self._send_old_values = send_old_values
        self._rows: list[int] = []
        self._keys: list[Windowed[Any]] = []
        self._changes: list[Any] = []
        self._timestamps: list[int] = []

    def updated(self, record: Record[Any, Any], key: Windowed[Any], change: Change, timestamp: int) -> None:
        """Collect an update."""
        self._rows.append(self.row)
        self._keys.append(key)
        self._changes.append(change if self._send_old_values else Change(change.new_value, None))
        self._timestamps.append(timestamp)

    def time_passed(self, record: Record[Any, Any], close_time: int) -> None:
        """Do nothing: the results have been collected."""

    def as_batch(self, batch: RecordBatch) -> tuple[RecordBatch, Int64Array]:
        """Return the updates as rows, with their rows of origin in `batch`."""
        rows = np.array(self._rows, np.int64)
        headers = None if batch.headers is None else take_from(batch.headers, rows)
        timestamps = np.array(self._timestamps, np.int64)
        return RecordBatch(self._keys, self._changes, timestamps, batch.offsets[rows], headers), rows


# ---------- when the window closes


class _EmitOnClose:
    """Forwards the results of windows after they close (implements WindowEmission).

    Emission is throttled. The results have the headers of the record that closed the windows.

    Args:
        context: forwards the results.
        name: the name of the operator.
        store_name: the name of its store.
    """

    def __init__(self, context: EngineContext, name: str, store_name: str) -> None:
        self._context = context
        self._metadata = context.processor_metadata()
        self._last_close_time = store_name  # the entry of Kafka Streams
        # Checkpoints of earlier versions use another entry.
        earlier = self._metadata.pop(f"{name}/last_emit_window_close_time", NO_TIMESTAMP)
        if earlier != NO_TIMESTAMP:
            self._metadata.setdefault(store_name, earlier)
        self._close_time = NO_TIMESTAMP
        self._interval = EmissionInterval(context, name, self._emit)

    def updated(self, record: Record[Any, Any], key: Windowed[Any], change: Change, timestamp: int) -> None:
        """Do nothing: the result stays in the store until its window closes."""

    def time_passed(self, record: Record[Any, Any], close_time: int) -> None:
        """Forward the results of newly closed windows, if an emission is due."""
        self._close_time = close_time
        if self._interval.is_over(record):
            self._emit(record)

    def _emit(self, record: Record[Any, Any]) -> None:
        close_time = self._close_time
        last = self._metadata.get(self._last_close_time, NO_TIMESTAMP)
        if last != NO_TIMESTAMP and last >= close_time:
            return
        bounds = self._bounds(last, close_time)
        if bounds is None:
            return
        for key, value, timestamp in self._closed(*bounds):
            self._context.forward(Record(key, Change(value, None), timestamp, record.headers))
        self._metadata[self._last_close_time] = self._remembered(close_time)

    def _remembered(self, close_time: int) -> int:
        """Return what the next emission receives as the last close time (ms) after one at `close_time`."""
        return close_time

    @abstractmethod
    def _bounds(self, last_close_time: int, close_time: int) -> tuple[int, int] | None:
        """Return the inclusive bounds of the look-up in the store.

        Returns None if no further window can be closed.
        """
        raise NotImplementedError

    @abstractmethod
    def _closed(self, lower: int, upper: int) -> Iterable[tuple[Windowed[Any], Any, int]]:
        """Yield key, result and timestamp (ms) of the windows within the bounds."""
        raise NotImplementedError


class _EmitWindowsOnClose(_EmitOnClose):
    """Looks up windows by their starts.

    Args:
        store: the store of the results.
        context: forwards the results.
        name: the name of the operator.
        store_name: the name of the store.
    """

    def __init__(self, store: EngineWindowStore, context: EngineContext, name: str, store_name: str) -> None:
        super().__init__(context, name, store_name)
        self._store = store

    def _closed(self, lower: int, upper: int) -> Iterable[tuple[Windowed[Any], Any, int]]:
        with self._store.fetch_all(lower, upper) as entries:
            for key, stored in entries:
                yield key, stored.value, stored.timestamp


class EmitTimeWindowsOnClose(_EmitWindowsOnClose):
    """Forwards the results of closed tumbling and hopping windows.

    Their end is at or before the close time.

    Args:
        store: the store of the results.
        context: forwards the results.
        name: the name of the operator.
        store_name: the name of the store.
        windows: the windows in the store.
    """

    def __init__(
        self, store: EngineWindowStore, context: EngineContext, name: str, store_name: str, windows: TimeWindows
    ) -> None:
        super().__init__(store, context, name, store_name)
        self._windows = windows

    def _bounds(self, last_close_time: int, close_time: int) -> tuple[int, int] | None:
        windows = self._windows
        upper = close_time - windows.size_ms
        if upper < 0:
            return None
        if last_close_time == NO_TIMESTAMP:
            return 0, upper
        before = max(0, last_close_time - windows.size_ms)
        if windows.windows_for(before) == windows.windows_for(upper):  # no further window has closed
            return None
        return before + 1, upper


class EmitCalendarWindowsOnClose(_EmitWindowsOnClose):
    """Forwards the results of closed calendar windows.

    They begin before the window with the close time. The start of that window is remembered: by the next emission, the
    calendar may have changed, and a window of the old one may begin before the window that then has the close time.

    Args:
        store: the store of the results.
        context: forwards the results.
        name: the name of the operator.
        store_name: the name of the store.
        windows: the windows in the store.
    """

    def __init__(
        self, store: EngineWindowStore, context: EngineContext, name: str, store_name: str, windows: CalendarWindows
    ) -> None:
        super().__init__(store, context, name, store_name)
        self._windows = windows

    def _remembered(self, close_time: int) -> int:
        return self._windows.window_at(close_time).start

    def _bounds(self, last_close_time: int, close_time: int) -> tuple[int, int] | None:
        if close_time < 0:
            return None
        lower = 0 if last_close_time == NO_TIMESTAMP else self._windows.window_at(last_close_time).start
        upper = self._windows.window_at(close_time).start - 1
        return (lower, upper) if lower <= upper else None  # otherwise no further window has closed


class EmitSlidingWindowsOnClose(_EmitWindowsOnClose):
    """Forwards the results of sliding windows that end before the close time.

    Args:
        store: the store of the results.
        context: forwards the results.
        name: the name of the operator.
        store_name: the name of the store.
        windows: the windows in the store.
    """

    def __init__(
        self, store: EngineWindowStore, context: EngineContext, name: str, store_name: str, windows: SlidingWindows
    ) -> None:
        super().__init__(store, context, name, store_name)
        self._windows = windows

    def _bounds(self, last_close_time: int, close_time: int) -> tuple[int, int] | None:
        difference = self._windows.time_difference_ms
        upper = close_time - difference - 1
        if upper < 0:
            return None
        return 0 if last_close_time == NO_TIMESTAMP else max(0, last_close_time - difference), upper


class EmitSessionsOnClose(_EmitOnClose):
    """Forwards the results of sessions that end before the close time.

    The timestamp of a result is the end of its session.

    Args:
        store: the store of the results.
        context: forwards the results.
        name: the name of the operator.
        store_name: the name of the store.
    """

    def __init__(self, store: EngineSessionStore, context: EngineContext, name: str, store_name: str) -> None:
        super().__init__(context, name, store_name)
        self._store = store

    def _bounds(self, last_close_time: int, close_time: int) -> tuple[int, int] | None:
        lower, upper = max(0, last_close_time), close_time - 1
        return (lower, upper) if lower <= upper else None

    def _closed(self, lower: int, upper: int) -> Iterable[tuple[Windowed[Any], Any, int]]:
        with self._store.find_sessions_by_time(lower, upper) as entries:
            for key, aggregate in entries:
                yield key, aggregate, key.window.end
