"""The protocols of the layers below a typed store: stores of bytes.

Only the task that owns such a store reads and writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from penstock.state.api import FlushListener, RecordContext


class BytesStore(Protocol):
    """A layer below the typed store: a store of bytes (Kafka: KeyValueStore<Bytes, byte[]>).

    Only the task that owns it reads and writes it.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None if absent."""
        ...

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None if absent."""
        ...

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `value` under `key`; None deletes."""
        ...

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], contexts: Sequence[RecordContext] | None = None
    ) -> None:
        """Write each value under its key, with its context or, without contexts, the current one."""
        ...

    def range(self, from_key: bytes | None, to_key: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with from_key <= key < to_key, in byte order or reversed. None leaves an end open."""
        ...

    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries."""
        ...

    def flush(self) -> None:
        """Write buffered entries to the layer below and forward them."""
        ...


class BufferedBytesStore(BytesStore, Protocol):
    """A store of bytes that buffers its writes until the commit."""

    def uncommitted_bytes(self) -> int:
        """Return the approximate memory size (bytes) of the uncommitted writes."""
        ...

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the uncommitted writes, None for a delete."""
        ...

    def clear(self) -> None:
        """Forget the uncommitted writes: the base has them, or they are discarded."""
        ...


class CachingBytesStore(BytesStore, Protocol):
    """A store of bytes with a record cache."""

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> None:
        """Pass each entry leaving the cache to `listener`, with its old value only if `send_old_values`."""
        ...

    def close(self) -> None:
        """Discard the cache without flushing it."""
        ...
