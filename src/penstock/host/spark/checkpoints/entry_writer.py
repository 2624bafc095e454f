"""Writes the entries of one store to the bases of several tasks, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.state.api import Base

_ENTRIES = 20_000
_BYTES = 8 * 1024 * 1024
"""Limits of the entries in memory, over all tasks."""


class EntryWriter:
    """Holds entries of a store until there are many, and writes them then.

    Args:
        bases: of the tasks, by number.
        store: the name of the store.
    """

    def __init__(self, bases: Sequence[Base], store: str) -> None:
        self._bases = bases
        self._store = store
        self._pending: list[dict[bytes, bytes | None]] = [{} for _ in bases]
        self._entries = 0
        self._bytes = 0

    def put(self, number: int, key: bytes, value: bytes) -> None:
        """Write an entry to the base of task `number`."""
        self._pending[number][key] = value
        self._entries += 1
        self._bytes += len(key) + len(value)
        if self._entries >= _ENTRIES or self._bytes >= _BYTES:
            self.flush()

    def holds(self, number: int, key: bytes) -> bool:
        """Return whether an entry with `key` was put for task `number`, or is in its base."""
        return key in self._pending[number] or self._bases[number].view(self._store).get(key) is not None

    def flush(self) -> None:
        """Write the entries in memory."""
        for base, changes in zip(self._bases, self._pending, strict=True):
            if changes:
                base.apply({self._store: changes}, b"")
                changes.clear()
        self._entries = self._bytes = 0
