"""What bytes a serde writes, in a word: by it a program that has changed is told from the state that is there."""

from __future__ import annotations

from penstock.serdes import primitive
from penstock.serdes.api import Serde
from penstock.serdes.json import JsonSerde, PydanticSerde, TypedJsonSerde
from penstock.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

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


def format_of(serde: Serde | None) -> str | None:
    """Return the format of what `serde` writes, None where that is not known: of no serde, or a user's own."""
    match serde:
        case TimeWindowedSerde() | SessionWindowedSerde():
            inner = format_of(serde.inner)
            return None if inner is None else f"{inner} in {type(serde).__name__.removesuffix('WindowedSerde')} windows"
        case _:
            return _FORMATS.get(type(serde)) if serde is not None else None
