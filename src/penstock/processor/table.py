"""The operators of a table on single keys, and the access to a table's values.

The operators are sources, filter, map_values, transform_values and to_stream.

Records between the nodes of tables have a Change as value; its old value is None unless the node sends old values. A
table with a store forwards like `TimestampedTupleForwarder`; a table without a store computes its values from its
parent's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import BatchProcessor, EngineContext, FailureHandler, Processor, ProcessorContext, RowOrigin
from penstock.processor.columns import apply, composed, has_null, kept_rows, with_key
from penstock.processor.first_results import PREDICATE, TABLE_MAPPER, UsesResults
from penstock.processor.forwarding import KeyValueStoreWrapper, TableWriter
from penstock.processor.value_transformer import ValueTransformerWithKey, ValueTransformerWithKeySupplier, initialized
from penstock.record import NO_TIMESTAMP, Change, Record, RecordBatch, ValueAndTimestamp, take_from
from penstock.state.api import RecordContext

# ---------- access to a table from other nodes


class ValueGetter(Protocol):
    """Reads the values of one table (Kafka class: KTableValueGetter).

    The keys of a windowed table are Windowed.
    """

    @property
    def is_versioned(self) -> bool:
        """Whether the table supports `get_as_of`; known after `init`."""
        ...

    def init(self, context: ProcessorContext) -> None:
        """Get the stores from the context of the reading node."""
        ...

    def get(self, key: Any) -> ValueAndTimestamp | None:
        """Return the latest value of `key`, None if absent."""
        ...

    def get_as_of(self, key: Any, timestamp_ms: int) -> ValueAndTimestamp | None:
        """Return the value of `key` at `timestamp_ms`; raises TypeError for a table without versions."""
        ...

    def close(self) -> None:
        """Release the resources of `init`."""
        ...


class ValueGetterSupplier(Protocol):
    """Makes the value getters of one table; picklable (Kafka class: KTableValueGetterSupplier)."""

    def get(self) -> ValueGetter:
        """Return a new getter."""
        ...

    def store_names(self) -> tuple[str, ...]:
        """Return the names of the stores to connect to the reading node."""
        ...


@dataclass(frozen=True)
class StoreValueGetterSupplier:
    """Makes getters of a table with a store (Kafka class: KTableMaterializedValueGetterSupplier).

    Args:
        store_name: the name of the store.
    """

    store_name: str

    def get(self) -> StoreValueGetter:
        """Return a new getter."""
        return StoreValueGetter(self.store_name)

    def store_names(self) -> tuple[str, ...]:
        """Return the name of the store."""
        return (self.store_name,)


class StoreValueGetter:
    """Reads a table from its store (implements ValueGetter).

    Args:
        store_name: the name of the store.
    """

    def __init__(self, store_name: str) -> None:
        self._store_name = store_name

    @property
    def is_versioned(self) -> bool:
        """Whether the store keeps versions."""
        return self._store.is_versioned

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        self._store = KeyValueStoreWrapper(context, self._store_name)

    def get(self, key: Any) -> ValueAndTimestamp | None:
        """Return the latest value of `key`."""
        return self._store.get(key)

    def get_as_of(self, key: Any, timestamp_ms: int) -> ValueAndTimestamp | None:
        """Return the value of `key` at `timestamp_ms`."""
        return self._store.get_as_of(key, timestamp_ms)

    def close(self) -> None:
        """Do nothing: the task closes its stores."""


@dataclass(frozen=True)
class ComputedValueGetterSupplier:
    """Makes getters of a table without a store.

    They compute its values from those of its parent.
    """

    parent: ValueGetterSupplier
    computation: Callable[[], ValueComputation]

    def get(self) -> ComputedValueGetter:
        """Return a new getter."""
        return ComputedValueGetter(self.parent.get(), self.computation())

    def store_names(self) -> tuple[str, ...]:
        """Return the names of the stores of the tables above."""
        return self.parent.store_names()


class ComputedValueGetter:
    """Computes the values of a table from those of its parent (implements ValueGetter).

    Args:
        parent: reads the values of the parent.
        computation: computes the values.
    """

    def __init__(self, parent: ValueGetter, computation: ValueComputation) -> None:
        self._parent = parent
        self._computation = computation

    @property
    def is_versioned(self) -> bool:
        """Whether the parent keeps versions."""
        return self._parent.is_versioned

    def init(self, context: ProcessorContext) -> None:
        """Prepare the parent, then the computation."""
        self._parent.init(context)
        self._computation.init(context)

    def get(self, key: Any) -> ValueAndTimestamp | None:
        """Return the latest value of `key`."""
        return self._computation.entry(key, self._parent.get(key))

    def get_as_of(self, key: Any, timestamp_ms: int) -> ValueAndTimestamp | None:
        """Return the value of `key` at `timestamp_ms`."""
        return self._computation.entry(key, self._parent.get_as_of(key, timestamp_ms))

    def close(self) -> None:
        """Close the parent, then the computation."""
        self._parent.close()
        self._computation.close()


# ---------- computation of a value from the parent's


class ValueComputation:
    """Computes the value of a table's entry from the parent's entry; None means no entry."""

    def init(self, context: ProcessorContext) -> None:
        """Prepare for entries; does nothing by default."""

    @abstractmethod
    def value(self, key: Any, value: Any) -> Any:
        """Return the value of `key` if its parent has `value`."""
        raise NotImplementedError

    def entry(self, key: Any, entry: ValueAndTimestamp | None) -> ValueAndTimestamp | None:
        """Return the entry of `key` if its parent has `entry`; the timestamp stays the same."""
        value = None if entry is None else self.value(key, entry.value)
        return None if entry is None or value is None else ValueAndTimestamp(value, entry.timestamp)

    def close(self) -> None:
        """Release the resources of `init`."""


class FilteredValue(ValueComputation, UsesResults):
    """The unchanged value if it matches a predicate, or if it does not (Kafka class: KTableFilter).

    Args:
        predicate: the predicate of key and value, not called for deleted entries.
        negate: whether to keep the values that do not match.
    """

    held = (PREDICATE,)

    def __init__(self, predicate: Callable[[Any, Any], bool], negate: bool) -> None:
        self._predicate = predicate
        self._negate = negate

    def value(self, key: Any, value: Any) -> Any:
        """Return the value if it passes."""
        return value if value is not None and bool(self._predicate(key, value)) != self._negate else None


class MappedValue(ValueComputation, UsesResults):
    """The mapped value (Kafka class: KTableMapValues).

    Args:
        mapper: returns the new value; not called for deleted entries.
        with_key: whether the mapper takes key and value, or only the value.
    """

    held = (TABLE_MAPPER,)

    def __init__(self, mapper: Callable[..., Any], with_key: bool) -> None:
        self._mapper = mapper
        self._with_key = with_key

    def value(self, key: Any, value: Any) -> Any:
        """Return the mapped value."""
        if value is None:
            return None
        return self._mapper(key, value) if self._with_key else self._mapper(value)


class TransformedValue(ValueComputation):
    """The result of a user's transformer (Kafka class: KTableTransformValues).

    The transformer is called for deleted entries too.

    Args:
        supplier: makes the transformers; each computation has its own.
    """

    def __init__(self, supplier: ValueTransformerWithKeySupplier) -> None:
        self._supplier = supplier

    def init(self, context: ProcessorContext) -> None:
        """Make the transformer and pass it the context."""
        self._context = cast(EngineContext, context)
        self._transformer: ValueTransformerWithKey = initialized(self._supplier, context)

    def value(self, key: Any, value: Any) -> Any:
        """Return the transformer's result."""
        return self._transformer.transform(key, value)

    def entry(self, key: Any, entry: ValueAndTimestamp | None) -> ValueAndTimestamp | None:
        """Return the entry with the transformer's result; its input record is unknown."""
        before, timestamp = (None, NO_TIMESTAMP) if entry is None else entry
        with self._context.in_record_context(RecordContext(timestamp, ())):
            value = self._transformer.transform(key, before)
        return None if value is None else ValueAndTimestamp(value, timestamp)

    def close(self) -> None:
        """Close the transformer."""
        self._transformer.close()


