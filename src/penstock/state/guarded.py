"""Reads of a store from other threads than its task's, while the task keeps writing.

Each read takes a lock that the task holds while it runs. An iterator reads a limited number of entries at a time, so
that the task does not wait long: the first entries are as of the iterator's creation, later ones as of their reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

Guard = Callable[[], AbstractContextManager[object]]
"""Returns a context manager for a read: it waits for the task and raises InvalidStateStoreError if that is closed."""

AT_ONCE = 1_000
"""Number of entries that an iterator reads while the task waits."""


class GuardedReads:
    """Reads a store of bytes, or a view, under a lock (implements BaseView).

    Args:
        below: a BytesStore or a BaseView; no call here changes it.
        guard: the lock.
    """

    def __init__(self, below: Any, guard: Guard) -> None:
        self._below = below
        self._guard = guard

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None if absent."""
        (value,) = self.multi_get([key])  # leaves a record cache unchanged
        return value

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None if absent."""
        with self._guard():
            found: list[bytes | None] = self._below.multi_get(keys)
        return found

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the entries with from_key <= key < to_key.

        In byte order, or reversed; None leaves an end open.
        """
        return self._rest(self._some(from_key, to_key, reverse), from_key, to_key, reverse)

    def _rest(
        self, some: list[tuple[bytes, bytes]], from_key: bytes | None, to_key: bytes | None, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        while some:
            yield from some
            if len(some) < AT_ONCE:
                return
            last = some[-1][0]
            from_key, to_key = (from_key, last) if reverse else (last + b"\0", to_key)
            some = self._some(from_key, to_key, reverse)

    def _some(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> list[tuple[bytes, bytes]]:
        with self._guard():
            return list(islice(self._below.range(from_key, to_key, reverse), AT_ONCE))

    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries."""
        with self._guard():
            return int(self._below.approximate_num_entries())

    # ---------- for stores with expiring entries

    def segments(self, from_time: int, to_time: int) -> list[bytes]:
        """Return the segments with entries from `from_time` to `to_time` (ms), in order."""
        with self._guard():
            found: list[bytes] = self._below.segments(from_time, to_time)
        return found

    @property
    def observed_time(self) -> int:
        """The clock of the store (ms)."""
        with self._guard():
            return int(self._below.observed_time)
