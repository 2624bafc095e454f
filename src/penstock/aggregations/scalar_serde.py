"""The serde of plain values within the state of combined aggregations: a byte for the type, and the value.

Numbers are those of `exact_number`, so ints have any size.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde

_DOUBLE: Final = struct.Struct(">d")


class ScalarSerde(Serde[Any]):
    """The serde of bool, int, float, str and bytes."""

    repeatable = True
    unchanging_types = frozenset({bool, int, float, str, bytes})

    @property
    def uses_headers(self) -> bool:
        """Whether the value depends on the headers: it does not."""
        return False

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise a value; raises TypeError for other types."""
        match value:
            case bool():
                return b"1" if value else b"0"
            case int():
                return b"i" + value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
            case float():
                return b"f" + _DOUBLE.pack(value)
            case str():
                return b"s" + value.encode()
            case bytes():
                return b"b" + value
            case _:
                raise TypeError(
                    f"Cannot write to {topic!r}: expected bool, int, float, str or bytes, got {type(value).__name__} "
                    f"{value!r:.100}; annotate the result of `of` with a type that has a serde."
                )

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Deserialise a value; raises SerializationError for bytes not written by this serde."""
        kind, rest = data[:1], data[1:]
        try:
            match kind:
                case b"0" | b"1" if not rest:
                    return kind == b"1"
                case b"i":
                    return int.from_bytes(rest, "big", signed=True)
                case b"f":
                    return _DOUBLE.unpack(rest)[0]
                case b"s":
                    return rest.decode()
                case b"b":
                    return rest
                case _:
                    pass
        except (struct.error, UnicodeDecodeError) as error:
            raise SerializationError(f"Cannot read {data[:100]!r} from {topic!r} as a value: {error}.") from error
        raise SerializationError(f"Cannot read {data[:100]!r} from {topic!r} as a value: unknown type {kind!r}.")
