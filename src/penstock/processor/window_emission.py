"""When the results of windows leave an aggregation: at each update, or once when the window is closed (Kafka:
EmitStrategy, AbstractKStreamTimeWindowAggregateProcessor).

An aggregation reports every update to its emission, and after every record the time up to which windows are closed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from penstock.processor.api import EngineContext
from penstock.processor.forwarding import TimestampedTupleForwarder
from penstock.processor.operator_time import EmissionInterval
from penstock.record import NO_TIMESTAMP, Change, Int64Array, Record, RecordBatch, take_from
from penstock.state.windowed_api import EngineSessionStore, EngineWindowStore
from penstock.windows import SlidingWindows, TimeWindows, Windowed


class WindowEmission(Protocol):
    """What an aggregation tells of its windows."""

    def updated(self, record: Record[Any, Any], key: Windowed[Any], change: Change, timestamp: int) -> None:
        """Take the update that `record` made of the result of a window; `timestamp` (ms) is that of the result."""
        ...

    def time_passed(self, record: Record[Any, Any], close_time: int) -> None:
        """Take the time (ms) by which windows are closed, after `record` was processed."""
        ...


# ---------- at each update


class EmitOnUpdate:
    """Forwards every update of the results, when it leaves the cache or immediately (implements WindowEmission)."""

    def __init__(self, forwarder: TimestampedTupleForwarder) -> None:
        """Forward by `forwarder`."""
        self._forwarder = forwarder

    def updated(self, record: Record[Any, Any], key: Windowed[Any], change: Change, timestamp: int) -> None:
        """Forward the update, unless the cache holds it back."""
        self._forwarder.maybe_forward(Record(key, change, timestamp, record.headers))

    def time_passed(self, record: Record[Any, Any], close_time: int) -> None:
        """Do nothing: the result has left."""


class CollectedUpdates:
    """Takes the updates of a batch as rows, for stores without a cache (implements WindowEmission); row: the row of the
    batch that is being processed."""

    def __init__(self, send_old_values: bool) -> None:
        """Begin without updates; if `send_old_values`, they keep the results before."""
        self.row = 0
        self._send_old_values = send_old_values
        self._rows: list[int] = []
        self._keys: list[Windowed[Any]] = []
        self._changes: list[Any] = []
        self._timestamps: list[int] = []

    def updated(self, record: Record[Any, Any], key: Windowed[Any], change: Change, timestamp: int) -> None:
        """Take an update."""
        self._rows.append(self.row)
        self._keys.append(key)
        self._changes.append(change if self._send_old_values else Change(change.new_value, None))
        self._timestamps.append(timestamp)

    def time_passed(self, record: Record[Any, Any], close_time: int) -> None:
        """Do nothing: the results are here."""

    def as_batch(self, batch: RecordBatch) -> tuple[RecordBatch, Int64Array]:
        """Return the updates as rows, and the rows of `batch` that they came from."""
        rows = np.array(self._rows, np.int64)
        headers = None if batch.headers is None else take_from(batch.headers, rows)
        timestamps = np.array(self._timestamps, np.int64)
        return RecordBatch(self._keys, self._changes, timestamps, batch.offsets[rows], headers), rows


# ---------- when the window is closed


class _EmitOnClose:
    """Forwards the results of windows once they are closed, throttled, with the headers of the record that closed them
    (implements WindowEmission)."""

    def __init__(self, context: EngineContext, name: str, store_name: str) -> None:
        """Forward by `context` for the operator `name`, whose store is `store_name`."""
        self._context = context
        self._metadata = context.processor_metadata()
        self._last_close_time = store_name  # the entry in which Kafka Streams keeps it
        # Checkpoints of earlier versions have it in another entry.
        earlier = self._metadata.pop(f"{name}/last_emit_window_close_time", NO_TIMESTAMP)
        if earlier != NO_TIMESTAMP:
            self._metadata.setdefault(store_name, earlier)
        self._close_time = NO_TIMESTAMP
        self._interval = EmissionInterval(context, name, self._emit)

    def updated(self, record: Record[Any, Any], key: Windowed[Any], change: Change, timestamp: int) -> None:
        """Do nothing: the result stays in the store until its window is closed."""

    def time_passed(self, record: Record[Any, Any], close_time: int) -> None:
        """Forward the results of the windows that were closed since the last time, if it is due."""
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
        self._metadata[self._last_close_time] = close_time

    @abstractmethod
    def _bounds(self, last_close_time: int, close_time: int) -> tuple[int, int] | None:
        """Return the inclusive bounds of what is looked up in the store, None if no window can have been closed."""
        raise NotImplementedError

    @abstractmethod
    def _closed(self, lower: int, upper: int) -> Iterable[tuple[Windowed[Any], Any, int]]:
        """Yield key, result and timestamp (ms) of the windows within the bounds."""
        raise NotImplementedError


class _EmitWindowsOnClose(_EmitOnClose):
    """Looks up windows by their starts."""

    def __init__(self, store: EngineWindowStore, context: EngineContext, name: str, store_name: str) -> None:
        """Forward from `store`."""
        super().__init__(context, name, store_name)
        self._store = store

    def _closed(self, lower: int, upper: int) -> Iterable[tuple[Windowed[Any], Any, int]]:
        with self._store.fetch_all(lower, upper) as entries:
            for key, stored in entries:
                yield key, stored.value, stored.timestamp


class EmitTimeWindowsOnClose(_EmitWindowsOnClose):
    """Forwards the results of tumbling and hopping windows whose end is reached by the close time."""

    def __init__(
        self, store: EngineWindowStore, context: EngineContext, name: str, store_name: str, windows: TimeWindows
    ) -> None:
        """Forward from `store`, which has `windows`."""
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
        if windows.windows_for(before) == windows.windows_for(upper):  # no further window has been closed
            return None
        return before + 1, upper


class EmitSlidingWindowsOnClose(_EmitWindowsOnClose):
    """Forwards the results of sliding windows whose end is behind the close time."""

    def __init__(
        self, store: EngineWindowStore, context: EngineContext, name: str, store_name: str, windows: SlidingWindows
    ) -> None:
        """Forward from `store`, which has `windows`."""
        super().__init__(store, context, name, store_name)
        self._windows = windows

    def _bounds(self, last_close_time: int, close_time: int) -> tuple[int, int] | None:
        difference = self._windows.time_difference_ms
        upper = close_time - difference - 1
        if upper < 0:
            return None
        return 0 if last_close_time == NO_TIMESTAMP else max(0, last_close_time - difference), upper


class EmitSessionsOnClose(_EmitOnClose):
    """Forwards the results of sessions whose end is behind the close time, with that end as timestamp."""

    def __init__(self, store: EngineSessionStore, context: EngineContext, name: str, store_name: str) -> None:
        """Forward from `store`."""
        super().__init__(context, name, store_name)
        self._store = store

    def _bounds(self, last_close_time: int, close_time: int) -> tuple[int, int] | None:
        lower, upper = max(0, last_close_time), close_time - 1
        return (lower, upper) if lower <= upper else None

    def _closed(self, lower: int, upper: int) -> Iterable[tuple[Windowed[Any], Any, int]]:
        with self._store.find_sessions_by_time(lower, upper) as entries:
            for key, aggregate in entries:
                yield key, aggregate, key.window.end
