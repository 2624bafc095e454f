"""Reads of a base: entries and stamp of one transaction, and views of stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import lmdb

from penstock.errors import CorruptedBaseError
from penstock.state.api import BaseView
from penstock.state.lmdb.environment import DAMAGED
from penstock.state.lmdb.stored_keys import (
    LONGEST_KEY,
    bounds,
    in_order,
    long_key,
    may_share,
    same_group,
    value_after_key,
)

Entries: TypeAlias = Iterator[tuple[bytes, bytes]]

ENTRIES: Final = b"entries"
META: Final = b"meta"
"""Names of the two databases."""

STAMP: Final = b"stamp"
NUMBER: Final = b"number:"
COUNT: Final = b"count:"
_FIRST_CHUNK, _CHUNK = 8, 512


class LmdbReader(ABC):
    """Reads of a base or a snapshot, from its databases of entries and metadata."""

    _path: Path
    _entries: Any
    _meta: Any

    def stamp(self) -> bytes | None:
        """Return the stamp of the last commit, None if absent. It belongs to the transaction of all reads."""
        return self._get(STAMP, self._meta)

    def view(self, store_name: str) -> BaseView:
        """Return the committed entries of one store."""
        return _LmdbView(self, store_name)

    # ---------- for views

    def number(self, store_name: str) -> bytes | None:
        """Return the two-byte key prefix of a store, None before its first entry."""
        return self._get(NUMBER + store_name.encode(), self._meta)

    def count(self, number: bytes) -> int:
        """Return the number of entries of a store."""
        return int.from_bytes(self._get(COUNT + number, self._meta) or b"", "big")

    @abstractmethod
    def cursor(self) -> AbstractContextManager[lmdb.Cursor]:
        """Return a cursor over the entries; close it before the next `apply`."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a stored key, as stored; raises CorruptedBaseError."""
        return self._get(key, self._entries)

    def corrupted(self, error: Exception) -> CorruptedBaseError:
        """Return the error for damage that LMDB detected in a read."""
        return CorruptedBaseError(str(self._path), str(error))

    @abstractmethod
    def _get(self, key: bytes, database: Any) -> bytes | None:
        """Return the value of a key in a database, None if absent; raises CorruptedBaseError."""


class _LmdbView:
    """The committed entries of one store (implements BaseView)."""

    def __init__(self, base: LmdbReader, store_name: str) -> None:
        self._base = base
        self._store_name = store_name

    def get(self, key: bytes) -> bytes | None:
        number = self._base.number(self._store_name)
        if number is None:
            return None
        if len(key) > LONGEST_KEY:
            data = self._base.get(long_key(number, key))
            return None if data is None else value_after_key(key, data)
        return self._base.get(number + key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        number = self._base.number(self._store_name)
        if number is None:
            return [None] * len(keys)
        if any(len(key) > LONGEST_KEY for key in keys):
            return [self.get(key) for key in keys]
        stored = [number + key for key in keys]
        try:
            with self._base.cursor() as cursor:
                found = dict(cast(Entries, cursor.getmulti(sorted(stored))))  # in order, to visit each page once
        except DAMAGED as error:
            raise self._base.corrupted(error) from error
        return list(map(found.get, stored))

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        number = self._base.number(self._store_name)
        if number is None:
            return iter(())
        low, high = bounds(number, from_key, to_key)
        return chain.from_iterable(
            in_order(chunk, from_key, to_key, reverse) for chunk in self._chunks(low, high, reverse)
        )

    def _chunks(self, low: bytes, high: bytes | None, reverse: bool) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield the stored entries with low <= key < high, in chunks of increasing size.

        No cursor stays open between chunks, so the caller may write or stop.
        """
        size = _FIRST_CHUNK
        while True:
            try:
                chunk = self._read_backwards(low, high) if reverse else self._read_forwards(low, high, size)
            except DAMAGED as error:
                raise self._base.corrupted(error) from error
            if not chunk:
                return
            yield chunk
            size = min(4 * size, _CHUNK)
            if reverse:
                high = chunk[-1][0]
            else:
                low = chunk[-1][0] + b"\x00"

    def approximate_num_entries(self) -> int:
        number = self._base.number(self._store_name)
        return 0 if number is None else self._base.count(number)

    def _read_forwards(self, low: bytes, high: bytes | None, size: int) -> list[tuple[bytes, bytes]]:
        """Return about `size` stored entries with low <= key < high.

        Groups of keys that share their first bytes are complete.
        """
        with self._base.cursor() as cursor:
            if not cursor.set_range(low):
                return []
            entries = cast(Entries, cursor.iternext())
            chunk = list(islice(entries, size))
            for entry in entries if may_share(chunk[-1][0]) else ():
                if not same_group(chunk[-1][0], entry[0]):
                    break
                chunk.append(entry)
        return chunk if high is None else chunk[: bisect_left(chunk, high, key=itemgetter(0))]

    def _read_backwards(self, low: bytes, high: bytes | None) -> list[tuple[bytes, bytes]]:
        """Read like `_read_forwards`, from the largest key down."""
        chunk: list[tuple[bytes, bytes]] = []
        with self._base.cursor() as cursor:
            placed = cursor.last() if high is None or not cursor.set_range(high) else cursor.prev()
            if placed:
                for entry in cast(Entries, cursor.iterprev()):
                    if entry[0] < low or (len(chunk) >= _CHUNK and not same_group(chunk[-1][0], entry[0])):
                        break
                    chunk.append(entry)
        return chunk
