"""The operators of a table that look at one key at a time: sources, filter, map_values, transform_values, to_stream;
and how other nodes read a table.

Between the nodes of tables flow records whose value is a Change; its old value is None unless the node sends old
values. A table with a store forwards like `TimestampedTupleForwarder`; one without computes its values from its
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

# ---------- how another node reads a table


class ValueGetter(Protocol):
    """Reads the values of one table (Kafka class: KTableValueGetter); for a windowed table keys are Windowed."""

    @property
    def is_versioned(self) -> bool:
        """Whether `get_as_of` can be asked; known after `init`."""
        ...

    def init(self, context: ProcessorContext) -> None:
        """Get the stores from the context of the node that reads."""
        ...

    def get(self, key: Any) -> ValueAndTimestamp | None:
        """Return the latest value of `key`, None if there is none."""
        ...

    def get_as_of(self, key: Any, timestamp_ms: int) -> ValueAndTimestamp | None:
        """Return the value that `key` had at `timestamp_ms`; raises TypeError for a table without versions."""
        ...

    def close(self) -> None:
        """Release what `init` took."""
        ...


class ValueGetterSupplier(Protocol):
    """Makes the value getters of one table; picklable (Kafka class: KTableValueGetterSupplier)."""

    def get(self) -> ValueGetter:
        """Return a new getter."""
        ...

    def store_names(self) -> tuple[str, ...]:
        """Return the names of the stores that the node that reads must be connected to."""
        ...


@dataclass(frozen=True)
class StoreValueGetterSupplier:
    """Makes getters of the table whose values are in the store `store_name` (Kafka class:
    KTableMaterializedValueGetterSupplier)."""

    store_name: str

    def get(self) -> StoreValueGetter:
        """Return a new getter."""
        return StoreValueGetter(self.store_name)

    def store_names(self) -> tuple[str, ...]:
        """Return the name of the store."""
        return (self.store_name,)


class StoreValueGetter:
    """Reads a table from its store (implements ValueGetter)."""

    def __init__(self, store_name: str) -> None:
        """Take the name of the store."""
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
        """Return the value that `key` had at `timestamp_ms`."""
        return self._store.get_as_of(key, timestamp_ms)

    def close(self) -> None:
        """Do nothing: the task closes its stores."""


@dataclass(frozen=True)
class ComputedValueGetterSupplier:
    """Makes getters of a table without a store: its values are computed from those of its parent."""

    parent: ValueGetterSupplier
    computation: Callable[[], ValueComputation]

    def get(self) -> ComputedValueGetter:
        """Return a new getter."""
        return ComputedValueGetter(self.parent.get(), self.computation())

    def store_names(self) -> tuple[str, ...]:
        """Return the names of the stores of the tables above."""
        return self.parent.store_names()


class ComputedValueGetter:
    """Computes the values of a table from those of its parent (implements ValueGetter)."""

    def __init__(self, parent: ValueGetter, computation: ValueComputation) -> None:
        """Read by `parent`."""
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
        """Return the value that `key` had at `timestamp_ms`."""
        return self._computation.entry(key, self._parent.get_as_of(key, timestamp_ms))

    def close(self) -> None:
        """Close the parent, then the computation."""
        self._parent.close()
        self._computation.close()


# ---------- how the value of an entry follows from that of its parent


class ValueComputation:
    """Gives an entry of a table its value from that of the parent's entry; None is no entry."""

    def init(self, context: ProcessorContext) -> None:
        """Prepare for entries; by default nothing is needed."""

    @abstractmethod
    def value(self, key: Any, value: Any) -> Any:
        """Return the value of `key` where its parent has `value`."""
        raise NotImplementedError

    def entry(self, key: Any, entry: ValueAndTimestamp | None) -> ValueAndTimestamp | None:
        """Return the entry of `key` where its parent has `entry`; the timestamp stays."""
        value = None if entry is None else self.value(key, entry.value)
        return None if entry is None or value is None else ValueAndTimestamp(value, entry.timestamp)

    def close(self) -> None:
        """Release what `init` took."""


class FilteredValue(ValueComputation, UsesResults):
    """The same value where a predicate holds, or does not hold (Kafka class: KTableFilter)."""

    held = (PREDICATE,)

    def __init__(self, predicate: Callable[[Any, Any], bool], negate: bool) -> None:
        """Take the predicate of key and value, which is not asked of deleted entries; `negate` keeps the others."""
        self._predicate = predicate
        self._negate = negate

    def value(self, key: Any, value: Any) -> Any:
        """Return the value if it passes."""
        return value if value is not None and bool(self._predicate(key, value)) != self._negate else None


class MappedValue(ValueComputation, UsesResults):
    """What a mapper makes of the value (Kafka class: KTableMapValues)."""

    held = (TABLE_MAPPER,)

    def __init__(self, mapper: Callable[..., Any], with_key: bool) -> None:
        """Take the mapper, of the value, or of key and value if `with_key`; it is not called for deleted entries."""
        self._mapper = mapper
        self._with_key = with_key

    def value(self, key: Any, value: Any) -> Any:
        """Return the value mapped."""
        if value is None:
            return None
        return self._mapper(key, value) if self._with_key else self._mapper(value)


