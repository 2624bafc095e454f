"""Facts about serdes: a short description of the byte format, equality, and object types.

The description shows whether a changed program fits the existing state.
"""

from __future__ import annotations

import dataclasses
from uuid import UUID

from penstock.calendar_windows import CalendarWindows
from penstock.serdes import primitive
from penstock.serdes.annotated import AnnotatedSerde
from penstock.serdes.api import Serde
from penstock.serdes.count_window import CountWindowSerde
from penstock.serdes.json import JsonSerde, PydanticSerde, TypedJsonSerde
from penstock.serdes.key_and_id import KeyAndIdSerde
from penstock.serdes.list import ListSerde
from penstock.serdes.message_pack import MessagePackSerde, PydanticMessagePackSerde
from penstock.serdes.windowed import CalendarWindowedSerde, SessionWindowedSerde, TimeWindowedSerde, WindowedSerde
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
    MessagePackSerde: "messagepack",
    PydanticMessagePackSerde: "messagepack",
}

_OF_CLASSES = (TypedJsonSerde, PydanticSerde, MessagePackSerde, PydanticMessagePackSerde)
"""The serdes with a class of objects as `type`."""

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
    CalendarWindowedSerde: Windowed,
    SessionWindowedSerde: Windowed,
}
"""The value types of serdes that reject all other types."""


def written_type(serde: Serde) -> type | None:
    """Return the only type that `serde` accepts, or None if unknown."""
    return serde.type if isinstance(serde, PydanticSerde | PydanticMessagePackSerde) else _TYPES.get(type(serde))


def read_type(serde: Serde) -> type | None:
    """Return the type of objects read by `serde`, or None if unknown.

    For an annotation it is the annotated type, but None for float, which also allows whole numbers.
    """
    if isinstance(serde, AnnotatedSerde):
        annotated = read_type(serde.with_defaults(None, None))
        return None if annotated is float else annotated
    if isinstance(serde, TypedJsonSerde | MessagePackSerde):
        return serde.type if dataclasses.is_dataclass(serde.type) else None
    return written_type(serde)


def are_alike(one: Serde | None, other: Serde | None) -> bool:
    """Return whether two serdes convert the same objects in the same way; False if unknown."""
    if one is None or other is None or type(one) is not type(other):
        return False
    if one is other:
        return True
    if isinstance(one, AnnotatedSerde) and isinstance(other, AnnotatedSerde):  # a configured default replaces both
        return are_alike(one.with_defaults(None, None), other.with_defaults(None, None))
    if isinstance(one, _OF_CLASSES) and isinstance(other, _OF_CLASSES):
        return one.type is other.type
    if isinstance(one, ListSerde | WindowedSerde) and isinstance(other, ListSerde | WindowedSerde):
        return _ends(one) == _ends(other) and are_alike(one.inner, other.inner)
    return type(one) in _FORMATS


def is_misread(written: Serde, read: Serde) -> bool:
    """Return whether `read` misinterprets the bytes of `written`; False if unknown.

    One of the two is for numbers of a fixed size, and they differ.
    """
    formats = {_FORMATS.get(type(written), "bytes"), _FORMATS.get(type(read), "bytes")}
    return len(formats) == 2 and "bytes" not in formats and not formats.isdisjoint(_OF_FIXED_SIZE)


def _ends(serde: Serde) -> int | CalendarWindows | None:
    """Return the size, or the calendar, that determines the ends of windows; None for other serdes."""
    match serde:
        case TimeWindowedSerde():
            return serde.window_size_ms
        case CalendarWindowedSerde():
            return serde.windows
        case _:
            return None


def format_of(serde: Serde | None) -> str | None:
    """Return the byte format of `serde`, or None if unknown: without a serde, or for a user's own."""
    match serde:
        case TimeWindowedSerde() | SessionWindowedSerde():
            inner = format_of(serde.inner)
            return None if inner is None else f"{inner} in {type(serde).__name__.removesuffix('WindowedSerde')} windows"
        case CalendarWindowedSerde():
            return format_of(TimeWindowedSerde(serde.inner))
        case CountWindowSerde():
            inner = format_of(serde.inner)
            return None if inner is None else f"{inner} in windows of n records"
        case KeyAndIdSerde():
            key, id = format_of(serde.key_serde), format_of(serde.id_serde)
            return None if key is None or id is None else f"{key} with a {id} id"
        case _:
            return _FORMATS.get(type(serde)) if serde is not None else None
