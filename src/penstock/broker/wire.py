"""Codec of Kafka's messages, driven by the schemas that kio generates from Kafka's own definitions.

Here live the cursor over a received frame, the sink of a response, and the compiled decoders and encoders, one for each
API, version and direction, made when first needed. Not here: sockets (connection.py) and the codecs of the two hot
paths (hot_path.py).

Rules:
- A message is a plain dict by the field names of kio; times are integers in milliseconds, error codes integers. An
  encoder ignores keys that its version does not know and fills missing ones with the schema's default, so one handler
  serves all versions of its API.
- A decoder never trusts a length: an array cannot have more elements than the frame has bytes left, and reading past
  the frame raises MalformedRequestError. (kio's own reader reserves memory for any count it is told and can abort the
  process; that is why only its schemas are used here.)
- Bytes and records are passed as memoryviews of the frame, never copied.
"""

from __future__ import annotations

import dataclasses
import datetime
import struct
import types
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any, get_args, get_origin

from kio.index import load_request_schema, load_response_schema

from penstock.broker.errors import MalformedRequestError

Message = dict[str, Any]
"""A request, a response or a part of one: values by field name."""

_INT8, _INT16, _INT32, _INT64 = struct.Struct(">b"), struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_UINT16, _FLOAT64, _BOOLEAN = struct.Struct(">H"), struct.Struct(">d"), struct.Struct(">?")
_COPY_BELOW = 8192
_ZERO_UUID = uuid.UUID(int=0)


