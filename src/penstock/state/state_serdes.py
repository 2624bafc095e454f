"""How a store turns its keys and values into bytes and back, one by one and column by column (Kafka class:
StateSerdes).

A plain store keeps values as its serde writes them; a timestamped one puts the timestamp before them, one with headers
puts these before all. Errors name the store and its serdes. Nothing here knows how bytes are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import numpy as np

from penstock.errors import SerializationError
from penstock.record import (
    NO_TIMESTAMP,
    AggregationWithHeaders,
    Int64Array,
    ValueAndTimestamp,
    ValueTimestampHeaders,
)
from penstock.serdes import Serde
from penstock.state.headers_layout import NO_HEADERS, pack_headers, unpack_headers, without_headers
from penstock.state.layouts import (
    TIMESTAMP_SIZE,
    join_timestamps,
    pack_timestamp,
    split_timestamps,
    timestamp_of,
)

_UNCHANGEABLE = frozenset(
    {type(None), bool, int, float, complex, str, bytes, Decimal, UUID, date, datetime, time, timedelta}
)
"""Types whose values nobody can change."""


class StateSerdes:
    """The serdes of a store of plain values."""

    timestamped = False
    """Whether the values are ValueAndTimestamp."""

    with_headers = False
    """Whether headers are kept with the values."""

    def __init__(self, store_name: str, topic: str, key_serde: Serde, value_serde: Serde) -> None:
        """Serve the store `store_name`; `topic` is its changelog topic, which serdes are told."""
        self.store_name = store_name
        self.topic = topic
        self.key_serde = key_serde
        self.value_serde = value_serde

    # ---------- one by one

    def serialize_key(self, key: Any) -> bytes:
        """Return `key` as bytes; raises SerializationError."""
        try:
            return self.key_serde.serialize(self.topic, key)
        except Exception as error:
            raise self._error(f"write key {key!r:.200}", error) from error

    def deserialize_key(self, data: bytes) -> Any:
        """Return the key that `data` stands for; raises SerializationError."""
        return self._deserialize(self.key_serde, data, "key")

    def serialize_value(self, value: Any) -> bytes | None:
        """Return `value` as bytes, None for None; raises SerializationError."""
        return None if value is None else self.serialize(self.value_serde, value, "value")

    def deserialize_value(self, data: bytes | None) -> Any:
        """Return the value that `data` stands for, None for None; raises SerializationError."""
        return None if data is None else self._deserialize(self.value_serde, data, "value")

    def fresh(self, value: Any) -> Any:
        """Return `value`, which has no timestamp, as it would come back from the store: a copy if it can be changed;
        raises SerializationError."""
        if type(value) in _UNCHANGEABLE:
            return value
        return self._deserialize(self.value_serde, self.serialize(self.value_serde, value, "value"), "value")

    def serialize(self, serde: Serde, value: Any, what: str) -> bytes:
        """Return `value`, which is the `what` of a call, as `serde` writes it; raises SerializationError."""
        try:
            return serde.serialize(self.topic, value)
        except Exception as error:
            raise self._error(f"write {what} {value!r:.200}", error) from error

    def _deserialize(self, serde: Serde, data: bytes, what: str) -> Any:
        try:
            return serde.deserialize(self.topic, data)
        except Exception as error:
            raise self._error(f"read {what} {data!r:.200}", error) from error

    # ---------- columns

    def serialize_keys(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Return each of `keys` as bytes, None for None; raises SerializationError."""
        return self._column(self.key_serde.serialize_column, keys, "write keys")

    def deserialize_keys(self, keys: list[bytes]) -> list[Any]:
        """Return the key that each of `keys` stands for; raises SerializationError."""
        return self._column(self.key_serde.deserialize_column, keys, "read keys")

    def serialize_values(self, values: Sequence[Any], timestamps: Int64Array) -> list[bytes | None]:
        """Return each of `values` as bytes, None for None; `timestamps` (ms) are not kept here."""
        return self._column(self.value_serde.serialize_column, values, "write values")

    def deserialize_values(self, values: list[bytes | None]) -> tuple[list[Any], Int64Array]:
        """Return the values that `values` stand for, None for None, and their timestamps (ms), NO_TIMESTAMP where there
        is none; raises SerializationError."""
        read = self._column(self.value_serde.deserialize_column, values, "read values")
        return read, np.full(len(values), NO_TIMESTAMP, np.int64)

    def _column(
        self, convert: Callable[[str, Sequence[Any]], list[Any]], column: Sequence[Any], what: str
    ) -> list[Any]:
        try:
            return convert(self.topic, column)
        except Exception as error:
            raise self._error(what, error) from error

    def _error(self, action: str, error: Exception) -> SerializationError:
        return SerializationError(
            f"Store {self.store_name!r} cannot {action} with {type(self.key_serde).__name__} for keys and "
            f"{type(self.value_serde).__name__} for values: {error} "
            "Give the store the serdes of its keys and values, or convert them before."
        )


