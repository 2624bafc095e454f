"""The JSON serdes: plain values (by orjson), typed classes (by msgspec), and pydantic models.

Models use their own methods: pydantic is not imported here. `serdes/factory.py` selects the serde of a type. No serde
of a class writes a value that would not be read back as an equal object: a store or a repartition topic would keep
bytes that end the application, or that have lost data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

import msgspec
import orjson

from penstock.errors import SerializationError
from penstock.record import ArrayColumn, Headers
from penstock.serdes.api import Library, Serde
from penstock.serdes.json_columns import ObjectColumn, read_structs, struct_fields
from penstock.serdes.objects import JsonModel, check_readable, field_names, is_written_by_alias, name_of
from penstock.serdes.read_back import check_read_back, not_read_back, places_in, values_in

T = TypeVar("T")

_EQUAL_DIGITS = bytes.maketrans(b"123456789", 9 * b"0")
_BEYOND_64_BITS = 19 * b"0"
"""Digits, as zeros, of a number that may exceed 64 bits: orjson reads it as a float, and cannot write it."""

_QUOTED_FLOATS = re.compile(rb'"(NaN|-?Infinity)"')
"""Floats that JSON lacks, in Jackson's notation."""


_DUMPS = partial(orjson.dumps, option=orjson.OPT_SORT_KEYS)
_NO_DIGIT = b" "
"""Separates JSON values in a search for long numbers."""


class JsonSerde(Serde[Any]):
    """JSON values (dicts, lists, texts, numbers, booleans) in UTF-8, with sorted dict keys.

    Dataclasses and datetimes can only be written.
    """

    uses_headers = False
    unchanging_types = frozenset({str, int, bool})
    repeatable = True

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise `value` as JSON; raises SerializationError for values that JSON lacks, such as NaN."""
        try:
            data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError as error:
            if not any(isinstance(each, int) and each.bit_length() > 63 for each in values_in(value)):
                raise SerializationError(f"Cannot write to {topic!r} as JSON: {error}.") from error
            data = _encoded(topic, _LARGE_NUMBERS, value)
        return _without_nan(topic, value, data)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Deserialise a JSON value; raises SerializationError if `data` is not JSON."""
        try:
            may_be_large = _BEYOND_64_BITS in data.translate(_EQUAL_DIGITS)
            return msgspec.json.decode(data) if may_be_large else orjson.loads(data)
        except (orjson.JSONDecodeError, msgspec.DecodeError) as error:
            raise SerializationError(f"Cannot read {data[:100]!r} from {topic!r} as JSON: {error}.") from error

    def serialize_column(
        self, topic: str, values: Sequence[Any], headers: Sequence[Headers] | None = None
    ) -> list[bytes | None]:
        """Serialise each value as JSON; None stays None. Raises as `serialize`."""
        if type(self) is JsonSerde:
            with suppress(orjson.JSONEncodeError):  # the search for the value by `serialize` gives its error
                written = list(map(_DUMPS, values))
                if b"null" not in b"".join(written):
                    return cast("list[bytes | None]", written)
        return super().serialize_column(topic, values, headers)

    def deserialize_column(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[Headers] | None = None
    ) -> list[Any]:
        """Deserialise each JSON value; None stays None. Raises as `deserialize`."""
        if type(self) is JsonSerde:
            with suppress(orjson.JSONDecodeError, TypeError):  # a None is no bytes
                if _BEYOND_64_BITS not in _NO_DIGIT.join(cast("Sequence[bytes]", data)).translate(_EQUAL_DIGITS):
                    return list(map(orjson.loads, cast("Sequence[bytes]", data)))
        return super().deserialize_column(topic, data, headers)


