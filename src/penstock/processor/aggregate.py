"""Aggregations of a stream by key, without windows: count, reduce, aggregate.

Kafka classes: KStreamAggregate, KStreamReduce.

Records without a key or a value are dropped. The result of a key has the largest timestamp of its records. With a
record cache, updates are forwarded when the cache is flushed; without one, immediately.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, NamedTuple, cast

import numpy as np

from penstock.metrics.drop_reasons import DropReason, null_part
from penstock.processor.api import (
    BatchProcessor,
    EngineContext,
    FailureHandler,
    Processor,
    ProcessorContext,
    RowOrigin,
    SerializedBatchProcessor,
)
from penstock.processor.columns import has_null, write_contexts
from penstock.processor.first_results import AGGREGATOR, INITIALIZER, REDUCER, UsesResults
from penstock.processor.forwarding import KeyValueStoreWrapper, TimestampedTupleForwarder
from penstock.record import (
    NO_TIMESTAMP,
    Change,
    Int64Array,
    Record,
    RecordBatch,
    entries_of,
    take_from,
)
from penstock.serdes import Serde
from penstock.serdes.columns import Places, distinct

Initializer = Callable[[], Any]
Aggregator = Callable[[Any, Any, Any], Any]
Reducer = Callable[[Any, Any], Any]


class KeyUpdates(NamedTuple):
    """The distinct keys of a batch, ordered by their last rows.

    Args:
        keys: the keys as bytes.
        last_rows: the last row of each key.
        timestamps: the largest timestamp (ms) of each key's rows.
        places: for each row, the place of its key in the order of first rows.
        order: for each key, its place in the order of first rows.
    """

    keys: list[bytes]
    last_rows: Int64Array
    timestamps: Int64Array
    places: Places
    order: Int64Array

    @staticmethod
    def of(batch: RecordBatch, keys: Sequence[bytes]) -> KeyUpdates:
        """Return the updates by a batch; `keys` are those of its rows as bytes."""
        known, places = distinct(keys)
        rows, maximum = np.empty(len(known), np.int64), np.full(len(known), NO_TIMESTAMP, np.int64)
        rows[places] = np.arange(len(keys))  # the last of the rows with the same key wins
        if bool((batch.timestamps[1:] < batch.timestamps[:-1]).any()):
            np.maximum.at(maximum, places, batch.timestamps)
        else:
            maximum = batch.timestamps[rows]
        order = np.argsort(rows)
        return KeyUpdates(take_from(known, order), rows[order], maximum[order], places, order)


class _KeyedAggregation(BatchProcessor):
    """The base of the aggregations; subclasses define the change of an aggregate by a value."""

    def __init__(self, store_name: str, send_old_values: bool) -> None:
        self._store_name = store_name
        self._send_old_values = send_old_values

    @abstractmethod
    def _update(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Return the new aggregate after `value`; `aggregate` is the previous or the initial one."""
        raise NotImplementedError

    def _initial(self) -> Any:
        """Return the initial aggregate of a key.

        As in Kafka, it is also forwarded as the old value.
        """
        return None

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        super().init(context)
        self._engine = cast(EngineContext, context)
        self._values = KeyValueStoreWrapper(context, self._store_name)
        self._store = self._values.store
        self._forwarder = TimestampedTupleForwarder(self._store, context, self._send_old_values)

    @property
    def holds_back(self) -> bool:
        """Whether updates are forwarded when the cache is flushed."""
        return self._store.cached

    @property
    def drops_rows(self) -> bool:
        """Whether `process_batch` reports each dropped row: it does."""
        return True

    def process(self, record: Record[Any, Any]) -> None:
        """Update the aggregate of the record's key."""
        if record.key is None or record.value is None:
            self._engine.drop(null_part(record.key))
            return
        old = self._values.get(record.key)
        old_value, timestamp = (
            (self._initial(), record.timestamp) if old is None else (old.value, max(old.timestamp, record.timestamp))
        )
        new_value = self._update(record.key, record.value, old_value)
        is_latest = self._values.put(record.key, new_value, timestamp)
        if is_latest is None:  # the store counts it
            self._engine.write_dropped(DropReason.LATE)
            return
        change = Change(new_value, old_value, is_latest)
        self._forwarder.maybe_forward(Record(record.key, change, timestamp, record.headers))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Update the aggregates of the rows' keys.

        Reads and writes each key once. Returns the updates if there is no cache.
        """
        batch, keys, rows = self._with_key_and_value(batch, self._store.serialize_keys(batch.keys))
        return self._update_each(batch, keys, rows, self._update, failures) if keys else (batch, rows)

    def _update_each(
        self,
        batch: RecordBatch,
        keys: Sequence[bytes],
        rows: RowOrigin,
        update: Aggregator,
        failures: FailureHandler,
    ) -> tuple[RecordBatch, RowOrigin]:
        """Update the aggregates of the rows' keys with `update`, row by row.

        `keys` and `rows` are those of `_with_key_and_value`.
        """
        known = list(dict.fromkeys(keys))
        old_values, old_timestamps = self._store.get_columns(known)
        current = dict(zip(known, zip(old_values, old_timestamps.tolist(), strict=True), strict=True))
        last_row: dict[bytes, int] = {}
        changes: list[Change] = []
        timestamps: list[int] = []
        updated: list[int] = []
        fresh = self._store.fresh
        initial, cached, send_old = self._initial, self._store.cached, self._send_old_values
        for row, (serialized, key, value, timestamp) in enumerate(
            zip(keys, batch.keys, batch.values, batch.timestamps.tolist(), strict=True)
        ):
            old_value, old_timestamp = current[serialized]
            timestamp = max(timestamp, old_timestamp)
            try:
                if old_value is None:
                    old_value = initial()
                elif serialized in last_row:  # written by an earlier row of the batch
                    old_value = fresh(old_value)
                new_value = update(key, value, old_value)
            except Exception as error:
                failures(row if rows is None else int(rows[row]), error)
                continue
            current[serialized] = new_value, NO_TIMESTAMP if new_value is None else timestamp
            last_row.pop(serialized, None)
            last_row[serialized] = row
            if not cached:
                changes.append(Change(new_value, old_value if send_old else None))
                timestamps.append(timestamp)
                updated.append(row)
        if last_row:
            values, times = zip(*[current[key] for key in last_row], strict=True)
            rows_written = np.array(list(last_row.values()), np.int64)
            self._write(batch, list(last_row), list(values), np.array(times, np.int64), rows_written)
        return self._updates(batch, rows, changes, timestamps, updated)

    def _with_key_and_value(
        self, batch: RecordBatch, keys: Sequence[bytes | None]
    ) -> tuple[RecordBatch, Sequence[bytes], RowOrigin]:
        """Return the rows with a key and a value.

        Args:
            batch: the rows.
            keys: the keys of all rows as bytes.

        Returns:
            The rows, their keys as bytes, and their row numbers in `batch` (None: all rows).
        """
        if None not in entries_of(keys) and (batch.values is batch.keys or not has_null(batch.values)):
            return batch, cast("Sequence[bytes]", keys), None
        keyed = np.fromiter((key is not None for key in keys), np.bool_, len(keys))
        passing = keyed & np.fromiter((value is not None for value in batch.values), np.bool_, len(batch))
        rows = np.flatnonzero(passing)
        self._engine.drop_rows(DropReason.NULL_KEY, np.flatnonzero(~keyed))
        self._engine.drop_rows(DropReason.NULL_VALUE, np.flatnonzero(keyed & ~passing))
        return batch.take(rows), cast("list[bytes]", list(compress(keys, passing))), rows

    def _write(
        self, batch: RecordBatch, keys: list[bytes], values: list[Any], timestamps: Int64Array, rows: Int64Array
    ) -> None:
        """Write new aggregates, ordered by the last update of each key.

        Each is written in the context of that update: the row at its index in `rows`.
        """
        contexts = write_contexts(self._engine.source_partitions(), batch, rows)
        self._store.put_columns(keys, values, timestamps, contexts)

    @staticmethod
    def _updates(
        batch: RecordBatch, rows: RowOrigin, changes: list[Change], timestamps: list[int], updated: list[int]
    ) -> tuple[RecordBatch, RowOrigin]:
        """Return the updates as rows, with their row numbers in the first batch."""
        if len(updated) == len(batch):
            return RecordBatch(
                batch.keys, cast("list[Any]", changes), np.array(timestamps, np.int64), batch.offsets, batch.headers
            ), rows
        chosen = np.array(updated, np.int64)
        taken = batch.take(chosen)
        result = RecordBatch(
            taken.keys, cast("list[Any]", changes), np.array(timestamps, np.int64), taken.offsets, taken.headers
        )
        return result, chosen if rows is None else rows[chosen]


class StreamAggregate(_KeyedAggregation, UsesResults):
    """Folds the values of a key into an aggregate (Kafka class: KStreamAggregate).

    Args:
        store_name: the name of the store.
        initializer: returns the first aggregate of a key.
        aggregator: returns the next aggregate from key, value and aggregate; None deletes it.
        send_old_values: whether updates include the previous value.
    """

    held = (INITIALIZER, AGGREGATOR)

    def __init__(
        self, store_name: str, initializer: Initializer, aggregator: Aggregator, send_old_values: bool = False
    ) -> None:
        super().__init__(store_name, send_old_values)
        self._initializer = initializer
        self._aggregator = aggregator

    def _update(self, key: Any, value: Any, aggregate: Any) -> Any:
        return self._aggregator(key, value, aggregate)

    def _initial(self) -> Any:
        return self._initializer()


class StreamReduce(_KeyedAggregation, UsesResults):
    """Combines the values of a key (Kafka class: KStreamReduce).

    The first value is stored unchanged.

    Args:
        store_name: the name of the store.
        reducer: returns the next aggregate from aggregate and value; None deletes it.
        send_old_values: whether updates include the previous value.
    """

    held = (REDUCER,)

    def __init__(self, store_name: str, reducer: Reducer, send_old_values: bool = False) -> None:
        super().__init__(store_name, send_old_values)
        self._reducer = reducer

    def _update(self, key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else self._reducer(aggregate, value)


class StreamCount(_KeyedAggregation, SerializedBatchProcessor):
    """Counts the records of a key (Kafka class: KStreamAggregate of KGroupedStream.count).

    Args:
        store_name: the name of the store.
        send_old_values: whether updates include the previous count.
    """

    def __init__(self, store_name: str, send_old_values: bool = False) -> None:
        super().__init__(store_name, send_old_values)

    def _update(self, key: Any, value: Any, aggregate: Any) -> Any:
        return aggregate + 1

    def _initial(self) -> int:
        return 0

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Count the rows.

        With a cache, only the last count of a key is needed, and C loops can compute it.
        """
        if not self._counts_at_once:
            return super().process_batch(batch, failures)
        self._count(*self._with_key_and_value(batch, self._store.serialize_keys(batch.keys))[:2])
        return batch.slice(0, 0), np.empty(0, np.int64)

    def takes_serialized(self, key_serde: Serde) -> bool:
        """Return whether the batch can have keys as the bytes of `key_serde`.

        For that, the store's serde must have the same type, and a cache must make intermediate updates unnecessary.
        """
        return self._counts_at_once and type(self._store.key_serde) is type(key_serde)

    @property
    def _counts_at_once(self) -> bool:
        """Whether only the last count of a key is needed.

        That is so if a cache holds back the updates and the store returns ints unchanged.
        """
        return self._store.cached and self._store.reads_back(int)

    def process_serialized(self, batch: RecordBatch) -> None:
        """Count the rows."""
        self._count(*self._with_key_and_value(batch, batch.keys)[:2])

    def _count(self, batch: RecordBatch, keys: Sequence[bytes]) -> None:
        if not keys:
            return
        updates = KeyUpdates.of(batch, keys)
        counts = np.bincount(updates.places, minlength=len(updates.keys))[updates.order].tolist()
        old, timestamps = self._store.get_columns(updates.keys)
        values = [count if before is None else before + count for before, count in zip(old, counts, strict=True)]
        self._write(batch, updates.keys, values, np.maximum(timestamps, updates.timestamps), updates.last_rows)


class RecordByRecord(Processor, UsesResults):
    """Runs another processor record by record, for stores without column operations.

    The other processor itself may be able to process columns.

    Args:
        make: returns the processor.
    """

    held = ()

    def __init__(self, make: Callable[[], Processor]) -> None:
        self._processor = make()

    def users(self) -> Iterable[UsesResults]:
        """Return the parts of the processor that hold user functions."""
        return self._processor.users() if isinstance(self._processor, UsesResults) else ()

    def init(self, context: ProcessorContext) -> None:
        """Prepare the processor."""
        self._processor.init(context)

    def process(self, record: Record[Any, Any]) -> None:
        """Process one record."""
        self._processor.process(record)

    def close(self) -> None:
        """Close the processor."""
        self._processor.close()
