"""The operator that holds back updates of a table, and the access to its table.

It holds them for a time, or until their windows close. Only the arrival of records advances it. Emitted updates have
the context of the last update of their key.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import numpy as np

from penstock.errors import StreamsError
from penstock.processor.api import BatchProcessor, EngineContext, FailureHandler, ProcessorContext, RowOrigin
from penstock.processor.columns import write_contexts
from penstock.processor.operator_time import ObservedStreamTime
from penstock.processor.table import ValueGetter, ValueGetterSupplier
from penstock.record import NO_METADATA, Change, Record, RecordBatch, ValueAndTimestamp, running_maximum
from penstock.state.api import RecordContext
from penstock.state.time_ordered_buffer import Eviction, TimeOrderedChangeBuffer, WaitingUpdate
from penstock.windows import LONG_MAX


@dataclass(frozen=True)
class SuppressConstraints:
    """The conditions for the emission of updates.

    Args:
        wait_ms: time (ms) to hold an update, from the time of the first update of its key, or from the end of its
            window.
        until_window_closes: whether to count from the end of the window; then deletes are left out.
        max_records: maximum number of held records.
        max_bytes: maximum size of held records in bytes.
        shut_down: whether to fail above the maximum; otherwise the oldest updates are emitted early.
    """

    wait_ms: int
    until_window_closes: bool
    max_records: int
    max_bytes: int
    shut_down: bool


class TableSuppress(BatchProcessor):
    """Holds updates back and emits the last one of each key (Kafka class: KTableSuppressProcessorSupplier).

    Args:
        name: the name of the node, for its error.
        store_name: the name of the buffer.
        constraints: the conditions for the emission.
    """

    def __init__(self, name: str, store_name: str, constraints: SuppressConstraints) -> None:
        self._name = name
        self._store_name = store_name
        self._constraints = constraints

    def init(self, context: ProcessorContext) -> None:
        """Get the buffer and the clock."""
        super().init(context)
        self._engine = cast(EngineContext, context)
        self._buffer: TimeOrderedChangeBuffer = context.get_state_store(self._store_name)
        self._stream_time = ObservedStreamTime(self._engine.processor_metadata(), self._store_name)

    def process(self, record: Record[Any, Change]) -> None:
        """Hold the update, and emit those that have waited long enough or exceed the limits.

        Raises StreamsError if the limits are exceeded and `shut_down` is set.
        """
        due = self._stream_time.advance(record.timestamp) - self._constraints.wait_ms
        time = record.key.window.end if self._constraints.until_window_closes else record.timestamp
        buffer = self._buffer
        context = RecordContext(record.timestamp, record.headers, *(self.context.record_metadata or NO_METADATA))
        buffer.put(time, record.key, record.value, context)
        if buffer.min_timestamp <= due:
            buffer.evict_while(lambda: buffer.min_timestamp <= due, self._emit)
        if self._is_over_capacity():
            if self._constraints.shut_down:
                self._fail()
            buffer.evict_while(self._is_over_capacity, self._emit)

    @property
    def forwards_itself(self) -> bool:
        """Always true: the causes of emitted updates are not the records of the batch."""
        return True

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Hold the updates, and forward the emitted ones together at the end; raises as `process`."""
        limits, buffer = self._constraints, self._buffer
        leaving: list[WaitingUpdate] = []
        keys, new, old = self._serialized(batch, failures)
        rows = np.arange(len(batch), dtype=np.int64)
        contexts = write_contexts(self._engine.source_partitions(), batch, rows)
        times = [key.window.end for key in batch.keys] if limits.until_window_closes else batch.timestamps.tolist()
        observed = np.maximum(running_maximum(batch.timestamps), self._stream_time.ms)
        self._stream_time.advance(int(observed[-1]))
        least = buffer.min_timestamp  # a lower bound: an update of a waiting key does not change its time
        for time, due, key, new_value, old_value, context in zip(
            times, (observed - limits.wait_ms).tolist(), keys, new, old, contexts, strict=True
        ):
            buffer.put_serialized(time, key, new_value, old_value, context)
            least = min(least, time)
            if least <= due:
                leaving += buffer.take_until(due)
                least = buffer.min_timestamp
            while self._is_over_capacity() and buffer.min_timestamp < LONG_MAX:
                if limits.shut_down:
                    self._fail()
                leaving += islice(buffer.take_until(LONG_MAX - 1), 1)
        if limits.until_window_closes:
            leaving = [update for update in leaving if update.change.new_value is not None]
        if leaving:
            self._forward(leaving)
        return batch.slice(0, 0), np.empty(0, np.int64)

    def _serialized(
        self, batch: RecordBatch, failures: FailureHandler
    ) -> tuple[list[bytes], list[bytes | None], list[bytes | None]]:
        try:
            return self._buffer.serialize_changes(batch.keys, batch.values)
        except Exception:
            for row, (key, change) in enumerate(zip(batch.keys, batch.values, strict=True)):
                try:
                    self._buffer.serialize_change(key, change)
                except Exception as error:
                    failures(row, error)
            raise

    def _forward(self, updates: list[WaitingUpdate]) -> None:
        keys, changes = self._buffer.deserialize_changes(updates)
        contexts = [update.change.context for update in updates]
        timestamps = np.fromiter((context.timestamp for context in contexts), np.int64, len(contexts))
        offsets = np.fromiter((context.offset for context in contexts), np.int64, len(contexts))
        headers = [context.headers for context in contexts]
        batch = RecordBatch(keys, changes, timestamps, offsets, headers if any(headers) else None)
        self._engine.forward_flushed(batch, contexts)
        self._engine.count_emitted(len(batch))

    def _is_over_capacity(self) -> bool:
        limits, buffer = self._constraints, self._buffer
        return buffer.num_records > limits.max_records or buffer.buffer_size > limits.max_bytes

    def _fail(self) -> None:
        limits, buffer = self._constraints, self._buffer
        raise StreamsError(
            f"{self._name} buffer exceeded its max capacity. Currently [{buffer.num_records}/{limits.max_records}] "
            f"records and [{buffer.buffer_size}/{limits.max_bytes}] bytes."
        )

    def _emit(self, eviction: Eviction) -> None:
        key, change, context = eviction
        if change.new_value is None and self._constraints.until_window_closes:
            return
        with self._engine.in_record_context(context):
            self.context.forward(Record(key, change, context.timestamp, context.headers))
        self._engine.count_emitted(1)


