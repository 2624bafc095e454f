"""Records of stores with headers, as queries return them (KIP-1356)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import StreamsError
from penstock.record import AggregationWithHeaders, ReadOnlyRecord, Record, ValueTimestampHeaders
from penstock.state.api import KeyValueIterator
from penstock.windows import Windowed


class ReadOnlyRecordIterator:
    """Iterates over ReadOnlyRecords; must be closed: a context manager (Kafka class: ReadOnlyRecordIterator).

    Args:
        entries: the entries of a store with headers.
        record_of: makes the record of an entry.
    """

    def __init__(self, entries: KeyValueIterator, record_of: Callable[[Any, Any], ReadOnlyRecord[Any, Any]]) -> None:
        self._entries = entries
        self._record_of = record_of

    def __iter__(self) -> ReadOnlyRecordIterator:
        return self

    def __next__(self) -> ReadOnlyRecord[Any, Any]:
        key, value = next(self._entries)
        return self._record_of(key, value)

    def __enter__(self) -> ReadOnlyRecordIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the iterator; later reads raise InvalidStateStoreError."""
        self._entries.close()


def record_of(key: Any, value: ValueTimestampHeaders) -> ReadOnlyRecord[Any, Any]:
    """Return an entry of a key-value or window store with headers as a record.

    Raises StreamsError for a negative timestamp, as of a store whose supplier keeps no timestamps.
    """
    if value.timestamp < 0:
        where = f"key [{key.key}] and window [{key.window}]" if isinstance(key, Windowed) else f"key [{key}]"
        raise StreamsError(
            f"Cannot represent the stored record for {where} as a ReadOnlyRecord: its timestamp ({value.timestamp}) is "
            "negative. The supplier of the store keeps no timestamps: query the plain values, such as with KeyQuery."
        )
    return Record(key, value.value, value.timestamp, value.headers)


def session_record_of(session: Windowed[Any], value: Any) -> ReadOnlyRecord[Any, Any]:
    """Return an entry of a session store with headers as a record; its timestamp is the end of the session.

    Stores of the DSL show their aggregates without headers.
    """
    if isinstance(value, AggregationWithHeaders):
        return Record(session, value.aggregation, session.window.end, value.headers)
    return Record(session, value, session.window.end)
