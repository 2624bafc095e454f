"""A cache of the recently read keys of a window store with duplicates.

A join reads the same keys again and again, and each read of the base costs more than all other work on a record.

Rules: the cache agrees with the store, uncommitted writes and committed entries alike. It may still contain expired
entries, so readers must skip them. The number of entries is limited: at the limit, all are forgotten and read again
from the store when needed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence

MAX_ENTRIES = 500_000
"""Maximum number of entries, about 100 bytes each plus their values."""

_OFTEN = 4  # new entries of a key between removals of its expired ones

Entry = tuple[int, int, bytes]
"""Start of the window (ms), sequence number, value as bytes."""


class RecentDuplicates:
    """Entries by key, ordered by time and then by write.

    Args:
        max_entries: the maximum number of entries.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._entries: dict[bytes, list[Entry]] = {}
        self._count = 0

    def add(self, key: bytes, entry: Entry, oldest: int) -> None:
        """Record a completed write; entries before `oldest` (ms) have expired."""
        entries = self._entries.get(key)
        if entries is None:
            return
        insert(entries, entry)
        self._count += 1
        if len(entries) % _OFTEN == 0:
            self._expire(entries, oldest)
        if self._count > self._max_entries:
            self._forget()

    def between(
        self, key: bytes, time_from: int, time_to: int, load: Callable[[bytes], Iterable[Entry]]
    ) -> list[Entry]:
        """Return the entries of `key` from `time_from` to `time_to` (ms), both inclusive, in order.

        load: reads all entries of a key from the store, in order. Storing it here would create a reference cycle that
        includes the base.
        """
        return between(self.of(key, load), time_from, time_to)

    def of(self, key: bytes, load: Callable[[bytes], Iterable[Entry]]) -> list[Entry]:
        """Return all entries of `key`, in order. Whoever adds to the list calls `settle` after the writes."""
        entries = self._entries.get(key)
        if entries is None:
            entries = list(load(key))
            if self._count + len(entries) + 1 > self._max_entries:
                self._forget()
            if len(entries) < self._max_entries:
                self._entries[key] = entries
                self._count += len(entries) + 1
        return entries

    def of_each(
        self, keys: Sequence[bytes], are_read: Sequence[bool], load: Callable[[bytes], Iterable[Entry]]
    ) -> list[list[Entry] | None]:
        """Return the entries of each key, as `of`; None if it is not read, and has not been read before."""
        lists: list[list[Entry] | None] = list(map(self._entries.get, keys))
        for place, is_read in enumerate(are_read):
            if is_read and lists[place] is None:
                lists[place] = self.of(keys[place], load)
        return lists

    def settle(self, keys: Iterable[bytes], lists: Iterable[list[Entry] | None], added: int, oldest: int) -> None:
        """Count entries added to the lists of `keys`; those before `oldest` (ms) have expired."""
        self._count += added
        for key, entries in zip(keys, lists, strict=True):
            if entries and self._entries.get(key) is entries:
                self._expire(entries, oldest)
        if self._count > self._max_entries:
            self._forget()

    def _expire(self, entries: list[Entry], oldest: int) -> None:
        if entries[0][0] < oldest:
            expired = bisect_left(entries, (oldest,))
            del entries[:expired]
            self._count -= expired

    def _forget(self) -> None:
        self._entries.clear()
        self._count = 0


def insert(entries: list[Entry], entry: Entry) -> None:
    """Add an entry in its place, which is usually the end."""
    if entries and entry < entries[-1]:
        insort(entries, entry)
    else:
        entries.append(entry)


def between(entries: list[Entry], time_from: int, time_to: int) -> list[Entry]:
    """Return the entries from `time_from` to `time_to` (ms), both inclusive."""
    if not entries or entries[-1][0] < time_from:
        return []
    start = 0 if entries[0][0] >= time_from else bisect_left(entries, (time_from,))
    if entries[-1][0] <= time_to:
        return entries[start:]
    return entries[start : bisect_left(entries, (time_to + 1,))]
