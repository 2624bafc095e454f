"""The base of serdes that keep a part of each value in the headers of its record.

A sink writes data and headers (`serialize_record`). Stores, and the serdes of lists and windowed keys, have no headers
to write to: `serialize` returns a mark, the headers and the data, and `deserialize` accepts both forms. So a
value in a store does not depend on the headers of the record that is being processed.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde

T = TypeVar("T")

_MARK: Final = b"\xffpenstock-headers\x00"
"""Begins data that contains its headers."""

_PACKED: Final = msgspec.msgpack.Decoder(tuple[tuple[tuple[str, bytes | None], ...], bytes])


class HeaderSerde(Serde[T], Generic[T]):
    """Base of serdes that keep a part of each value in the headers of its record.

    A subclass overrides `write`, `read` and `is_own`.
    """

    writes_headers = True

    def write(self, topic: str, value: Any) -> tuple[bytes, Headers]:
        """Return the data of `value`, and the headers that belong to it."""
        raise NotImplementedError

    def read(self, topic: str, data: bytes, headers: Headers) -> T:
        """Return the value of `data` and the headers of its record."""
        raise NotImplementedError

    def is_own(self, name: str) -> bool:
        """Return whether the header `name` belongs to this serde, so that a write replaces it."""
        raise NotImplementedError

    def serialize_record(self, topic: str, value: Any, headers: Headers = ()) -> tuple[bytes, Headers]:
        """Serialise `value`, and return the headers of its record: its own after those of others."""
        data, own = self.write(topic, value)
        return data, (*(each for each in headers if not self.is_own(each[0])), *own)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise `value` with its headers in the data, for a place without headers such as a store."""
        return with_headers(*self.write(topic, value))

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> T:
        """Deserialise `data` of a record with `headers`, or data that contains its headers."""
        return self.read(topic, *split_headers(topic, data, headers))


def with_headers(data: bytes, own: Headers) -> bytes:
    """Return data that contains its headers."""
    return _MARK + msgspec.msgpack.encode((own, data))


def split_headers(topic: str, data: bytes, headers: Headers) -> tuple[bytes, Headers]:
    """Return the data and headers that `data` contains, or both arguments unchanged if it contains no headers."""
    if not data.startswith(_MARK):
        return data, headers
    try:
        own, rest = _PACKED.decode(memoryview(data)[len(_MARK) :])
    except msgspec.DecodeError as error:
        raise SerializationError(f"Cannot read {data[:100]!r} from {topic!r}: {error}.") from error
    return rest, own


def last_header(headers: Headers, name: str) -> bytes | None:
    """Return the value of the last header `name`, or None (Kafka: Headers.lastHeader)."""
    return next((value for each, value in reversed(headers) if each == name), None)
