"""The join of two tables by their keys.

Kafka classes: KTableKTableInnerJoin, LeftJoin, RightJoin, OuterJoin and JoinMerger.

An update of either side is joined with the current value of the other side; the merge of both sides is the table. If
another node reads a result that is not stored, it is computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import BatchProcessor, EngineContext, FailureHandler, Processor, ProcessorContext, RowOrigin
from penstock.processor.columns import apply, composed, has_null, kept_rows, with_key
from penstock.processor.first_results import TABLE_JOINER, UsesResults, adapting
from penstock.processor.forwarding import KeyValueStoreWrapper, TimestampedTupleForwarder, put_last
from penstock.processor.joiner import JoinType
from penstock.processor.store_reader import StoreReader
from penstock.processor.table import StoreValueGetterSupplier, ValueGetter, ValueGetterSupplier
from penstock.record import Change, Record, RecordBatch, ValueAndTimestamp, take_from

TableJoiner = Callable[[Any, Any], Any]


class TableTableJoin(Processor, UsesResults, StoreReader):
    """Joins the updates of one side with the values of the other.

    Args:
        other: looks up the values of the other side.
        joiner: returns the result from the left and the right value.
        reverse: whether this side is the right one, whose value is the joiner's last argument.
        keeps_this: whether a value of this side has a result without the other side.
        keeps_other: whether a value of the other side has a result without this side.
        send_old_values: whether updates include the previous result.
        drop_out_of_order: whether this side is versioned.
    """

    held = (TABLE_JOINER,)

    def __init__(
        self,
        other: ValueGetterSupplier,
        joiner: TableJoiner,
        reverse: bool,
        keeps_this: bool,
        keeps_other: bool,
        send_old_values: bool,
        drop_out_of_order: bool,
    ) -> None:
        self._other_supplier = other
        self._joiner: TableJoiner = adapting(joiner, lambda this, other: joiner(other, this)) if reverse else joiner
        self._keeps_this = keeps_this
        self._keeps_other = keeps_other
        self._send_old_values = send_old_values
        self._drop_out_of_order = drop_out_of_order

    def read_stores(self) -> tuple[str, ...]:
        """Return the stores of the other table."""
        return self._other_supplier.store_names()

    def init(self, context: ProcessorContext) -> None:
        """Prepare the look-up."""
        super().init(context)
        self._other: ValueGetter = self._other_supplier.get()
        self._other.init(context)

    def process(self, record: Record[Any, Change]) -> None:
        """Forward the update of the result, if it has one."""
        if record.key is None or (self._drop_out_of_order and not record.value.is_latest):
            reason = DropReason.NULL_KEY if record.key is None else DropReason.OUT_OF_ORDER
            cast(EngineContext, self.context).count_dropped(reason)
            return
        found = self._other.get(record.key)
        other, timestamp = None, record.timestamp
        if found is not None and found.value is not None:
            other, timestamp = found.value, max(timestamp, found.timestamp)
        change = self._joined(record.value, other)
        if change is not None:
            self.context.forward(Record(record.key, change, timestamp, record.headers))

    def close(self) -> None:
        """Close the look-up."""
        self._other.close()

    def _joined(self, change: Change, other: Any) -> Change | None:
        """Return the update of the result after `change` of this side, None without one.

        Args:
            change: the update of this side.
            other: the current value of the other side.
        """
        new, old, is_latest = change
        if other is None and (not self._keeps_this or (new is None and old is None)):
            return None
        joiner, keeps_absent = self._joiner, self._keeps_other and other is not None
        new_result = joiner(new, other) if new is not None or keeps_absent else None
        old_result = joiner(old, other) if self._send_old_values and (old is not None or keeps_absent) else None
        return Change(new_result, old_result, is_latest)


class BatchTableTableJoin(TableTableJoin, BatchProcessor):
    """TableTableJoin with batches, for tables without versions.

    The other table has a store. The arguments are those of TableTableJoin.
    """

    def __init__(
        self,
        other: StoreValueGetterSupplier,
        joiner: TableJoiner,
        reverse: bool,
        keeps_this: bool,
        keeps_other: bool,
        send_old_values: bool,
    ) -> None:
        super().__init__(other, joiner, reverse, keeps_this, keeps_other, send_old_values, drop_out_of_order=False)
        self._other_store_name = other.store_name

    def init(self, context: ProcessorContext) -> None:
        """Prepare the look-up."""
        super().init(context)
        self._other_store = KeyValueStoreWrapper(context, self._other_store_name)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the updates of the result."""
        batch, origin = with_key(cast(EngineContext, self.context), batch)
        if not len(batch):
            return batch, origin

        def failed(row: int, error: Exception) -> None:
            failures(row if origin is None else int(origin[row]), error)

        others, other_timestamps = self._other_store.get_columns(batch.keys)
        applied = apply(self._joined, (batch.values, others), failed)
        changes, kept = applied.results, applied.kept
        if has_null(changes):
            there = np.flatnonzero(np.fromiter((change is not None for change in changes), np.bool_, len(changes)))
            changes, kept = take_from(changes, there), composed(kept, there)
        timestamps = np.maximum(batch.timestamps, other_timestamps)
        rest = kept_rows(RecordBatch(batch.keys, batch.values, timestamps, batch.offsets, batch.headers), kept)
        result = RecordBatch(rest.keys, changes, rest.timestamps, rest.offsets, rest.headers)
        return result, composed(origin, kept)


