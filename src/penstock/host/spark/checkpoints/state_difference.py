"""Compares the entries of stores in two commits, of checkpoints or savepoints.

Entries are compared as bytes, in the order of their keys over all tasks, so the numbers of tasks may differ. Only the
entries of one store are on disk at a time, in a temporary directory, and few are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from heapq import merge
from typing import Final

from penstock.errors import StreamsError
from penstock.host.api import AsOf
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.commits import commit_as_of
from penstock.host.spark.checkpoints.entry_map import EntryReader, has_mappable_entries
from penstock.host.spark.checkpoints.format_3 import with_headers_named
from penstock.host.spark.checkpoints.manifests import existing_metadata, last_manifest
from penstock.host.spark.checkpoints.rescaling import tasks_of
from penstock.host.spark.checkpoints.stored_description import load_from_checkpoint
from penstock.host.spark.checkpoints.task_segments import opened_entries
from penstock.state.api import BaseView
from penstock.state.kept_headers import HeadersView, has_headers, layout_with_headers

_Pairs = Iterator[tuple[bytes, bytes]]

_SHOWN: Final = 20


@dataclass(frozen=True)
class EntryDifference:
    """An entry that differs.

    Args:
        key: as text.
        before: the value as text; None without an entry.
        after: the value as text; None without an entry.
    """

    key: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class StoreDifference:
    """The differences of one store.

    Args:
        name: of the store.
        added: number of entries that only the second commit has.
        removed: number of entries that only the first commit has.
        changed: number of entries with another value, timestamp or headers.
        same: number of equal entries.
        first: the first differences, in the order of their keys.
    """

    name: str
    added: int
    removed: int
    changed: int
    same: int
    first: tuple[EntryDifference, ...]


class StateCommit:
    """A commit of a checkpoint or a savepoint, with its stores.

    Args:
        checkpoint: the checkpoint or the savepoint.
        as_of: the commit; None for the last one.

    Raises:
        StreamsError: there is no checkpoint, or the commit is not retained.
    """

    def __init__(self, checkpoint: Checkpoint, as_of: AsOf | None) -> None:
        self._checkpoint = checkpoint
        metadata = with_headers_named(checkpoint, existing_metadata(checkpoint, StreamsError))
        self._manifest = (
            last_manifest(checkpoint, metadata) if as_of is None else commit_as_of(checkpoint, metadata, as_of)
        )
        self._shape = metadata.shape
        self.layouts = {name: layout for stores in self._shape["stores"].values() for name, layout in stores.items()}
        data = checkpoint.read_description(metadata)
        try:
            stored = None if data is None else load_from_checkpoint(data)
        except Exception:  # any error raised by an object's own unpickling: then entries are shown as bytes
            stored = None
        specs = () if stored is None else stored.topology.subtopologies
        self._stores = {name: builder for spec in specs for name, builder in spec.stores.items()}
        self._config = None if stored is None else stored.config

    @contextmanager
    def entries(self, store: str, layout: str) -> Iterator[_Pairs]:
        """Open the entries of a store by key, in a layout with headers or without."""
        with ExitStack() as opened:
            views: list[BaseView] = [
                opened.enter_context(opened_entries(self._checkpoint, task, entry, [store])).view(store)
                for subtopology, stores in self._shape["stores"].items()
                if store in stores
                for task in tasks_of(self._shape, subtopology)
                for entry in [self._manifest.entry(task)]
                if entry.head
            ]
            if self._is_converted(store, layout):
                views = [HeadersView(view, has_headers(layout)) for view in views]
            yield merge(*(view.range(None, None, False) for view in views))

    def reader(self, store: str, layout: str) -> EntryReader | None:
        """Return a reader of the entries of a store in `layout`; None if they can only be shown as bytes."""
        builder = self._stores.get(store)
        if builder is None or self._config is None or not has_mappable_entries(builder):
            return None
        return EntryReader(builder, self._config, has_headers(layout) if self._is_converted(store, layout) else None)

    def _is_converted(self, store: str, layout: str) -> bool:
        """Return whether the values of a store get headers, or lose them, in `layout`."""
        return has_headers(self.layouts.get(store, layout)) != has_headers(layout)


def state_differences(before: StateCommit, after: StateCommit) -> Iterator[StoreDifference]:
    """Yield the differences of each store.

    Raises StreamsError if a store has another layout.
    """
    for name in sorted({*before.layouts, *after.layouts}):
        layout = after.layouts.get(name, before.layouts.get(name, ""))
        old = before.layouts.get(name, layout)
        if layout_with_headers(old, has_headers(layout)) != layout:
            raise StreamsError(
                f"Store {name} has the layout {old!r} in the first commit and {layout!r} in the second: their entries "
                "cannot be compared."
            )
        with before.entries(name, layout) as one, after.entries(name, layout) as other:
            yield _difference(name, one, other, before.reader(name, layout), after.reader(name, layout))


def _difference(
    name: str, one: _Pairs, other: _Pairs, reads_one: EntryReader | None, reads_other: EntryReader | None
) -> StoreDifference:
    added = removed = changed = same = 0
    first: list[EntryDifference] = []
    for key, old, new in _joined(one, other):
        if old == new:
            same += 1
            continue
        added += old is None
        removed += new is None
        changed += old is not None and new is not None
        if len(first) < _SHOWN:
            reader = reads_other if old is None else reads_one
            text = repr(key) if reader is None else reader.key_text(key)
            first.append(EntryDifference(text, _text(reads_one, key, old), _text(reads_other, key, new)))
    return StoreDifference(name, added, removed, changed, same, tuple(first))


def _joined(one: _Pairs, other: _Pairs) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Yield each key with its value in `one` and in `other`, None if absent."""
    left, right = next(one, None), next(other, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            yield left[0], left[1], None
            left = next(one, None)
        elif left is None or right[0] < left[0]:
            yield right[0], None, right[1]
            right = next(other, None)
        else:
            yield left[0], left[1], right[1]
            left, right = next(one, None), next(other, None)


def _text(reader: EntryReader | None, key: bytes, value: bytes | None) -> str | None:
    if value is None:
        return None
    if reader is None:
        return f"{value!r:.200}"
    try:
        return f"{reader.read(key, value)[1]!r:.200}"
    except Exception:  # a user's serde may raise anything
        return f"{value!r:.200}"
