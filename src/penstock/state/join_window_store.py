"""The window store of one side of a join of two streams that keeps the headers of its records (KIP-1285).

Kafka class: TimestampedWindowStoreWithHeaders. Operators see the values alone; their serde receives the headers.

Earlier versions of Penstock wrote the values without headers. So an entry with headers has a mark: the first bit of its
sequence number, which is otherwise 0. Marked entries of one window sort after the others, as they are later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.record import Int64Array
from penstock.state.headers_layout import NO_HEADERS
from penstock.state.layouts import SEQUENCE_SIZE
from penstock.state.window_store import Entries, TypedWindowStore

_MARK: Final = 0x80


class TypedJoinWindowStore(TypedWindowStore):
    """A window store that keeps duplicates, with their headers (implements WindowStore and EngineWindowStore)."""

    @property
    def with_headers(self) -> bool:
        """Return False: the serdes of the store receive the headers, readers get the values alone."""
        return False

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Int64Array) -> None:
        """Write the entries of changelog records of `timestamps` (ms), in order."""
        super().restore(list(map(_marked, keys)), values, timestamps)

    def _entry_key(self, key: bytes, window_start: int) -> bytes:
        return _marked(super()._entry_key(key, window_start))

    def _in_segments(self, time_from: int, time_to: int, first: bytes, last: bytes | None, reverse: bool) -> Entries:
        return (unmarked(*entry) for entry in super()._in_segments(time_from, time_to, first, last, reverse))


def unmarked(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return an entry without its mark; an entry that had none gets empty headers."""
    place = len(key) - SEQUENCE_SIZE
    if not key[place] & _MARK:
        return key, NO_HEADERS + value
    return key[:place] + bytes((key[place] ^ _MARK,)) + key[place + 1 :], value


def _marked(key: bytes) -> bytes:
    place = len(key) - SEQUENCE_SIZE
    return key[:place] + bytes((key[place] | _MARK,)) + key[place + 1 :]
