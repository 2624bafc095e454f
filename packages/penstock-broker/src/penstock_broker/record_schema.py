"""Schemas of the records in internal topics, in the form of kio's message schemas.

Contains the types of fields and the construction of a schema for codec.entity_codec. Not here: the records
(groups/schemas.py, transaction_log.py).
"""

from __future__ import annotations

import dataclasses
import struct
import types
import uuid
from collections.abc import Mapping
from typing import Any, Final

from penstock_broker.wire.codec import Codec, Message
from penstock_broker.wire.primitives import Sink

VERSION: Final = struct.Struct(">h")
"""Layout of the version before each key and each value."""

FieldType = tuple[Any, str | None]
"""Python type of a field, and its name in Kafka's definitions; None for a structure."""

STRING: Final[FieldType] = (str, "string")
NULLABLE_STRING: Final[FieldType] = (str | None, "string")
STRINGS: Final[FieldType] = (tuple[str, ...], "string")
BYTES: Final[FieldType] = (bytes, "bytes")
INT8: Final[FieldType] = (int, "int8")
INT16: Final[FieldType] = (int, "int16")
INT32: Final[FieldType] = (int, "int32")
INT32S: Final[FieldType] = (tuple[int, ...], "int32")
INT64: Final[FieldType] = (int, "int64")
UUID: Final[FieldType] = (uuid.UUID, "uuid")


def record_schema(
    name: str, fields: Mapping[str, FieldType], is_flexible: bool = False, tags: Mapping[str, int] | None = None
) -> type[Any]:
    """Return a schema like those that kio generates from Kafka's definitions.

    Args:
        name: its name in Kafka's definitions.
        fields: types by name, in the order of the record.
        is_flexible: whether lengths are compact and fields may be tagged.
        tags: the tags of tagged fields by name.
    """

    def metadata(field: str, kind: str | None) -> dict[str, object]:
        found = {"kafka_type": kind, "tag": (tags or {}).get(field)}
        return {key: value for key, value in found.items() if value is not None}

    return dataclasses.make_dataclass(
        name,
        [
            (field, declared, dataclasses.field(metadata=metadata(field, kind)))
            for field, (declared, kind) in fields.items()
        ],
        namespace={"__flexible__": is_flexible},
    )


def encode_versioned(version: int, codec: Codec, message: Message) -> bytes:
    """Return the key or the value of a record: its version and its fields.

    Args:
        version: the version of the format.
        codec: the codec of its schema.
        message: its fields.
    """
    sink = Sink()
    sink.number(VERSION, version)
    codec.encode(sink, message)
    return b"".join(sink.chunks)


def array_of(schema: type[Any]) -> FieldType:
    """Return the type of an array of structures."""
    return types.GenericAlias(tuple, (schema, ...)), None


def nullable_array_of(schema: type[Any]) -> FieldType:
    """Return the type of a nullable array of structures."""
    return types.GenericAlias(tuple, (schema, ...)) | None, None
