"""The MessagePack serdes: plain values and objects of classes, by msgspec, and pydantic models.

Models use their own methods: pydantic is not imported here. `Serdes.msgpack` selects the serde of a type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde
from penstock.serdes.objects import JsonModel, check_readable, field_names, is_written_by_alias, name_of
from penstock.serdes.read_back import check_read_back, not_read_back

T = TypeVar("T")
M = TypeVar("M", bound=JsonModel)

_TEXT_KEYS = msgspec.msgpack.Encoder(order="deterministic")
_ANY_KEYS = msgspec.msgpack.Encoder()


class MessagePackSerde(Serde[T]):
    """Values as MessagePack, with sorted dict keys; unknown fields of objects are ignored.

    Without a type, values are dicts, lists, texts, bytes, numbers, booleans and datetimes with a time zone; tuples,
    sets and dataclasses can only be written.

    Args:
        type: a dataclass, msgspec struct, TypedDict or NamedTuple; None for plain values.

    Raises:
        TypeError: msgspec cannot read the class.
    """

    uses_headers = False
    repeatable = True

    def __init__(self, type: type[T] | None = None) -> None:
        self.type = type
        if type is not None:
            check_readable(type, f"Serdes.msgpack({name_of(type)})")
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Any if type is None else type)

    def __reduce__(self) -> tuple[Any, ...]:
        return MessagePackSerde, (self.type,)  # decoders are not picklable

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise `value`.

        Raises SerializationError for a value that MessagePack lacks, and for one that would not be read back as an
        equal object of the class.
        """
        data = _encoded(topic, value)
        if self.type is not None:
            try:
                found = self._decoder.decode(data)
            except msgspec.DecodeError as error:
                raise not_read_back(topic, value, self.type, str(error)) from error
            check_read_back(topic, value, found, self.type)
        return data

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> T:
        """Deserialise a value; raises SerializationError if `data` is not MessagePack of its class."""
        try:
            value: T = self._decoder.decode(data)
        except msgspec.DecodeError as error:
            raise _unreadable(topic, data, self.type, error) from error
        return value


class PydanticMessagePackSerde(Serde[M]):
    """Pydantic models as MessagePack, by alias and without computed fields.

    Args:
        model: the class of the models.
    """

    uses_headers = False

    def __init__(self, model: type[M]) -> None:
        self.type = model
        self._by_alias = is_written_by_alias(model)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the model; a dict is converted to a model with its fields.

        Raises:
            TypeError: the value is neither an object of the class nor a dict.
            SerializationError: it would not be read back as an equal object.
        """
        if not isinstance(value, self.type | Mapping):
            raise TypeError(
                f"Cannot write to {topic!r}: expected a {self.type.__name__}, got {type(value).__name__} "
                f"{value!r:.100}; name another serde or convert the value."
            )
        try:
            model = value if isinstance(value, self.type) else self.type.model_validate(value)
            data = _encoded(topic, model.model_dump(by_alias=self._by_alias, round_trip=True))
            found = self.type.model_validate(msgspec.msgpack.decode(data))
        except ValueError as error:
            raise not_read_back(topic, value, self.type, str(error)) from error
        check_read_back(topic, value, found, self.type)
        return data

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> M:
        """Deserialise the model; raises SerializationError if pydantic rejects the data."""
        try:
            return self.type.model_validate(msgspec.msgpack.decode(data))
        except (msgspec.DecodeError, ValueError) as error:
            raise _unreadable(topic, data, self.type, error) from error


def _encoded(topic: str, value: Any) -> bytes:
    try:
        try:
            return _TEXT_KEYS.encode(value)
        except TypeError:  # msgspec sorts only dicts with texts as keys
            return _ANY_KEYS.encode(_sorted(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SerializationError(f"Cannot write {value!r:.100} to {topic!r} as MessagePack: {error}.") from error


def _sorted(value: Any) -> Any:
    """Return `value` with dicts and sets in the order of their keys' bytes."""
    if isinstance(value, set | frozenset):
        return sorted(map(_sorted, value), key=_ANY_KEYS.encode)
    if isinstance(value, Mapping):
        items = sorted(value.items(), key=lambda item: _ANY_KEYS.encode(item[0]))
        return {key: _sorted(part) for key, part in items}
    if isinstance(value, list | tuple):
        return list(map(_sorted, value))
    names = field_names(type(value)) or {}
    return {written: _sorted(getattr(value, name)) for name, written in names.items()} if names else value


def _unreadable(topic: str, data: bytes, wanted: Any, error: Exception) -> SerializationError:
    what = "" if wanted is None else f" of {name_of(wanted)}"
    return SerializationError(f"Cannot read {data[:100]!r} from {topic!r} as MessagePack{what}: {error}.")
