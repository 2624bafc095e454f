"""The buffer of `suppress`: each key's latest update (Kafka class: InMemoryTimeOrderedKeyValueChangeBuffer).

The order is by the time given to a key's first update. An update is stored with the context of its record and the value
that the key had before the first update. Entries are ordered by time and serialised key; an index maps a key to its
time. The number of entries and their counted bytes are processor metadata. Memory holds only the keys due next and the
updates since the last commit: most leave before the next commit, and are never serialised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from heapq import heappop, heappush
from itertools import islice, repeat
from typing import Any, NamedTuple, cast

import numpy as np

from penstock.errors import ProcessorStateError
from penstock.metrics.observer import NOT_OBSERVED, TaskObserver
from penstock.record import NO_TIMESTAMP, Change, Int64Array, ValueAndTimestamp, named_tuples
from penstock.state.api import RecordContext
from penstock.state.buffered_change import BufferedChange, pack_change, pack_origin, unpack_change
from penstock.state.change_logging_store import StoreChangeLog
from penstock.state.layouts import AFTER_SEGMENTS, TIMESTAMP_SIZE, pack_timestamp, timestamp_of
from penstock.state.record_cache import context_size
from penstock.state.state_serdes import StateSerdes
from penstock.state.typed_store import TypedStore
from penstock.state.uncommitted import UncommittedStore
from penstock.windows import LONG_MAX

INDEX_PREFIX = b"\xff"
"""The prefix of index keys; the index maps a key to its time."""
_TIME_SIZE = 8
_CONTEXT_SIZE = 20
"""Bytes counted for timestamp, offset and partition of a context."""
_CHUNK = 4096
"""Number of keys per read from the store."""
_FRESH_BYTES = 600
"""Approximate memory size (bytes) of an update besides its bytes: tuples, and the objects of its context."""


class Eviction(NamedTuple):
    """An update leaving the buffer, with its record's context (Kafka class: TimeOrderedKeyValueBuffer.Eviction)."""

    key: Any
    change: Change
    context: RecordContext


class WaitingUpdate(NamedTuple):
    """An update in the buffer.

    Args:
        entry_key: its time and its serialised key.
        size: its counted bytes.
        stored: whether the store below has this update, or an earlier one of the key.
    """

    entry_key: bytes
    change: BufferedChange
    size: int
    stored: bool

    @property
    def key(self) -> bytes:
        """The serialised key."""
        return self.entry_key[TIMESTAMP_SIZE:]