# ---------- sources


class TableSource(BatchProcessor):
    """Converts records to updates of a table without a store (Kafka class: KTableSource).

    The records come from a topic or a stream. Those without a key are dropped.
    """

    def init(self, context: ProcessorContext) -> None:
        """Store the context."""
        super().init(context)
        self._engine = cast(EngineContext, context)

    @property
    def drops_rows(self) -> bool:
        """Whether `process_batch` reports each dropped row: it does."""
        return True

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record's value as an update."""
        if record.key is None:
            self._engine.drop(DropReason.NULL_KEY)
            return
        self.context.forward(Record(record.key, Change(record.value, None), record.timestamp, record.headers))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows with a key as updates."""
        batch, rows = with_key(self._engine, batch)
        changes = [Change(value, None) for value in batch.values]
        return RecordBatch(batch.keys, changes, batch.timestamps, batch.offsets, batch.headers), rows


class MaterializedTableSource(TableSource):
    """Writes records to the store of a table, and forwards them as updates.

    The records come from a topic or a stream. Those without a key are dropped (Kafka class: KTableSource).

    Args:
        store_name: the name of the store.
        send_old_values: whether updates include the previous value.
    """

    def __init__(self, store_name: str, send_old_values: bool) -> None:
        self._store_name = store_name
        self._send_old_values = send_old_values

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        super().init(context)
        self._writer = TableWriter(context, self._store_name, self._send_old_values, skip_absent=False)

    @property
    def holds_back(self) -> bool:
        """Whether updates are forwarded when the cache is flushed."""
        return self._writer.cached

    def process(self, record: Record[Any, Any]) -> None:
        """Write the record's value, which may be None, and forward it.

        Out-of-order records are accepted too.
        """
        if record.key is None:
            self._engine.drop(DropReason.NULL_KEY)
            return
        self._writer.write(record, record.value)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Write the rows with a key and return the updates."""
        batch, rows = with_key(self._engine, batch)
        updates, origin = self._writer.write_batch(batch)
        return updates, composed(rows, origin)


