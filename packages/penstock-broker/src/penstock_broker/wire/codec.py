"""Codec of Kafka's messages, driven by Kafka's own message definitions.

It contains the compiled decoders and encoders, one for each API, version and direction, created on first use.
api_schemas.py has the schemas, primitives.py the primitives of the wire format.

Rules:
- A message is a plain dict by field names; times are integers in milliseconds, error codes integers. An encoder ignores
  fields of other versions and fills missing ones with the schema's default, so one handler serves all versions of its
  API. It refuses names that no version has. A tagged field is written if the message has its key.
- An array with large elements, or with many per element of the request, is a LazyArray. `encoded_element` encodes an
  element that is sent often.
- Adjacent numbers are packed and unpacked in one step, so Produce and Fetch need no special code: 4 microseconds for a
  message of one partition and 1 to 2 for each further one, a tenth of the broker's time for the request.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import chain, groupby
from typing import Any, Final, Generic, NamedTuple, TypeVar

from penstock_broker.wire.api_schemas import request_schema, response_schema
from penstock_broker.wire.primitives import (
    INT8,
    INT16,
    MOST_STRING,
    Cursor,
    MalformedMessageError,
    OversizedMessageError,
    Sink,
)
from penstock_broker.wire.schema import Field, Structure

T = TypeVar("T")

Message = dict[str, Any]
"""A request, a response or a part of one: values by field name."""

Decoder = Callable[[Cursor], Any]
"""Reads a value."""

Encoder = Callable[[Sink, Any], None]
"""Writes a value."""

_ZERO_UUID: Final = uuid.UUID(int=0)

# Format characters of the struct module for the number types of the schemas.
_NUMBERS: Final = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "bool": "?",
}


class LazyArray(Generic[T]):
    """An array with elements created during writing, one in memory at a time.

    Args:
        sources: the sources of the elements.
        make: creates an element from its source; called once per element, in order.
    """

    __slots__ = ("_make", "_sources")

    def __init__(self, sources: Collection[T], make: Callable[[T], Any]) -> None:
        self._sources = sources
        self._make = make

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._sources)


class Encoded(bytes):
    """An element of an array in its bytes on the wire."""

    __slots__ = ()


class Codec(NamedTuple):
    """The codec of one type of values.

    Args:
        decode: reads a value.
        encode: writes a value.
        default: the value to write if the message does not have one.
        number: the format character of the struct module, for numbers.
    """

    decode: Decoder
    encode: Encoder
    default: Any
    number: str = ""


class _FieldCodec(NamedTuple):
    name: str
    codec: Codec
    tag: int | None


class _Part(NamedTuple):
    """One field that is not a number, or a run of adjacent numbers."""

    decode: Callable[[Cursor, Message], None]
    encode: Callable[[Sink, Message], None]


def _number_codec(letter: str) -> Codec:
    layout = struct.Struct(f">{letter}")
    return Codec(lambda cursor: cursor.number(layout), lambda sink, value: sink.number(layout, value), 0, letter)


def _decode_uuid(cursor: Cursor) -> uuid.UUID:
    return uuid.UUID(bytes=bytes(cursor.take(16)))


def _encode_uuid(sink: Sink, value: uuid.UUID) -> None:
    sink.write(value.bytes)


def _string_codec(compact: bool, nullable: bool) -> Codec:
    def decode(cursor: Cursor) -> str | None:
        length = cursor.length(compact, INT16)
        if length < 0:
            if nullable:
                return None
            raise MalformedMessageError(f"null at byte {cursor.position} instead of a string")
        if length > MOST_STRING:
            raise MalformedMessageError(f"a string of {length} bytes before byte {cursor.position}")
        try:
            return str(cursor.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessageError(f"a string before byte {cursor.position} is not UTF-8") from error

    def encode(sink: Sink, value: str | None) -> None:
        if value is None:
            sink.length(-1, compact, INT16)
            return
        data = value.encode()
        if len(data) > MOST_STRING:
            raise OversizedMessageError(f"a string of more than {MOST_STRING} bytes: {value[:50]}...")
        sink.length(len(data), compact, INT16)
        sink.write(data)

    return Codec(decode, encode, None if nullable else "")


def _bytes_codec(compact: bool, nullable: bool) -> Codec:
    def decode(cursor: Cursor) -> memoryview | None:
        length = cursor.length(compact)
        if length < 0:
            if nullable:
                return None
            raise MalformedMessageError(f"null at byte {cursor.position} instead of bytes")
        return cursor.take(length)

    def encode(sink: Sink, value: bytes | memoryview | None) -> None:
        if value is None:
            sink.length(-1, compact)
            return
        sink.length(len(value), compact)
        sink.write(value)

    return Codec(decode, encode, None if nullable else b"")


def _array_codec(item: Codec, compact: bool, nullable: bool) -> Codec:
    def decode(cursor: Cursor) -> list[Any] | None:
        length = cursor.length(compact)
        if length < 0:
            if nullable:
                return None
            raise MalformedMessageError(f"null at byte {cursor.position} instead of an array")
        return [item.decode(cursor) for _ in cursor.elements(length)]

    def encode(sink: Sink, value: list[Any] | LazyArray[Any] | None) -> None:
        if value is None:
            sink.length(-1, compact)
            return
        sink.check_size()
        sink.length(len(value), compact)
        for element in value:
            if type(element) is Encoded:
                sink.write(element)
            else:
                item.encode(sink, element)

    return Codec(decode, encode, None if nullable else [])


def _decode_tagged(cursor: Cursor, message: Message, tagged: dict[int, _FieldCodec]) -> None:
    for _ in cursor.elements(cursor.varint()):
        tag = cursor.varint()
        content = cursor.take(cursor.varint())
        if tag in tagged:
            message[tagged[tag].name] = tagged[tag].codec.decode(Cursor(content))


def _encode_tagged(sink: Sink, message: Message, tagged: dict[int, _FieldCodec]) -> None:
    present = [field for field in tagged.values() if field.name in message]
    sink.varint(len(present))
    for field in present:
        content = Sink()
        field.codec.encode(content, message[field.name])
        sink.varint(field.tag or 0)
        sink.varint(content.size)
        for chunk in content.chunks:
            sink.write(chunk)


def _run_of_numbers(fields: list[_FieldCodec]) -> _Part:
    layout = struct.Struct(">" + "".join(field.codec.number for field in fields))
    names, defaults = [field.name for field in fields], [field.codec.default for field in fields]

    def decode(cursor: Cursor, message: Message) -> None:
        message.update(zip(names, cursor.numbers(layout), strict=True))

    def encode(sink: Sink, message: Message) -> None:
        sink.numbers(layout, map(message.get, names, defaults))

    return _Part(decode, encode)


def _single(field: _FieldCodec) -> _Part:
    name, (decode_value, encode_value, default, _) = field.name, field.codec

    def decode(cursor: Cursor, message: Message) -> None:
        message[name] = decode_value(cursor)

    def encode(sink: Sink, message: Message) -> None:
        encode_value(sink, message.get(name, default))

    return _Part(decode, encode)


def _parts(fields: list[_FieldCodec]) -> list[_Part]:
    runs = [(is_number, list(run)) for is_number, run in groupby(fields, key=lambda field: field.codec.number != "")]
    parts = [[_run_of_numbers(run)] if is_number else [_single(field) for field in run] for is_number, run in runs]
    return list(chain.from_iterable(parts))


def structure_codec(structure: Structure) -> Codec:
    """Return the codec of a message, or of a structure in it, in one version."""
    flexible = structure.is_flexible
    fields = [_field_codec(structure, field) for field in structure.fields]
    parts = _parts([field for field in fields if field.tag is None])
    tagged = {field.tag: field for field in sorted(fields, key=lambda f: f.tag or 0) if field.tag is not None}
    tagged_names = {field.name for field in tagged.values()}
    names = frozenset(field.name for field in structure.schema.structures[structure.name])
    decoders, encoders = [part.decode for part in parts], [part.encode for part in parts]

    def decode(cursor: Cursor) -> Message:
        message: Message = {}
        for decode_part in decoders:
            decode_part(cursor, message)
        if flexible:
            _decode_tagged(cursor, message, tagged)
        return message

    def encode(sink: Sink, message: Message) -> None:
        if not message.keys() <= names:  # a misspelled or renamed field would silently be sent as its default
            raise ValueError(f"{structure.name} has no field {', '.join(sorted(message.keys() - names))}")
        for encode_part in encoders:
            encode_part(sink, message)
        if not flexible:
            return
        if tagged_names.isdisjoint(message):
            sink.varint(0)
        else:
            _encode_tagged(sink, message, tagged)

    return Codec(decode, encode, {field.name: field.codec.default for field in fields})


def _nullable_structure_codec(structure: Structure) -> Codec:
    """Return the codec of a nullable structure; a leading byte of -1 means null."""
    present = structure_codec(structure)

    def decode(cursor: Cursor) -> Message | None:
        message: Message | None = present.decode(cursor) if cursor.number(INT8) >= 0 else None
        return message

    def encode(sink: Sink, value: Message | None) -> None:
        sink.number(INT8, -1 if value is None else 1)
        if value is not None:
            present.encode(sink, value)

    return Codec(decode, encode, None)


def _field_codec(structure: Structure, field: Field) -> _FieldCodec:
    nullable = structure.is_nullable(field)
    if field.is_array:
        item = _value_codec(structure, field, nullable=False)
        codec = _array_codec(item, structure.is_flexible, nullable)
    else:
        codec = _value_codec(structure, field, nullable)
    if field.default is not None:
        codec = codec._replace(default=field.default)
    return _FieldCodec(field.name, codec, field.tag)


def _value_codec(structure: Structure, field: Field, nullable: bool) -> Codec:
    inner, compact = structure.inner(field), structure.is_flexible
    if inner is not None:
        return _nullable_structure_codec(inner) if nullable else structure_codec(inner)
    match field.element:
        case "string":
            return _string_codec(compact, nullable)
        case "bytes" | "records":
            return _bytes_codec(compact, nullable)
        case "uuid":
            return Codec(_decode_uuid, _encode_uuid, _ZERO_UUID)
        case number:
            return _number_codec(_NUMBERS[number])


@cache
def request_decoder(key: int, version: int) -> Decoder:
    """Return the decoder of the body of a request.

    Args:
        key: API key.
        version: API version, one of the schema.
    """
    return structure_codec(request_schema(key).at(version)).decode


@cache
def response_encoder(key: int, version: int) -> Encoder:
    """Return the encoder of the body of a response.

    Args:
        key: API key.
        version: API version, one of the schema.
    """
    return structure_codec(response_schema(key).at(version)).encode


@cache
def _element_encoder(key: int, version: int, array: str) -> Encoder:
    response = response_schema(key).at(version)
    [field] = [field for field in response.fields if field.name == array]
    return structure_codec(response._replace(name=field.element)).encode


def encoded_element(key: int, version: int, array: str, element: Message) -> Encoded:
    """Return an element of a response in its bytes, to be sent several times.

    Args:
        key: API key.
        version: API version, one of the schema.
        array: the field of the response that contains the element.
        element: the element.
    """
    sink = Sink()
    _element_encoder(key, version, array)(sink, element)
    return Encoded(b"".join(sink.chunks))


@cache
def request_encoder(key: int, version: int) -> Encoder:
    """Return the encoder of the body of a request.

    Args:
        key: API key.
        version: API version, one of the schema.
    """
    return structure_codec(request_schema(key).at(version)).encode


@cache
def response_decoder(key: int, version: int) -> Decoder:
    """Return the decoder of the body of a response.

    Args:
        key: API key.
        version: API version, one of the schema.
    """
    return structure_codec(response_schema(key).at(version)).decode


@cache
def is_flexible(key: int, version: int) -> bool:
    """Return whether a version of an API uses compact lengths and tagged fields."""
    return request_schema(key).at(version).is_flexible
