"""The serdes of a time-ordered buffer of stream records, byte for byte Kafka's.

A key is 8 bytes of timestamp, the record's key, and 4 bytes of a sequence number that distinguishes records with the
same timestamp and key. A value is the record's context (timestamp and offset, 8 bytes each; topic, partition, headers)
and three values, each with its size in 4 bytes (-1 for None): prior and old value, here always None, and the value.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from penstock.errors import SerializationError
from penstock.record import Headers, RecordMetadata
from penstock.serdes.api import Serde, any_uses_headers, inner_serde, or_default

_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_LONGS = struct.Struct(">qq")
_NULL = _INT.pack(-1)


class BufferKey(NamedTuple):
    """The timestamp, key and sequence number of a waiting record (Kafka class: BufferKey)."""

    timestamp: int
    key: Any
    sequence: int


class BufferValue(NamedTuple):
    """The rest of a waiting record (Kafka class: BufferValue)."""

    timestamp: int
    headers: Headers
    metadata: RecordMetadata
    value: Any


class BufferKeySerde(Serde[BufferKey]):
    """Converts the keys (Kafka class: PrefixedWindowKeySchemas.TimeFirstWindowKeySchema).

    Args:
        key_serde: the serde of the records' keys; None means the configured default.
    """

    def __init__(self, key_serde: Serde | None) -> None:
        self._key_serde = key_serde

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde[BufferKey]:
        """Return this serde, or one with the default key serde if it is missing."""
        return BufferKeySerde(or_default(self._key_serde, key_serde, key_serde, value_serde))

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
        timestamp, key, sequence = value
        data = inner_serde(self._key_serde, "key").serialize(topic, key, headers)
        return _LONG.pack(timestamp) + data + _INT.pack(sequence)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> BufferKey:
        """Deserialise the key."""
        (timestamp,), (sequence,) = _LONG.unpack(data[: _LONG.size]), _INT.unpack(data[-_INT.size :])
        key = inner_serde(self._key_serde, "key").deserialize(topic, data[_LONG.size : -_INT.size], headers)
        return BufferKey(timestamp, key, sequence)


class BufferValueSerde(Serde[BufferValue]):
    """Converts the values (Kafka class: BufferValue).

    Args:
        value_serde: the serde of the records' values; None means the configured default.
    """

    def __init__(self, value_serde: Serde | None) -> None:
        self._value_serde = value_serde

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde[BufferValue]:
        """Return this serde, or one with the default value serde if it is missing."""
        return BufferValueSerde(or_default(self._value_serde, value_serde, key_serde, value_serde))

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the records' values."""
        return (self._value_serde,)

    @property
    def uses_headers(self) -> bool:
        """Whether the value serde uses the headers."""
        return any_uses_headers(self._value_serde)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the value."""
        buffered: BufferValue = value
        metadata = buffered.metadata
        data = inner_serde(self._value_serde, "value").serialize(topic, buffered.value, headers)
        entries = [part for name, content in buffered.headers for part in (_sized(name.encode()), _sized(content))]
        return b"".join(
            (
                _LONGS.pack(buffered.timestamp, metadata.offset),
                _sized(None if metadata.topic is None else metadata.topic.encode()),
                _INT.pack(metadata.partition),
                _INT.pack(len(buffered.headers)),
                *entries,
                _NULL,
                _NULL,
                _sized(data),
            )
        )

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> BufferValue:
        """Deserialise the value; the serde receives the waiting record's headers, as in Kafka since 4.4."""
        timestamp, offset = _LONGS.unpack_from(data)
        source, at = _next(data, _LONGS.size)
        partition, count = struct.unpack_from(">ii", data, at)
        at += 2 * _INT.size
        read = []
        for _ in range(count):
            name, at = _next(data, at)
            content, at = _next(data, at)
            read.append(((name or b"").decode(), content))
        value, _ = _next(data, at + 2 * _INT.size)  # after prior and old value, both None
        if value is None:
            raise SerializationError(f"Cannot read {data[:100]!r} from {topic!r}: a waiting record has a value.")
        metadata = RecordMetadata(None if source is None else source.decode(), partition, offset)
        own = tuple(read)
        return BufferValue(
            timestamp, own, metadata, inner_serde(self._value_serde, "value").deserialize(topic, value, own)
        )


def _sized(data: bytes | None) -> bytes:
    return _NULL if data is None else _INT.pack(len(data)) + data


def _next(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the sized bytes at the offset `at`, and the offset of their end."""
    (size,) = _INT.unpack_from(data, at)
    start = at + _INT.size
    return (None, start) if size < 0 else (data[start : start + size], start + size)
