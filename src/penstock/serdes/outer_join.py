"""The serdes of the store where records of a left or outer join of streams wait until they meet another, byte for byte
those of Kafka.

A key is 8 bytes of timestamp, one byte that is 1 for the left side and 0 for the right, and the key of the record, so
that the store is in the order of time; a value is such a byte and the value of the record.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from penstock.record import Headers
from penstock.serdes.api import Serde, any_uses_headers, inner_serde, or_default

_TIME_AND_SIDE = struct.Struct(">q?")


class TimestampedKeyAndJoinSide(NamedTuple):
    """A record that waits: when it was, on which side of the join, its key (Kafka class: TimestampedKeyAndJoinSide)."""

    timestamp: int
    left: bool
    key: Any


class LeftOrRightValue(NamedTuple):
    """The value of a record of either side (Kafka class: LeftOrRightValue)."""

    left: bool
    value: Any


class _ReadValue(LeftOrRightValue):
    """A value that was read; data: the bytes that it was read from.

    It is written as these: where records of one time and key wait in one list, the next one is added to bytes, and the
    serde of the user does not see the others again, with the headers of that record.
    """

    data: bytes


class TimestampedKeyAndJoinSideSerde(Serde[TimestampedKeyAndJoinSide]):
    """Writes and reads the keys (Kafka class: TimestampedKeyAndJoinSideSerde)."""

    def __init__(self, key_serde: Serde | None) -> None:
        """Take the serde of the records' keys, None for the default of the configuration."""
        self._key_serde = key_serde

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde[TimestampedKeyAndJoinSide]:
        """Return this serde, or one with the default serde of keys if it was made without."""
        return TimestampedKeyAndJoinSideSerde(or_default(self._key_serde, key_serde, key_serde, value_serde))

    @property
    def uses_headers(self) -> bool:
        """Whether the serde of the keys uses the headers."""
        return any_uses_headers(self._key_serde)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return the key as bytes."""
        timestamp, left, key = value
        return _TIME_AND_SIDE.pack(timestamp, left) + inner_serde(self._key_serde, "key").serialize(topic, key, headers)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> TimestampedKeyAndJoinSide:
        """Return the key."""
        timestamp, left = _TIME_AND_SIDE.unpack_from(data)
        key = inner_serde(self._key_serde, "key").deserialize(topic, data[_TIME_AND_SIDE.size :], headers)
        return TimestampedKeyAndJoinSide(timestamp, left, key)


class LeftOrRightValueSerde(Serde[LeftOrRightValue]):
    """Writes and reads the values (Kafka class: LeftOrRightValueSerde)."""

    def __init__(self, left_serde: Serde | None, right_serde: Serde | None) -> None:
        """Take the serdes of the values of both sides, None for the default of the configuration."""
        self._left_serde = left_serde
        self._right_serde = right_serde

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde[LeftOrRightValue]:
        """Return this serde with the default serde of values where it was made without."""
        return LeftOrRightValueSerde(
            or_default(self._left_serde, value_serde, key_serde, value_serde),
            or_default(self._right_serde, value_serde, key_serde, value_serde),
        )

    @property
    def uses_headers(self) -> bool:
        """Whether a serde of the values uses the headers."""
        return any_uses_headers(self._left_serde, self._right_serde)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return the value as bytes; one that was read as the bytes that it was read from."""
        if isinstance(value, _ReadValue):
            return value.data
        left, plain = value
        serde = inner_serde(self._left_serde if left else self._right_serde, "value")
        return (b"\x01" if left else b"\x00") + serde.serialize(topic, plain, headers)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> LeftOrRightValue:
        """Return the value."""
        left = data[0] == 1
        serde = inner_serde(self._left_serde if left else self._right_serde, "value")
        read = _ReadValue(left, serde.deserialize(topic, data[1:], headers))
        read.data = data
        return read
