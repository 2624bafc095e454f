"""The serde of lists, byte for byte Kafka's.

Layout: a byte for the strategy; for entries of one size (0), the number and the indexes of the None entries, followed
by the number of entries and their bytes; for all others (1), the number of entries, and before each entry its size, -1
for None. All numbers are 4 bytes, big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde
from penstock.serdes.primitive import DoubleSerde, FloatSerde, IntegerSerde, LongSerde, ShortSerde, UUIDSerde

T = TypeVar("T")

_CONSTANT_SIZE, _VARIABLE_SIZE = 0, 1
_NULL_SIZE = -1
_INT = struct.Struct(">i")
_SIZES: Final[dict[type[Serde], int]] = {
    ShortSerde: 2,
    IntegerSerde: 4,
    FloatSerde: 4,
    LongSerde: 8,
    DoubleSerde: 8,
    UUIDSerde: 36,
}


class ListSerde(Serde[list[T]]):
    """Lists with entries of another serde; an entry may be None (Kafka class: Serdes.ListSerde).

    Args:
        inner: the serde of the entries.
    """

    def __init__(self, inner: Serde[T]) -> None:
        self.inner = inner
        self._size = _SIZES.get(type(inner))
        self.repeatable = inner.repeatable

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde[list[T]]:
        """Return a list serde of the inner serde with its defaults."""
        inner = self.inner.with_defaults(key_serde, value_serde)
        return self if inner is self.inner else ListSerde(inner)

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the entries."""
        return (self.inner,)

    @property
    def uses_headers(self) -> bool:
        """Whether the entries' serde uses the headers."""
        return self.inner.uses_headers

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the entries and their sizes; raises TypeError unless it is a list or tuple."""
        if not isinstance(value, list | tuple):
            raise TypeError(
                f"Cannot write to {topic!r}: expected a list, got {type(value).__name__} {value!r:.100}; name another "
                "serde or convert the value."
            )
        entries = [None if entry is None else self.inner.serialize(topic, entry, headers) for entry in value]
        if self._size is None:
            return b"".join((bytes([_VARIABLE_SIZE]), _INT.pack(len(entries)), *map(_sized, entries)))
        nulls = [place for place, entry in enumerate(entries) if entry is None]
        places = struct.pack(f">{len(nulls) + 2}i", len(nulls), *nulls, len(entries))
        return b"".join((bytes([_CONSTANT_SIZE]), places, *filter(None, entries)))

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> list[T]:
        """Deserialise the list; raises SerializationError for bytes not written by this serde."""
        try:
            entries = _entries(data, self._size)
        except (struct.error, IndexError, ValueError) as error:
            raise SerializationError(f"Cannot read {data[:100]!r} from {topic!r} as a list: {error}.") from error
        read: list[Any] = [
            None if entry is None else self.inner.deserialize(topic, entry, headers) for entry in entries
        ]
        return read


def _sized(entry: bytes | None) -> bytes:
    return _INT.pack(_NULL_SIZE) if entry is None else _INT.pack(len(entry)) + entry


def _entries(data: bytes, constant_size: int | None) -> Sequence[bytes | None]:
    """Return the bytes of each entry; raises ValueError or struct.error for other bytes."""
    strategy, at = data[0], 1
    if strategy == _CONSTANT_SIZE:
        if constant_size is None:
            raise ValueError("its entries have equal sizes, which this serde does not write")
        (count,) = _INT.unpack_from(data, at)
        nulls = set(struct.unpack_from(f">{count}i", data, at + 4))
        at += 4 + 4 * count
    elif strategy == _VARIABLE_SIZE:
        nulls = set()
    else:
        raise ValueError("Invalid serialization strategy flag value")
    (length,) = _INT.unpack_from(data, at)
    at += 4
    entries: list[bytes | None] = []
    for place in range(length):
        size = constant_size
        if strategy == _VARIABLE_SIZE:
            (size,) = _INT.unpack_from(data, at)
            at += 4
        if size == _NULL_SIZE or place in nulls:
            entries.append(None)
            continue
        if size is None or size < 0 or at + size > len(data):
            raise ValueError("End of the stream was reached prematurely")
        entries.append(data[at : at + size])
        at += size
    return entries
