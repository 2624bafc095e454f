"""The operator that forwards only the first of the records with the same id within an interval (KIP-655).

Rules, as in apache/kafka pull request 22189 for KIP-655:
- The first record in processing order counts. Another one is a duplicate until stream time has advanced by more than
  the interval. Both ends are inclusive: a record exactly one interval later is still a duplicate.
- A record that is earlier than the first one by more than the interval is not a duplicate.
- A record older than stream time by more than the interval is late. It is forwarded unless it is a duplicate, and later
  records are not compared with it.
- A record without a key or id is forwarded and not compared. Its timestamp advances the stream time of the operator.
- A duplicate counts as dropped. It changes nothing: the interval always begins with the first record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import BatchProcessor, EngineContext, FailureHandler, ProcessorContext, RowOrigin
from penstock.processor.columns import apply, write_contexts
from penstock.processor.first_results import ID_MAPPER, UsesResults
from penstock.processor.operator_time import ObservedStreamTime
from penstock.record import NO_TIMESTAMP, Record, RecordBatch, running_maximum
from penstock.state.windowed_api import EngineWindowStore
from penstock.windows import LONG_MAX


class StreamDeduplicate(BatchProcessor):
    """Forwards the first record of each key within an interval (Kafka class: KStreamDeduplicateProcessor).

    A key has at most one entry in the store that is not older than stream time minus the interval, so its latest entry
    decides.

    Args:
        store_name: the name of the window store with the times of the first records.
        interval_ms: the interval in ms.
    """

    def __init__(self, store_name: str, interval_ms: int) -> None:
        self._store_name = store_name
        self._interval_ms = interval_ms

    def init(self, context: ProcessorContext) -> None:
        """Get the store and the clock."""
        super().init(context)
        self._engine = cast(EngineContext, context)
        self._store: EngineWindowStore = context.get_state_store(self._store_name)
        # under another name than the clock of the store, which records that are not stored do not advance
        self._time = ObservedStreamTime(self._engine.processor_metadata(), f"{self._store_name}/deduplication")

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record unless it is a duplicate."""
        oldest = max(0, self._time.advance(record.timestamp) - self._interval_ms)
        id = None if record.key is None else self._id_of(record.key, record.value)
        if id is None:
            self.context.forward(record)
            return
        if oldest <= self._last_time(id, oldest) <= record.timestamp + self._interval_ms:
            self._engine.drop(DropReason.DUPLICATE, stream_time=self._time.ms)
            return
        self.context.forward(record)
        if record.timestamp >= oldest:
            self._store.put(id, True, record.timestamp)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows that are not duplicates; each id is looked up once."""
        ids = self._ids_of(batch, failures)
        keys = self._serialized(ids, failures)
        observed = np.maximum(running_maximum(batch.timestamps), self._time.ms)
        self._time.advance(int(observed[-1]))
        last_times: dict[bytes, int] = {}
        passing: list[int] = []
        first: list[int] = []
        for row, (key, timestamp, oldest) in enumerate(
            zip(keys, batch.timestamps.tolist(), np.maximum(observed - self._interval_ms, 0).tolist(), strict=True)
        ):
            if key is None:
                passing.append(row)
                continue
            last = last_times.get(key)
            if last is None:
                last = last_times[key] = self._last_time(ids[row], oldest)
            if oldest <= last <= timestamp + self._interval_ms:
                continue
            passing.append(row)
            if timestamp >= oldest:
                last_times[key] = timestamp
                first.append(row)
        self._put(batch, keys, first)
        if len(passing) == len(batch):
            return batch, None
        self._engine.count_dropped(DropReason.DUPLICATE, len(batch) - len(passing))
        rows = np.array(passing, np.int64)
        return batch.take(rows), rows

    def _id_of(self, key: Any, value: Any) -> Any:
        """Return the identity of a record with a key, as in the store; None if it has no id."""
        return key

    def _ids_of(self, batch: RecordBatch, failures: FailureHandler) -> Sequence[Any]:
        """Return the identity of each row, as in the store; None for a row without a key or id."""
        return batch.keys

    def _last_time(self, id: Any, oldest: int) -> int:
        """Return the time (ms) of the latest entry of `id` from `oldest` on, NO_TIMESTAMP without one."""
        with self._store.backward_fetch(id, oldest, LONG_MAX) as entries:
            return next((time for time, _ in entries), NO_TIMESTAMP)

    def _serialized(self, ids: Sequence[Any], failures: FailureHandler) -> list[bytes | None]:
        try:
            return self._store.serialize_keys(ids)
        except Exception:
            for row, id in enumerate(ids):
                try:
                    self._store.serialize_keys([id])
                except Exception as error:
                    failures(row, error)
            raise

    def _put(self, batch: RecordBatch, keys: Sequence[bytes | None], first: list[int]) -> None:
        """Store the times of the rows `first`, each with its row as the cause."""
        if not first:
            return
        rows = np.array(first, np.int64)
        times = batch.timestamps[rows]
        entries = self._store.entry_keys([cast("bytes", keys[row]) for row in first], times)
        contexts = write_contexts(self._engine.source_partitions(), batch, rows)
        self._store.put_columns(entries, [True] * len(first), times, contexts)


class StreamDeduplicateById(StreamDeduplicate, UsesResults):
    """Forwards the first record of each key and id within an interval.

    Args:
        store_name: the name of the window store with the times of the first records.
        interval_ms: the interval in ms.
        mapper: returns the id from key and value; None for a record without an id.
    """

    held = (ID_MAPPER,)

    def __init__(self, store_name: str, interval_ms: int, mapper: Callable[[Any, Any], Any]) -> None:
        super().__init__(store_name, interval_ms)
        self._mapper = mapper

    def _id_of(self, key: Any, value: Any) -> Any:
        id = self._mapper(key, value)
        return None if id is None else (key, id)

    def _ids_of(self, batch: RecordBatch, failures: FailureHandler) -> Sequence[Any]:
        rows = [row for row, key in enumerate(batch.keys) if key is not None]
        keys, values = [batch.keys[row] for row in rows], [batch.values[row] for row in rows]
        applied = apply(self._mapper, (keys, values), lambda row, error: failures(rows[row], error))
        ids: list[Any] = [None] * len(batch)
        for row, key, id in zip(rows, keys, applied.results, strict=True):
            ids[row] = None if id is None else (key, id)
        return ids
