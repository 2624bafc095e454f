"""The observer of a task: records the measurements of Kafka's DEBUG sensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final

from penstock.metrics.host_metrics import (
    CACHE_ID,
    HIT_RATIO,
    ITERATOR_DURATION,
    NODE_ID,
    OLDEST_ITERATOR,
    OPEN_ITERATORS,
    PROCESS,
    SUPPRESSION_BUFFER_COUNT,
    SUPPRESSION_BUFFER_SIZE,
    SUPPRESSION_EMIT,
    operation_of,
    state_id,
)
from penstock.metrics.measurements import Measurement, measured_once


class TaskObserver:
    """Receives the reports of a task, its nodes, caches and stores; this class records nothing."""

    should_record = False
    """Whether anything is recorded (Kafka method: Sensor.shouldRecord).

    Short events of each record are reported only if true.
    """

    def processed(self, node: str, records: int) -> None:
        """Record the number of records received by `node` (Kafka metric: process-total)."""

    def emitted(self, node: str, records: int) -> None:
        """Record the number of suppressed records emitted by `node` (Kafka metric: suppression-emit-total)."""

    def buffer_changed(self, store: str, size: int, records: int) -> None:
        """Record the size (bytes) and the number of records of a suppression buffer.

        Kafka metrics: suppression-buffer-size, suppression-buffer-count.
        """

    def cache_read(self, store: str, reads: int, hits: int) -> None:
        """Record the reads and hits of a store's record cache (Kafka metric: hit-ratio).

        Args:
            store: the name of the store.
            reads: the number of requested keys.
            hits: the number of keys found in the cache.
        """

    def call_began(self, scope: str, store: str, operation: str) -> Callable[[int], None]:
        """Record the start of a call of `store`.

        Args:
            scope: Kafka's scope of the store, such as rocksdb-window.
            store: the name of the store.
            operation: the name of the metric, such as put-if-absent.

        Returns:
            A function to call at the end, with the number of keys of the call.
        """
        return _nothing

    def iterator_opened(self, scope: str, store: str) -> Callable[[], None]:
        """Record the opening of an iterator, and return a function to call at its end."""
        return _nothing_more

    def take(self) -> dict[str, Measurement]:
        """Return and reset the measurements since the last call, by operation (`operation_of`)."""
        return {}


class RecordingObserver(TaskObserver):
    """Records all reports (Kafka classes: ProcessorNodeMetrics, StateStoreMetrics, NamedCacheMetrics).

    Args:
        nanoseconds: the clock for the duration of calls.
        wall_clock_ms: the clock for the opening of iterators.
    """

    should_record = True

    def __init__(self, nanoseconds: Callable[[], int], wall_clock_ms: Callable[[], int]) -> None:
        self._nanoseconds = nanoseconds
        self._wall_clock_ms = wall_clock_ms
        self._open: dict[tuple[str, str], dict[int, int]] = {}
        """The opening times (ms) of open iterators by number, by scope and store."""
        self._iterators = count()
        self._measurements: dict[str, Measurement] = {}
        self._cache_reads: Counter[str] = Counter()
        self._cache_hits: Counter[str] = Counter()

    def processed(self, node: str, records: int) -> None:
        """Count the records."""
        self._count(operation_of(PROCESS, NODE_ID, node), records)

    def emitted(self, node: str, records: int) -> None:
        """Count the records."""
        self._count(operation_of(SUPPRESSION_EMIT, NODE_ID, node), records)

    def buffer_changed(self, store: str, size: int, records: int) -> None:
        """Record both values."""
        for name, value in ((SUPPRESSION_BUFFER_SIZE, float(size)), (SUPPRESSION_BUFFER_COUNT, float(records))):
            operation = operation_of(name, state_id("in-memory-suppression"), store)
            self._record(operation, measured_once(value))

    def cache_read(self, store: str, reads: int, hits: int) -> None:
        """Record the ratio of hits to reads so far for each hit, as in Kafka."""
        self._cache_reads[store] += reads
        self._cache_hits[store] += hits
        if hits:
            ratio = self._cache_hits[store] / self._cache_reads[store]
            self._record(operation_of(HIT_RATIO, CACHE_ID, store), Measurement(hits, hits * ratio, ratio, ratio))

    def call_began(self, scope: str, store: str, operation: str) -> Callable[[int], None]:
        """Return a function that records the time since now, as one call per key."""
        return partial(self._call_ended, operation_of(operation, state_id(scope), store), self._nanoseconds())

    def iterator_opened(self, scope: str, store: str) -> Callable[[], None]:
        """Return a function that records the time since now."""
        number, began = next(self._iterators), self._nanoseconds()
        opened = self._open.setdefault((scope, store), {})
        opened[number] = self._wall_clock_ms()

        def ended() -> None:
            del opened[number]
            took = self._nanoseconds() - began
            self._record(operation_of(ITERATOR_DURATION, state_id(scope), store), measured_once(took))

        return ended

    def take(self) -> dict[str, Measurement]:
        """Return and reset the measurements since the last call, by operation (`operation_of`)."""
        for (scope, store), opened in self._open.items():
            gauges = {OPEN_ITERATORS: len(opened), OLDEST_ITERATOR: min(opened.values(), default=0)}
            for name, value in gauges.items():
                self._measurements[operation_of(name, state_id(scope), store)] = measured_once(value)
        measurements, self._measurements = self._measurements, {}
        return measurements

    def _call_ended(self, operation: str, began: int, keys: int) -> None:
        if keys:
            took = self._nanoseconds() - began
            each = took / keys
            self._record(operation, Measurement(keys, float(took), each, each))

    def _count(self, operation: str, number: int) -> None:
        if number:
            self._record(operation, Measurement(number, float(number), 1.0, 1.0))

    def _record(self, operation: str, measurement: Measurement) -> None:
        known = self._measurements.get(operation)
        self._measurements[operation] = measurement if known is None else known.plus(measurement)


NOT_OBSERVED: Final = TaskObserver()
"""The observer of a task if `metrics.recording.level` is below DEBUG."""


def _nothing(keys: int) -> None:
    """Do nothing at the end of an unrecorded call."""


def _nothing_more() -> None:
    """Do nothing at the end of an unrecorded iterator."""
