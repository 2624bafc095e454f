"""A store with a bounded number of keys, evicted by least recent use (Kafka class: MemoryNavigableLRUCache).

Each entry includes the number of its last use, which grows with every use: evictions must not depend on the last
restart of the task. So reads are writes here; ranges do not count as use. The number of the last use is processor
metadata.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping, Sequence

from penstock.state.api import RecordContext
from penstock.state.layouts import TIMESTAMP_SIZE, pack_timestamp, timestamp_of
from penstock.state.uncommitted import UncommittedStore


class LruStore:
    """The most recently used keys over uncommitted writes (implements BufferedBytesStore).

    Args:
        name: the name of the store.
        buffer: the uncommitted writes; the order of use is read from it.
        max_entries: the maximum number of keys.
        metadata: contains the number of the last use.
        dropped: receives each evicted key.
    """

    def __init__(
        self,
        name: str,
        buffer: UncommittedStore,
        max_entries: int,
        metadata: MutableMapping[str, int],
        dropped: Callable[[bytes], None],
    ) -> None:
        self._dropped = dropped
        self._buffer = buffer
        self._max_entries = max_entries
        used = sorted((timestamp_of(value), key) for key, value in buffer.range(None, None, False))
        self._keys: OrderedDict[bytes, None] = OrderedDict((key, None) for _, key in used)  # oldest first
        self._metadata = metadata
        self._uses_entry = f"{name}/uses"
        self._uses = metadata.get(self._uses_entry, 0)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None if absent, and count it as used."""
        data = self._buffer.get(key)
        if data is None:
            return None
        self._use(key, data[TIMESTAMP_SIZE:])
        return data[TIMESTAMP_SIZE:]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None if absent, and count them as used."""
        return [self.get(key) for key in keys]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key` (None deletes), and evict the least recently used key if necessary."""
        if value is None:
            self._keys.pop(key, None)
            self._buffer.put(key, None)
            return
        self._use(key, value)
        if len(self._keys) > self._max_entries:
            eldest, _ = self._keys.popitem(last=False)
            self._buffer.put(eldest, None)
            self._dropped(eldest)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each value under its key, in order."""
        for key, value in zip(keys, values, strict=True):
            self.put(key, value)

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the entries with from_key <= key < to_key.

        In byte order, or reversed; None leaves an end open.
        """
        return ((key, data[TIMESTAMP_SIZE:]) for key, data in self._buffer.range(from_key, to_key, reverse))

    def approximate_num_entries(self) -> int:
        """Return the number of entries."""
        return len(self._keys)

    def flush(self) -> None:
        """Do nothing: `changes` returns the writes at the commit."""

    def uncommitted_bytes(self) -> int:
        """Return the approximate memory size (bytes) of the uncommitted writes."""
        return self._buffer.uncommitted_bytes()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes, None for a delete."""
        return self._buffer.changes()

    def clear(self) -> None:
        """Forget the uncommitted writes: the base has them, or they are discarded."""
        self._buffer.clear()

    def _use(self, key: bytes, value: bytes) -> None:
        self._keys[key] = None
        self._keys.move_to_end(key)
        self._uses = self._metadata[self._uses_entry] = self._uses + 1
        self._buffer.put(key, pack_timestamp(self._uses) + value)
