"""The record cache of a task: an LRU cache over all its cached stores, bounded in bytes.

Kafka classes: ThreadCache, NamedCache.

The rules are all Kafka's, because they determine the updates that users see:
- Each store has a named cache; the bound applies to the sum of all. After a put, the oldest entries *of the cache that
  was put to* are evicted until the sum is within the bound or that cache is empty.
- Evicting a dirty entry flushes the whole dirty set of its cache: the evicted entry first, the others in the order of
  their last write.
- A batch of puts evicts nothing until the task calls `RecordCache.evict`: updates may then leave later than one by one.
- A flush writes the dirty set in that order and keeps the entries as clean ones; deleted ones leave the cache.
- A read counts as use; an entry read from below is cached as a clean one and may itself cause evictions.
- The size of an entry is Kafka's, see `entry_size`, so that evictions happen at the same record.

One divergence: the sum is always exact. Kafka counts an entry twice if it is put while its own cache is evicting.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from penstock.metrics.observer import NOT_OBSERVED, TaskObserver
from penstock.state.api import RecordContext
from penstock.state.sorted_keys import SortedKeys

ENTRY_OVERHEAD = 45
"""Bytes counted for an entry besides key, value, topic and headers.

They cover three references, the dirty mark, timestamp, offset and partition.
"""


CacheEntry = tuple[bytes | None, RecordContext | None, int]
"""A value (None: deleted), the context of its write (None: read from below) and its counted bytes."""

FlushDirty = Callable[[list[bytes], list[bytes | None], list[RecordContext]], None]
"""Writes dirty entries of one named cache to the store below and forwards them.

