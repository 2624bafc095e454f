"""Serialisation of a store's keys and values, singly and by column (Kafka class: StateSerdes).

A plain store keeps values in the format of its serde; a timestamped one prefixes the timestamp, and one with headers
prefixes both with these. Errors name the store and its serdes. This module does not depend on the storage.

Serdes receive the headers of the record being processed, whatever the origin of the entry; for a value stored with
headers they receive those. For columns, serdes only receive explicitly passed headers: either their rows have no
headers, or no serde of the store uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from penstock.errors import ClassCastError, StreamsError
from penstock.record import (
    NO_TIMESTAMP,
    AggregationWithHeaders,
    Headers,
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

_Write = Callable[[str, Any], bytes]
_Read = Callable[[str, bytes], Any]


class StateSerdes:
    """The serdes of a store of plain values.

    Args:
        store_name: the name of the store.
        topic: its changelog topic, passed to the serdes.
        key_serde: the serde of the keys.
        value_serde: the serde of the values.
        headers: returns the headers of the record being processed, or () without one; only called for serdes that use
            them.
    """

    timestamped = False
    """Whether the values are ValueAndTimestamp."""

    with_headers = False
    """Whether the store keeps headers with the values."""

    _own_headers = False
    """Whether the value serde receives headers with each value, instead of those of the record."""

    def __init__(
        self,
        store_name: str,
        topic: str,
        key_serde: Serde,
        value_serde: Serde,
        headers: Callable[[], Headers] = tuple,
    ) -> None:
        self.store_name = store_name
        self.topic = topic
        self.key_serde = key_serde
        self.value_serde = value_serde
        self._headers = headers
        self._unchanging_types = value_serde.unchanging_types | {type(None)}
        values_use_headers = value_serde.uses_headers and not self._own_headers
        self.uses_headers = key_serde.uses_headers or values_use_headers
        self._write_key, self._read_key = _calls(key_serde, headers if key_serde.uses_headers else None)
        self._write_value, self._read_value = _calls(value_serde, headers if values_use_headers else None)

    def exposed(self) -> StateSerdes:
        """Return the serdes for users of the store: operators do not see the headers of some stores."""
        return self

    # ---------- single keys and values

    def serialize_key(self, key: Any) -> bytes:
        """Serialise `key`; raises the errors of the serde, and `wrong_type`."""
        return self._serialize(self._write_key, key, "key")

    def deserialize_key(self, data: bytes) -> Any:
        """Deserialise a key; raises the errors of the serde."""
        return self._deserialize(self._read_key, data, "key")

    def serialize_value(self, value: Any) -> bytes | None:
        """Serialise `value`; None stays None. Raises the errors of the serde, and `wrong_type`."""
        return None if value is None else self._serialize(self._write_value, value, "value")

    def deserialize_value(self, data: bytes | None) -> Any:
        """Deserialise a value; None stays None. Raises the errors of the serde."""
        return None if data is None else self._deserialize(self._read_value, data, "value")

    def deserialize_kept(self, data: bytes | None) -> Any:
        """Like `deserialize_value`, with the headers kept with the value for the serde: none here."""
        return None if data is None else self._deserialize(self.value_serde.deserialize, data, "value")

    def fresh(self, value: Any) -> Any:
        """Return `value` (without a timestamp) as a write and a read would return it.

        Raises the errors of the serde, and `wrong_type`.
        """
        if type(value) in self._unchanging_types:
            return value
        return self._deserialize(self._read_value, self._serialize(self._write_value, value, "value"), "value")

    def serialize_prefix(self, serde: Serde, prefix: Any) -> bytes:
        """Serialise a key prefix by `serde`, without headers; raises its errors, and `wrong_type`."""
        return self._serialize(serde.serialize, prefix, "prefix")

    def _serialize(self, write: _Write, value: Any, what: str) -> bytes:
        try:
            return write(self.topic, value)
        except TypeError as error:
            raise self.wrong_type(f"write {what} {value!r:.200}", error) from error
        except Exception as error:
            error.add_note(f"Store {self.store_name!r} cannot write {what} {value!r:.200}{self._serdes_at_work()}")
            raise

    def _deserialize(self, read: _Read, data: bytes, what: str) -> Any:
        try:
            return read(self.topic, data)
        except Exception as error:
            error.add_note(f"Store {self.store_name!r} cannot read {what} {data!r:.200}{self._serdes_at_work()}")
            raise

    # ---------- columns

    def serialize_keys(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Serialise each key; None stays None. Raises the errors of the serde, and `wrong_type`."""
        return self._serialize_column(self.key_serde, keys, "keys")

    def deserialize_keys(self, keys: list[bytes], headers: Sequence[Headers] | None = None) -> list[Any]:
        """Deserialise each key; raises the errors of the serde.

        headers: one per key, for the serde.
        """
        return self._deserialize_column(self.key_serde, keys, "keys", headers)

    def serialize_values(self, values: Sequence[Any], timestamps: Int64Array) -> list[bytes | None]:
        """Serialise each value; None stays None. The timestamps (ms) are not kept.

        Raises the errors of the serde, and `wrong_type`.
        """
        return self._serialize_column(self.value_serde, values, "values")

    def serialize_kept(self, values: Sequence[Any], headers: Sequence[Headers] | None) -> list[bytes | None]:
        """Serialise each value with the headers of its record, if the store keeps them; None stays None.

        Raises the errors of the serde, and `wrong_type`.
        """
        return self._serialize_column(self.value_serde, values, "values")

    def deserialize_values(
        self, values: list[bytes | None], headers: Sequence[Headers] | None = None
    ) -> tuple[list[Any], Int64Array]:
        """Deserialise each value; None stays None. Returns the values and their timestamps (ms).

        A missing timestamp is NO_TIMESTAMP. Raises the errors of the serde.

        headers: one per value, for the serde.
        """
        read = self._deserialize_column(self.value_serde, values, "values", headers)
        return read, np.full(len(values), NO_TIMESTAMP, np.int64)

    def _serialize_column(self, serde: Serde, column: Sequence[Any], what: str) -> list[bytes | None]:
        try:
            return serde.serialize_column(self.topic, column)
        except TypeError as error:
            raise self.wrong_type(f"write {what}", error) from error
        except Exception as error:
            error.add_note(f"Store {self.store_name!r} cannot write {what}{self._serdes_at_work()}")
            raise

    def _deserialize_column(
        self, serde: Serde, column: Sequence[bytes | None], what: str, headers: Sequence[Headers] | None
    ) -> list[Any]:
        try:
            return serde.deserialize_column(self.topic, column, headers)
        except Exception as error:
            error.add_note(f"Store {self.store_name!r} cannot read {what}{self._serdes_at_work()}")
            raise

    def wrong_type(self, action: str, error: TypeError) -> Exception:
        """Return the error for a value of a type that its serde does not accept.

        A StreamsError, since the processing handler may receive it. action: the failed action, such as "write key 5".
        """
        return StreamsError(
            f"{self._incompatible(action, error)} Give the store the serdes of its keys and values, or "
            "convert them first."
        )

    def _serdes_at_work(self) -> str:
        """Return the store's serdes and advice about them, as the end of a sentence."""
        return (
            f" with {type(self.key_serde).__name__} for keys and {type(self.value_serde).__name__} for values: give it "
            "the serdes of its keys and values."
        )

    def _incompatible(self, action: str, error: TypeError) -> str:
        return (
            f"Store {self.store_name!r} cannot {action} with {type(self.key_serde).__name__} for keys and "
            f"{type(self.value_serde).__name__} for values: {error}"
        )


