"""Requests about parked records: to try them again at once, or to drop them.

A request is a record of a topic of the application, in the partition of the task whose store it concerns. So what the
request does is in one commit with the position after it, and happens once.

Rules:
- A request concerns the records that its author has seen: those with numbers up to a largest one. Records that are
  parked after that are not concerned, however late the request comes: the number of a record never occurs again, also
  if the task is opened again (`StreamPark` keeps the next one with the position).
- The value of a request is one byte with the version of the layout, 1, and an array of MessagePack: action, largest
  number, array of serialised keys or nil for all keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes import Serde

_VERSION: Final = b"\x01"


class ParkedAction(StrEnum):
    """What becomes of parked records."""

    RETRY = "retry"
    """The first record of each key is due at once, with all its attempts."""
    DROP = "drop"
    """The records are dead letters, or are dropped without a topic for these."""


@dataclass(frozen=True, slots=True)
class ParkedRequest:
    """A request about the parked records of one task.

    Args:
        action: what becomes of the records.
        through: the largest number of a record that the request concerns.
        keys: the serialised keys; None stands for all keys.
    """

    action: ParkedAction
    through: int
    keys: tuple[bytes | None, ...] | None = None

    def concerns(self, sequence: int, key: bytes | None) -> bool:
        """Return whether the request concerns the record with this number and serialised key."""
        return sequence <= self.through and (self.keys is None or key in self.keys)


_DECODER = msgspec.msgpack.Decoder(tuple[ParkedAction, int, tuple[bytes | None, ...] | None])


class ParkedRequestSerde(Serde[ParkedRequest]):
    """Converts requests to bytes and back."""

    uses_headers = False

    def serialize(self, topic: str, value: ParkedRequest, headers: Headers = ()) -> bytes:
        """Serialise a request."""
        return _VERSION + msgspec.msgpack.encode((value.action, value.through, value.keys))

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> ParkedRequest:
        """Deserialise a request; raises SerializationError for other data."""
        if data[:1] != _VERSION:
            raise SerializationError(
                f"Topic {topic!r} has a request in layout {data[:1].hex() or 'of no bytes'}; this version reads layout "
                f"{_VERSION.hex()}. Use the command `penstock parked` of the version that runs the application."
            )
        try:
            return ParkedRequest(*_DECODER.decode(data[1:]))
        except msgspec.DecodeError as error:
            raise SerializationError(f"Topic {topic!r} has a damaged request: {error}.") from error
