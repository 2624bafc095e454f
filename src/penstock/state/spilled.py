"""Uncommitted changes on disk: a database between the buffers of a task and its base.

A task whose uncommitted writes exceed their limit moves them here and continues with empty buffers; reads see them on
top of the committed entries. The base is not touched, so a crash leaves nothing to undo; the host stores the changes
durably until the commit (`keep`). Rules:
- Nothing is created before the first changes arrive; until then views are the base's.
- The database is scratch: it belongs to one attempt of one task, and is dropped with it.
- An iterator held over a spill includes the changes spilled since; others show the store as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from penstock.state.api import Base, BaseView, Changes
from penstock.state.uncommitted import merge

_DELETED = b"\x00"
_PRESENT = b"\x01"
_STAMP = b"spilled"
_CHUNK = 4096


class SpilledChanges:
    """A task's spilled changes since its last commit, over its base.

    Args:
        base: the base.
        open_scratch: creates an empty base for the spilled changes.
        keep: receives each set of changes first, for their commit.
    """

    def __init__(self, base: Base, open_scratch: Callable[[], Base], keep: Callable[[Changes], None]) -> None:
        self._base = base
        self._open_scratch = open_scratch
        self._keep = keep
        self._scratch: Base | None = None

    def view(self, store_name: str) -> BaseView:
        """Return the committed entries of a store, overlaid with the spilled changes."""
        return _SpilledView(self, store_name, self._base.view(store_name))

    def spill(self, changes: Changes) -> None:
        """Add changes from the buffers, which are emptied afterwards.

        Raises ProcessorStateError if the changes cannot be written.
        """
        self._keep(changes)
        if self._scratch is None:
            self._scratch = self._open_scratch()
        self._scratch.apply({name: _marked(changed) for name, changed in changes.items()}, _STAMP)

    def close(self) -> None:
        """Drop the spilled changes; the base stays open."""
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def changes_of(self, store_name: str) -> BaseView | None:
        """Return a store's spilled changes, each value after a mark, or None without any."""
        return None if self._scratch is None else self._scratch.view(store_name)


class _SpilledView:
    """The entries of one store (implements BaseView)."""

    def __init__(self, spilled: SpilledChanges, store_name: str, committed: BaseView) -> None:
        self._spilled = spilled
        self._store_name = store_name
        self._committed = committed

    def get(self, key: bytes) -> bytes | None:
        changes = self._spilled.changes_of(self._store_name)
        marked = None if changes is None else changes.get(key)
        return self._committed.get(key) if marked is None else _value(marked)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        changes = self._spilled.changes_of(self._store_name)
        if changes is None:
            return self._committed.multi_get(keys)
        found = changes.multi_get(keys)
        absent = [place for place, marked in enumerate(found) if marked is None]
        values = [None if marked is None else _value(marked) for marked in found]
        committed = self._committed.multi_get([keys[place] for place in absent])
        for place, value in zip(absent, committed, strict=True):
            values[place] = value
        return values

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        changes = self._spilled.changes_of(self._store_name)
        committed = self._committed.range(from_key, to_key, reverse)
        if changes is None:
            return committed
        spilled = ((key, _value(marked)) for key, marked in changes.range(from_key, to_key, reverse))
        return merge(spilled, committed, reverse)

    def approximate_num_entries(self) -> int:
        total = self._committed.approximate_num_entries()
        changes = self._spilled.changes_of(self._store_name)
        if changes is not None:
            entries = changes.range(None, None, False)
            while chunk := dict(islice(entries, _CHUNK)):
                before = self._committed.multi_get(list(chunk))
                total += sum(marked != _DELETED for marked in chunk.values()) - len(before) + before.count(None)
        return total


def _marked(changed: Mapping[bytes, bytes | None]) -> dict[bytes, bytes | None]:
    """Return the changes in key order, each value after its mark.

    A base writes this order fastest.
    """
    return {key: _DELETED if value is None else _PRESENT + value for key, value in sorted(changed.items())}


def _value(marked: bytes) -> bytes | None:
    return None if marked == _DELETED else marked[1:]
