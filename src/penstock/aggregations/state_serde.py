"""The base of the serdes of states: a byte for the version, a byte for the kind of state, and the state.

Every state has exactly one form in bytes, so equal states are equal bytes in changelogs.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from typing import Any, ClassVar, Final

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde

_VERSION: Final = 1
_HEADER: Final = 2


class StateSerde(Serde[Any]):
    """The serde of one kind of state; subclasses define the bytes after the header."""

    kind: ClassVar[bytes]
    """The byte of the kind of state; never reused."""
    aggregation: ClassVar[str]
    """The function of `penstock.aggregations`, for messages."""

    repeatable = True

    @property
    def uses_headers(self) -> bool:
        """Whether the state depends on the headers: it does not."""
        return False

    @abstractmethod
    def _packed(self, topic: str, state: Any) -> bytes:
        """Return the bytes of a state."""
        raise NotImplementedError

    @abstractmethod
    def _unpacked(self, topic: str, data: bytes) -> Any:
        """Return the state; raises ValueError, IndexError or struct.error for other bytes."""
        raise NotImplementedError

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise a state."""
        return bytes((_VERSION, self.kind[0])) + self._packed(topic, value)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Deserialise a state; raises SerializationError for bytes of other states or later versions."""
        if len(data) < _HEADER or data[1] != self.kind[0]:
            raise self._unreadable(topic, data, "they are the state of another aggregation")
        if data[0] != _VERSION:
            raise self._unreadable(topic, data, f"their version is {data[0]}, and this Penstock reads {_VERSION}")
        try:
            return self._unpacked(topic, data[_HEADER:])
        except (ValueError, IndexError, struct.error) as error:
            raise self._unreadable(topic, data, str(error)) from error

    def _unreadable(self, topic: str, data: bytes, why: str) -> SerializationError:
        return SerializationError(
            f"Cannot read {data[:100]!r} from {topic!r} as the state of aggregations.{self.aggregation}: {why}. "
            "If the program had another aggregation before, give this one a store with a new name."
        )
