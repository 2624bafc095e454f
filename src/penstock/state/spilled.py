"""Uncommitted changes that have left memory: a database between the buffers of a task and its base.

A task whose uncommitted writes outgrow their limit moves them here and continues with empty buffers; reads find them
over the committed entries. The base is not touched, so a crash leaves nothing to undo; where the changes are kept
durably until the commit is the host's matter (`keep`). Rules:
- Nothing is made before the first changes come; until then views are those of the base.
- The database is scratch: it belongs to one attempt of one task, and is dropped with it.
- An iterator that is held over a spill shows the changes spilled since; others show the store as it was.
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
    """What a task spilled since its last commit, over its base."""

    def __init__(self, base: Base, open_scratch: Callable[[], Base], keep: Callable[[Changes], None]) -> None:
        """Stand over `base`. open_scratch: makes an empty base for what is spilled. keep: is given each lot of changes
        first, for the commit that they belong to."""
        self._base = base
        self._open_scratch = open_scratch
        self._keep = keep
        self._scratch: Base | None = None

    def view(self, store_name: str) -> BaseView:
        """Return the committed entries of a store with the spilled changes over them."""
        return _SpilledView(self, store_name, self._base.view(store_name))

    def spill(self, changes: Changes) -> None:
        """Take changes over from the buffers, which are emptied then; raises ProcessorStateError if they cannot be
        written."""
        self._keep(changes)
        if self._scratch is None:
            self._scratch = self._open_scratch()
        self._scratch.apply({name: _marked(changed) for name, changed in changes.items()}, _STAMP)

    def close(self) -> None:
        """Drop what was spilled; the base stays open."""
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def changes_of(self, store_name: str) -> BaseView | None:
        """Return the spilled changes of a store, each value behind a mark; None if nothing was spilled."""
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
    """Return the changes in the order of their keys, in which a base takes them best, each value behind its mark."""
    return {key: _DELETED if value is None else _PRESENT + value for key, value in sorted(changed.items())}


def _value(marked: bytes) -> bytes | None:
    return None if marked == _DELETED else marked[1:]
