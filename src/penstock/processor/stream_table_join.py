"""The join of a stream with a table, or with a global table (Kafka class: KStreamKTableJoinProcessor).

Only records of the stream have results. Each is joined with the table's value at its arrival or, with a versioned
table, at the record's timestamp. With a grace period, records of the stream wait in a buffer until stream time has
advanced by it, so that they see late updates of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np

from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import BatchProcessor, EngineContext, FailureHandler, Processor, ProcessorContext, RowOrigin
from penstock.processor.columns import apply, composed, has_null, kept_rows
from penstock.processor.first_results import KEYED_JOINER, UsesResults
from penstock.processor.forwarding import KeyValueStoreWrapper
from penstock.processor.joiner import mapped_key_joiner
from penstock.processor.operator_time import ObservedStreamTime
from penstock.processor.store_reader import StoreReader
from penstock.processor.table import StoreValueGetterSupplier, ValueGetterSupplier
from penstock.record import NO_METADATA, Record, RecordBatch, take_from
from penstock.serdes.buffer import BufferKey, BufferValue
from penstock.state.api import EngineKeyValueStore, RecordContext
from penstock.windows import LONG_MAX

_MAX_SEQUENCE = 0x7FFFFFFF


class StreamTableJoin(Processor, UsesResults, StoreReader):
    """Joins each record with the value of its key.

    Args:
        table: looks up the values.
        joiner: the user's joiner.
        keys: the number of keys that the joiner takes.
        keeps_left: whether a record has a result without a value in the table.
    """

    held = (KEYED_JOINER,)

    def __init__(self, table: ValueGetterSupplier, joiner: Callable[..., Any], keys: int, keeps_left: bool) -> None:
        self._table_supplier = table
        self._joiner = mapped_key_joiner(joiner, keys)
        self._keeps_left = keeps_left

    def read_stores(self) -> tuple[str, ...]:
        """Return the stores of the table."""
        return self._table_supplier.store_names()

    def init(self, context: ProcessorContext) -> None:
        """Prepare the look-up."""
        super().init(context)
        self._engine = cast(EngineContext, context)
        self._table = self._table_supplier.get()
        self._table.init(context)

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the result of the record, if it has one."""
        if self._is_incomplete(record.key, record.value):
            self._engine.drop(_missing(record.value))
            return
        self._join(record, record.key)

    def close(self) -> None:
        """Close the look-up."""
        self._table.close()

    def _is_incomplete(self, key: Any, value: Any) -> bool:
        return value is None or (key is None and not self._keeps_left)

    def _join(self, record: Record[Any, Any], table_key: Any) -> None:
        """Join `record` with the value of `table_key`."""
        value = self._found(table_key, record.timestamp)
        if value is not None or self._keeps_left:
            result = self._joiner(record.key, table_key, record.value, value)
            self.context.forward(Record(record.key, result, record.timestamp, record.headers))

    def _found(self, table_key: Any, timestamp: int) -> Any:
        """Return the value of `table_key` for a record of `timestamp`; None if absent."""
        if table_key is None:
            return None
        table = self._table
        found = table.get_as_of(table_key, timestamp) if table.is_versioned else table.get(table_key)
        return None if found is None else found.value


