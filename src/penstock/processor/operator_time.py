"""The clocks of operators: the stream time that one operator has seen, and when it emitted final results last.

Both are kept in the processor metadata of the task, so they continue from there after a restart. The objects
here are copies for speed that write through.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from penstock.processor.api import EngineContext
from penstock.record import NO_TIMESTAMP, Record, RecordMetadata


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


class EmissionInterval:
    """The pause between two looks for final results: `penstock.emit.interval.ms` of wall-clock time (KIP-825); on hosts
    whose tasks live for one epoch at most the rest of it (implements HeldResults)."""

    def __init__(self, context: EngineContext, name: str, emit: Callable[[Record[Any, Any]], None]) -> None:
        """Go on from what the task of `context` remembers for the operator `name`; `emit` forwards what is due, as
        after the record given."""
        self.emit = emit
        self._held: tuple[Record[Any, Any], RecordMetadata | None] | None = None
        context.emit_with_epoch(self)
        self._context = context
        self._metadata = context.processor_metadata()
        self._entry = f"{name}/next_time_to_emit"
        self._interval_ms: int = context.config("penstock.emit.interval.ms")

    def is_over(self, record: Record[Any, Any]) -> bool:
        """Return whether the interval is over after `record`, which is being processed; the next one then begins."""
        now = self._context.current_system_time_ms()
        # a time further off than the interval is of a wall clock that went back since
        if now < self._metadata.get(self._entry, 0) <= now + self._interval_ms:
            self._held = record, self._context.record_metadata
            return False
        self._held = None
        self._metadata[self._entry] = now + self._interval_ms
        return True

    def take_held(self) -> tuple[Record[Any, Any], RecordMetadata | None] | None:
        """Return the last record after which the interval was not over, with its metadata, once; None if none is."""
        held, self._held = self._held, None
        return held
