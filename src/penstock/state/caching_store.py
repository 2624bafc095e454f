"""The caching layer: a record cache over a store's uncommitted writes (Kafka class: CachingKeyValueStore).

Rules: an entry leaving the cache is written below and passed to the listener, if set, with the context of its last
write. The old value is read only if it is needed or the new one is a delete; a delete is dropped if the store below
lacks the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import compress

from penstock.state.api import FlushedEntries, FlushListener, RecordContext
from penstock.state.bytes_store import BytesStore
from penstock.state.record_cache import RecordCache
from penstock.state.uncommitted import merge

Outgoing = Callable[[list[bytes | None], list[RecordContext]], tuple[list[bytes | None], list[RecordContext]]]


def _unchanged(
    values: list[bytes | None], contexts: list[RecordContext]
) -> tuple[list[bytes | None], list[RecordContext]]:
    return values, contexts


class CachingKeyValueStore:
    """Reads and writes through a named cache over `below` (implements BytesStore).

    Args:
        name: the name of the store.
        below: the layer below.
        cache: the record cache of the task.
        context: returns the record that causes a write.
        outgoing: replaces values and contexts of entries that leave the cache.
    """

    def __init__(
        self,
        name: str,
        below: BytesStore,
        cache: RecordCache,
        context: Callable[[], RecordContext],
        outgoing: Outgoing = _unchanged,
    ) -> None:
        self._name = name
        self._below = below
        self._owner = cache
        self._cache = cache.named_cache(name, self._write_below)
        self._context = context
        self._outgoing = outgoing
        self._listener: FlushListener | None = None
        self._send_old_values = False

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Pass each entry leaving the cache to `listener`, with its old value only if `send_old_values`."""
        self._listener = listener
        self._send_old_values = send_old_values

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`; the cache keeps a value read from below."""
        entry = self._cache.get(key)
        if entry is not None:
            return entry[0]
        value = self._below.get(key)
        if value is not None:
            self._cache.put_clean(key, value)
        return value

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key without changing the cache.

        For callers that put the same keys next.
        """
        entries = self._cache.peek_many(keys)
        values = [None if entry is None else entry[0] for entry in entries]
        absent = [place for place, entry in enumerate(entries) if entry is None] if None in entries else []
        if len(absent) == len(keys):
            return self._below.multi_get(keys)
        if absent:
            for place, value in zip(absent, self._below.multi_get([keys[place] for place in absent]), strict=True):
                values[place] = value
        return values

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write an entry (None deletes) with the current context."""
        self._cache.put(key, value, self._context())

    def put_in_context(self, key: bytes, value: bytes | None, context: RecordContext) -> None:
        """Write an entry (None deletes) with `context`."""
        self._cache.put(key, value, context)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each entry in order, with its own or the current context; evicts nothing."""
        self._cache.put_many(keys, values, [self._context()] * len(keys) if contexts is None else contexts)

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the entries with from_key <= key < to_key.

        Cached entries take precedence.
        """
        return merge(
            self._cache.range(from_key, to_key, reverse), self._below.range(from_key, to_key, reverse), reverse
        )

    def approximate_num_entries(self) -> int:
        """Return the number of entries below the cache, as Kafka does."""
        return self._below.approximate_num_entries()

    def flush(self) -> None:
        """Write all dirty entries below and forward them."""
        self._cache.flush()

    def close(self) -> None:
        """Discard the cache without flushing it."""
        self._owner.close_cache(self._name)

    def _write_below(self, keys: list[bytes], values: list[bytes | None], contexts: list[RecordContext]) -> None:
        below, listener, send_old = self._below, self._listener, self._send_old_values
        values, contexts = self._outgoing(values, contexts)
        if listener is None:
            below.put_many(keys, values, contexts)
            return
        old: dict[bytes, bytes | None] = {}
        if send_old or None in values:
            asked = keys if send_old else [key for key, value in zip(keys, values, strict=True) if value is None]
            old = dict(zip(asked, below.multi_get(asked), strict=True))
            there = [value is not None or old[key] is not None for key, value in zip(keys, values, strict=True)]
            keys, values = list(compress(keys, there)), list(compress(values, there))
            contexts = list(compress(contexts, there))
        if not keys:
            return
        below.put_many(keys, values, contexts)
        listener(FlushedEntries(keys, values, [old[key] for key in keys] if send_old else None, contexts))