class BufferStateSerdes(StateSerdes):
    """The serdes of a buffer of waiting updates."""

    def wrong_type(self, action: str, error: TypeError) -> Exception:
        """Return a ClassCastError, with which the task fails, whatever its handlers decide.

        As in Kafka, no code between a buffer and its processor catches it.
        """
        return ClassCastError(self._incompatible(action, error))


class BufferWithHeadersStateSerdes(BufferStateSerdes):
    """The serdes of a buffer that keeps the headers of each value with it."""

    with_headers = True

    def serialize_under(self, value: Any, headers: Headers) -> bytes | None:
        """Serialise `value` under the headers that it came with; None stays None. Raises as `serialize_value`."""
        return None if value is None else self._serialize(_shown(self.value_serde.serialize, headers), value, "value")


class TimestampedStateSerdes(StateSerdes):
    """The serdes of a store whose values are ValueAndTimestamp."""

    timestamped = True

    def serialize_value(self, value: Any) -> bytes | None:
        """Serialise a ValueAndTimestamp; None, or one without a value, becomes None.

        Raises TypeError for any other type, and the errors of the serde.
        """
        if not self._has_value(value):
            return None
        return pack_timestamp(value.timestamp) + self._serialize(self._write_value, value.value, "value")

    def _has_value(self, value: Any) -> bool:
        if value is None:
            return False
        if not isinstance(value, ValueAndTimestamp):
            raise TypeError(
                f"Store {self.store_name!r} holds ValueAndTimestamp, not {type(value).__name__} {value!r:.100}: "
                "put ValueAndTimestamp(value, timestamp_ms), or create a store without timestamps."
            )
        return value.value is not None

    def deserialize_value(self, data: bytes | None) -> ValueAndTimestamp | None:
        """Deserialise a ValueAndTimestamp; None stays None. Raises the errors of the serde."""
        if data is None:
            return None
        value = self._deserialize(self._read_value, data[TIMESTAMP_SIZE:], "value")
        return ValueAndTimestamp(value, timestamp_of(data))

    def serialize_values(self, values: Sequence[Any], timestamps: Int64Array) -> list[bytes | None]:
        """Serialise each value with its timestamp (ms) as prefix; None stays None.

        Raises the errors of the serde.
        """
        return join_timestamps(timestamps, super().serialize_values(values, timestamps))

    def deserialize_values(
        self, values: list[bytes | None], headers: Sequence[Headers] | None = None
    ) -> tuple[list[Any], Int64Array]:
        """Deserialise values and timestamps (ms); None becomes None and NO_TIMESTAMP.

        Raises the errors of the serde. headers: one per value, for the serde.
        """
        present = values
        if None in values:
            present = [value for value in values if value is not None]
            if headers is not None:
                headers = [own for own, value in zip(headers, values, strict=True) if value is not None]
        plain, timestamps = split_timestamps(cast("list[bytes]", present))
        read = self._deserialize_column(self.value_serde, plain, "values", headers)
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
    _own_headers = True

    def serialize_value(self, value: Any) -> bytes | None:
        """Serialise a ValueTimestampHeaders; None, or one without a value, becomes None.

        Raises TypeError for any other type, and the errors of the serde.
        """
        if not self._has_value(value):
            return None
        headers = value.headers if isinstance(value, ValueTimestampHeaders) else ()
        data = self._serialize(_shown(self.value_serde.serialize, headers), value.value, "value")
        return pack_headers(headers) + pack_timestamp(value.timestamp) + data

    def deserialize_value(self, data: bytes | None) -> ValueTimestampHeaders | None:
        """Deserialise a ValueTimestampHeaders; None stays None. Raises the errors of the serde."""
        if data is None:
            return None
        headers, at = unpack_headers(data)
        read = _shown(self.value_serde.deserialize, headers)
        value = self._deserialize(read, data[at + TIMESTAMP_SIZE :], "value")
        return ValueTimestampHeaders(value, timestamp_of(data[at:]), headers)

    def serialize_values(self, values: Sequence[Any], timestamps: Int64Array) -> list[bytes | None]:
        """Serialise each value with its timestamp (ms) and empty headers; raises the serde's errors."""
        return _without_any_headers(super().serialize_values(values, timestamps))

    def deserialize_values(
        self, values: list[bytes | None], headers: Sequence[Headers] | None = None
    ) -> tuple[list[Any], Int64Array]:
        """Deserialise values and timestamps (ms), passing the stored headers to the serde.

        The headers are not part of the result. Raises the errors of the serde.
        """
        return super().deserialize_values(_without_headers(values), _kept_headers(self.value_serde, values))


