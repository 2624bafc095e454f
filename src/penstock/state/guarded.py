"""Reads of the entries of a store by other threads than that of its task, which goes on writing.

Each read takes a lock that the task holds while it runs. An iterator takes a limited number of entries at a time, so
that the task does not wait for long: the first of them are as of when it was made, later ones as of when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

Guard = Callable[[], AbstractContextManager[object]]
"""Returns what a read is done in: it waits for the task, and raises InvalidStateStoreError if that is closed."""

AT_ONCE = 1_000
"""Entries that an iterator takes while the task waits."""


class GuardedReads:
    """Reads what a store of bytes, or a view, has (implements BaseView)."""

    def __init__(self, below: Any, guard: Guard) -> None:
        """Read `below`: a BytesStore or a BaseView, which no call here changes."""
        self._below = below
        self._guard = guard

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if there is none."""
        (value,) = self.multi_get([key])  # which leaves a record cache as it is
        return value

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of `keys`, None if there is none."""
        with self._guard():
            found: list[bytes | None] = self._below.multi_get(keys)
        return found

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the entries with from_key <= key < to_key in byte order, or reversed."""
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
        """Return about how many entries there are."""
        with self._guard():
            return int(self._below.approximate_num_entries())

    # ---------- of stores whose entries expire

    def segments(self, from_time: int, to_time: int) -> list[bytes]:
        """Return the segments with entries that are of `from_time` to `to_time` (ms), in order."""
        with self._guard():
            found: list[bytes] = self._below.segments(from_time, to_time)
        return found

    @property
    def observed_time(self) -> int:
        """The clock of the store (ms)."""
        with self._guard():
            return int(self._below.observed_time)