class BatchStreamTableJoin(StreamTableJoin, BatchProcessor):
    """StreamTableJoin with batches, for a table with a store and without versions.

    The arguments are those of StreamTableJoin.
    """

    def __init__(
        self, table: StoreValueGetterSupplier, joiner: Callable[..., Any], keys: int, keeps_left: bool
    ) -> None:
        super().__init__(table, joiner, keys, keeps_left)
        self._store_name = table.store_name

    @property
    def drops_rows(self) -> bool:
        """Whether `process_batch` reports each dropped row: it does."""
        return True

    def init(self, context: ProcessorContext) -> None:
        """Prepare the look-up."""
        super().init(context)
        self._store = KeyValueStoreWrapper(context, self._store_name)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the results of the records that have one."""
        batch, origin = self._with_input(batch)
        table_values, _ = self._store.get_nullable_columns(batch.keys)
        if not self._keeps_left and has_null(table_values):
            found = np.flatnonzero(np.fromiter((value is not None for value in table_values), np.bool_, len(batch)))
            batch, origin = batch.take(found), composed(origin, found)
            table_values = take_from(table_values, found)

        def failed(row: int, error: Exception) -> None:
            failures(row if origin is None else int(origin[row]), error)

        applied = apply(self._joiner, (batch.keys, batch.keys, batch.values, table_values), failed)
        rest = kept_rows(batch, applied.kept)
        results = RecordBatch(rest.keys, applied.results, rest.timestamps, rest.offsets, rest.headers)
        return results, composed(origin, applied.kept)

    def _with_input(self, batch: RecordBatch) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows with a value and a key to look up, and their numbers; the others are dropped."""
        if not has_null(batch.values) and (self._keeps_left or not has_null(batch.keys)):
            return batch, None
        missing: dict[DropReason, list[int]] = {}
        for row, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            if self._is_incomplete(key, value):
                missing.setdefault(_missing(value), []).append(row)
        for reason, rows in missing.items():
            self._engine.drop_rows(reason, np.array(rows, np.int64))
        kept = np.delete(np.arange(len(batch), dtype=np.int64), list(chain.from_iterable(missing.values())))
        return batch.take(kept), kept


class StreamGlobalTableJoin(StreamTableJoin, BatchProcessor):
    """Joins each record with the value of a key computed from it.

    Kafka class: KStreamGlobalKTableJoin.

    Args:
        table: looks up the values.
        key_selector: returns the key of the global table from key and value.
        joiner: the user's joiner.
        keys: the number of keys that the joiner takes.
        keeps_left: whether a record has a result without a value in the table.
    """

    def __init__(
        self,
        table: ValueGetterSupplier,
        key_selector: Callable[[Any, Any], Any],
        joiner: Callable[..., Any],
        keys: int,
        keeps_left: bool,
    ) -> None:
        super().__init__(table, joiner, keys, keeps_left)
        self._key_selector = key_selector

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the result of the record, if it has one."""
        result = self._result(record.key, record.value, record.timestamp)
        if not isinstance(result, _Unjoined):
            self.context.forward(Record(record.key, result, record.timestamp, record.headers))
        elif result.reason is not None:
            self._engine.drop(result.reason)

    @property
    def drops_rows(self) -> bool:
        """Whether `process_batch` reports each dropped row: it does."""
        return True

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the results of the records that have one.

        Each row is joined alone: the first row that fails is the first of all steps.
        """
        applied = apply(self._result, (batch.keys, batch.values, batch.timestamps.tolist()), failures)
        results, origin = applied.results, applied.kept
        if _Unjoined in set(map(type, results)):
            rows = np.arange(len(batch), dtype=np.int64) if origin is None else origin
            without = [isinstance(each, _Unjoined) for each in results]
            reasons = [each.reason if is_without else None for each, is_without in zip(results, without, strict=True)]
            for reason in dict.fromkeys(filter(None, reasons)):
                self._engine.drop_rows(reason, rows[[each is reason for each in reasons]])
            joined = np.flatnonzero(~np.array(without))
            results, origin = take_from(results, joined), rows[joined]
        rest = kept_rows(batch, origin)
        return RecordBatch(rest.keys, results, rest.timestamps, rest.offsets, rest.headers), origin

    def _result(self, key: Any, value: Any, timestamp: int) -> Any:
        """Return the result of one record, or an `_Unjoined`."""
        table_key = self._key_selector(key, value)
        if value is None or (table_key is None and not self._keeps_left):
            return _Unjoined(_missing(value))
        found = self._found(table_key, timestamp)
        if found is None and not self._keeps_left:
            return _Unjoined(None)
        return self._joiner(key, table_key, value, found)


class _Unjoined(NamedTuple):
    """In place of a result: why the record is dropped; None for a record that is not in the table."""

    reason: DropReason | None


