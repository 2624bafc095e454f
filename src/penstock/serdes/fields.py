"""Fields of the objects that serdes convert, for descriptions of topics and stores.

The serdes of a schema registry register their own functions: their modules need an extra.
"""

from __future__ import annotations

import typing
from functools import singledispatch
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple

from penstock.serdes.annotated import AnnotatedSerde
from penstock.serdes.api import Serde
from penstock.serdes.json import PydanticSerde, TypedJsonSerde
from penstock.serdes.message_pack import MessagePackSerde, PydanticMessagePackSerde
from penstock.serdes.objects import field_names, name_of

_OfClass = TypedJsonSerde[Any] | PydanticSerde[Any] | MessagePackSerde[Any] | PydanticMessagePackSerde[Any]


class SchemaField(NamedTuple):
    """A field of a record: the name that is written, and its type in the language of the schema."""

    name: str
    type: str


@singledispatch
def fields_of(serde: Serde) -> tuple[SchemaField, ...]:
    """Return the fields of the objects of `serde`; empty if unknown, or for objects without fields."""
    return ()


@singledispatch
def avro_schema_of(serde: Serde) -> str | None:
    """Return the Avro schema that `serde` writes by, as JSON; None for other formats."""
    return None


@fields_of.register
def _of_annotated(serde: AnnotatedSerde) -> tuple[SchemaField, ...]:
    return fields_of(serde.with_defaults(None, None))


@fields_of.register(TypedJsonSerde)
@fields_of.register(PydanticSerde)
@fields_of.register(MessagePackSerde)
@fields_of.register(PydanticMessagePackSerde)
def _of_class(serde: _OfClass) -> tuple[SchemaField, ...]:
    return fields_of_class(serde.type)


def fields_of_class(kind: Any) -> tuple[SchemaField, ...]:
    """Return the fields of a record class with the types of its annotations.

    Empty for other classes, for a NamedTuple, which is an array in JSON, and for annotations that cannot be resolved.
    """
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):  # a name that exists only for type checkers, or no class
        return ()
    names = dict(zip(hints, hints, strict=True)) if typing.is_typeddict(kind) else None
    if isinstance(kind, type) and names is None:
        names = dict(field_names(kind) or {})
    return tuple(SchemaField(written, _text(hints[name])) for name, written in (names or {}).items())


def _text(annotation: Any) -> str:
    """Return an annotation as users write it, without modules."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, UnionType):
        return " | ".join(map(_text, arguments))
    if origin in (Annotated, typing.Required, typing.NotRequired):
        return _text(arguments[0])
    if annotation in (None, NoneType):
        return "None"
    if origin is None:
        return "..." if annotation is ... else name_of(annotation)
    return f"{name_of(origin)}[{', '.join(map(_text, arguments))}]"
