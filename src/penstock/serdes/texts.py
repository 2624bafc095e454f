"""Keys, values and headers for people: serde names, and conversion between bytes and text or JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import orjson

from penstock.errors import SerializationError
from penstock.serdes import Serde, Serdes

NULL = "null"
"""The text of a missing key or value."""


class SerdeName(StrEnum):
    """The serdes of the command line."""

    string = "string"
    bytes = "bytes"
    short = "short"
    integer = "integer"
    long = "long"
    float = "float"
    double = "double"
    boolean = "boolean"
    uuid = "uuid"
    json = "json"


_SERDES: Mapping[SerdeName, Serde] = {
    SerdeName.string: Serdes.string(),
    SerdeName.bytes: Serdes.bytes(),
    SerdeName.short: Serdes.short(),
    SerdeName.integer: Serdes.integer(),
    SerdeName.long: Serdes.long(),
    SerdeName.float: Serdes.float(),
    SerdeName.double: Serdes.double(),
    SerdeName.boolean: Serdes.boolean(),
    SerdeName.uuid: Serdes.uuid(),
    SerdeName.json: Serdes.json(),
}

_PARSERS: Mapping[SerdeName, Callable[[str], Any]] = {
    SerdeName.string: str,
    SerdeName.bytes: bytes.fromhex,
    SerdeName.short: int,
    SerdeName.integer: int,
    SerdeName.long: int,
    SerdeName.float: float,
    SerdeName.double: float,
    SerdeName.boolean: orjson.loads,
    SerdeName.uuid: UUID,
    SerdeName.json: orjson.loads,
}

_PRINTERS: Mapping[SerdeName, Callable[[Any], str]] = {
    SerdeName.string: str,
    SerdeName.bytes: bytes.hex,
    SerdeName.short: str,
    SerdeName.integer: str,
    SerdeName.long: str,
    SerdeName.float: repr,
    SerdeName.double: repr,
    SerdeName.boolean: lambda value: str(value).lower(),
    SerdeName.uuid: str,
    SerdeName.json: lambda value: orjson.dumps(value).decode(),
}


_OWN_IN_JSON: Final = frozenset(SerdeName) - {SerdeName.string, SerdeName.bytes, SerdeName.uuid}
"""The serdes with values that are not strings in JSON."""


def from_text(name: SerdeName, topic: str, text: str) -> bytes:
    """Serialise `text` as a value of the serde `name` (bytes: two hexadecimal digits per byte).

    Raises:
        SerializationError: it is not the text of such a value.
    """
    try:
        value = _PARSERS[name](text)
    except ValueError as error:
        raise SerializationError(f"Cannot write {text!r:.100} to {topic!r} as {name.value}: {error}.") from error
    return _SERDES[name].serialize(topic, value)


def to_text(name: SerdeName, topic: str, data: bytes | None) -> str:
    """Return a serialised value of the serde `name` as text; None becomes NULL.

    Raises:
        SerializationError: they are not the bytes of such a value.
    """
    return NULL if data is None else _PRINTERS[name](_SERDES[name].deserialize(topic, data))


def from_json(name: SerdeName, topic: str, given: Any) -> bytes | None:
    """Serialise a value of the serde `name` from `to_json`'s form; None stays None.

    Raises:
        SerializationError: it is not the form of such a value.
    """
    if given is None:
        return None
    is_text = isinstance(given, str) and name is not SerdeName.json
    return from_text(name, topic, given if is_text else orjson.dumps(given).decode())


def to_json(name: SerdeName, topic: str, data: bytes | None) -> Any:
    """Return a serialised value of the serde `name` as JSON; None stays None.

    JSON, numbers and booleans are unchanged; everything else is text.

    Raises:
        SerializationError: they are not the bytes of such a value.
    """
    if data is None:
        return None
    value = _SERDES[name].deserialize(topic, data)
    is_number_of_json = not isinstance(value, float) or math.isfinite(value)
    return value if name in _OWN_IN_JSON and is_number_of_json else _PRINTERS[name](value)


def parsed(serde: Serde, where: str, text: str) -> Any:
    """Return the value of `text`, of the type that `serde` writes.

    Args:
        serde: the serde.
        where: the location of the value, for the error.
        text: the text.

    Raises:
        SerializationError: it is not the text of such a value, or such values have no text form.
    """
    for name, known in _SERDES.items():
        if type(known) is type(serde):
            try:
                return _PARSERS[name](text)
            except ValueError as error:
                raise SerializationError(f"Cannot read {text!r:.100} as a {name.value} of {where}: {error}.") from error
    raise SerializationError(
        f"Keys of {where} are written by {type(serde).__name__}, which the command line cannot read: leave the key "
        f"out, or query in Python. It reads keys of {', '.join(_SERDES)}."
    )
