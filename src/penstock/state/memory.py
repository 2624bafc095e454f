"""The base in memory: a dict per store, sorted on demand.

It serves tests, stores that the user wants in memory, and hosts without a disk. The cost of a commit depends on its
changes, not on the store's size: the test driver commits after every record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from penstock.errors import InvalidStateStoreError
from penstock.metrics.measurements import Measurement
from penstock.state.api import BaseView, Changes
from penstock.state.sorted_keys import SortedKeys


class _MemoryView:
    """The committed entries of one store (implements BaseView)."""

    def __init__(self) -> None:
        self._content: dict[bytes, bytes] = {}
        self._sorted = SortedKeys(self._content)

    def get(self, key: bytes) -> bytes | None:
        return self._content.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._content.get, keys))

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        return self._entries(
            self._sorted.between(from_key, to_key, reverse)
        )  # the keys are the current ones, whenever the caller starts to iterate

    def _entries(self, keys: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
        get = self._content.get
        for key in keys:
            value = get(key)
            if value is not None:
                yield key, value

    def approximate_num_entries(self) -> int:
        return len(self._content)

    def apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        content, changed = self._content, self._sorted.changed
        for key, value in changes.items():
            if value is None:
                if content.pop(key, None) is not None:
                    changed(key)
            else:
                if key not in content:
                    changed(key)
                content[key] = value

    def clear(self) -> None:
        self._content.clear()
        self._sorted.forget()


class MemoryBase:
    """A base in process memory, initially empty (implements Base; Kafka class: InMemoryKeyValueStore)."""

    def __init__(self) -> None:
        self._views: dict[str, _MemoryView] = {}
        self._stamp: bytes | None = None
        self._open = True

    def stamp(self) -> bytes | None:
        """Return the stamp of the last applied commit, or None before the first."""
        return self._stamp

    def view(self, store_name: str) -> BaseView:
        """Return the committed entries of one store; raises InvalidStateStoreError after `close`."""
        return self._view(store_name)

    def apply(self, changes: Changes, stamp: bytes) -> None:
        """Apply the changes of one commit and set the stamp; raises InvalidStateStoreError after `close`."""
        self._check_open()
        for store_name, changed in changes.items():
            self._view(store_name).apply(changed)
        self._stamp = stamp

    def measured(self) -> Mapping[str, Measurement]:
        """Return an empty mapping: the base measures nothing."""
        return {}

    def rebuild(self, commits: Callable[[], Iterable[Changes]], stamp: bytes) -> None:
        """Replace all entries by the changes of `commits`, in order, and set the stamp.

        Raises like `apply`.
        """
        merged: dict[str, dict[bytes, bytes | None]] = {}
        for changes in commits():  # may fail: the base changes only after the last
            for store_name, changed in changes.items():
                merged.setdefault(store_name, {}).update(changed)
        self.clear()
        self.apply(merged, stamp)

    def clear(self) -> None:
        """Drop all entries and the stamp; existing views stay valid and become empty."""
        for view in self._views.values():
            view.clear()
        self._stamp = None

    def close(self) -> None:
        """Drop everything and make the base unusable."""
        self.clear()
        self._open = False

    def _view(self, store_name: str) -> _MemoryView:
        self._check_open()
        view = self._views.get(store_name)
        if view is None:
            view = self._views[store_name] = _MemoryView()
        return view

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidStateStoreError(
                "The memory base is closed: create a new one, or keep the task that owns it open."
            )