class TransformedValue(ValueComputation):
    """What a transformer of the user's own makes of the value; it is called for deleted entries too (Kafka class:
    KTableTransformValues)."""

    def __init__(self, supplier: ValueTransformerWithKeySupplier) -> None:
        """Take the supplier; each computation has its own transformer."""
        self._supplier = supplier

    def init(self, context: ProcessorContext) -> None:
        """Make the transformer and hand it the context."""
        self._context = cast(EngineContext, context)
        self._transformer: ValueTransformerWithKey = initialized(self._supplier, context)

    def value(self, key: Any, value: Any) -> Any:
        """Return what the transformer returns."""
        return self._transformer.transform(key, value)

    def entry(self, key: Any, entry: ValueAndTimestamp | None) -> ValueAndTimestamp | None:
        """Return the entry with the value that the transformer returns; it has no known input record."""
        before, timestamp = (None, NO_TIMESTAMP) if entry is None else entry
        with self._context.in_record_context(RecordContext(timestamp, ())):
            value = self._transformer.transform(key, before)
        return None if value is None else ValueAndTimestamp(value, timestamp)

    def close(self) -> None:
        """Close the transformer."""
        self._transformer.close()


# ---------- sources


class TableSource(BatchProcessor):
    """Turns the records of a topic or stream into the updates of a table without a store; drops those without a key
    (Kafka class: KTableSource)."""

    def init(self, context: ProcessorContext) -> None:
        """Keep the context."""
        super().init(context)
        self._engine = cast(EngineContext, context)

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record's value as an update."""
        if record.key is None:
            self._engine.count_dropped(DropReason.NULL_KEY)
            return
        self.context.forward(Record(record.key, Change(record.value, None), record.timestamp, record.headers))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows with a key as updates."""
        batch, rows = with_key(self._engine, batch)
        changes = [Change(value, None) for value in batch.values]
        return RecordBatch(batch.keys, changes, batch.timestamps, batch.offsets, batch.headers), rows


class MaterializedTableSource(TableSource):
    """Writes the records of a topic or stream to the store of a table and forwards them as its updates; drops those
    without a key (Kafka class: KTableSource)."""

    def __init__(self, store_name: str, send_old_values: bool) -> None:
        """Take the name of the store; `send_old_values`: forward the value before each update, too."""
        self._store_name = store_name
        self._send_old_values = send_old_values

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        super().init(context)
        self._writer = TableWriter(context, self._store_name, self._send_old_values, skip_absent=False)

    @property
    def holds_back(self) -> bool:
        """Whether updates leave when the cache is flushed."""
        return self._writer.cached

    def process(self, record: Record[Any, Any]) -> None:
        """Write the record's value, which may be None, and forward it; older records are taken, too."""
        if record.key is None:
            self._engine.count_dropped(DropReason.NULL_KEY)
            return
        self._writer.write(record, record.value)

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Write the rows with a key and return the updates."""
        batch, rows = with_key(self._engine, batch)
        updates, origin = self._writer.write_batch(batch)
        return updates, composed(rows, origin)


# ---------- filter, map_values, transform_values


class TableValues(Processor, UsesResults):
    """Gives the updates of a table other values (Kafka classes: KTableFilter, KTableMapValues, KTableTransformValues).

    skip_absent: forward nothing if there is no value before and after.
    """

    held = ()

    def __init__(self, computation: Callable[[], ValueComputation], send_old_values: bool, skip_absent: bool) -> None:
        """Compute values by what `computation` makes, old ones only if `send_old_values`."""
        self._computation = computation()
        self._send_old_values = send_old_values
        self._skip_absent = skip_absent

    def users(self) -> Iterable[UsesResults]:
        """Return the computation if it calls a function of the user."""
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
    """The same, for computations that need no context."""

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
    """Gives the updates of a table other values, and keeps them in a store, which has the old values."""

    def __init__(
        self,
        store_name: str,
        computation: Callable[[], ValueComputation],
        send_old_values: bool,
        skip_absent: bool,
    ) -> None:
        """Write to the store `store_name`; the other arguments are those of TableValues."""
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
    """The same, for computations that need no context and a store without versions."""

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Write the new values and return the updates."""
        applied = apply(self._computation.value, (batch.keys, [change[0] for change in batch.values]), failures)
        rest = kept_rows(batch, applied.kept)
        new = RecordBatch(rest.keys, applied.results, rest.timestamps, rest.offsets, rest.headers)
        updates, rows = self._writer.write_batch(new)
        return updates, composed(applied.kept, rows)


# ---------- to_stream


class TableToStream(BatchProcessor):
    """Turns each update of a table into a record with the new value (Kafka class: the KStreamMapValues of
    KTable.toStream)."""

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the new value under the same key."""
        self.context.forward(Record(record.key, record.value.new_value, record.timestamp, record.headers))

    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Return the rows with their new values."""
        return RecordBatch(
            batch.keys, [change[0] for change in batch.values], batch.timestamps, batch.offsets, batch.headers
        ), None
