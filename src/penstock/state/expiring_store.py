"""The layers of a store with a time to live: they hide expired entries, and delete them.

Rules:
- Reads omit entries from the moment of their expiry, although the store still has some of them.
- A sweep deletes expired entries as any writer does, so the changelog has a tombstone for each.
- A read by key may renew an entry, and then writes it as any writer does. Readers outside of the task use `multi_get`,
  which renews nothing.
- The operators below a table receive the delete of an expired entry before any later update of its key. A record cache
  forwards the new value with the one that is stored below; without a cache, a write deletes the expired entry first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from penstock.state.api import FlushedEntries, FlushListener, RecordContext
from penstock.state.bytes_store import BufferedBytesStore, BytesStore
from penstock.state.caching_store import CachingKeyValueStore
from penstock.state.expiry import Expiry
from penstock.state.ttl import OnExpiry


class _UnexpiredReads(ABC):
    """Reads the unexpired entries of `entries`."""

    def __init__(self, entries: BytesStore, expiry: Expiry) -> None:
        self._entries = entries
        self._expiry = expiry

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None if absent or expired; the read may renew the entry."""
        value = self._expiry.unexpired(self._entries.get(key))
        renewed = None if value is None else self._expiry.renewed(value)
        if renewed is None:
            return value
        self.put(key, renewed)
        return renewed

    @abstractmethod
    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key`; None deletes."""
        raise NotImplementedError

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None if absent or expired."""
        return list(map(self._expiry.unexpired, self._entries.multi_get(keys)))

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the unexpired entries with from_key <= key < to_key.

        In byte order, or reversed; None leaves an end open.
        """
        latest, has_expired = self._expiry.latest_expired(), self._expiry.has_expired
        entries = self._entries.range(from_key, to_key, reverse)
        return (entry for entry in entries if not has_expired(entry[1], latest))

    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries, including expired ones not yet deleted."""
        return self._entries.approximate_num_entries()


class ExpiringStore(_UnexpiredReads):
    """The expiring entries of a store without a record cache (implements BufferedBytesStore).

    Args:
        below: the store.
        expiry: decides which entries have expired.
    """

    def __init__(self, below: BufferedBytesStore, expiry: Expiry) -> None:
        super().__init__(below, expiry)
        self._below = below
        self._listener: FlushListener | None = None
        self._send_old_values = False
        expiry.schedule(self.sweep)

    def set_expiry_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Pass deleted entries to `listener` if the operators below receive them, with old values if asked."""
        if self._expiry.on_expiry is OnExpiry.FORWARD_DELETE:
            self._listener = listener
            self._send_old_values = send_old_values

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key`; None deletes."""
        self._delete_expired([key])
        self._expiry.count_writes(1)
        self._below.put(key, value)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each value under its key; None deletes."""
        self._delete_expired(keys)
        self._expiry.count_writes(len(keys))
        self._below.put_many(keys, values, contexts)

    def sweep(self) -> None:
        """Delete the expired ones of the next entries."""
        self._delete(self._expiry.take_expired(self._below))

    def flush(self) -> None:
        """Store the time of the commit, and flush the store below."""
        self._expiry.commit_time()
        self._below.flush()

    def uncommitted_bytes(self) -> int:
        """Return the approximate memory size (bytes) of the uncommitted writes."""
        return self._below.uncommitted_bytes()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes, None for a delete."""
        return self._below.changes()

    def clear(self) -> None:
        """Forget the uncommitted writes: the base has them, or they are discarded."""
        self._below.clear()

    def _delete_expired(self, keys: Sequence[bytes]) -> None:
        """Delete the expired entries of `keys`, about to be written, if anyone receives the deletes."""
        if self._listener is not None:
            self._delete(self._expiry.expired_among(keys, self._below.multi_get(keys)))

    def _delete(self, expired: Sequence[tuple[bytes, bytes]]) -> None:
        if not expired:
            return
        keys, old = [key for key, _ in expired], [value for _, value in expired]
        absent: list[bytes | None] = [None] * len(keys)
        contexts = list(map(self._expiry.delete_context, old))
        self._below.put_many(keys, absent, contexts)
        if self._listener is not None:
            self._listener(FlushedEntries(keys, absent, [*old] if self._send_old_values else None, contexts))


class ExpiringCachingStore(_UnexpiredReads):
    """The expiring entries of a store with a record cache (implements CachingBytesStore).

    Args:
        cache: the record cache of the store.
        below: the store below the cache.
        expiry: decides which entries have expired.
    """

    def __init__(self, cache: CachingKeyValueStore, below: BufferedBytesStore, expiry: Expiry) -> None:
        super().__init__(cache, expiry)
        self._cache = cache
        self._below = below
        expiry.schedule(self.sweep)

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Pass each entry leaving the cache to `listener`, with its old value only if `send_old_values`."""
        self._cache.set_flush_listener(listener, send_old_values)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write an entry (None deletes) with the current context."""
        self._expiry.count_writes(1)
        self._cache.put(key, value)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each entry in order, with its own or the current context; evicts nothing."""
        self._expiry.count_writes(len(keys))
        self._cache.put_many(keys, values, contexts)

    def sweep(self) -> None:
        """Delete the expired ones of the next entries below the cache, unless it has unexpired values of them.

        Entries that are only in the cache leave it as deletes. To forward nothing, an entry is deleted below
        first: the cache drops the delete of an entry that is absent there.
        """
        keys = [key for key, _ in self._expiry.take_expired(self._below)]
        expired = self._expiry.expired_among(keys, self._cache.multi_get(keys))
        contexts = [self._expiry.delete_context(value) for _, value in expired]
        if self._expiry.on_expiry is OnExpiry.DROP and expired:
            self._below.put_many([key for key, _ in expired], [None] * len(expired), contexts)
        for (key, _), context in zip(expired, contexts, strict=True):
            self._cache.put_in_context(key, None, context)

    def flush(self) -> None:
        """Store the time of the commit, write all dirty entries below and forward them."""
        self._expiry.commit_time()
        self._cache.flush()

    def close(self) -> None:
        """Discard the cache without flushing it."""
        self._cache.close()
