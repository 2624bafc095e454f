"""The format of message schemas: Kafka's own definitions as Python values.

It contains the schema with its fields in all versions, and the view of one version, which the codec compiles. schemas/
has the schemas themselves, codec.py reads and writes values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple


class Field(NamedTuple):
    """A field of a structure.

    Args:
        name: its name in snake_case, without the `_ms` of times.
        type: its type in Kafka's definitions: `int32`, `[]string`, or `[]FetchTopic` for an array of structures.
        versions: the versions of the message with the field: `3`, `3-5`, or `3+`.
        nullable: the versions in which it may be null; empty for no version.
        tag: the tag of a tagged field.
        default: the value in a message without the field; by default null if it may be null, otherwise the zero of its
            type.
    """

    name: str
    type: str
    versions: str = "0+"
    nullable: str = ""
    tag: int | None = None
    default: int | str | None = None

    @property
    def is_array(self) -> bool:
        """Whether the field is an array."""
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        """The type of a value, or of each element of an array."""
        return self.type.removeprefix("[]")

    @property
    def is_error_code(self) -> bool:
        """Whether the field is an error code, untagged and therefore in every message."""
        return self.type == "int16" and self.name.endswith("error_code") and self.tag is None


class MessageSchema(NamedTuple):
    """The schema of a message in all its versions.

    Args:
        name: its name in Kafka's definitions, also that of its outermost structure.
        versions: its versions.
        flexible: the versions with compact lengths and tagged fields; empty for no version.
        structures: the fields of the message and of each structure in it, by name.
    """

    name: str
    versions: str
    flexible: str
    structures: Mapping[str, Sequence[Field]]

    def at(self, version: int) -> Structure:
        """Return the message in one version.

        Raises:
            ValueError: the message does not have the version.
        """
        if not _includes(self.versions, version):
            raise ValueError(f"{self.name} has no version {version}, only {self.versions}")
        return Structure(self, self.name, version)


class Structure(NamedTuple):
    """A message, or a structure in it, in one version.

    Args:
        schema: the schema of the message.
        name: the name of the structure.
        version: the version of the message.
    """

    schema: MessageSchema
    name: str
    version: int

    @property
    def is_flexible(self) -> bool:
        """Whether lengths are compact and fields may be tagged."""
        return _includes(self.schema.flexible, self.version)

    @property
    def fields(self) -> list[Field]:
        """The fields of this version, in order."""
        return [field for field in self.schema.structures[self.name] if _includes(field.versions, self.version)]

    def is_nullable(self, field: Field) -> bool:
        """Return whether a field may be null in this version."""
        return _includes(field.nullable, self.version)

    def inner(self, field: Field) -> Structure | None:
        """Return the structure of a field or its elements, None for plain values."""
        return self._replace(name=field.element) if field.element in self.schema.structures else None


@cache
def _includes(versions: str, version: int) -> bool:
    first, dash, last = versions.rstrip("+").partition("-")
    if not first:
        return False
    if versions.endswith("+"):
        return version >= int(first)
    return int(first) <= version <= int(last if dash else first)