@dataclass(frozen=True)
class SuppressedValueGetterSupplier:
    """Makes getters of a table whose updates are held back."""

    parent: ValueGetterSupplier
    store_name: str

    def get(self) -> SuppressedValueGetter:
        """Return a new getter."""
        return SuppressedValueGetter(self.parent.get(), self.store_name)

    def store_names(self) -> tuple[str, ...]:
        """Return the names of the buffer and of the stores of the tables above."""
        return (self.store_name, *self.parent.store_names())


class SuppressedValueGetter:
    """Reads a table whose updates are held back (implements ValueGetter).

    A key with a held update has its previous value.

    Args:
        parent: reads the values of keys that are not in the buffer.
        store_name: the name of the buffer.
    """

    is_versioned = False

    def __init__(self, parent: ValueGetter, store_name: str) -> None:
        self._parent = parent
        self._store_name = store_name

    def init(self, context: ProcessorContext) -> None:
        """Prepare the parent and get the buffer."""
        self._parent.init(context)
        self._buffer: TimeOrderedChangeBuffer = context.get_state_store(self._store_name)

    def get(self, key: Any) -> ValueAndTimestamp | None:
        """Return the last emitted value of `key`."""
        return self._buffer.prior_value(key) if self._buffer.buffers(key) else self._parent.get(key)

    def get_as_of(self, key: Any, timestamp_ms: int) -> ValueAndTimestamp | None:
        """Raise TypeError: the table has no versions."""
        raise TypeError(f"The suppressed table of {self._store_name!r} has no versions.")

    def close(self) -> None:
        """Close the parent."""
        self._parent.close()