Receives keys, values (None: deleted) and contexts of the last writes.
"""


def context_size(context: RecordContext) -> int:
    """Return the bytes counted for the topic and the headers of `context`."""
    size = 0 if context.topic is None else len(context.topic)
    for name, value in context.headers:
        size += len(name) + (0 if value is None else len(value))
    return size


def entry_size(key: bytes, value: bytes | None, context: RecordContext | None) -> int:
    """Return the bytes counted for an entry: key, value, topic, headers, and ENTRY_OVERHEAD."""
    size = ENTRY_OVERHEAD + len(key) + (0 if value is None else len(value))
    return size if context is None else size + context_size(context)


class RecordCache:
    """The named caches of one task and their common bound (Kafka class: ThreadCache).

    Args:
        max_bytes: the bound in bytes; with 0, stores are built without caches.
        observer: receives the number of hits of each named cache.
    """

    __slots__ = ("_caches", "_observer", "_put_to", "max_bytes", "size_bytes")

    def __init__(self, max_bytes: int, observer: TaskObserver = NOT_OBSERVED) -> None:
        self.max_bytes = max_bytes
        self._observer = observer
        self.size_bytes = 0
        self._caches: dict[str, NamedCache] = {}
        self._put_to: list[NamedCache] = []

    def named_cache(self, store_name: str, flush_dirty: FlushDirty) -> NamedCache:
        """Create the cache of `store_name`; raises RuntimeError if it exists."""
        if store_name in self._caches:
            raise RuntimeError(f"Store {store_name!r} already has a record cache: a task builds each store once.")
        cache = self._caches[store_name] = NamedCache(self, store_name, flush_dirty, self._observer)
        return cache

    def note_batch(self, cache: NamedCache) -> None:
        """Register `cache`, which received a batch of puts, for the next `evict`."""
        if cache not in self._put_to:
            self._put_to.append(cache)

    def evict(self) -> None:
        """Evict from the caches with batches of puts until the cache is within its bound."""
        put_to, self._put_to = self._put_to, []
        for cache in put_to:
            cache.evict()

    def close_cache(self, store_name: str) -> None:
        """Drop the cache of `store_name` with all its entries; nothing is flushed."""
        cache = self._caches.pop(store_name, None)
        if cache is not None:
            cache.clear()


class NamedCache:
    """The cached entries of one store (Kafka class: NamedCache).

    Args:
        owner: the task's cache, whose bound applies.
        store_name: the name of the store.
        flush_dirty: receives the dirty entries at a flush.
        observer: receives the number of hits.
    """

    __slots__ = ("_dirty", "_entries", "_flush_dirty", "_observer", "_owner", "_sorted", "_store_name", "size_bytes")

    def __init__(self, owner: RecordCache, store_name: str, flush_dirty: FlushDirty, observer: TaskObserver) -> None:
        self._owner = owner
        self._store_name = store_name
        self._observer = observer
        self._flush_dirty = flush_dirty
        self._entries: OrderedDict[bytes, CacheEntry] = OrderedDict()  # oldest first
        self._dirty: dict[bytes, None] = {}  # in the order of the last write
        self._sorted = SortedKeys(self._entries)
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries)

    def get(self, key: bytes) -> CacheEntry | None:
        """Return the entry of `key`, or None if absent, and count it as used."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        if self._observer.should_record:
            self._observer.cache_read(self._store_name, 1, 0 if entry is None else 1)
        return entry

    def peek_many(self, keys: Sequence[bytes]) -> list[CacheEntry | None]:
        """Return the entry of each key, or None if absent, without counting it as used."""
        entries = list(map(self._entries.get, keys))
        if self._observer.should_record:
            self._observer.cache_read(self._store_name, len(entries), len(entries) - entries.count(None))
        return entries

    def put(self, key: bytes, value: bytes | None, context: RecordContext) -> None:
        """Write an entry (None: delete); may evict."""
        dirty = self._dirty
        dirty.pop(key, None)
        dirty[key] = None
        self._set(key, (value, context, entry_size(key, value, context)))

    def put_clean(self, key: bytes, value: bytes) -> None:
        """Cache an entry read from the store below, not dirty here; may evict."""
        self._set(key, (value, None, ENTRY_OVERHEAD + len(key) + len(value)))

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext]
    ) -> None:
        """Write each entry in order, like `put`, but evict nothing: `RecordCache.evict` does."""
        entries, dirty = self._entries, self._dirty
        move_to_end = entries.move_to_end
        grown, overhead = 0, ENTRY_OVERHEAD
        seen: object = None
        for key, value, context in zip(keys, values, contexts, strict=True):
            if context.headers or context.topic is not seen:  # mostly no headers, one topic
                seen = context.headers or context.topic
                overhead = ENTRY_OVERHEAD + context_size(context)
            size = overhead + len(key) + (0 if value is None else len(value))
            before = entries.get(key)
            entries[key] = (value, context, size)
            if before is None:
                grown += size
            else:
                move_to_end(key)
                dirty.pop(key, None)
                grown += size - before[2]
            dirty[key] = None
        self._sorted.changed_many(keys)
        self.size_bytes += grown
        self._owner.size_bytes += grown
        self._owner.note_batch(self)

    def evict(self) -> None:
        """Evict the oldest entries until the caches are within their bound or this one is empty."""
        owner, entries = self._owner, self._entries
        while owner.size_bytes > owner.max_bytes and entries:  # each turn removes one; a flush may add some
            if next(iter(entries)) in self._dirty:
                self._evict_eldest()
            else:
                self._drop_clean(owner.size_bytes - owner.max_bytes)

    def flush(self) -> None:
        """Flush all dirty entries and keep them as clean ones; deleted ones leave the cache."""
        self._flush([], [], [])

    def range(
        self, from_key: bytes | None, to_key: bytes | None, reverse: bool
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """Return an iterator over the entries with from_key <= key < to_key.

        Deleted entries are None. The keys are as of the iterator's creation, the values as of their reading, which
        counts as use.
        """
        return self._used(self._sorted.between(from_key, to_key, reverse))

    def clear(self) -> None:
        """Drop all entries; nothing is flushed."""
        self._owner.size_bytes -= self.size_bytes
        self.size_bytes = 0
        self._entries.clear()
        self._dirty.clear()
        self._sorted.forget()

    def _used(self, keys: list[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        for key in keys:
            entry = self.get(key)
            if entry is not None:
                yield key, entry[0]

    def _set(self, key: bytes, entry: CacheEntry) -> None:
        entries, owner = self._entries, self._owner
        before = entries.get(key)
        entries[key] = entry
        if before is None:
            grown = entry[2]
            self._sorted.changed(key)
        else:
            grown = entry[2] - before[2]
            entries.move_to_end(key)
        self.size_bytes += grown
        owner.size_bytes += grown
        if owner.size_bytes > owner.max_bytes:
            self.evict()

    def _evict_eldest(self) -> None:
        """Evict the oldest entry, which is dirty."""
        key, (value, context, size) = self._entries.popitem(last=False)
        self._sorted.changed(key)
        self.size_bytes -= size
        self._owner.size_bytes -= size
        del self._dirty[key]
        self._flush([key], [value], cast("list[RecordContext]", [context]))

    def _drop_clean(self, excess: int) -> None:
        """Drop the oldest clean entries, up to the first dirty one, until `excess` bytes are free."""
        entries, dirty = self._entries, self._dirty
        dropped, freed = [], 0
        for key, (_, _, size) in entries.items():
            if freed >= excess or key in dirty:
                break
            dropped.append(key)
            freed += size
        for _ in dropped:
            entries.popitem(last=False)
        self._sorted.changed_many(dropped)
        self.size_bytes -= freed
        self._owner.size_bytes -= freed

    def _flush(self, keys: list[bytes], values: list[bytes | None], contexts: list[RecordContext]) -> None:
        """Flush the given entries, followed by the other dirty ones."""
        entries = self._entries
        dirty = list(self._dirty)
        keys += dirty
        values += [entries[key][0] for key in dirty]
        contexts += cast("list[RecordContext]", [entries[key][1] for key in dirty])  # dirty entries have a context
        self._dirty.clear()  # first, since a forwarded record may write to this cache again
        if keys:
            deleted = [key for key in dirty if entries[key][0] is None] if None in values else []
            self._flush_dirty(keys, values, contexts)
            for key in deleted:
                self._remove_deleted(key)

    def _remove_deleted(self, key: bytes) -> None:
        entry = self._entries.get(key)
        if entry is not None and entry[0] is None and key not in self._dirty:
            del self._entries[key]
            self._sorted.changed(key)
            self.size_bytes -= entry[2]
            self._owner.size_bytes -= entry[2]
