"""Wrappers of byte stores that change some calls, such as to drop timestamps or headers.

Those serve layers with timestamps and headers above a store without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.record import NO_TIMESTAMP
from penstock.state.api import RecordContext
from penstock.state.bytes_store import BufferedBytesStore
from penstock.state.headers_layout import NO_HEADERS, without_headers
from penstock.state.layouts import TIMESTAMP_SIZE, pack_timestamp


class WrappedBytesStore:
    """Passes every call to the store below (implements BufferedBytesStore; Kafka class: WrappedStateStore)."""

    def __init__(self, below: BufferedBytesStore) -> None:
        self._below = below

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None if absent."""
        return self._below.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None if absent."""
        return self._below.multi_get(keys)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key`; None deletes."""
        self._below.put(key, value)

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each value under its key; None deletes."""
        self._below.put_many(keys, values, contexts)

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the entries with from_key <= key < to_key.

        In byte order, or reversed; None leaves an end open.
        """
        return self._below.range(from_key, to_key, reverse)

    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries."""
        return self._below.approximate_num_entries()

    def flush(self) -> None:
        """Flush the store below."""
        self._below.flush()

    def uncommitted_bytes(self) -> int:
        """Return the approximate memory size (bytes) of the uncommitted writes."""
        return self._below.uncommitted_bytes()

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes, None for a delete."""
        return self._below.changes()

    def clear(self) -> None:
        """Forget the uncommitted writes: the base has them, or they are discarded."""
        self._below.clear()


class WithoutTimestamps(WrappedBytesStore):
    """Drops the timestamps of written values, and reads them as NO_TIMESTAMP.

    Kafka class: KeyValueToTimestampedKeyValueByteStoreAdapter.
    """

    _UNKNOWN = pack_timestamp(NO_TIMESTAMP)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None if absent."""
        return self._with_unknown(self._below.get(key))

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None if absent."""
        return list(map(self._with_unknown, self._below.multi_get(keys)))

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key`; None deletes."""
        self._below.put(key, None if value is None else self._plain(value))

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each value under its key; None deletes."""
        plain = [None if value is None else self._plain(value) for value in values]
        self._below.put_many(keys, plain, contexts)

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over the entries with from_key <= key < to_key.

        In byte order, or reversed; None leaves an end open.
        """
        return ((key, self._UNKNOWN + value) for key, value in self._below.range(from_key, to_key, reverse))

    def _plain(self, value: bytes) -> bytes:
        return value[TIMESTAMP_SIZE:]

    def _with_unknown(self, value: bytes | None) -> bytes | None:
        return None if value is None else self._UNKNOWN + value


class WithoutHeaders(WithoutTimestamps):
    """Drops headers and timestamps, and reads empty ones (Kafka class: PlainToHeadersStoreAdapter)."""

    _UNKNOWN = NO_HEADERS + WithoutTimestamps._UNKNOWN

    def _plain(self, value: bytes) -> bytes:
        return super()._plain(without_headers(value))
