"""The serdes of JSON: plain values (by orjson), dataclasses and other typed classes (by msgspec), pydantic models (by
their own methods: pydantic is not imported here).

Which one a type has is decided in `serdes/factory.py`.
"""

from __future__ import annotations

from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import msgspec
import orjson

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde

T = TypeVar("T")


class JsonSerde(Serde[Any]):
    """Dicts, lists, texts, numbers, booleans (also dataclasses and datetimes, written only) as JSON in UTF-8; keys of a
    dict are sorted."""

    uses_headers = False
    unchanging_types = frozenset({str, int, bool})
    repeatable = True

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return `value` as JSON; raises SerializationError for what JSON cannot hold."""
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError as error:
            raise SerializationError(f"Cannot write to {topic!r} as JSON: {error}.") from error

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Return the JSON value; raises SerializationError when `data` is not JSON."""
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise SerializationError(f"Cannot read {data[:100]!r} from {topic!r} as JSON: {error}.") from error


class TypedJsonSerde(Serde[T]):
    """Objects of one class as JSON: dataclasses, msgspec structs, TypedDicts, NamedTuples, and what msgspec knows
    inside them (datetimes, UUIDs, enums, decimals); unknown fields are passed over."""

    uses_headers = False
    repeatable = True

    def __init__(self, type: type[T]) -> None:
        """Write and read objects of `type`; raises TypeError for a class that msgspec cannot read."""
        self.type = type
        self._encoder = msgspec.json.Encoder(order="deterministic")
        self._decoder = msgspec.json.Decoder(type)

    def __reduce__(self) -> tuple[Any, ...]:
        return TypedJsonSerde, (self.type,)  # encoders cannot be pickled

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return `value` as JSON; raises SerializationError for what JSON cannot hold."""
        try:
            return self._encoder.encode(value)
        except (TypeError, ValueError) as error:
            raise SerializationError(f"Cannot write to {topic!r} as JSON: {error}.") from error

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> T:
        """Return the object; raises SerializationError when `data` is not JSON of its class."""
        try:
            return self._decoder.decode(data)
        except msgspec.DecodeError as error:
            raise SerializationError(_unreadable(topic, data, self.type, error)) from error


@runtime_checkable
class JsonModel(Protocol):
    """The methods that are used of a pydantic model."""

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> Self:
        """Return the model that `json_data` describes; raises ValueError for any other."""
        ...

    def model_dump_json(self) -> str:
        """Return the model as JSON."""
        ...


M = TypeVar("M", bound=JsonModel)


class PydanticSerde(Serde[M]):
    """Pydantic models as the JSON that they write themselves."""

    uses_headers = False

    def __init__(self, model: type[M]) -> None:
        """Write and read objects of the class `model`."""
        self.type = model

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return the model as JSON; raises TypeError for anything but an object of the class."""
        if not isinstance(value, self.type):
            raise TypeError(
                f"Cannot write to {topic!r}: expected a {self.type.__name__}, got {type(value).__name__} "
                f"{value!r:.100}; name another serde or convert the value."
            )
        return value.model_dump_json().encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> M:
        """Return the model; raises SerializationError when pydantic finds the data not valid."""
        try:
            return self.type.model_validate_json(data)
        except ValueError as error:
            raise SerializationError(_unreadable(topic, data, self.type, error)) from error


def _unreadable(topic: str, data: bytes, wanted: Any, error: Exception) -> str:
    is_named_tuple = isinstance(wanted, type) and issubclass(wanted, tuple)
    hint = " A NamedTuple is an array in JSON; a dataclass is an object." if is_named_tuple else ""
    return f"Cannot read {data[:100]!r} from {topic!r} as {wanted!r}: {error}.{hint}"