class StreamTableGraceJoin(StreamTableJoin):
    """Joins each record after a grace period with the value at the record's timestamp.

    The table is versioned (KIP-923; Kafka class: RocksDBTimeOrderedKeyValueBuffer).

    Records leave the buffer in the order of time, then of the bytes of the key, then of arrival.

    Args:
        table: looks up the values.
        joiner: the user's joiner.
        with_key: whether the joiner takes the key too.
        keeps_left: whether a record has a result without a value in the table.
        buffer_name: the name of the store of waiting records.
        grace_period_ms: time (ms) that stream time must advance past a record before its join.
    """

    def __init__(
        self,
        table: ValueGetterSupplier,
        joiner: Callable[..., Any],
        with_key: bool,
        keeps_left: bool,
        buffer_name: str,
        grace_period_ms: int,
    ) -> None:
        super().__init__(table, joiner, with_key, keeps_left)
        self._buffer_name = buffer_name
        self._grace_period_ms = grace_period_ms

    def init(self, context: ProcessorContext) -> None:
        """Prepare the look-up, and get the buffer and its clock."""
        super().init(context)
        self._buffer: EngineKeyValueStore = context.get_state_store(self._buffer_name)
        self._metadata = self._engine.processor_metadata()
        self._stream_time = ObservedStreamTime(self._metadata, self._buffer_name)
        self._sequence_entry = f"{self._buffer_name}/sequence"
        self._min_time_entry = f"{self._buffer_name}/min_time"
        if self._sequence_entry not in self._metadata:
            self._take_over_waiting()

    def process(self, record: Record[Any, Any]) -> None:
        """Join the record immediately if it is late, otherwise buffer it.

        Then join the records that have waited long enough.
        """
        if self._is_incomplete(record.key, record.value):
            self._engine.drop(_missing(record.value))
            return
        if record.key is None:
            raise TypeError("key cannot be null")
        if record.timestamp < self._stream_time.ms - self._grace_period_ms:
            self._join(record, record.key)
            return
        self._wait(record)
        due = self._stream_time.advance(record.timestamp) - self._grace_period_ms
        if self._metadata.get(self._min_time_entry, LONG_MAX) <= due:
            self._join_due(due)

    def _take_over_waiting(self) -> None:
        """Continue with a buffer that Kafka Streams has filled, without the metadata entries.

        A new record must not get the sequence number of a waiting record: with the same time and key, it would replace
        that record.
        """
        with self._buffer.all() as waiting:
            places = [place for place, _ in waiting]
        if places:
            self._metadata[self._sequence_entry] = max(place.sequence for place in places)
            self._metadata[self._min_time_entry] = places[0].timestamp

    def _wait(self, record: Record[Any, Any]) -> None:
        metadata = self._metadata
        sequence = metadata[self._sequence_entry] = (metadata.get(self._sequence_entry, 0) + 1) & _MAX_SEQUENCE
        metadata[self._min_time_entry] = min(metadata.get(self._min_time_entry, LONG_MAX), record.timestamp)
        position = self.context.record_metadata or NO_METADATA
        self._buffer.put(
            BufferKey(record.timestamp, record.key, sequence),
            BufferValue(record.timestamp, record.headers, position, record.value),
        )

    def _join_due(self, due: int) -> None:
        """Join the records with timestamps up to `due` (ms).

        Each is joined in the context of its arrival.
        """
        min_time = LONG_MAX
        with self._buffer.entries() as waiting:
            for entry_key, (timestamp, headers, position, value) in waiting:
                if timestamp > due:
                    min_time = timestamp
                    break
                key = self._buffer.deserialize_keys([entry_key], [headers])[0].key
                with self._engine.in_stored_record_context(RecordContext(timestamp, headers, *position)):
                    self._join(Record(key, value, timestamp, headers), key)
                self._buffer.delete_entry(entry_key)
        self._metadata[self._min_time_entry] = min_time


def _missing(value: Any) -> DropReason:
    """Return the drop reason of a record without value or look-up key."""
    return DropReason.NULL_VALUE if value is None else DropReason.NULL_KEY