class Cursor:
    """A position in a received frame; every read moves it forward and checks the bounds.

    Args:
        view: the frame without its length prefix.
    """

    __slots__ = ("position", "view")

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.position = 0

    def number(self, layout: struct.Struct) -> Any:
        """Return one number of the given layout.

        Raises:
            MalformedRequestError: the frame ends before it.
        """
        try:
            value = layout.unpack_from(self.view, self.position)[0]
        except struct.error as error:
            raise MalformedRequestError(f"the frame of {len(self.view)} bytes ends inside a number") from error
        self.position += layout.size
        return value

    def varint(self) -> int:
        """Return an unsigned variable-length integer of at most five bytes.

        Raises:
            MalformedRequestError: the frame ends inside it, or it is longer than five bytes.
        """
        result = shift = 0
        view, position = self.view, self.position
        while shift < 35:
            if position >= len(view):
                break
            byte = view[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return result
            shift += 7
        raise MalformedRequestError(f"a variable-length integer at byte {self.position} has no end")

    def take(self, size: int) -> memoryview:
        """Return the next bytes without a copy.

        Args:
            size: number of bytes.

        Raises:
            MalformedRequestError: the frame has fewer bytes left.
        """
        end = self.position + size
        if size < 0 or end > len(self.view):
            left = len(self.view) - self.position
            raise MalformedRequestError(f"a length of {size} bytes is claimed where {left} bytes are left")
        taken = self.view[self.position : end]
        self.position = end
        return taken

    def length(self, compact: bool, prefix: struct.Struct = _INT32) -> int:
        """Return the length that precedes a string, bytes or an array; -1 stands for null.

        Args:
            compact: whether it is a variable-length integer of the length plus one.
            prefix: the layout of a length that is not compact.

        Raises:
            MalformedRequestError: the length exceeds the bytes left.
        """
        length: int = self.varint() - 1 if compact else self.number(prefix)
        if length > len(self.view) - self.position:
            left = len(self.view) - self.position
            raise MalformedRequestError(f"{length} elements or bytes are claimed where {left} bytes are left")
        return length

    def skip_tagged_fields(self) -> None:
        """Pass over a section of tagged fields."""
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


class Sink:
    """Collects the bytes of one response; large byte strings are kept as they are, without a copy."""

    __slots__ = ("_tail", "chunks", "size")

    def __init__(self) -> None:
        self._tail = bytearray()
        self.chunks: list[bytes | bytearray | memoryview] = [self._tail]
        self.size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes; the caller must not change a large buffer afterwards."""
        self.size += len(data)
        if len(data) < _COPY_BELOW:
            self._tail += data
        else:
            self._tail = bytearray()
            self.chunks += [data, self._tail]

    def number(self, layout: struct.Struct, value: Any) -> None:
        """Append one number in the given layout."""
        self._tail += layout.pack(value)
        self.size += layout.size

    def varint(self, value: int) -> None:
        """Append an unsigned variable-length integer."""
        while value > 0x7F:
            self._tail.append(value & 0x7F | 0x80)
            self.size += 1
            value >>= 7
        self._tail.append(value)
        self.size += 1

    def length(self, value: int, compact: bool, prefix: struct.Struct = _INT32) -> None:
        """Append the length of a string, bytes or an array; -1 stands for null."""
        if compact:
            self.varint(value + 1)
        else:
            self.number(prefix, value)


Decoder = Callable[[Cursor], Any]
Encoder = Callable[[Sink, Any], None]


@dataclasses.dataclass(frozen=True, slots=True)
class _Codec:
    decode: Decoder
    encode: Encoder
    default: Any


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    codec: _Codec
    tag: int | None


def _number_codec(layout: struct.Struct) -> _Codec:
    return _Codec(lambda cursor: cursor.number(layout), lambda sink, value: sink.number(layout, value), 0)


_NUMBERS = {
    "int8": _number_codec(_INT8),
    "int16": _number_codec(_INT16),
    "uint16": _number_codec(_UINT16),
    "int32": _number_codec(_INT32),
    "int64": _number_codec(_INT64),
    "float64": _number_codec(_FLOAT64),
    "bool": _number_codec(_BOOLEAN),
    "error_code": _number_codec(_INT16),
    "timedelta_i32": _number_codec(_INT32),
    "timedelta_i64": _number_codec(_INT64),
    "datetime_i64": _number_codec(_INT64),
}


def _decode_uuid(cursor: Cursor) -> uuid.UUID:
    return uuid.UUID(bytes=bytes(cursor.take(16)))


def _encode_uuid(sink: Sink, value: uuid.UUID) -> None:
    sink.write(value.bytes)


def _string_codec(compact: bool, nullable: bool) -> _Codec:
    def decode(cursor: Cursor) -> str | None:
        length = cursor.length(compact, _INT16)
        if length < 0:
            if nullable:
                return None
            raise MalformedRequestError(f"null at byte {cursor.position}, where a string must stand")
        try:
            return str(cursor.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequestError(f"a string before byte {cursor.position} is not UTF-8") from error

    def encode(sink: Sink, value: str | None) -> None:
        if value is None:
            sink.length(-1, compact, _INT16)
            return
        data = value.encode()
        sink.length(len(data), compact, _INT16)
        sink.write(data)

    return _Codec(decode, encode, None if nullable else "")


def _bytes_codec(compact: bool, nullable: bool) -> _Codec:
    def decode(cursor: Cursor) -> memoryview | None:
        length = cursor.length(compact)
        if length < 0:
            if nullable:
                return None
            raise MalformedRequestError(f"null at byte {cursor.position}, where bytes must stand")
        return cursor.take(length)

    def encode(sink: Sink, value: bytes | memoryview | None) -> None:
        if value is None:
            sink.length(-1, compact)
            return
        sink.length(len(value), compact)
        sink.write(value)

    return _Codec(decode, encode, None if nullable else b"")


def _array_codec(item: _Codec, compact: bool, nullable: bool) -> _Codec:
    def decode(cursor: Cursor) -> list[Any] | None:
        length = cursor.length(compact)
        if length < 0:
            if nullable:
                return None
            raise MalformedRequestError(f"null at byte {cursor.position}, where an array must stand")
        return [item.decode(cursor) for _ in range(length)]

    def encode(sink: Sink, value: list[Any] | None) -> None:
        if value is None:
            sink.length(-1, compact)
            return
        sink.length(len(value), compact)
        for element in value:
            item.encode(sink, element)

    return _Codec(decode, encode, None if nullable else [])


def _decode_tagged(cursor: Cursor, message: Message, tagged: dict[int, _Field]) -> None:
    for _ in range(cursor.varint()):
        tag = cursor.varint()
        content = cursor.take(cursor.varint())
        if tag in tagged:
            message[tagged[tag].name] = tagged[tag].codec.decode(Cursor(content))


def _encode_tagged(sink: Sink, message: Message, tagged: dict[int, _Field]) -> None:
    present = [
        field for field in tagged.values() if message.get(field.name, field.codec.default) != field.codec.default
    ]
    sink.varint(len(present))
    for tag, field in tagged.items():
        if field in present:
            content = Sink()
            field.codec.encode(content, message[field.name])
            sink.varint(tag)
            sink.varint(content.size)
            for chunk in content.chunks:
                sink.write(chunk)


def _entity_codec(entity: type[Any]) -> _Codec:
    flexible: bool = entity.__flexible__
    fields = [_field(entity, field) for field in dataclasses.fields(entity)]
    plain = [field for field in fields if field.tag is None]
    tagged = {field.tag: field for field in sorted(fields, key=lambda f: f.tag or 0) if field.tag is not None}
    defaults = {field.name: field.codec.default for field in tagged.values()}

    def decode(cursor: Cursor) -> Message:
        message: Message = {field.name: field.codec.decode(cursor) for field in plain}
        if flexible:
            message.update(defaults)
            _decode_tagged(cursor, message, tagged)
        return message

    def encode(sink: Sink, message: Message) -> None:
        for field in plain:
            field.codec.encode(sink, message.get(field.name, field.codec.default))
        if flexible:
            _encode_tagged(sink, message, tagged)

    return _Codec(decode, encode, {field.name: field.codec.default for field in fields})


def _field(entity: type[Any], field: dataclasses.Field[Any]) -> _Field:
    declared: Any = field.type
    nullable = False
    if get_origin(declared) is types.UnionType:
        nullable = type(None) in get_args(declared)
        declared = next(part for part in get_args(declared) if part is not type(None))
    compact: bool = entity.__flexible__
    kind: str | None = field.metadata.get("kafka_type")
    if get_origin(declared) is tuple:
        element: Any = get_args(declared)[0]
        item = _value_codec(kind, element, compact, get_origin(element) is types.UnionType)
        codec = _array_codec(item, compact, nullable)
    else:
        codec = _value_codec(kind, declared, compact, nullable)
    if field.default is not dataclasses.MISSING:
        codec = dataclasses.replace(codec, default=_plain_default(kind, field.default))
    return _Field(field.name, codec, field.metadata.get("tag"))


def _value_codec(kind: str | None, declared: type[Any], compact: bool, nullable: bool) -> _Codec:
    match kind:
        case None:
            return _entity_codec(declared)
        case "string":
            return _string_codec(compact, nullable)
        case "bytes" | "records":
            return _bytes_codec(compact, nullable)
        case "uuid":
            return _Codec(_decode_uuid, _encode_uuid, _ZERO_UUID)
        case _:
            return _NUMBERS[kind]


def _plain_default(kind: str | None, value: Any) -> Any:
    match value:
        case None if kind == "uuid":
            return _ZERO_UUID
        case None if kind == "datetime_i64":
            return -1
        case datetime.timedelta():
            return round(value.total_seconds() * 1000)
        case tuple():
            return []
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
        case _:
            return value


@cache
def request_decoder(key: int, version: int) -> Decoder:
    """Return the decoder of the body of a request.

    Args:
        key: API key.
        version: API version, one that the broker advertises.
    """
    return _entity_codec(load_request_schema(key, version)).decode


@cache
def response_encoder(key: int, version: int) -> Encoder:
    """Return the encoder of the body of a response.

    Args:
        key: API key.
        version: API version, one that the broker advertises.
    """
    return _entity_codec(load_response_schema(key, version)).encode


@cache
def is_flexible(key: int, version: int) -> bool:
    """Return whether a version of an API uses compact lengths and tagged fields."""
    flexible: bool = load_request_schema(key, version).__flexible__
    return flexible
