"""The clocks of operators: observed stream time and time of the last emission.

The emission is that of final results. Both clocks are in the processor metadata of the task, so they continue after a
restart. The objects here are write-through copies for speed.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from penstock.processor.api import EngineContext
from penstock.record import NO_TIMESTAMP, Record, RecordMetadata


class ObservedStreamTime:
    """The largest timestamp that one operator has received (Kafka: observedStreamTime).

    Args:
        metadata: the processor metadata, with the state of the clock.
        name: the name of the operator or store.
    """

    def __init__(self, metadata: MutableMapping[str, int], name: str) -> None:
        self._metadata = metadata
        self._entry = f"{name}/observed_stream_time"
        self.ms = metadata.get(self._entry, NO_TIMESTAMP)

    def advance(self, timestamp: int) -> int:
        """Advance the observed stream time to a larger timestamp (ms), and return it."""
        if timestamp > self.ms:
            self.ms = self._metadata[self._entry] = timestamp
        return self.ms


class EmissionInterval:
    """The pause between two emissions of final results (implements HeldResults, KIP-825).

    It is `penstock.emit.interval.ms` of wall-clock time. On hosts whose tasks live for one epoch, it ends with the
    epoch at the latest.

    Args:
        context: the context of the processor; its task has the state of the interval.
        name: the name of the operator.
        emit: forwards the due results, as after the given record.
    """

    def __init__(self, context: EngineContext, name: str, emit: Callable[[Record[Any, Any]], None]) -> None:
        self.emit = emit
        self._held: tuple[Record[Any, Any], RecordMetadata | None] | None = None
        context.emit_with_epoch(self)
        self._context = context
        self._metadata = context.processor_metadata()
        self._entry = f"{name}/next_time_to_emit"
        self._interval_ms: int = context.config("penstock.emit.interval.ms")

    def is_over(self, record: Record[Any, Any]) -> bool:
        """Return whether the interval is over after `record`, the current record.

        If so, the next interval starts.
        """
        now = self._context.current_system_time_ms()
        # if the time is further ahead than the interval, the wall clock has gone back since
        if now < self._metadata.get(self._entry, 0) <= now + self._interval_ms:
            self._held = record, self._context.record_metadata
            return False
        self._held = None
        self._metadata[self._entry] = now + self._interval_ms
        return True

    def take_held(self) -> tuple[Record[Any, Any], RecordMetadata | None] | None:
        """Return the last record within the interval, with its metadata.

        It is returned once; None if no results are held back.
        """
        held, self._held = self._held, None
        return held