class TimestampedStateSerdes(StateSerdes):
    """The serdes of a store whose values are ValueAndTimestamp."""

    timestamped = True

    def serialize_value(self, value: Any) -> bytes | None:
        """Return a ValueAndTimestamp as bytes, None for None or one without a value; raises TypeError for anything
        else, SerializationError."""
        if value is None:
            return None
        if not isinstance(value, ValueAndTimestamp):
            raise TypeError(
                f"Store {self.store_name!r} holds ValueAndTimestamp, not {type(value).__name__} {value!r:.100}: "
                "put ValueAndTimestamp(value, timestamp_ms), or make a store without timestamps."
            )
        if value.value is None:
            return None
        return pack_timestamp(value.timestamp) + self.serialize(self.value_serde, value.value, "value")

    def deserialize_value(self, data: bytes | None) -> ValueAndTimestamp | None:
        """Return the ValueAndTimestamp that `data` stands for, None for None; raises SerializationError."""
        if data is None:
            return None
        return ValueAndTimestamp(
            self._deserialize(self.value_serde, data[TIMESTAMP_SIZE:], "value"), timestamp_of(data)
        )

    def serialize_values(self, values: Sequence[Any], timestamps: Int64Array) -> list[bytes | None]:
        """Return each of `values` behind its timestamp (ms) as bytes, None for None; raises SerializationError."""
        return join_timestamps(timestamps, super().serialize_values(values, timestamps))

    def deserialize_values(self, values: list[bytes | None]) -> tuple[list[Any], Int64Array]:
        """Return the values and timestamps (ms) that `values` stand for, None and NO_TIMESTAMP for None; raises
        SerializationError."""
        present = [value for value in values if value is not None] if None in values else values
        plain, timestamps = split_timestamps(cast("list[bytes]", present))
        read = self._column(self.value_serde.deserialize_column, plain, "read values")
        if len(present) == len(values):
            return read, timestamps
        there = np.fromiter((value is not None for value in values), np.bool_, len(values))
        all_timestamps = np.full(len(values), NO_TIMESTAMP, np.int64)
        all_timestamps[there] = timestamps
        following = iter(read)
        return [next(following) if found else None for found in there.tolist()], all_timestamps


class HeadersStateSerdes(TimestampedStateSerdes):
    """The serdes of a store whose values are ValueTimestampHeaders; a ValueAndTimestamp is one without headers."""

    with_headers = True

    def serialize_value(self, value: Any) -> bytes | None:
        """Return a ValueTimestampHeaders as bytes, None for None or one without a value; raises TypeError for anything
        else, SerializationError."""
        data = super().serialize_value(value)
        if data is None:
            return None
        return pack_headers(value.headers if isinstance(value, ValueTimestampHeaders) else ()) + data

    def deserialize_value(self, data: bytes | None) -> ValueTimestampHeaders | None:
        """Return the ValueTimestampHeaders that `data` stands for, None for None; raises SerializationError."""
        if data is None:
            return None
        headers, at = unpack_headers(data)
        plain = super().deserialize_value(data[at:])
        return None if plain is None else ValueTimestampHeaders(plain.value, plain.timestamp, headers)

    def serialize_values(self, values: Sequence[Any], timestamps: Int64Array) -> list[bytes | None]:
        """Return each of `values` with its timestamp (ms) and no headers as bytes; raises SerializationError."""
        return _without_any_headers(super().serialize_values(values, timestamps))

    def deserialize_values(self, values: list[bytes | None]) -> tuple[list[Any], Int64Array]:
        """Return the values and timestamps (ms) that `values` stand for, without headers; raises
        SerializationError."""
        return super().deserialize_values([None if value is None else without_headers(value) for value in values])


class AggregationStateSerdes(StateSerdes):
    """The serdes of a session store that keeps headers, of which operators know nothing: values are plain."""

    with_headers = True

    def serialize_value(self, value: Any) -> bytes | None:
        """Return `value` without headers as bytes, None for None; raises SerializationError."""
        data = super().serialize_value(value)
        return None if data is None else NO_HEADERS + data

    def deserialize_value(self, data: bytes | None) -> Any:
        """Return the value that `data` stands for, None for None; raises SerializationError."""
        return None if data is None else super().deserialize_value(without_headers(data))

    def serialize_values(self, values: Sequence[Any], timestamps: Int64Array) -> list[bytes | None]:
        """Return each of `values` without headers as bytes; raises SerializationError."""
        return _without_any_headers(super().serialize_values(values, timestamps))

    def deserialize_values(self, values: list[bytes | None]) -> tuple[list[Any], Int64Array]:
        """Return the values that `values` stand for, without headers, and no timestamps; raises SerializationError."""
        return super().deserialize_values([None if value is None else without_headers(value) for value in values])


class AggregationWithHeadersStateSerdes(AggregationStateSerdes):
    """The serdes of a session store whose values are AggregationWithHeaders."""

    def serialize_value(self, value: Any) -> bytes | None:
        """Return an AggregationWithHeaders as bytes, None for None or one without an aggregate; raises TypeError for
        anything else, SerializationError."""
        if value is None:
            return None
        if not isinstance(value, AggregationWithHeaders):
            raise TypeError(
                f"Store {self.store_name!r} holds AggregationWithHeaders, not {type(value).__name__} {value!r:.100}: "
                "put AggregationWithHeaders(aggregation, headers), or make a store without headers."
            )
        if value.aggregation is None:
            return None
        return pack_headers(value.headers) + self.serialize(self.value_serde, value.aggregation, "value")

    def deserialize_value(self, data: bytes | None) -> AggregationWithHeaders | None:
        """Return the AggregationWithHeaders that `data` stands for, None for None; raises SerializationError."""
        if data is None:
            return None
        return AggregationWithHeaders(super().deserialize_value(data), unpack_headers(data)[0])


def _without_any_headers(values: list[bytes | None]) -> list[bytes | None]:
    return [None if value is None else NO_HEADERS + value for value in values]
