"""The clocks of operators: the stream time that one operator has seen, and when it emitted final results last.

Both are kept in the processor metadata of the task, so that they go on where they were after a restart. The objects
here are copies for speed that write through.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from penstock.processor.api import EngineContext
from penstock.record import NO_TIMESTAMP


class ObservedStreamTime:
    """The largest timestamp of the records that reached one operator (Kafka: observedStreamTime)."""

    def __init__(self, metadata: MutableMapping[str, int], name: str) -> None:
        """Go on from what `metadata` has for the operator or store `name`."""
        self._metadata = metadata
        self._entry = f"{name}/observed_stream_time"
        self.ms = metadata.get(self._entry, NO_TIMESTAMP)

    def advance(self, timestamp: int) -> int:
        """Take a timestamp (ms) into account and return the observed stream time (ms)."""
        if timestamp > self.ms:
            self.ms = self._metadata[self._entry] = timestamp
        return self.ms


class FinalEmission:
    """When an operator emits the results of closed windows: not more often than `penstock.emit.interval.ms` of
    wall-clock time, and only after the time has moved by which windows are closed (KIP-825)."""

    def __init__(self, context: EngineContext, name: str) -> None:
        """Go on from what the task of `context` remembers for the operator `name`."""
        self._context = context
        self._metadata = context.processor_metadata()
        self._next_time_entry = f"{name}/next_time_to_emit"
        self._close_time_entry = f"{name}/last_emit_window_close_time"
        self._interval_ms: int = context.config("penstock.emit.interval.ms")

    @property
    def last_close_time(self) -> int:
        """The close time (ms) up to which results were emitted, NO_TIMESTAMP before the first."""
        return self._metadata.get(self._close_time_entry, NO_TIMESTAMP)

    def is_due(self, close_time: int) -> bool:
        """Return whether results may be emitted now for windows that are closed at `close_time` (ms)."""
        now = self._context.current_system_time_ms()
        if now < self._metadata.get(self._next_time_entry, 0):
            return False
        self._metadata[self._next_time_entry] = now + self._interval_ms
        last = self.last_close_time
        return last == NO_TIMESTAMP or last < close_time

    def emitted(self, close_time: int) -> None:
        """Remember that results were emitted for all windows closed at `close_time` (ms)."""
        self._metadata[self._close_time_entry] = close_time
