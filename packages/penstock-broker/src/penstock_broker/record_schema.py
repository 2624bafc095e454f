"""Schemas of the records in internal topics, in the form of message schemas.

Contains the types of fields and the construction of a schema. Not here: the records (groups/schemas.py,
transaction_log.py).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock_broker.wire.codec import Codec, Message
from penstock_broker.wire.primitives import Sink
from penstock_broker.wire.schema import Field, MessageSchema, Structure

VERSION: Final = struct.Struct(">h")
"""Layout of the version before each key and each value."""


class FieldType(NamedTuple):
    """The type of a field.

    Args:
        name: its name in Kafka's definitions.
        nullable: the versions in which the field may be null; empty for no version.
        structures: the fields of the structures in it, by name.
    """

    name: str
    nullable: str = ""
    structures: Mapping[str, Sequence[Field]] = {}


STRING: Final = FieldType("string")
NULLABLE_STRING: Final = FieldType("string", nullable="0+")
STRINGS: Final = FieldType("[]string")
BYTES: Final = FieldType("bytes")
INT8: Final = FieldType("int8")
INT16: Final = FieldType("int16")
INT16S: Final = FieldType("[]int16")
UINT16: Final = FieldType("uint16")
INT32: Final = FieldType("int32")
INT32S: Final = FieldType("[]int32")
INT64: Final = FieldType("int64")
UUID: Final = FieldType("uuid")


def record_schema(
    name: str, fields: Mapping[str, FieldType], is_flexible: bool = False, tags: Mapping[str, int] | None = None
) -> Structure:
    """Return the schema of a record, or of a structure inside it.

    Args:
        name: its name in Kafka's definitions.
        fields: types by name, in the order of the record.
        is_flexible: whether lengths are compact and fields may be tagged.
        tags: the tags of tagged fields by name.
    """
    own = [
        Field(field, type.name, nullable=type.nullable, tag=(tags or {}).get(field)) for field, type in fields.items()
    ]
    structures: dict[str, Sequence[Field]] = {name: own}
    for type in fields.values():
        structures.update(type.structures)
    return MessageSchema(name, "0+", "0+" if is_flexible else "", structures).at(0)


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


def array_of(structure: Structure) -> FieldType:
    """Return the type of an array of structures."""
    return FieldType(f"[]{structure.name}", structures=structure.schema.structures)


def nullable_array_of(structure: Structure) -> FieldType:
    """Return the type of an array of structures that may be null."""
    return array_of(structure)._replace(nullable="0+")


def nullable(structure: Structure) -> FieldType:
    """Return the type of a structure that may be null."""
    return FieldType(structure.name, nullable="0+", structures=structure.schema.structures)
