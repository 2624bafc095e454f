"""Framings: how the id of a schema travels with the data of a record.

Confluent, Apicurio and AWS Glue each have their own: a prefix of the data, or a header of the record. `RegistrySerde`
writes one and may read several. Protobuf is not included: each registry puts other numbers before its messages.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, Literal, Protocol
from uuid import UUID

from penstock.record import Headers
from penstock.serdes.headers import last_header

Part = Literal["key", "value"]
"""The part of a record that has a schema."""

_LARGEST: Final = 256 * 2**20
"""The largest size of decompressed data, in bytes: a record of Kafka is smaller."""


class SchemaIdKind(StrEnum):
    """What an id of a schema counts or names."""

    ID = "id"
    """Confluent's id of a schema."""
    GUID = "guid"
    """Confluent's id of a schema that is unique among registries."""
    CONTENT_ID = "contentId"
    """Apicurio's id of a content, which several versions may share."""
    GLOBAL_ID = "globalId"
    """Apicurio's id of one version of an artifact."""
    VERSION_ID = "schemaVersionId"
    """The id of a schema version of AWS Glue."""


@dataclass(frozen=True, slots=True)
class SchemaId:
    """The id of a schema in a registry.

    Args:
        kind: what it counts or names.
        value: the id.
    """

    kind: SchemaIdKind
    value: int | UUID

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"


class Framing(Protocol):
    """How the id of a schema travels with the data of a record."""

    @property
    def kind(self) -> SchemaIdKind:
        """The kind of its ids."""
        ...

    @property
    def uses_headers(self) -> bool:
        """Whether the id is a header."""
        ...

    def write(self, part: Part, id: SchemaId, payload: bytes) -> tuple[bytes, Headers]:
        """Return the data of the record, and its additional headers."""
        ...

    def read(self, part: Part, data: bytes, headers: Headers) -> tuple[SchemaId, bytes] | None:
        """Return the id and the payload, or None for data in another framing."""
        ...


@dataclass(frozen=True, slots=True)
class NumberPrefix:
    """A zero byte, the id as a big-endian number, the payload.

    Args:
        kind: the kind of its ids.
        size: of the number, in bytes.
    """

    kind: SchemaIdKind
    size: int
    uses_headers: Literal[False] = False

    def write(self, part: Part, id: SchemaId, payload: bytes) -> tuple[bytes, Headers]:
        """Return the prefixed payload."""
        return b"\0" + _number(id).to_bytes(self.size) + payload, ()

    def read(self, part: Part, data: bytes, headers: Headers) -> tuple[SchemaId, bytes] | None:
        """Return the id and the payload, or None for data without the zero byte."""
        start = 1 + self.size
        if len(data) < start or data[0] != 0:
            return None
        return SchemaId(self.kind, int.from_bytes(data[1:start])), data[start:]


@dataclass(frozen=True, slots=True)
class GuidPrefix:
    """Confluent's byte 1, the 16 bytes of a guid, the payload (Confluent class: PrefixSchemaIdSerializer)."""

    kind: Literal[SchemaIdKind.GUID] = SchemaIdKind.GUID
    uses_headers: Literal[False] = False

    def write(self, part: Part, id: SchemaId, payload: bytes) -> tuple[bytes, Headers]:
        """Return the prefixed payload."""
        return b"\1" + _uuid(id).bytes + payload, ()

    def read(self, part: Part, data: bytes, headers: Headers) -> tuple[SchemaId, bytes] | None:
        """Return the id and the payload, or None for data without the byte 1."""
        if len(data) < 17 or data[0] != 1:
            return None
        return SchemaId(self.kind, UUID(bytes=data[1:17])), data[17:]


@dataclass(frozen=True, slots=True)
class GuidHeader:
    """Confluent's guid in the header `__key_schema_id` or `__value_schema_id` (class: HeaderSchemaIdSerializer)."""

    kind: Literal[SchemaIdKind.GUID] = SchemaIdKind.GUID
    uses_headers: Literal[True] = True

    def write(self, part: Part, id: SchemaId, payload: bytes) -> tuple[bytes, Headers]:
        """Return the payload, and the header with the id."""
        data, _ = GuidPrefix().write(part, id, b"")
        return payload, ((f"__{part}_schema_id", data),)

    def read(self, part: Part, data: bytes, headers: Headers) -> tuple[SchemaId, bytes] | None:
        """Return the id and the payload, or None without the header."""
        found = GuidPrefix().read(part, last_header(headers, f"__{part}_schema_id") or b"", ())
        return None if found is None else (found[0], data)


