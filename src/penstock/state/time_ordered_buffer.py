"""The buffer of `suppress`: the latest update of each key, in the order of a time that its first update was given
(Kafka class: InMemoryTimeOrderedKeyValueChangeBuffer).

An update is kept with the context of its record and the value that the key had before the first update. Entries are
ordered by time and serialised key; an index says the time of a key. How many there are and how many bytes they count
for are processor metadata. In memory are only the keys of what comes out next.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from heapq import heappop, heappush
from itertools import islice
from typing import Any, NamedTuple

from penstock.errors import ProcessorStateError
from penstock.record import NO_TIMESTAMP, Change, ValueAndTimestamp
from penstock.state.api import RecordContext
from penstock.state.cache import context_size
from penstock.state.change_layout import BufferedChange, pack_change, unpack_change
from penstock.state.layouts import AFTER_SEGMENTS, TIMESTAMP_SIZE, pack_timestamp, timestamp_of
from penstock.state.metered import MeteredStore
from penstock.state.state_serdes import StateSerdes
from penstock.state.uncommitted import UncommittedStore
from penstock.windows import LONG_MAX

_INDEX_PREFIX = b"\xff"
_TIME_SIZE = 8
_CONTEXT_SIZE = 20
"""Bytes counted for timestamp, offset and partition of a context."""
_CHUNK = 4096
"""How many keys are read from the store at once."""


class Eviction(NamedTuple):
    """An update that leaves the buffer, with the context of its record (Kafka class:
    TimeOrderedKeyValueBuffer.Eviction)."""

    key: Any
    change: Change
    context: RecordContext


class TimeOrderedChangeBuffer(MeteredStore):
    """Updates that wait for their time (implements EngineStore)."""

    def __init__(self, serdes: StateSerdes, buffer: UncommittedStore, metadata: MutableMapping[str, int]) -> None:
        """Keep the updates in `buffer`, uncommitted writes, and the counts in `metadata`."""
        super().__init__(serdes, buffer, None, persistent=False)
        self._entries = buffer
        self._metadata = metadata
        self._records, self._bytes = f"{self._name}/records", f"{self._name}/bytes"
        self._next: list[bytes] = []  # a heap of the keys of all entries before the horizon
        self._horizon: bytes | None = b""  # None: no entry is behind it

    @property
    def num_records(self) -> int:
        """How many keys wait."""
        return self._metadata.get(self._records, 0)

    @property
    def buffer_size(self) -> int:
        """How many bytes the updates count for, as Kafka estimates them."""
        return self._metadata.get(self._bytes, 0)

    @property
    def min_timestamp(self) -> int:
        """The least time (ms) of an update, LONG_MAX if none waits."""
        if not self._next and self._horizon is not None:
            self._read_next(self._horizon)
        return timestamp_of(self._next[0]) if self._next else LONG_MAX

    def put(self, time: int, key: Any, change: Change, context: RecordContext) -> None:
        """Keep `change` of `key`, which came with the record of `context`; one that waits already keeps its time, else
        it is `time` (ms). Raises TypeError for a None key."""
        serialized = self._serialize_key(key)
        new, old = self._serdes.serialize_value(change.new_value), self._serdes.serialize_value(change.old_value)
        index_key = _INDEX_PREFIX + serialized
        known = self._entries.get(index_key)
        before = None if known is None else self._entries.get(known + serialized)
        if known is None or before is None:
            known = pack_timestamp(time)
            self._entries.put(index_key, known)
            self._count(1, _size(serialized, added := BufferedChange(old, old, new, context)))
            if self._horizon is None or known + serialized < self._horizon:
                heappush(self._next, known + serialized)
        else:
            replaced = unpack_change(before)
            added = BufferedChange(replaced.prior_value, old, new, context)
            self._count(0, _size(serialized, added) - _size(serialized, replaced))
        self._entries.put(known + serialized, pack_change(added))

    def buffers(self, key: Any) -> bool:
        """Return whether an update of `key` waits."""
        return self._entries.get(_INDEX_PREFIX + self._serialize_key(key)) is not None

    def prior_value(self, key: Any) -> ValueAndTimestamp | None:
        """Return the value that a waiting `key` had before its first update, with NO_TIMESTAMP, None if it had none or
        does not wait."""
        serialized = self._serialize_key(key)
        time = self._entries.get(_INDEX_PREFIX + serialized)
        data = None if time is None else self._entries.get(time + serialized)
        value = None if data is None else self._serdes.deserialize_value(unpack_change(data).prior_value)
        return None if value is None else ValueAndTimestamp(value, NO_TIMESTAMP)

    def evict_while(self, predicate: Callable[[], bool], callback: Callable[[Eviction], None]) -> int:
        """Give updates to `callback`, the eldest first, as long as `predicate` is true and there are any; each is
        removed after its callback. Return how many left."""
        evicted = 0
        read = self._serdes.deserialize_value
        while self.min_timestamp != LONG_MAX and predicate():
            entry_key = heappop(self._next)
            serialized, data = entry_key[TIMESTAMP_SIZE:], self._entries.get(entry_key)
            if data is None:
                raise ProcessorStateError(f"Store {self._name!r} has lost an update of {timestamp_of(entry_key)} ms.")
            buffered = unpack_change(data)
            change = Change(read(buffered.new_value), read(buffered.old_value))
            callback(Eviction(self._serdes.deserialize_key(serialized), change, buffered.context))
            self._entries.put(entry_key, None)
            self._entries.put(_INDEX_PREFIX + serialized, None)
            self._count(-1, -_size(serialized, buffered))
            evicted += 1
        return evicted

    def _read_next(self, horizon: bytes) -> None:
        """Read the keys of the next entries, from `horizon` on: they are in order, and so a heap."""
        keys = [key for key, _ in islice(self._entries.range(horizon, AFTER_SEGMENTS, False), _CHUNK + 1)]
        self._horizon = keys.pop() if len(keys) > _CHUNK else None
        self._next = keys

    def _count(self, records: int, size: int) -> None:
        metadata = self._metadata
        metadata[self._records] = metadata.get(self._records, 0) + records
        metadata[self._bytes] = metadata.get(self._bytes, 0) + size


def _size(key: bytes, change: BufferedChange) -> int:
    prior, old, new, context = change
    values = len(prior or b"") + (0 if old == prior else len(old or b"")) + len(new or b"")
    return _TIME_SIZE + len(key) + values + _CONTEXT_SIZE + context_size(context)
