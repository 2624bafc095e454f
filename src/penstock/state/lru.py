"""A store of a bounded number of keys, of which the least recently used one goes when one more comes (Kafka class:
MemoryNavigableLRUCache).

Which key was used when is kept beside its value, as a number that grows with every use: what is dropped must not depend
on when a task was last restarted. So reads are writes here; ranges are no use. The number of the last use is processor
metadata.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping, Sequence

from penstock.state.api import RecordContext
from penstock.state.layouts import TIMESTAMP_SIZE, pack_timestamp, timestamp_of
from penstock.state.uncommitted import UncommittedStore


class LruStore:
    """The keys used last over uncommitted writes (implements BufferedBytesStore)."""

    def __init__(
        self,
        name: str,
        buffer: UncommittedStore,
        max_entries: int,
        metadata: MutableMapping[str, int],
        dropped: Callable[[bytes], None],
    ) -> None:
        """Keep at most `max_entries` keys of the store `name` in `buffer`; their order of use is read from there.
        metadata: has the number of the last use. dropped: receives a key that was removed because there were too
            many."""
        self._dropped = dropped
        self._buffer = buffer
        self._max_entries = max_entries
        used = sorted((timestamp_of(value), key) for key, value in buffer.range(None, None, False))
        self._keys: OrderedDict[bytes, None] = OrderedDict((key, None) for _, key in used)  # the eldest first
        self._metadata = metadata
        self._uses_entry = f"{name}/uses"
        self._uses = metadata.get(self._uses_entry, 0)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key` and count it as used, None if there is none."""
        data = self._buffer.get(key)
        if data is None:
            return None
        self._use(key, data[TIMESTAMP_SIZE:])
        return data[TIMESTAMP_SIZE:]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of `keys` and count them as used, None if there is none."""
        return [self.get(key) for key in keys]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key` (None deletes), and drop the key that was not used for the longest time if there
        are too many."""
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
        """Write each of `values` under the key at its place, in turn."""
        for key, value in zip(keys, values, strict=True):
            self.put(key, value)

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the entries with from_key <= key < to_key in byte order, or reversed."""
        return ((key, data[TIMESTAMP_SIZE:]) for key, data in self._buffer.range(from_key, to_key, reverse))

    def approximate_num_entries(self) -> int:
        """Return how many entries there are."""
        return len(self._keys)

    def flush(self) -> None:
        """Do nothing: writes leave by `changes` at the commit."""

    def uncommitted_bytes(self) -> int:
        """Return about how many bytes of memory the uncommitted writes take."""
        return self._buffer.uncommitted_bytes()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes, None for a delete."""
        return self._buffer.changes()

    def clear(self) -> None:
        """Forget the uncommitted writes: they are in the base now, or discarded."""
        self._buffer.clear()

    def _use(self, key: bytes, value: bytes) -> None:
        self._keys[key] = None
        self._keys.move_to_end(key)
        self._uses = self._metadata[self._uses_entry] = self._uses + 1
        self._buffer.put(key, pack_timestamp(self._uses) + value)