class TypedJsonSerde(Serde[T]):
    """Objects of one class as JSON, by msgspec; unknown fields are ignored.

    Classes are dataclasses, msgspec structs, TypedDicts and NamedTuples, with parts of msgspec's types (datetimes,
    UUIDs, enums, decimals).

    Args:
        type: the class.

    Raises:
        TypeError: msgspec cannot read the class.
    """

    uses_headers = False
    repeatable = True

    def __init__(self, type: type[T]) -> None:
        self.type = type
        self._encoder = msgspec.json.Encoder(order="deterministic")
        parts = check_readable(type, f"Serdes.json({name_of(type)})")
        self._decoder = msgspec.json.Decoder(type)
        keys = (part.key_type for part in parts if isinstance(part, msgspec.inspect.DictType))
        self._has_other_keys = any(not isinstance(key, msgspec.inspect.StrType) for key in keys)
        self._fields = struct_fields(type)

    def __reduce__(self) -> tuple[Any, ...]:
        return TypedJsonSerde, (self.type,)  # encoders are not picklable

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise `value` as JSON.

        Raises SerializationError for a value that would not be read back as an equal object.
        """
        try:
            data = self._encoder.encode(_plain(value) if self._has_other_keys else value)
        except (TypeError, ValueError, OverflowError):
            data = _encoded(topic, self._encoder, value, _plain_with_sorted_sets)
        try:
            is_equal = self._decoder.decode(data) == value
        except msgspec.DecodeError:
            is_equal = False
        return data if is_equal else self._checked(topic, value, data)

    def _checked(self, topic: str, value: Any, data: bytes) -> bytes:
        """Return the JSON of a value that is not simply equal to its read form.

        Raises SerializationError if it has lost data.
        """
        if not all(map(_is_in_json, values_in(value))):
            data = _encoded(
                topic, self._encoder, value, lambda each: _with_quoted_floats(_plain_with_sorted_sets(each))
            )
        try:
            found = self._read(data)
        except msgspec.DecodeError as error:
            raise not_read_back(topic, value, self.type, str(error)) from error
        check_read_back(topic, value, found, self.type)
        return data

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> T:
        """Deserialise an object; raises SerializationError if `data` is not JSON of its class."""
        try:
            return self._read(data)
        except msgspec.DecodeError as error:
            raise SerializationError(_unreadable(topic, data, self.type, error)) from error

    def deserialize_array(self, topic: str, data: Sequence[bytes | None], library: Library) -> ArrayColumn[Any] | None:
        """Deserialise objects of a dataclass with numbers, booleans and texts as an array of structs of Arrow."""
        if library != "pyarrow" or self._fields is None:
            return None
        array = read_structs(data, self._fields)
        read = partial(self.deserialize_column, topic)
        return None if array is None else ObjectColumn(array, cast("list[bytes]", data), read)

    def _read(self, data: bytes) -> T:
        try:
            return self._decoder.decode(data)
        except msgspec.ValidationError:
            if not _QUOTED_FLOATS.search(data):
                raise
        return msgspec.json.decode(data, type=self.type, strict=False)


M = TypeVar("M", bound=JsonModel)


class PydanticSerde(Serde[M]):
    """Pydantic models as the JSON of their own methods, by alias and without computed fields.

    Args:
        model: the class of the models.
    """

    uses_headers = False

    def __init__(self, model: type[M]) -> None:
        self.type = model
        self._by_alias = is_written_by_alias(model)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the model as JSON; a dict is converted to a model with its fields.

        Raises:
            TypeError: the value is neither an object of the class nor a dict.
            SerializationError: it would not be read back as an equal object.
        """
        if isinstance(value, Mapping):
            value = self._of_fields(topic, value)
        if not isinstance(value, self.type):
            raise TypeError(
                f"Cannot write to {topic!r}: expected a {self.type.__name__}, got {type(value).__name__} "
                f"{value!r:.100}; name another serde or convert the value."
            )
        try:
            data = value.model_dump_json(by_alias=self._by_alias, round_trip=True).encode()
            found = self.type.model_validate_json(data)
        except ValueError as error:
            raise not_read_back(topic, value, self.type, str(error)) from error
        check_read_back(topic, value, found, self.type)
        return data

    def _of_fields(self, topic: str, fields: Mapping[str, Any]) -> M:
        try:
            found = self.type.model_validate(fields)
        except ValueError as error:
            raise not_read_back(topic, fields, self.type, str(error)) from error
        written = {*found.model_dump(by_alias=self._by_alias, round_trip=True), *(field_names(self.type) or ())}
        if not fields.keys() <= written:
            raise not_read_back(topic, fields, self.type, f"it has no field {min(fields.keys() - written)!r}")
        return found

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> M:
        """Deserialise the model; raises SerializationError if pydantic rejects the data."""
        try:
            return self.type.model_validate_json(data)
        except ValueError as error:
            raise SerializationError(_unreadable(topic, data, self.type, error)) from error


def _unreadable(topic: str, data: bytes, wanted: Any, error: Exception) -> str:
    is_named_tuple = isinstance(wanted, type) and issubclass(wanted, tuple)
    hint = " A NamedTuple is an array in JSON; a dataclass is an object." if is_named_tuple else ""
    return f"Cannot read {data[:100]!r} from {topic!r} as {wanted!r}: {error}.{hint}"


_LARGE_NUMBERS = msgspec.json.Encoder(order="deterministic")


def _encoded(
    topic: str, encoder: msgspec.json.Encoder, value: Any, convert: Callable[[Any], Any] = lambda value: value
) -> bytes:
    try:
        return encoder.encode(convert(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise SerializationError(f"Cannot write to {topic!r} as JSON: {error}.") from error


def _without_nan(topic: str, value: Any, data: bytes) -> bytes:
    """Return `data`; raises SerializationError if it has a null instead of NaN or infinity."""
    if b"null" in data and orjson.loads(data) != value:
        for place, each in places_in(value):
            if not _is_in_json(each):
                at = f" (at {place})" if place else ""
                raise SerializationError(
                    f"Cannot write to {topic!r} as JSON: JSON has no {each}{at}, and null would be read; write None, "
                    "or leave such values out."
                )
    return data


def _is_in_json(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True, order="deterministic")


def _plain_with_sorted_sets(value: Any) -> Any:
    """Return `value` in msgspec's output form with sorted sets: msgspec cannot sort enums."""
    return _plain(_with_sorted_sets(value))


def _with_sorted_sets(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(map(_plain_with_sorted_sets, value), key=_LARGE_NUMBERS.encode)
    if isinstance(value, Mapping):
        return {name: _with_sorted_sets(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_with_sorted_sets, value))
    names = field_names(type(value)) or {}
    return {written: _with_sorted_sets(getattr(value, name)) for name, written in names.items()} if names else value


def _with_quoted_floats(value: Any) -> Any:
    match value:
        case dict():
            return {name: _with_quoted_floats(part) for name, part in value.items()}
        case list() | tuple():
            return list(map(_with_quoted_floats, value))
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case _:
            return value