# ---------- filter, map_values, transform_values


class TableValues(Processor, UsesResults):
    """Gives the updates of a table other values.

    Kafka classes: KTableFilter, KTableMapValues, KTableTransformValues.

    Args:
        computation: makes the computation of the values.
        send_old_values: whether to compute old values too.
        skip_absent: whether to skip updates without a value before and after.
    """

    held = ()

    def __init__(self, computation: Callable[[], ValueComputation], send_old_values: bool, skip_absent: bool) -> None:
        self._computation = computation()
        self._send_old_values = send_old_values
        self._skip_absent = skip_absent

    def users(self) -> Iterable[UsesResults]:
        """Return the computation if it calls a user function."""
        return (self._computation,) if isinstance(self._computation, UsesResults) else ()

    def init(self, context: ProcessorContext) -> None:
        """Prepare the computation."""
        super().init(context)
        self._computation.init(context)

    def process(self, record: Record[Any, Change]) -> None:
        """Forward the update with its new values."""
        change = self._change(record.key, record.value)
        if change is not None:
            self.context.forward(Record(record.key, change, record.timestamp, record.headers))

    def _change(self, key: Any, change: Change) -> Change | None:
        compute = self._computation.value
        new = compute(key, change.new_value)
        old = compute(key, change.old_value) if self._send_old_values else None
        return None if self._skip_absent and new is None and old is None else Change(new, old, change.is_latest)

    def close(self) -> None:
        """Close the computation."""
        self._computation.close()


class BatchTableValues(TableValues, BatchProcessor):
    """TableValues with batches, for computations that need no context."""

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the updates with their new values."""
        applied = apply(self._change, (batch.keys, batch.values), failures)
        changes, kept = applied.results, applied.kept
        if self._skip_absent and has_null(changes):
            rows = np.flatnonzero(np.fromiter((change is not None for change in changes), np.bool_, len(changes)))
            changes = take_from(changes, rows)
            kept = composed(kept, rows)
        rest = kept_rows(batch, kept)
        return RecordBatch(rest.keys, changes, rest.timestamps, rest.offsets, rest.headers), kept


class MaterializedTableValues(Processor):
    """Gives the updates of a table other values, and stores them.

    Old values come from the store.

    Args:
        store_name: the name of the store.
        computation: makes the computation of the values.
        send_old_values: whether updates include the previous value.
        skip_absent: whether to skip updates without a value before and after.
    """

    def __init__(
        self,
        store_name: str,
        computation: Callable[[], ValueComputation],
        send_old_values: bool,
        skip_absent: bool,
    ) -> None:
        self._store_name = store_name
        self._computation = computation()
        self._send_old_values = send_old_values
        self._skip_absent = skip_absent

    def init(self, context: ProcessorContext) -> None:
        """Prepare the computation and get the store."""
        super().init(context)
        self._computation.init(context)
        self._writer = TableWriter(context, self._store_name, self._send_old_values, self._skip_absent)

    def process(self, record: Record[Any, Change]) -> None:
        """Write the new value and forward the update."""
        self._writer.write(record, self._computation.value(record.key, record.value.new_value))

    def close(self) -> None:
        """Close the computation."""
        self._computation.close()


class BatchMaterializedTableValues(MaterializedTableValues, BatchProcessor):
    """MaterializedTableValues with batches, for stores without versions.

    The computations need no context.
    """

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Write the new values and return the updates."""
        applied = apply(self._computation.value, (batch.keys, [change[0] for change in batch.values]), failures)
        rest = kept_rows(batch, applied.kept)
        new = RecordBatch(rest.keys, applied.results, rest.timestamps, rest.offsets, rest.headers)
        updates, rows = self._writer.write_batch(new)
        return updates, composed(applied.kept, rows)


# ---------- to_stream


class TableToStream(BatchProcessor):
    """Converts each update of a table to a record with the new value.

    Kafka class: the KStreamMapValues of KTable.toStream.
    """

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the new value with the same key."""
        self.context.forward(Record(record.key, record.value.new_value, record.timestamp, record.headers))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows with their new values."""
        return RecordBatch(
            batch.keys, [change[0] for change in batch.values], batch.timestamps, batch.offsets, batch.headers
        ), None
