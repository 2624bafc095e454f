"""A user-defined store in a dict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock import Serde
from penstock.errors import InvalidStateStoreError
from penstock.state.custom import CustomStateStore, CustomStoreSupplier, StateStoreContext


class Entries:
    """An iterator over entries as the API asks for."""

    def __init__(self, entries: Sequence[tuple[str, str]]) -> None:
        self._entries = list(entries)
        self._open = True

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return self

    def __next__(self) -> tuple[str, str]:
        self._check()
        if not self._entries:
            raise StopIteration
        return self._entries.pop(0)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def peek_next_key(self) -> str:
        self._check()
        return self._entries[0][0]

    def close(self) -> None:
        self._open = False

    def _check(self) -> None:
        if not self._open:
            raise InvalidStateStoreError("closed")


class DictStore:
    """A key-value store in a dict of str."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.content: dict[str, str] = {}
        self.context: StateStoreContext
        self._open = False

    def init(self, context: StateStoreContext) -> None:
        self.context = context
        self._open = True
        context.register(self.restore)

    def restore(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        self.content = {key.decode(): value.decode() for key, value in entries}

    def is_open(self) -> bool:
        return self._open

    def persistent(self) -> bool:
        return False

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._open = False

    def get(self, key: str) -> str | None:
        self._check(key)
        return self.content.get(key)

    def put(self, key: str, value: str | None) -> None:
        self._check(key)
        if value is None:
            self.content.pop(key, None)
        else:
            self.content[key] = value
        self.context.log_change(key.encode(), None if value is None else value.encode())

    def put_if_absent(self, key: str, value: str) -> str | None:
        before = self.get(key)
        if before is None:
            self.put(key, value)
        return before

    def put_all(self, entries: Sequence[tuple[str, str]]) -> None:
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: str) -> str | None:
        before = self.get(key)
        self.put(key, None)
        return before

    def range(self, first: str | None, last: str | None) -> Entries:
        return Entries(
            [
                (key, value)
                for key, value in sorted(self.content.items(), key=lambda entry: entry[0].encode())
                if (first is None or key.encode() >= first.encode()) and (last is None or key.encode() <= last.encode())
            ]
        )

    def reverse_range(self, first: str | None, last: str | None) -> Entries:
        return Entries(list(self.range(first, last))[::-1])

    def all(self) -> Entries:
        return self.range(None, None)

    def reverse_all(self) -> Entries:
        return self.reverse_range(None, None)

    def prefix_scan(self, prefix: str, prefix_serde: Serde) -> Entries:
        return Entries([(key, value) for key, value in self.all() if key.startswith(prefix)])

    def approximate_num_entries(self) -> int:
        return len(self.content)

    def _check(self, key: str | None) -> None:
        if not self._open:
            raise InvalidStateStoreError("closed")
        if key is None:
            raise TypeError("key must not be None")


class DictStoreSupplier(CustomStoreSupplier):
    """Makes a store of a class."""

    def __init__(self, name: str, kind_of_store: type = DictStore) -> None:
        super().__init__(name)
        self.kind_of_store = kind_of_store

    def get(self) -> CustomStateStore:
        store: CustomStateStore = self.kind_of_store(self.name)
        return store
