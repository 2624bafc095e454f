"""A store of bytes that keeps no timestamps, below a store whose values have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.record import NO_TIMESTAMP
from penstock.state.api import BufferedBytesStore, RecordContext
from penstock.state.layouts import TIMESTAMP_SIZE, pack_timestamp

_UNKNOWN = pack_timestamp(NO_TIMESTAMP)


class WithoutTimestamps:
    """Leaves the timestamps of values out when they are written, and reads them as NO_TIMESTAMP (implements
    BufferedBytesStore; Kafka class: KeyValueToTimestampedKeyValueByteStoreAdapter)."""

    def __init__(self, below: BufferedBytesStore) -> None:
        """Keep the plain values in `below`."""
        self._below = below

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if there is none."""
        return _with_unknown(self._below.get(key))

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of `keys`, None where there is none."""
        return list(map(_with_unknown, self._below.multi_get(keys)))

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key`; None deletes."""
        self._below.put(key, None if value is None else value[TIMESTAMP_SIZE:])

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each of `values` under the key at its place; None deletes."""
        plain = [None if value is None else value[TIMESTAMP_SIZE:] for value in values]
        self._below.put_many(keys, plain, contexts)

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the entries with from_key <= key < to_key in byte order, or reversed."""
        return ((key, _UNKNOWN + value) for key, value in self._below.range(from_key, to_key, reverse))

    def approximate_num_entries(self) -> int:
        """Return about how many entries there are."""
        return self._below.approximate_num_entries()

    def flush(self) -> None:
        """Flush what is below."""
        self._below.flush()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes in key order, None for a delete."""
        return self._below.changes()

    def clear(self) -> None:
        """Forget the uncommitted writes: they are in the base now, or void."""
        self._below.clear()


def _with_unknown(value: bytes | None) -> bytes | None:
    return None if value is None else _UNKNOWN + value