class TimeOrderedChangeBuffer(TypedStore):
    """Updates that wait for their time (implements EngineStore).

    Args:
        serdes: the serdes of the store.
        buffer: the uncommitted writes, which contain the updates.
        metadata: contains the counts.
        log: receives the changes of a commit, also a key that came and went since the last one.
        observer: receives the size after each added update, and after updates that leave together, as in Kafka.
    """

    def __init__(
        self,
        serdes: StateSerdes,
        buffer: UncommittedStore,
        metadata: MutableMapping[str, int],
        log: StoreChangeLog | None = None,
        observer: TaskObserver = NOT_OBSERVED,
    ) -> None:
        super().__init__(serdes, buffer, None, persistent=False)
        self._observer = observer
        self._entries = buffer
        self._log = log
        self._metadata = metadata
        self._records_name, self._bytes_name = f"{self._name}/records", f"{self._name}/bytes"
        self._records, self._bytes = metadata.get(self._records_name, 0), metadata.get(self._bytes_name, 0)
        self._fresh: dict[bytes, WaitingUpdate] = {}  # by key, the updates missing in the store below
        self._fresh_bytes = 0  # their approximate memory size
        self._stored_records = self._records  # number of keys with an update in the store below
        self._next: list[bytes] = []  # a heap of the entry keys of all updates before the horizon
        self._horizon: bytes | None = b""  # None: no update is beyond it

    @property
    def num_records(self) -> int:
        """Number of waiting keys."""
        return self._records

    @property
    def buffer_size(self) -> int:
        """Bytes of the updates, as Kafka estimates them."""
        return self._bytes

    @property
    def min_timestamp(self) -> int:
        """The earliest time (ms) of an update, or LONG_MAX if the buffer is empty."""
        if not self._next and self._horizon is not None:
            self._read_next(self._horizon)
        return timestamp_of(self._next[0]) if self._next else LONG_MAX

    def put(self, time: int, key: Any, change: Change, context: RecordContext) -> None:
        """Add `change` of `key`, caused by the record of `context`.

        A waiting key keeps its time; a new one gets `time` (ms). Raises TypeError for a None key.
        """
        self.put_serialized(time, *self.serialize_change(key, change), context)

    def put_serialized(self, time: int, key: bytes, new: bytes | None, old: Any, context: RecordContext) -> None:
        """Like `put`, with key and values as `serialize_change` returns them."""
        before = self._waiting(key)
        added = self._change_after(before, new, old, context)
        if before is None:
            if self._horizon == b"":
                self._read_next(b"")
            entry_key = pack_timestamp(time) + key
            size = _size(key, added)
            self._count(1, size)
            if self._horizon is None or entry_key < self._horizon:
                heappush(self._next, entry_key)
            self._fresh[key] = WaitingUpdate(entry_key, added, size, False)
            self._fresh_bytes += size + _FRESH_BYTES
        else:
            size = _size(key, added)
            self._count(0, size - before.size)
            self._fresh_bytes += size - before.size if key in self._fresh else size + _FRESH_BYTES
            self._fresh[key] = WaitingUpdate(before.entry_key, added, size, before.stored)
        self._report_size()

    def serialize_change(self, key: Any, change: Change) -> tuple[bytes, bytes | None, Any]:
        """Return key, new value and old value as bytes, for `put_serialized`.

        Raises TypeError for a None key, and the errors of the serde.
        """
        serialize = self._serdes.serialize_value
        return self._serialize_key(key), serialize(change.new_value), serialize(change.old_value)

    def serialize_changes(
        self, keys: Sequence[Any], changes: Sequence[Change]
    ) -> tuple[list[bytes], list[bytes | None], list[Any]]:
        """Return keys, new values and old values as bytes, for `put_serialized`.

        Raises TypeError for a None key, and the errors of the serde.
        """
        self._check_open()
        serialized = self._serdes.serialize_keys(keys)
        if None in serialized:
            self._refuse()
        no_times = np.full(len(changes), NO_TIMESTAMP, np.int64)
        new, old = (self._serdes.serialize_values([change[place] for change in changes], no_times) for place in (0, 1))
        return cast("list[bytes]", serialized), new, old

    def deserialize_changes(self, updates: Sequence[WaitingUpdate]) -> tuple[list[Any], list[Change]]:
        """Deserialise the keys and changes of `updates`, passing their records' headers to the serdes."""
        headers = [update.change.context.headers for update in updates] if self.uses_headers else None
        keys = self._serdes.deserialize_keys([update.key for update in updates], headers)
        new, _ = self._serdes.deserialize_values([update.change.new_value for update in updates], headers)
        old, _ = self._serdes.deserialize_values([update.change.old_value for update in updates], headers)
        return keys, named_tuples(Change, new, old, repeat(True))

    def buffers(self, key: Any) -> bool:
        """Return whether `key` has a waiting update."""
        return self._waiting(self._serialize_key(key)) is not None

    def prior_value(self, key: Any) -> ValueAndTimestamp | None:
        """Return the value that a waiting `key` had before its first update, with NO_TIMESTAMP.

        Returns None if it had no value or is not waiting.
        """
        update = self._waiting(self._serialize_key(key))
        if update is None:
            return None
        headers = [update.change.context.headers] if self.uses_headers else None
        (value,), _ = self._serdes.deserialize_values([update.change.prior_value], headers)
        return None if value is None else ValueAndTimestamp(value, NO_TIMESTAMP)

    def evict_while(self, predicate: Callable[[], bool], callback: Callable[[Eviction], None]) -> int:
        """Pass updates to `callback`, oldest first, while `predicate` is true and updates remain.

        Each is removed after its callback. Returns the number of removed updates.
        """
        evicted = 0
        while self.min_timestamp != LONG_MAX and predicate():
            update = self._eldest()
            (key,), (change,) = self.deserialize_changes([update])
            callback(Eviction(key, change, update.change.context))
            self._remove(update)
            evicted += 1
        if evicted:
            self._report_size()
        return evicted

    def take_until(self, time: int) -> Iterator[WaitingUpdate]:
        """Remove and yield the updates up to `time` (ms), oldest first."""
        before = self._records
        try:
            while self.min_timestamp <= time:
                update = self._eldest()
                self._remove(update)
                yield update
        finally:
            if self._records < before:
                self._report_size()

    def uncommitted_bytes(self) -> int:
        """Return the approximate memory size (bytes) of the uncommitted writes, including new updates."""
        return self._fresh_bytes + super().uncommitted_bytes()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes, None for a delete."""
        self._store_fresh()
        return super().changes()

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Int64Array) -> None:
        """Write the updates of changelog records, by entry key; None removes the key's update."""
        for key, value in zip(keys, values, strict=True):
            self._restore_update(key, value)

    def _restore_update(self, key: bytes, value: bytes | None) -> None:
        plain = key if value is None else key[TIMESTAMP_SIZE:]
        before = self._waiting(plain)
        if before is not None:
            self._remove(before)
        if value is not None:
            change = unpack_change(value)
            update = WaitingUpdate(key, change, _size(plain, change), False)
            self._fresh[plain] = update
            self._fresh_bytes += update.size + _FRESH_BYTES
            self._count(1, update.size)
        self._next, self._horizon = [], b""  # read them again

    def close(self) -> None:
        """Close the store; uncommitted writes are discarded."""
        self._fresh.clear()
        super().close()

    def _change_after(
        self, before: WaitingUpdate | None, new: bytes | None, old: Any, context: RecordContext
    ) -> BufferedChange:
        """Return the update that follows `before`, None if the key was not waiting."""
        return BufferedChange(old if before is None else before.change.prior_value, old, new, context)

    def _waiting(self, key: bytes) -> WaitingUpdate | None:
        return self._fresh.get(key) or self._stored(key)

    def _stored(self, key: bytes) -> WaitingUpdate | None:
        """Return the update of `key` in the store below, or None if absent."""
        if not self._stored_records:
            return None
        time = self._entries.get(INDEX_PREFIX + key)
        data = None if time is None else self._entries.get(time + key)
        if time is None or data is None:
            return None
        change = unpack_change(data)
        return WaitingUpdate(time + key, change, _size(key, change), True)

    def _eldest(self) -> WaitingUpdate:
        """Return the oldest update; it must be removed before the next call."""
        entry_key = heappop(self._next)
        update = self._waiting(entry_key[TIMESTAMP_SIZE:])
        if update is None:
            raise ProcessorStateError(f"Store {self._name!r} has lost an update of {timestamp_of(entry_key)} ms.")
        return update

    def _remove(self, update: WaitingUpdate) -> None:
        key = update.key
        if self._fresh.pop(key, None) is not None:
            self._fresh_bytes -= update.size + _FRESH_BYTES
        if update.stored:
            self._stored_records -= 1
            self._entries.put(update.entry_key, None)
            self._entries.put(INDEX_PREFIX + key, None)
        if self._log is not None:
            self._log.put(update.entry_key, None)
        self._count(-1, -update.size)

    def _store_fresh(self) -> None:
        """Write the updates missing in the store below."""
        for key, update in self._fresh.items():
            if not update.stored:
                self._entries.put(INDEX_PREFIX + key, update.entry_key[:TIMESTAMP_SIZE])
            data = pack_change(update.change)
            self._entries.put(update.entry_key, data)
            if self._log is not None:
                self._log.put(update.entry_key, data)
        self._fresh.clear()
        self._fresh_bytes = 0
        self._stored_records = self._records

    def _read_next(self, horizon: bytes) -> None:
        """Read the keys of the next entries, from `horizon` on: they are sorted, and so a heap."""
        self._store_fresh()
        keys = [key for key, _ in islice(self._entries.range(horizon, AFTER_SEGMENTS, False), _CHUNK + 1)]
        self._horizon = keys.pop() if len(keys) > _CHUNK else None
        self._next = keys

    def _count(self, records: int, size: int) -> None:
        self._records += records
        self._bytes += size
        self._metadata[self._records_name] = self._records
        self._metadata[self._bytes_name] = self._bytes

    def _report_size(self) -> None:
        self._observer.buffer_changed(self._name, self._bytes, self._records)


def _size(key: bytes, change: BufferedChange) -> int:
    prior, old, new, context, origins = change
    same = change.old_is_prior
    values = len(prior or b"") + (0 if same else len(old or b"")) + len(new or b"")
    if origins is not None:  # Kafka holds each value with its origin
        values += len(origins.prior or b"") + (0 if same else len(origins.old or b""))
        values += 0 if new is None else len(pack_origin(context))
    return _TIME_SIZE + len(key) + values + _CONTEXT_SIZE + context_size(context)


def size_of_entry(entry_key: bytes, data: bytes) -> int:
    """Return the counted bytes of an update in the store below, from its entry."""
    return _size(entry_key[TIMESTAMP_SIZE:], unpack_change(data))
