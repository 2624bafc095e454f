"""A table's store and the forwarding of its updates.

Timestamped and versioned stores have one interface here.

With a record cache, an update is forwarded when it leaves the cache; without one, immediately.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, cast

import numpy as np

from penstock.metrics.drop_reasons import DropReason
from penstock.processor.api import EngineContext, ProcessorContext, RowOrigin
from penstock.processor.columns import write_contexts
from penstock.record import (
    NO_TIMESTAMP,
    Change,
    Headers,
    Int64Array,
    Record,
    RecordBatch,
    ValueAndTimestamp,
    named_tuples,
    take_from,
)
from penstock.serdes.columns import distinct
from penstock.state.api import EngineStore, EngineTimestampedKeyValueStore, FlushedEntries, RecordContext
from penstock.state.versioned_api import (
    PUT_RETURN_CODE_NOT_PUT,
    PUT_RETURN_CODE_VALID_TO_UNDEFINED,
    EngineVersionedKeyValueStore,
    VersionedRecord,
)
from penstock.state.versioned_store import TypedVersionedKeyValueStore


class KeyValueStoreWrapper:
    """The store of a table, with or without versions (Kafka class: KeyValueStoreWrapper).

    Args:
        context: the context of the processor.
        name: the name of the store.
    """

    def __init__(self, context: ProcessorContext, name: str) -> None:
        store = context.get_state_store(name)
        self._versions: EngineVersionedKeyValueStore | None = (
            store if isinstance(store, TypedVersionedKeyValueStore) else None
        )
        self.store: EngineTimestampedKeyValueStore = store
        self.is_versioned = self._versions is not None

    def get(self, key: Any) -> ValueAndTimestamp | None:
        """Return the latest value of `key`, None if absent."""
        if self._versions is not None:
            return _plain(self._versions.get(key))
        found: ValueAndTimestamp | None = self.store.get(key)
        return found

    def get_as_of(self, key: Any, timestamp_ms: int) -> ValueAndTimestamp | None:
        """Return the value of `key` at `timestamp_ms`; raises TypeError for a store without versions."""
        if self._versions is None:
            raise TypeError(
                f"Store {self.store.name!r} keeps no versions: only a versioned store can be read as of a time."
            )
        return _plain(self._versions.get(key, timestamp_ms))

    def get_columns(self, keys: Sequence[Any]) -> tuple[list[Any], Int64Array]:
        """Return the values and timestamps (ms) of `keys`.

        Absent keys have None and NO_TIMESTAMP. Not for stores with versions.
        """
        return self.store.get_columns(cast("list[bytes]", self.store.serialize_keys(keys)))

    def get_nullable_columns(self, keys: Sequence[Any]) -> tuple[list[Any], Int64Array]:
        """As `get_columns`; a None among the keys is absent."""
        asked = [row for row, key in enumerate(keys) if key is not None]
        if len(asked) == len(keys):
            return self.get_columns(keys)
        values, timestamps = [None] * len(keys), np.full(len(keys), NO_TIMESTAMP, np.int64)
        found, timestamps[asked] = self.get_columns([keys[row] for row in asked])
        for row, value in zip(asked, found, strict=True):
            values[row] = value
        return values, timestamps

    def put(self, key: Any, value: Any, timestamp: int) -> bool | None:
        """Write a value (None deletes) with its timestamp (ms).

        Returns whether it is the latest of its key, None if the store rejected it as too old.
        """
        if self._versions is not None:
            valid_to = self._versions.put(key, value, timestamp)
            return None if valid_to == PUT_RETURN_CODE_NOT_PUT else valid_to == PUT_RETURN_CODE_VALID_TO_UNDEFINED
        self.store.put(key, None if value is None else ValueAndTimestamp(value, timestamp))
        return True


def _plain(record: VersionedRecord | None) -> ValueAndTimestamp | None:
    return None if record is None else ValueAndTimestamp(record.value, record.timestamp)


class TimestampedTupleForwarder:
    """Forwards the updates of one store (Kafka class: TimestampedTupleForwarder).

    It forwards them when they leave the store's cache, or immediately if the store has no cache. The deletes of expired
    entries are updates too.

    Args:
        store: the store.
        context: forwards to all children.
        send_old_values: whether updates include the previous value.
    """

    def __init__(self, store: EngineStore, context: ProcessorContext, send_old_values: bool) -> None:
        self.cached = store.cached
        self._store = store
        self._context = cast(EngineContext, context)
        self._send_old_values = send_old_values
        if store.cached:
            store.set_flush_listener(self._forward_flushed, send_old_values)
        else:
            store.set_expiry_listener(self._forward_flushed, send_old_values)

    def maybe_forward(self, record: Record[Any, Change]) -> None:
        """Forward an update that was just written, unless the cache holds it back."""
        if self.cached:
            return
        if not self._send_old_values and record.value.old_value is not None:
            record = record.with_value(record.value._replace(old_value=None))
        self._context.forward(record)

    def _forward_flushed(self, entries: FlushedEntries) -> None:
        """Forward the updates that leave the cache."""
        store, contexts = self._store, entries.contexts
        shown = [context.headers for context in contexts] if store.uses_headers else None
        keys = store.deserialize_keys(entries.keys, shown)
        new, timestamps = store.deserialize_columns(entries.new_values, shown)
        old = repeat(None) if entries.old_values is None else store.deserialize_columns(entries.old_values, shown)[0]
        offsets = np.array([context.offset for context in contexts], np.int64)
        headers = self._headers(contexts)
        flushed = RecordBatch(
            keys,
            named_tuples(Change, new, old, repeat(True)),
            self._timestamps(keys, timestamps, entries),
            offsets,
            headers if any(headers) else None,
        )
        self._context.forward_flushed(flushed, contexts)

    def _timestamps(self, keys: list[Any], timestamps: Int64Array, entries: FlushedEntries) -> Int64Array:
        """Return the timestamp (ms) of each update that leaves the cache.

        It is that of the value or, for a delete, that of the causing record.
        """
        if None not in entries.new_values:
            return timestamps
        contexts = entries.contexts
        caused = np.fromiter((context.timestamp for context in contexts), np.int64, len(contexts))
        return np.where(timestamps == NO_TIMESTAMP, caused, timestamps)

    def _headers(self, contexts: Sequence[RecordContext]) -> list[Headers]:
        """Return the headers of each update that leaves the cache: those of its causing record."""
        return [context.headers for context in contexts]


class SessionTupleForwarder(TimestampedTupleForwarder):
    """Forwards the updates of a session store (Kafka class: SessionTupleForwarder).

    The timestamp of each update is the end of its session. As in Kafka, no headers are forwarded without a cache, or if
    the store keeps headers, because those are empty.
    """

    def maybe_forward(self, record: Record[Any, Change]) -> None:
        """Forward an update that was just written, unless the cache holds it back."""
        super().maybe_forward(record.with_headers(()))

    def _timestamps(self, keys: list[Any], timestamps: Int64Array, entries: FlushedEntries) -> Int64Array:
        return np.fromiter((window.end for _, window in keys), np.int64, len(keys))

    def _headers(self, contexts: Sequence[RecordContext]) -> list[Headers]:
        return [] if self._store.with_headers else super()._headers(contexts)


class TableWriter:
    """Writes the updates of a table to its store and forwards them.

    It works on single updates and on batches.

    Args:
        context: the context of the processor.
        store_name: the name of the store; for batches, it must not have versions.
        send_old_values: whether updates include the previous value.
        skip_absent: whether to skip updates of keys without a value before and after.
    """

    def __init__(self, context: ProcessorContext, store_name: str, send_old_values: bool, skip_absent: bool) -> None:
        self._engine = cast(EngineContext, context)
        self._store = KeyValueStoreWrapper(context, store_name)
        self._forwarder = TimestampedTupleForwarder(self._store.store, context, send_old_values)
        self._send_old_values = send_old_values
        self._skip_absent = skip_absent

    @property
    def cached(self) -> bool:
        """Whether updates are forwarded when the cache is flushed."""
        return self._forwarder.cached

    def write(self, record: Record[Any, Any], value: Any) -> None:
        """Write `value` (None deletes) with the key and time of `record`, and forward the update.

        Nothing is forwarded if the store rejects the update as too old.
        """
        entry = self._store.get(record.key) if self._send_old_values else None
        old = None if entry is None else entry.value
        if self._skip_absent and value is None and old is None:
            return
        is_latest = self._store.put(record.key, value, record.timestamp)
        if is_latest is None:  # the store counts it
            self._engine.write_dropped(DropReason.LATE)
            return
        change = Change(value, old, is_latest)
        self._forwarder.maybe_forward(Record(record.key, change, record.timestamp, record.headers))

    def write_batch(self, batch: RecordBatch) -> tuple[RecordBatch, RowOrigin]:
        """Write all rows; reads each key at most once and writes it once.

        Returns the updates to forward, without rows if there is a cache, and their rows of origin.
        """
        keys = cast("list[bytes]", self._store.store.serialize_keys(batch.keys))
        rows: RowOrigin = None
        old: list[Any] = []
        if self._send_old_values and (self._skip_absent or not self._forwarder.cached):
            old = self._values_before(keys, batch.values)
            if self._skip_absent:
                pairs = zip(batch.values, old, strict=True)
                rows = np.flatnonzero(np.fromiter((a is not None or b is not None for a, b in pairs), np.bool_))
                batch, keys, old = batch.take(rows), take_from(keys, rows), take_from(old, rows)
        put_last(self._engine, self._store.store, keys, batch)
        if self._forwarder.cached:
            return batch.slice(0, 0), np.empty(0, np.int64)
        before = old if self._send_old_values else repeat(None)
        changes: list[Any] = named_tuples(Change, batch.values, before, repeat(True))
        return RecordBatch(batch.keys, changes, batch.timestamps, batch.offsets, batch.headers), rows

    def _values_before(self, keys: Sequence[bytes], values: Sequence[Any]) -> list[Any]:
        """Return the previous value of each row's key, assuming that all rows are written."""
        known = list(dict.fromkeys(keys))
        current = dict(zip(known, self._store.store.get_columns(known)[0], strict=True))
        fresh = self._store.store.fresh
        written: dict[bytes, Any] = {}
        before = []
        for key, value in zip(keys, values, strict=True):
            before.append(fresh(written[key]) if key in written else current[key])
            written[key] = value
        return before


def put_last(
    context: EngineContext, store: EngineTimestampedKeyValueStore, keys: list[bytes], batch: RecordBatch
) -> None:
    """Write the value of each key's last row to `store`.

    The writes are in the order of these rows, each in the context of its row.

    Args:
        context: the context of the processor.
        store: the store.
        keys: the keys of `batch` as bytes.
        batch: the rows.
    """
    if not keys:
        return
    known, places = distinct(keys)
    last = np.empty(len(known), np.int64)
    last[places] = np.arange(len(keys))
    order = np.argsort(last)
    rows = last[order]
    contexts = write_contexts(context.source_partitions(), batch, rows)
    values, timestamps = take_from(batch.values, rows), batch.timestamps[rows]
    store.put_columns(take_from(known, order), values, timestamps, contexts)
