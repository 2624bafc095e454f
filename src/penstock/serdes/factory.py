"""`Serdes`, the users' names of built-in serdes, and the serdes of Python types.

Avro and Protobuf are not included: they need a schema registry and additional packages (serdes/avro.py,
serdes/protobuf.py).
"""

from __future__ import annotations

import builtins
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload
from uuid import UUID

from penstock.record import Headers
from penstock.serdes.api import Serde
from penstock.serdes.cloud_event import CloudEvent
from penstock.serdes.debezium import DebeziumChange
from penstock.serdes.json import JsonSerde, PydanticSerde, TypedJsonSerde
from penstock.serdes.list import ListSerde
from penstock.serdes.message_pack import MessagePackSerde, PydanticMessagePackSerde
from penstock.serdes.objects import is_model
from penstock.serdes.primitive import (
    BooleanSerde,
    ByteBufferSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UUIDSerde,
    VoidSerde,
)
from penstock.signatures import signature_of

T = TypeVar("T")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_BY_TYPE: Mapping[Any, Callable[[], Serde]] = {
    str: StringSerde,
    bytes: BytesSerde,
    bytearray: BytesSerde,
    memoryview: ByteBufferSerde,
    float: DoubleSerde,
    bool: BooleanSerde,
    UUID: UUIDSerde,
    type(None): VoidSerde,
    None: VoidSerde,
    dict: JsonSerde,
}

_OF_SEVERAL_SERDES = frozenset({CloudEvent, DebeziumChange})
"""Classes of values whose bytes depend on a choice, such as the content mode: no annotation selects one."""


class _Function:
    """A user's function, with its choice of parameters among topic, value and headers.

    Args:
        function: the function.
        role: the term for the function in messages.
        value: the term for the value in messages.

    Raises:
        TypeError: the function does not support any of the call forms.
    """

    def __init__(self, function: Callable[..., Any], role: str, value: str) -> None:
        self._function = function
        forms = f"{role}({value}), {role}(topic, {value}) or {role}(topic, {value}, headers)"
        if not callable(function):
            raise TypeError(f"Expected a function {forms}, got {function!r}.")
        signature = signature_of(function) or inspect.signature(lambda value: value)  # a built-in, such as int
        parameters = signature.parameters
        positional = [each for each in parameters.values() if each.kind in _POSITIONAL and each.name != "headers"]
        required = [each for each in positional if each.default is each.empty]
        rest = any(each.kind is each.VAR_POSITIONAL for each in parameters.values())
        keywords = [
            each for each in parameters.values() if each.kind is each.KEYWORD_ONLY and each.default is each.empty
        ]
        self.takes_headers = "headers" in parameters
        third = len(required) == 3 and not self.takes_headers
        if len(required) > 2 + third or not (positional or rest) or any(each.name != "headers" for each in keywords):
            name = getattr(function, "__qualname__", repr(function))
            raise TypeError(f"The {role} must be a function {forms}; {name}({', '.join(parameters)}) is none of them.")
        self._takes_topic = len(required) >= 2 or (not required and (rest or len(positional) > 1))
        self._headers_by_position = third
        self.takes_headers |= third

    def __call__(self, topic: str, value: Any, headers: Headers) -> Any:
        arguments = (topic, value) if self._takes_topic else (value,)
        if not self.takes_headers:
            return self._function(*arguments)
        if self._headers_by_position:
            return self._function(*arguments, headers)
        return self._function(*arguments, headers=headers)


class WrapperSerde(Serde[T]):
    """A serde of two functions (Kafka class: Serdes.WrapperSerde).

    Args:
        serializer: called as `serializer(value)` or `serializer(topic, value)`, by its number of required parameters.
        deserializer: called as `deserializer(data)` or `deserializer(topic, data)`, likewise. If a function has a
            parameter `headers` after these, it also receives the record's headers.

    Raises:
        TypeError: a function has other parameters.
    """

    def __init__(self, serializer: Callable[..., bytes], deserializer: Callable[..., T]) -> None:
        self._serializer = _Function(serializer, "serializer", "value")
        self._deserializer = _Function(deserializer, "deserializer", "data")

    @property
    def uses_headers(self) -> bool:
        """Whether one of the two functions has a parameter for the headers."""
        return self._serializer.takes_headers or self._deserializer.takes_headers

    def serialize(self, topic: str, value: T, headers: Headers = ()) -> bytes:
        """Serialise `value` with the serializer."""
        data: bytes = self._serializer(topic, value, headers)
        return data

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> T:
        """Deserialise `data` with the deserializer."""
        value: T = self._deserializer(topic, data, headers)
        return value


