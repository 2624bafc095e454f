"""The serdes of a stream-stream outer join's store of unmatched records, byte for byte Kafka's.

A left join uses it as well. A key is 8 bytes of timestamp, one byte (1 for the left side, 0 for the right), and the
record's key, so that the store is in time order; a value is such a byte and the record's value.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from penstock.record import Headers
from penstock.serdes.api import Serde, any_uses_headers, inner_serde, or_default

_TIME_AND_SIDE = struct.Struct(">q?")


class TimestampedKeyAndJoinSide(NamedTuple):
    """The timestamp, join side and key of a waiting record (Kafka class: TimestampedKeyAndJoinSide)."""

    timestamp: int
    left: bool
    key: Any


class LeftOrRightValue(NamedTuple):
    """The value of a record of either side (Kafka class: LeftOrRightValue)."""

    left: bool
    value: Any


class _ReadValue(LeftOrRightValue):
    """A value read from the bytes `data`.

    It is written as the same bytes: if records of one time and key wait in one list, the next one is appended as bytes,
    and the user's serde does not convert the others again, with the headers of that record.
    """

    data: bytes


class TimestampedKeyAndJoinSideSerde(Serde[TimestampedKeyAndJoinSide]):
    """Converts the keys (Kafka class: TimestampedKeyAndJoinSideSerde).

    Args:
        key_serde: the serde of the records' keys; None means the configured default.
    """

    def __init__(self, key_serde: Serde | None) -> None:
        self._key_serde = key_serde

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde[TimestampedKeyAndJoinSide]:
        """Return this serde, or one with the default key serde if it is missing."""
        return TimestampedKeyAndJoinSideSerde(or_default(self._key_serde, key_serde, key_serde, value_serde))

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the records' keys."""
        return (self._key_serde,)

    @property
    def uses_headers(self) -> bool:
        """Whether the key serde uses the headers."""
        return any_uses_headers(self._key_serde)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the key."""
        timestamp, left, key = value
        return _TIME_AND_SIDE.pack(timestamp, left) + inner_serde(self._key_serde, "key").serialize(topic, key, headers)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> TimestampedKeyAndJoinSide:
        """Deserialise the key."""
        timestamp, left = _TIME_AND_SIDE.unpack_from(data)
        key = inner_serde(self._key_serde, "key").deserialize(topic, data[_TIME_AND_SIDE.size :], headers)
        return TimestampedKeyAndJoinSide(timestamp, left, key)


class LeftOrRightValueSerde(Serde[LeftOrRightValue]):
    """Converts the values (Kafka class: LeftOrRightValueSerde).

    Args:
        left_serde: the serde of the left side's values; None means the configured default.
        right_serde: the same for the right side.
    """

    def __init__(self, left_serde: Serde | None, right_serde: Serde | None) -> None:
        self._left_serde = left_serde
        self._right_serde = right_serde

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde[LeftOrRightValue]:
        """Return this serde with the default value serde for missing ones."""
        return LeftOrRightValueSerde(
            or_default(self._left_serde, value_serde, key_serde, value_serde),
            or_default(self._right_serde, value_serde, key_serde, value_serde),
        )

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serdes of the values of both sides."""
        return (self._left_serde, self._right_serde)

    @property
    def uses_headers(self) -> bool:
        """Whether one of the value serdes uses the headers."""
        return any_uses_headers(self._left_serde, self._right_serde)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the value; one that was read keeps its bytes."""
        if isinstance(value, _ReadValue):
            return value.data
        left, plain = value
        serde = inner_serde(self._left_serde if left else self._right_serde, "value")
        return (b"\x01" if left else b"\x00") + serde.serialize(topic, plain, headers)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> LeftOrRightValue:
        """Deserialise the value."""
        left = data[0] == 1
        serde = inner_serde(self._left_serde if left else self._right_serde, "value")
        read = _ReadValue(left, serde.deserialize(topic, data[1:], headers))
        read.data = data
        return read
