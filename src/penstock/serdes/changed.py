"""The serde of table updates in repartition topics (Kafka classes: ChangedSerializer, ChangedDeserializer).

The last byte defines the preceding bytes: 0 the old value, 1 the new value, 2 the length of the new value (zigzag
varint), the new value, the old value. 3, 4 and 5 are the same with one more byte before the last: whether the update is
the latest of its key; they are read but never written.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import StreamsError
from penstock.record import Change, Headers
from penstock.serdes.api import Serde, any_uses_headers, missing_serde

_OLD, _NEW, _BOTH = b"\x00", b"\x01", b"\x02"
_WITH_IS_LATEST = 3


class ChangedSerde(Serde[Change]):
    """Converts a Change.

    Args:
        inner: the serde of the values; None means `default.value.serde`.
    """

    def __init__(self, inner: Serde | None) -> None:
        self._inner = inner

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> ChangedSerde:
        """Return this serde, or one with `value_serde` if the inner serde is missing.

        Raises ConfigError if both are missing.
        """
        inner = value_serde if self._inner is None else self._inner
        if inner is None:
            raise missing_serde("value")
        return ChangedSerde(inner.with_defaults(key_serde, value_serde))

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the values."""
        return (self._inner,)

    @property
    def uses_headers(self) -> bool:
        """Whether the value serde uses the headers."""
        return any_uses_headers(self._inner)

    def serialize(self, topic: str, value: Change, headers: Headers = ()) -> bytes:
        """Serialise `value`; raises StreamsError if old and new value are both missing."""
        inner = self._values()
        if value.new_value is None:
            if value.old_value is None:
                raise StreamsError("Both old and new values are null in ChangeSerializer, which is not allowed.")
            return inner.serialize(topic, value.old_value, headers) + _OLD
        new = inner.serialize(topic, value.new_value, headers)
        if value.old_value is None:
            return new + _NEW
        return _varint(len(new)) + new + inner.serialize(topic, value.old_value, headers) + _BOTH

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Change:
        """Deserialise an update; raises StreamsError for an unknown last byte."""
        inner = self._values()
        flag, end, is_latest = data[-1], len(data) - 1, True
        if flag > 5:
            raise StreamsError(
                f"Encountered unknown byte value `{flag}` for encodingFlag in ChangedDeserializer of topic {topic}."
            )
        if flag >= _WITH_IS_LATEST:
            end -= 1
            flag -= _WITH_IS_LATEST
            is_latest = data[end] == 1
        if flag == 0:
            return Change(None, inner.deserialize(topic, data[:end], headers), is_latest)
        if flag == 1:
            return Change(inner.deserialize(topic, data[:end], headers), None, is_latest)
        length, start = _read_varint(data)
        new = inner.deserialize(topic, data[start : start + length], headers)
        return Change(new, inner.deserialize(topic, data[start + length : end], headers), is_latest)

    def _values(self) -> Serde[Any]:
        if self._inner is None:
            raise missing_serde("value")
        return self._inner


def _varint(number: int) -> bytes:
    """Return a number >= 0 as a zigzag varint (Kafka: ByteUtils.writeVarint)."""
    rest = number << 1
    result = bytearray()
    while rest > 0x7F:
        result.append(rest & 0x7F | 0x80)
        rest >>= 7
    result.append(rest)
    return bytes(result)


def _read_varint(data: bytes) -> tuple[int, int]:
    """Return the number at the start of `data` and the offset of its end."""
    number = shift = position = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return number >> 1, position
        shift += 7
