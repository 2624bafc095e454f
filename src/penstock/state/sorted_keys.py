"""The sorted keys of a dict, for stores mostly read by key, sometimes by range.

Nothing is sorted before the first range. From then on, single changes are inserted in place; after many changes, the
next range sorts again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Sized
from typing import Protocol

_MOST_PENDING = 256


class _Keys(Container[bytes], Iterable[bytes], Sized, Protocol):
    """The required methods of the dict."""


class SortedKeys:
    """The sorted keys of `content`, a dict owned by the caller.

    The caller must report each added or removed key to `changed`. Costs nothing until the first `between`.
    """

    __slots__ = ("_content", "_keys", "_pending")

    def __init__(self, content: _Keys) -> None:
        self._content = content
        self._keys: list[bytes] | None = None
        self._pending: set[bytes] = set()

    def changed(self, key: bytes) -> None:
        """Record that `key` was added or removed."""
        if self._keys is None:
            return
        self._pending.add(key)
        if len(self._pending) > _MOST_PENDING:
            self.forget()

    def changed_many(self, keys: Collection[bytes]) -> None:
        """Record that each of `keys` may have been added or removed."""
        if self._keys is None:
            return
        if len(self._pending) + len(keys) > _MOST_PENDING:
            self.forget()
        else:
            self._pending.update(keys)

    def forget(self) -> None:
        """Record that any number of keys were added or removed."""
        self._keys = None
        self._pending.clear()

    def between(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> list[bytes]:
        """Return a new list of the keys with from_key <= key < to_key.

        In byte order, or reversed; None leaves an end open.
        """
        keys = self._current()
        start = 0 if from_key is None else bisect_left(keys, from_key)
        stop = len(keys) if to_key is None else bisect_left(keys, to_key)
        chosen = keys[start:stop]
        if reverse:
            chosen.reverse()
        return chosen

    def _current(self) -> list[bytes]:
        if self._keys is None:
            self._keys = sorted(self._content)
            return self._keys
        keys, content = self._keys, self._content
        for key in self._pending:
            place = bisect_left(keys, key)
            listed = place < len(keys) and keys[place] == key
            if key in content:
                if not listed:
                    keys.insert(place, key)
            elif listed:
                del keys[place]
        self._pending.clear()
        return keys