class HiddenHeadersStateSerdes(StateSerdes):
    """The serdes of a store with headers that are hidden from operators: values are plain."""

    with_headers = True

    def deserialize_value(self, data: bytes | None) -> Any:
        """Deserialise a value, passing the stored headers to the serde; None stays None.

        Raises the errors of the serde.
        """
        if data is None:
            return None
        headers, at = unpack_headers(data)
        return self._deserialize(_shown(self.value_serde.deserialize, headers), data[at:], "value")

    def deserialize_values(
        self, values: list[bytes | None], headers: Sequence[Headers] | None = None
    ) -> tuple[list[Any], Int64Array]:
        """Deserialise values, passing the stored headers to the serde; returns no timestamps.

        The headers are not part of the result. Raises the errors of the serde.
        """
        return super().deserialize_values(_without_headers(values), _kept_headers(self.value_serde, values))


class JoinStateSerdes(HiddenHeadersStateSerdes):
    """The serdes of a join's window store that keeps the headers of its records."""

    def serialize_value(self, value: Any) -> bytes | None:
        """Serialise `value` with the headers of its record; None stays None. Raises the errors of the serde."""
        data = super().serialize_value(value)
        return None if data is None else pack_headers(self._headers()) + data

    def serialize_kept(self, values: Sequence[Any], headers: Sequence[Headers] | None) -> list[bytes | None]:
        """Serialise each value with the headers of its record; None stays None. Raises as `serialize_value`."""
        written = super().serialize_kept(values, headers)
        if headers is None:
            return _without_any_headers(written)
        return [None if data is None else pack_headers(own) + data for own, data in zip(headers, written, strict=True)]

    def deserialize_kept(self, data: bytes | None) -> Any:
        """Deserialise a value, passing the stored headers to the serde; None stays None."""
        return self.deserialize_value(data)