class Serdes:
    """Creates the built-in serdes (Kafka class: Serdes)."""

    @staticmethod
    def string() -> Serde[str]:
        """Return the serde of texts."""
        return StringSerde()

    @staticmethod
    def bytes() -> Serde[builtins.bytes]:
        """Return the serde of bytes (Kafka: Serdes.ByteArray and Serdes.Bytes)."""
        return BytesSerde()

    @staticmethod
    def byte_buffer() -> Serde[memoryview]:
        """Return the serde of bytes that are read as a memoryview."""
        return ByteBufferSerde()

    @staticmethod
    def short() -> Serde[int]:
        """Return the serde of 2-byte integers."""
        return ShortSerde()

    @staticmethod
    def integer() -> Serde[int]:
        """Return the serde of 4-byte integers."""
        return IntegerSerde()

    @staticmethod
    def long() -> Serde[int]:
        """Return the serde of 8-byte integers."""
        return LongSerde()

    @staticmethod
    def float() -> Serde[builtins.float]:
        """Return the serde of 4-byte floating-point numbers."""
        return FloatSerde()

    @staticmethod
    def double() -> Serde[builtins.float]:
        """Return the serde of 8-byte floating-point numbers."""
        return DoubleSerde()

    @staticmethod
    def boolean() -> Serde[bool]:
        """Return the serde of True and False."""
        return BooleanSerde()

    @staticmethod
    def uuid() -> Serde[UUID]:
        """Return the serde of UUIDs."""
        return UUIDSerde()

    @staticmethod
    def void() -> Serde[None]:
        """Return the serde of keys or values that are always None."""
        return VoidSerde()

    @staticmethod
    def list(inner: Serde[T]) -> Serde[builtins.list[T]]:
        """Return the serde of lists with entries of `inner` (Kafka: Serdes.ListSerde)."""
        return ListSerde(inner)

    @overload
    @staticmethod
    def json(type: None = None) -> Serde[Any]: ...

    @overload
    @staticmethod
    def json(type: type[T]) -> Serde[T]: ...

    @staticmethod
    def json(type: Any = None) -> Serde[Any]:
        """Return the serde of JSON values, or of objects of `type` as JSON.

        The type is a dataclass, a TypedDict, a NamedTuple or a pydantic model. Raises TypeError for a type that cannot
        be read from JSON.
        """
        if type is None:
            return JsonSerde()
        return PydanticSerde(type) if is_model(type) else TypedJsonSerde(type)

    @overload
    @staticmethod
    def msgpack(type: None = None) -> Serde[Any]: ...

    @overload
    @staticmethod
    def msgpack(type: type[T]) -> Serde[T]: ...

    @staticmethod
    def msgpack(type: Any = None) -> Serde[Any]:
        """Return the serde of plain values, or of objects of `type`, as MessagePack.

        The type is a dataclass, a TypedDict, a NamedTuple or a pydantic model. Raises TypeError for a type that cannot
        be read from MessagePack.
        """
        return PydanticMessagePackSerde(type) if is_model(type) else MessagePackSerde(type)

    @overload
    @staticmethod
    def serde_from(type: type[T], deserializer: None = None) -> Serde[T]: ...

    @overload
    @staticmethod
    def serde_from(
        type: Callable[[str, T], builtins.bytes]
        | Callable[[str, T, Headers], builtins.bytes]
        | Callable[[T], builtins.bytes],
        deserializer: Callable[[str, builtins.bytes], T]
        | Callable[[str, builtins.bytes, Headers], T]
        | Callable[[builtins.bytes], T],
    ) -> Serde[T]: ...

    @staticmethod
    def serde_from(type: Any, deserializer: Any = None) -> Serde[Any]:
        """Return the serde of a Python type, or of two functions (Kafka: Serdes.serdeFrom).

        The functions are `serializer(topic, value)` and `deserializer(topic, data)`; each may omit the topic. A
        function with a parameter `headers` after these also receives the record's headers.

        Raises ValueError for a type with no built-in serde or several, TypeError for functions with other parameters,
        or only one function.
        """
        if deserializer is not None:
            return WrapperSerde(type, deserializer)
        if inspect.isroutine(type):
            raise TypeError(
                f"Expected a type, or two functions, got {type!r}: write serde_from(serializer, deserializer)."
            )
        serde = serde_of_type(type)
        if serde is None:
            known = ", ".join(known.__name__ for known in _BY_TYPE if known is not None)
            raise ValueError(
                f"Unknown class for built-in serializer: {type!r}. Supported types are: {known}, lists of them, "
                "dataclasses and pydantic models; an int may have 2, 4 or 8 bytes: name short(), integer() or long()."
            )
        return serde


def serde_of_type(annotation: Any) -> Serde | None:
    """Return the unique built-in serde for a type in annotations, or None.

    Optional types have the serde of their values, `list[X]` the list serde of X; dataclasses, TypedDicts and pydantic
    models are written as JSON.
    """
    make = _BY_TYPE.get(annotation) if isinstance(annotation, type | None) else None
    if make is not None:
        return make()
    if is_model(annotation):
        return PydanticSerde(annotation)
    if isinstance(annotation, type) and annotation in _OF_SEVERAL_SERDES:
        return None
    if typing.is_typeddict(annotation) or (isinstance(annotation, type) and dataclasses.is_dataclass(annotation)):
        return TypedJsonSerde(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list:
        inner = serde_of_type(arguments[0])
        return None if inner is None else ListSerde(inner)
    if origin is dict:
        return JsonSerde()
    if origin in (typing.Union, types.UnionType):
        others = [argument for argument in arguments if argument is not type(None)]
        return serde_of_type(others[0]) if len(others) == 1 else None
    return None
