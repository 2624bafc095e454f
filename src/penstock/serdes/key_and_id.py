"""The serde of a key together with an id, in the store of `KStream.deduplicate_by_key_value`.

It writes the size of the key in 4 bytes, the key, and the id (Kafka: KStreamDeduplicateProcessor.computeDedupKey).
"""

from __future__ import annotations

import struct
from typing import Any

from penstock.record import Headers
from penstock.serdes.api import Serde, any_uses_headers, inner_serde, or_default

_SIZE = struct.Struct(">i")


class KeyAndIdSerde(Serde[tuple[Any, Any]]):
    """Converts pairs of a record's key and its id.

    Args:
        key_serde: the serde of the keys; None means the configured default.
        id_serde: the serde of the ids.
    """

    def __init__(self, key_serde: Serde | None, id_serde: Serde) -> None:
        self.key_serde = key_serde
        self.id_serde = id_serde

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde[tuple[Any, Any]]:
        """Return this serde with the default key serde if it is missing, also within its parts."""
        return KeyAndIdSerde(
            or_default(self.key_serde, key_serde, key_serde, value_serde),
            self.id_serde.with_defaults(key_serde, value_serde),
        )

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serdes of the keys and of the ids."""
        return (self.key_serde, self.id_serde)

    @property
    def uses_headers(self) -> bool:
        """Whether one of the two serdes uses the headers."""
        return any_uses_headers(self.key_serde, self.id_serde)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the pair."""
        key, id = value
        data = inner_serde(self.key_serde, "key").serialize(topic, key, headers)
        return _SIZE.pack(len(data)) + data + self.id_serde.serialize(topic, id, headers)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> tuple[Any, Any]:
        """Deserialise the pair."""
        key, id = split_key_and_id(data)
        return (
            inner_serde(self.key_serde, "key").deserialize(topic, key, headers),
            self.id_serde.deserialize(topic, id, headers),
        )


def split_key_and_id(data: bytes) -> tuple[bytes, bytes]:
    """Return the bytes of the key and those of the id in a serialised pair."""
    (size,) = _SIZE.unpack_from(data)
    end = _SIZE.size + size
    return data[_SIZE.size : end], data[end:]
