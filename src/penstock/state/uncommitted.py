"""Uncommitted writes over a store's committed entries, as bytes: the storage of every task's stores.

Rules: reads see the buffer first; a delete is kept as None until the commit; the base is never written here. The bytes
of the buffer are counted, so that its task can spill it (`spilled`) before it outgrows memory. Iterators tolerate
writes: they show the store as of their creation (like a snapshot of RocksDB), or, for a store in memory, the keys as of
their creation with the current values (like Kafka's in-memory store).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.state.api import BaseView, RecordContext
from penstock.state.sorted_keys import SortedKeys

_ABSENT = object()

ENTRY_BYTES = 160
"""Memory size (bytes) of a buffered entry besides key and value: two objects and their place in a dict."""


class UncommittedStore:
    """A buffer of writes over `view`, the store's committed entries (implements BytesStore).

    Iterators show the store as of their creation.
    """

    def __init__(self, view: BaseView) -> None:
        self._view = view
        self._writes: dict[bytes, bytes | None] = {}
        self._sorted = SortedKeys(self._writes)
        self._bytes = 0

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None if absent."""
        writes = self._writes
        if key in writes:
            return writes[key]
        return self._view.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None if absent."""
        writes = self._writes
        if not writes:
            return self._view.multi_get(keys)
        found: list[bytes | None] = [writes.get(key, _ABSENT) for key in keys]  # type: ignore[arg-type]  # the marker is replaced below
        absent = [place for place, value in enumerate(found) if value is _ABSENT]
        if absent:
            for place, value in zip(absent, self._view.multi_get([keys[place] for place in absent]), strict=True):
                found[place] = value
        return found

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key`; None deletes."""
        writes = self._writes
        before = writes.get(key)
        if before is not None:
            self._bytes -= len(before)
        elif key not in writes:
            self._sorted.changed(key)
            self._bytes += ENTRY_BYTES + len(key)
        if value is not None:
            self._bytes += len(value)
        writes[key] = value

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each value under its key; None deletes. `contexts` is not needed here."""
        if not keys:
            return
        writes = self._writes
        known = len(writes)
        self._bytes += _bytes_of(values) - _bytes_of(map(writes.get, keys))
        writes.update(zip(keys, values, strict=True))
        grown = len(writes) - known
        self._bytes += grown * (ENTRY_BYTES + sum(map(len, keys)) // len(keys))
        self._sorted.forget()

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the entries with from_key <= key < to_key.

        In byte order, or reversed; None leaves an end open.
        """
        writes = self._writes
        committed = self._view.range(from_key, to_key, reverse)
        if not writes:
            return committed
        written = [(key, writes[key]) for key in self._sorted.between(from_key, to_key, reverse)]
        return merge(iter(written), committed, reverse) if written else committed

    def approximate_num_entries(self) -> int:
        """Return the number of entries; costs a look-up for each uncommitted key."""
        total = self._view.approximate_num_entries()
        if self._writes:
            committed = self._view.multi_get(list(self._writes))
            total += sum(
                (new is not None) - (old is not None) for new, old in zip(self._writes.values(), committed, strict=True)
            )
        return total

    def uncommitted_count(self) -> int:
        """Return the number of keys written since the last commit."""
        return len(self._writes)

    def uncommitted_bytes(self) -> int:
        """Return the approximate memory size (bytes) of the uncommitted writes."""
        return self._bytes

    def flush(self) -> None:
        """Do nothing: `changes` returns the writes at the commit."""

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes, None for a delete."""
        return dict(self._writes)

    def clear(self) -> None:
        """Forget the uncommitted writes: the base has them, or they are discarded."""
        self._writes.clear()
        self._bytes = 0
        self._sorted.forget()


class InMemoryUncommittedStore(UncommittedStore):
    """Like UncommittedStore, but iterators show current values.

    They have the keys of their creation, without those deleted since.
    """

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the entries with from_key <= key < to_key.

        In byte order, or reversed; None leaves an end open.
        """
        return self._now(super().range(from_key, to_key, reverse))

    def _now(self, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for key, _ in entries:
            value = self.get(key)
            if value is not None:
                yield key, value


def _bytes_of(values: Iterable[bytes | None]) -> int:
    return sum(map(len, filter(None, values)))


def merge(
    newer: Iterator[tuple[bytes, bytes | None]], older: Iterator[tuple[bytes, bytes]], reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Merge two iterators over entries in key order (descending if `reverse`).

    For a key in both, `newer` wins, and its None hides the key.
    """
    below = next(older, None)
    for key, value in newer:
        while below is not None and (below[0] > key if reverse else below[0] < key):
            yield below
            below = next(older, None)
        if below is not None and below[0] == key:
            below = next(older, None)
        if value is not None:
            yield key, value
    while below is not None:
        yield below
        below = next(older, None)
