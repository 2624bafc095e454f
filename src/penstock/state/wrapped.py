"""A store of bytes around another one, for layers that change only some of its calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.state.api import BufferedBytesStore, RecordContext


class WrappedBytesStore:
    """Hands every call to the store below (implements BufferedBytesStore; Kafka class: WrappedStateStore)."""

    def __init__(self, below: BufferedBytesStore) -> None:
        """Stand around `below`."""
        self._below = below

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if there is none."""
        return self._below.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of `keys`, None if there is none."""
        return self._below.multi_get(keys)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key`; None deletes."""
        self._below.put(key, value)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each of `values` under the key at its place; None deletes."""
        self._below.put_many(keys, values, contexts)

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the entries with from_key <= key < to_key in byte order, or reversed."""
        return self._below.range(from_key, to_key, reverse)

    def approximate_num_entries(self) -> int:
        """Return about how many entries there are."""
        return self._below.approximate_num_entries()

    def flush(self) -> None:
        """Flush what is below."""
        self._below.flush()

    def uncommitted_bytes(self) -> int:
        """Return about how many bytes of memory the uncommitted writes take."""
        return self._below.uncommitted_bytes()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes, None for a delete."""
        return self._below.changes()

    def clear(self) -> None:
        """Forget the uncommitted writes: they are in the base now, or discarded."""
        self._below.clear()