class TableTableJoinMerge(BatchProcessor):
    """Stores the results of both sides (Kafka class: KTableKTableJoinMerger).

    Args:
        store_name: the name of the result's store.
        send_old_values: whether updates include the previous result.
    """

    def __init__(self, store_name: str, send_old_values: bool) -> None:
        self._store_name = store_name
        self._send_old_values = send_old_values

    def init(self, context: ProcessorContext) -> None:
        """Get the store; with a cache, register for its flushes."""
        super().init(context)
        self._store = KeyValueStoreWrapper(context, self._store_name)
        self._forwarder = TimestampedTupleForwarder(self._store.store, context, self._send_old_values)

    @property
    def holds_back(self) -> bool:
        """Whether updates are forwarded when the cache is flushed."""
        return self._forwarder.cached

    def process(self, record: Record[Any, Change]) -> None:
        """Store the result, and forward it unless the store rejected it."""
        change = record.value
        is_latest = self._store.put(record.key, change.new_value, record.timestamp)
        if is_latest is not None:
            self._forwarder.maybe_forward(record.with_value(change._replace(is_latest=is_latest)))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Store the results and return the updates.

        Returns no rows if updates are forwarded when the cache is flushed. Only for a store without versions.
        """
        store, changes = self._store.store, batch.values
        results = RecordBatch(
            batch.keys, [change[0] for change in changes], batch.timestamps, batch.offsets, batch.headers
        )
        keys = cast("list[bytes]", store.serialize_keys(batch.keys))
        put_last(cast(EngineContext, self.context), store, keys, results)
        if self._forwarder.cached:
            return batch.slice(0, 0), np.empty(0, np.int64)
        if self._send_old_values:
            return batch, None
        results.values = [Change(value, None) for value in results.values]
        return results, None


@dataclass(frozen=True)
class JoinedValueGetterSupplier:
    """Makes getters of the join of two tables whose result is not stored."""

    this: ValueGetterSupplier
    other: ValueGetterSupplier
    joiner: TableJoiner
    type: JoinType

    def get(self) -> JoinedValueGetter:
        """Return a new getter."""
        return JoinedValueGetter(self.this.get(), self.other.get(), self.joiner, self.type)

    def store_names(self) -> tuple[str, ...]:
        """Return the names of the stores of both tables."""
        return tuple(dict.fromkeys((*self.this.store_names(), *self.other.store_names())))


class JoinedValueGetter:
    """Computes the values of a join from those of both tables (implements ValueGetter).

    Args:
        this: reads the values of the left table.
        other: reads the values of the right table.
        joiner: returns the result from both values.
        type: the type of the join.
    """

    is_versioned = False

    def __init__(self, this: ValueGetter, other: ValueGetter, joiner: TableJoiner, type: JoinType) -> None:
        self._this = this
        self._other = other
        self._joiner = joiner
        self._type = type

    def init(self, context: ProcessorContext) -> None:
        """Prepare both getters."""
        self._this.init(context)
        self._other.init(context)

    def get(self, key: Any) -> ValueAndTimestamp | None:
        """Return the result for `key`, with the later of the two timestamps."""
        this = self._this.get(key)
        if (this is None or this.value is None) and not self._type.keeps_right:
            return None
        other = self._other.get(key)
        if (other is None or other.value is None) and not self._type.keeps_left:
            return None
        this_value, other_value = (None if entry is None else entry.value for entry in (this, other))
        if this_value is None and other_value is None:
            return None
        timestamp = max(entry.timestamp for entry in (this, other) if entry is not None)
        result = self._joiner(this_value, other_value)
        return None if result is None else ValueAndTimestamp(result, timestamp)

    def get_as_of(self, key: Any, timestamp_ms: int) -> ValueAndTimestamp | None:
        """Raise TypeError: the join of two tables has no versions (KIP-914)."""
        raise TypeError("The join of two tables has no versions, so it cannot be read as of a time.")

    def close(self) -> None:
        """Close both getters."""
        self._this.close()
        self._other.close()
