"""The window store of one side of a join of two streams, which may keep the headers of its records (KIP-1285).

Kafka classes: WindowStore, TimestampedWindowStoreWithHeaders. Operators see the values alone; their serde receives the
headers that the store keeps.

An entry with headers has a mark: the first bit of its sequence number, which is otherwise 0. So a store also reads the
entries that it wrote before it kept headers, as those of earlier versions of Penstock, and while it did. Among entries
of one window, those with headers come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.record import Int64Array
from penstock.state.headers_layout import NO_HEADERS, without_headers
from penstock.state.layouts import SEQUENCE_SIZE
from penstock.state.window_store import Entries, TypedWindowStore

_MARK: Final = 0x80
_MARKED: Final = _MARK << 8 * (SEQUENCE_SIZE - 1)


class TypedJoinWindowStore(TypedWindowStore):
    """A window store that keeps duplicates, with headers if its serdes do (implements EngineWindowStore)."""

    @property
    def with_headers(self) -> bool:
        """Return False: the serdes of the store receive the headers, readers get the values alone."""
        return False

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Int64Array) -> None:
        """Write the entries of changelog records of `timestamps` (ms), in order."""
        super().restore([self._marked(key) for key in keys], values, timestamps)

    def _entry_key(self, key: bytes, window_start: int) -> bytes:
        return self._marked(super()._entry_key(key, window_start))

    def _duplicate_keys(self, keys: Sequence[bytes], starts: Int64Array, numbers: Int64Array) -> list[bytes]:
        return super()._duplicate_keys(keys, starts, numbers | _MARKED if self._serdes.with_headers else numbers)

    def _in_segments(self, time_from: int, time_to: int, first: bytes, last: bytes | None, reverse: bool) -> Entries:
        keeps = self._serdes.with_headers
        return (unmarked(*entry, keeps) for entry in super()._in_segments(time_from, time_to, first, last, reverse))

    def _marked(self, key: bytes) -> bytes:
        """Return the key of an entry that this store writes."""
        if not self._serdes.with_headers:
            return key
        place = len(key) - SEQUENCE_SIZE
        return key[:place] + bytes((key[place] | _MARK,)) + key[place + 1 :]


def unmarked(key: bytes, value: bytes, with_headers: bool) -> tuple[bytes, bytes]:
    """Return an entry without its mark, as a store with or without headers writes it.

    An entry without headers gets empty ones, or one with headers loses them.
    """
    place = len(key) - SEQUENCE_SIZE
    if not key[place] & _MARK:
        return key, NO_HEADERS + value if with_headers else value
    plain = key[:place] + bytes((key[place] ^ _MARK,)) + key[place + 1 :]
    return plain, value if with_headers else without_headers(value)
