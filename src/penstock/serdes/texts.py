"""Keys, values and headers for people: names of serdes, texts and JSON to values and back."""

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
"""How the absence of a key or a value is written and shown."""


class SerdeName(StrEnum):
    """The serdes that the command line knows."""

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
"""The serdes whose values are no strings in JSON."""


def from_text(name: SerdeName, topic: str, text: str) -> bytes:
    """Return `text` as the bytes of a value of the serde `name` (bytes: two hexadecimal digits a byte).

    Raises:
        SerializationError: it is not the text of such a value.
    """
    try:
        value = _PARSERS[name](text)
    except ValueError as error:
        raise SerializationError(f"Cannot write {text!r:.100} to {topic!r} as {name.value}: {error}.") from error
    return _SERDES[name].serialize(topic, value)


def to_text(name: SerdeName, topic: str, data: bytes | None) -> str:
    """Return the bytes of a value of the serde `name` as text, NULL for None.

    Raises:
        SerializationError: they are not the bytes of such a value.
    """
    return NULL if data is None else _PRINTERS[name](_SERDES[name].deserialize(topic, data))


def from_json(name: SerdeName, topic: str, given: Any) -> bytes | None:
    """Return the bytes of a value of the serde `name` that JSON has as `to_json` returns it; None for None.

    Raises:
        SerializationError: it stands for no such value.
    """
    if given is None:
        return None
    is_text = isinstance(given, str) and name is not SerdeName.json
    return from_text(name, topic, given if is_text else orjson.dumps(given).decode())


def to_json(name: SerdeName, topic: str, data: bytes | None) -> Any:
    """Return the bytes of a value of the serde `name` as JSON has it: JSON, numbers and booleans as they are, all else
    as its text; None for None.

    Raises:
        SerializationError: they are not the bytes of such a value.
    """
    if data is None:
        return None
    value = _SERDES[name].deserialize(topic, data)
    is_number_of_json = not isinstance(value, float) or math.isfinite(value)
    return value if name in _OWN_IN_JSON and is_number_of_json else _PRINTERS[name](value)


def parsed(serde: Serde, where: str, text: str) -> Any:
    """Return the value that `text` stands for, of the type that `serde` writes.

    Raises:
        SerializationError: it is not the text of such a value, or there is no text for such values; `where` says whose
            they are.
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