class AggregationStateSerdes(HiddenHeadersStateSerdes):
    """The serdes of a session store of the DSL with headers: those of an aggregate are empty."""

    _own_headers = True

    def exposed(self) -> StateSerdes:
        """Return the serdes for users of the store, whose values are AggregationWithHeaders."""
        return AggregationWithHeadersStateSerdes(
            self.store_name, self.topic, self.key_serde, self.value_serde, self._headers
        )

    def serialize_value(self, value: Any) -> bytes | None:
        """Serialise `value` without headers; None stays None. Raises the errors of the serde."""
        data = super().serialize_value(value)
        return None if data is None else NO_HEADERS + data

    def serialize_values(self, values: Sequence[Any], timestamps: Int64Array) -> list[bytes | None]:
        """Serialise each value without headers; raises the errors of the serde."""
        return _without_any_headers(super().serialize_values(values, timestamps))


class AggregationWithHeadersStateSerdes(AggregationStateSerdes):
    """The serdes of a session store whose values are AggregationWithHeaders."""

    def exposed(self) -> StateSerdes:
        """Return these serdes."""
        return self

    def serialize_value(self, value: Any) -> bytes | None:
        """Serialise an AggregationWithHeaders; None, or one without an aggregate, becomes None.

        Raises TypeError for any other type, and the errors of the serde.
        """
        if value is None:
            return None
        if not isinstance(value, AggregationWithHeaders):
            raise TypeError(
                f"Store {self.store_name!r} holds AggregationWithHeaders, not {type(value).__name__} {value!r:.100}: "
                "put AggregationWithHeaders(aggregation, headers), or create a store without headers."
            )
        if value.aggregation is None:
            return None
        write = _shown(self.value_serde.serialize, value.headers)
        return pack_headers(value.headers) + self._serialize(write, value.aggregation, "value")

    def deserialize_value(self, data: bytes | None) -> AggregationWithHeaders | None:
        """Deserialise an AggregationWithHeaders; None stays None. Raises the errors of the serde."""
        if data is None:
            return None
        headers, at = unpack_headers(data)
        read = _shown(self.value_serde.deserialize, headers)
        return AggregationWithHeaders(self._deserialize(read, data[at:], "value"), headers)


def _calls(serde: Serde, headers: Callable[[], Headers] | None) -> tuple[_Write, _Read]:
    """Return the writer and reader of `serde`, which receives the current result of `headers`."""
    write, read = serde.serialize, serde.deserialize
    if headers is None:
        return write, read
    now = headers
    return lambda topic, value: write(topic, value, now()), lambda topic, data: read(topic, data, now())


def _shown(call: Callable[[str, Any, Headers], Any], headers: Headers) -> Callable[[str, Any], Any]:
    """Return the serde's method `call`, bound to `headers`."""
    return lambda topic, part: call(topic, part, headers)


def _without_headers(values: list[bytes | None]) -> list[bytes | None]:
    return [None if value is None else without_headers(value) for value in values]


def _kept_headers(serde: Serde, values: list[bytes | None]) -> list[Headers] | None:
    """Return the headers stored with each value, or None if `serde` does not use them."""
    if not serde.uses_headers:
        return None
    return [() if value is None else unpack_headers(value)[0] for value in values]


def _without_any_headers(values: list[bytes | None]) -> list[bytes | None]:
    return [None if value is None else NO_HEADERS + value for value in values]