@dataclass(frozen=True, slots=True)
class NumberHeader:
    """Apicurio's id as 8 bytes in a header, such as `apicurio.value.contentId` (class: DefaultHeadersHandler).

    Args:
        kind: the kind of its ids.
    """

    kind: SchemaIdKind
    uses_headers: Literal[True] = True

    def write(self, part: Part, id: SchemaId, payload: bytes) -> tuple[bytes, Headers]:
        """Return the payload, and the header with the id."""
        return payload, ((self._name(part), _number(id).to_bytes(8)),)

    def read(self, part: Part, data: bytes, headers: Headers) -> tuple[SchemaId, bytes] | None:
        """Return the id and the payload, or None without the header."""
        found = last_header(headers, self._name(part))
        if found is None or len(found) != 8:
            return None
        return SchemaId(self.kind, int.from_bytes(found)), data

    def _name(self, part: Part) -> str:
        return f"apicurio.{part}.{self.kind}"


class GlueCompression(Enum):
    """How AWS Glue's serializers compress a payload; the value is the byte in the framing."""

    NONE = 0
    ZLIB = 5


@dataclass(frozen=True, slots=True)
class GluePrefix:
    """AWS Glue's byte 3, a byte for the compression, the id's 16 bytes, the payload.

    It reads each compression (AWS class: AWSSchemaRegistryConstants).

    Args:
        compression: of the payloads that it writes.
    """

    compression: GlueCompression = GlueCompression.NONE
    kind: Literal[SchemaIdKind.VERSION_ID] = SchemaIdKind.VERSION_ID
    uses_headers: Literal[False] = False

    def write(self, part: Part, id: SchemaId, payload: bytes) -> tuple[bytes, Headers]:
        """Return the prefixed payload."""
        packed = zlib.compress(payload) if self.compression is GlueCompression.ZLIB else payload
        return bytes((3, self.compression.value)) + _uuid(id).bytes + packed, ()

    def read(self, part: Part, data: bytes, headers: Headers) -> tuple[SchemaId, bytes] | None:
        """Return the id and the payload, or None for data without the byte 3.

        Raises ValueError for another compression, and for damaged or too large data.
        """
        if len(data) < 18 or data[0] != 3:
            return None
        id, payload = SchemaId(self.kind, UUID(bytes=data[2:18])), data[18:]
        match data[1]:
            case GlueCompression.NONE.value:
                return id, payload
            case GlueCompression.ZLIB.value:
                return id, _decompressed(payload)
            case other:
                raise ValueError(f"AWS Glue's compression is 0 (none) or 5 (zlib), not {other}")


CONFLUENT: Final = NumberPrefix(SchemaIdKind.ID, 4)
"""Confluent's framing: a zero byte and the id in 4 bytes."""

CONFLUENT_GUID: Final = GuidPrefix()
"""Confluent's framing with a guid: the byte 1 and 16 bytes."""

CONFLUENT_HEADERS: Final = GuidHeader()
"""Confluent's guid in a header."""

GLUE: Final = GluePrefix()
"""AWS Glue's framing without compression."""

GLUE_ZLIB: Final = GluePrefix(GlueCompression.ZLIB)
"""AWS Glue's framing with compression."""

APICURIO: Final = NumberPrefix(SchemaIdKind.CONTENT_ID, 4)
"""Apicurio's framing since version 3: a zero byte and the content id in 4 bytes (Default4ByteIdHandler)."""

APICURIO_GLOBAL_ID: Final = NumberPrefix(SchemaIdKind.GLOBAL_ID, 8)
"""Apicurio's framing of version 2: a zero byte and the global id in 8 bytes (DefaultIdHandler)."""

APICURIO_HEADERS: Final = NumberHeader(SchemaIdKind.CONTENT_ID)
"""Apicurio's content id in a header."""

APICURIO_GLOBAL_ID_HEADERS: Final = NumberHeader(SchemaIdKind.GLOBAL_ID)
"""Apicurio's global id in a header."""


def _number(id: SchemaId) -> int:
    if not isinstance(id.value, int):
        raise ValueError(f"the framing has numbers as ids, and the registry gave {id}")
    return id.value


def _uuid(id: SchemaId) -> UUID:
    if not isinstance(id.value, UUID):
        raise ValueError(f"the framing has UUIDs as ids, and the registry gave {id}")
    return id.value


def _decompressed(payload: bytes) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(payload, _LARGEST)
    except zlib.error as error:
        raise ValueError(f"the payload is not of zlib: {error}") from error
    if not decompressor.eof:
        raise ValueError(f"the payload is cut off, or decompresses to more than {_LARGEST >> 20} MiB")
    return data
