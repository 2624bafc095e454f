"""Facts about serdes: the bytes that one writes, as a short text that shows whether a changed program fits the existing
state; whether two are alike; the type of the objects."""

from __future__ import annotations

import dataclasses
from uuid import UUID

from penstock.serdes import primitive
from penstock.serdes.annotated import AnnotatedSerde
from penstock.serdes.api import Serde
from penstock.serdes.json import JsonSerde, PydanticSerde, TypedJsonSerde
from penstock.serdes.list import ListSerde
from penstock.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde, WindowedSerde
from penstock.windows import Windowed

_FORMATS: dict[type[Serde], str] = {
    primitive.StringSerde: "string",
    primitive.BytesSerde: "bytes",
    primitive.ByteBufferSerde: "bytes",
    primitive.UUIDSerde: "uuid",
    primitive.BooleanSerde: "boolean",
    primitive.ShortSerde: "short",
    primitive.IntegerSerde: "integer",
    primitive.LongSerde: "long",
    primitive.FloatSerde: "float",
    primitive.DoubleSerde: "double",
    JsonSerde: "json",
    TypedJsonSerde: "json",
    PydanticSerde: "json",
}

_OF_FIXED_SIZE = ("boolean", "short", "integer", "long", "float", "double")

_TYPES: dict[type[Serde], type] = {
    primitive.StringSerde: str,
    primitive.BytesSerde: bytes,
    primitive.UUIDSerde: UUID,
    primitive.BooleanSerde: bool,
    primitive.ShortSerde: int,
    primitive.IntegerSerde: int,
    primitive.LongSerde: int,
    primitive.FloatSerde: float,
    primitive.DoubleSerde: float,
    ListSerde: list,
    TimeWindowedSerde: Windowed,
    SessionWindowedSerde: Windowed,
}
"""What serdes write that refuse all else."""


def written_type(serde: Serde) -> type | None:
    """Return the type outside which `serde` writes nothing, None if that is not known."""
    return serde.type if isinstance(serde, PydanticSerde) else _TYPES.get(type(serde))


def read_type(serde: Serde) -> type | None:
    """Return the type of what `serde` reads, None if that is not known; of an annotation the type that it names, but
    none where it says float, which stands for whole numbers too."""
    if isinstance(serde, AnnotatedSerde):
        annotated = read_type(serde.with_defaults(None, None))
        return None if annotated is float else annotated
    if isinstance(serde, TypedJsonSerde):
        return serde.type if dataclasses.is_dataclass(serde.type) else None
    return written_type(serde)


def are_alike(one: Serde | None, other: Serde | None) -> bool:
    """Return whether two serdes write and read the same objects in the same way; False if that is not known."""
    if one is None or other is None or type(one) is not type(other):
        return False
    if one is other:
        return True
    if isinstance(one, AnnotatedSerde) and isinstance(other, AnnotatedSerde):  # where there is a default, both are that
        return are_alike(one.with_defaults(None, None), other.with_defaults(None, None))
    if isinstance(one, TypedJsonSerde | PydanticSerde) and isinstance(other, TypedJsonSerde | PydanticSerde):
        return one.type is other.type
    if isinstance(one, ListSerde | WindowedSerde) and isinstance(other, ListSerde | WindowedSerde):
        return _sizes(one) == _sizes(other) and are_alike(one.inner, other.inner)
    return type(one) in _FORMATS


def is_misread(written: Serde, read: Serde) -> bool:
    """Return whether `read` takes what `written` writes for something else: one of the two is for numbers of a fixed
    size, and they differ. False if that is not known."""
    formats = {_FORMATS.get(type(written), "bytes"), _FORMATS.get(type(read), "bytes")}
    return len(formats) == 2 and "bytes" not in formats and not formats.isdisjoint(_OF_FIXED_SIZE)


def _sizes(serde: Serde) -> int | None:
    """Return the size of the windows of keys that `serde` reads, None for others."""
    return serde.window_size_ms if isinstance(serde, TimeWindowedSerde) else None


def format_of(serde: Serde | None) -> str | None:
    """Return the format of what `serde` writes, None if that is not known: of no serde, or a user's own."""
    match serde:
        case TimeWindowedSerde() | SessionWindowedSerde():
            inner = format_of(serde.inner)
            return None if inner is None else f"{inner} in {type(serde).__name__.removesuffix('WindowedSerde')} windows"
        case _:
            return _FORMATS.get(type(serde)) if serde is not None else None
