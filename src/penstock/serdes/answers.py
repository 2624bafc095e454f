"""The serdes of the results of calls, which wait as bytes for their use.

Rule: a result is used as it was returned, or is refused when it is written. The return annotation of a function names
the type that is read back; without one, only plain values are the same afterwards. Operators that use a pair,
or iterate the result, also accept pairs and iterables of plain values.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable
from typing import Any, Final

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.annotated import argument_of, result_of
from penstock.serdes.api import Serde
from penstock.serdes.factory import Serdes
from penstock.serdes.message_pack import MessagePackSerde

_ITERABLES: Final = (
    collections.abc.Iterable,
    collections.abc.Iterator,
    collections.abc.Generator,
)
"""The annotations of results that operators iterate, and that are written as lists."""

_UNKNOWN_PARTS: Final = (None, type(None), Any, object, list, dict)
"""The annotations that do not name the types of all parts of a result."""


class PlainAnswerSerde(Serde[Any]):
    """Plain values as MessagePack: None, numbers, texts, bytes, lists and dicts."""

    uses_headers = False

    def __init__(self) -> None:
        self._plain: MessagePackSerde[Any] = MessagePackSerde()

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise `value`; raises SerializationError if it would not be read back as an equal value."""
        data = self._plain.serialize(topic, value)
        found = self._plain.deserialize(topic, data)
        if not _is_same(found, value):
            raise SerializationError(f"It would be read back as {found!r:.100}.")
        return data

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Deserialise a value; raises SerializationError for other data."""
        return self._plain.deserialize(topic, data)


class IterableAnswerSerde(Serde[Any]):
    """Results that operators iterate, as lists.

    Args:
        inner: the serde of the lists.
    """

    uses_headers = False

    def __init__(self, inner: Serde) -> None:
        self._inner = inner

    @property
    def is_plain(self) -> bool:
        """Whether the items are plain values."""
        return isinstance(self._inner, PlainAnswerSerde)

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the lists."""
        return (self._inner,)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the items of `value`; raises SerializationError for a text, whose characters would be items."""
        if isinstance(value, str | bytes | bytearray):
            raise SerializationError("It is a text: return a list of items.")
        return self._inner.serialize(topic, list(value))

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Deserialise the list; raises the errors of its serde."""
        return self._inner.deserialize(topic, data)


class PairAnswerSerde(Serde[Any]):
    """Pairs of a plain key and a plain value."""

    uses_headers = False

    def __init__(self) -> None:
        self._plain = PlainAnswerSerde()

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise a pair; raises SerializationError for another value."""
        return self._plain.serialize(topic, _parts_of_pair(value))

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> tuple[Any, ...]:
        """Deserialise a pair; raises SerializationError for other data."""
        return tuple(self._plain.deserialize(topic, data))


class PairsAnswerSerde(Serde[Any]):
    """Iterables of pairs of a plain key and a plain value, as lists."""

    uses_headers = False

    def __init__(self) -> None:
        self._plain = PlainAnswerSerde()

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise pairs; raises SerializationError for other values."""
        return self._plain.serialize(topic, [_parts_of_pair(each) for each in value])

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> list[tuple[Any, ...]]:
        """Deserialise the pairs; raises SerializationError for other data."""
        return [tuple(each) for each in self._plain.deserialize(topic, data)]


class NoAnswerSerde(Serde[Any]):
    """Results that are not used, such as those of an action: each is read back as None."""

    uses_headers = False

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return no bytes."""
        return b""

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> None:
        """Return None."""


def answer_serde_of(function: Callable[..., Any]) -> Serde:
    """Return the serde of the results of `function`: by its return annotation, or of plain values."""
    annotation = result_of(function)
    origin = typing.get_origin(annotation) or annotation
    if origin in _ITERABLES:
        items = typing.get_args(annotation)[:1]
        return IterableAnswerSerde(_serde_of(types.GenericAlias(list, items) if items else None))
    return _serde_of(annotation)


def pair_answer_serde_of(function: Callable[..., Any]) -> Serde:
    """Return the serde of results that are pairs of key and value."""
    found = answer_serde_of(function)
    return PairAnswerSerde() if isinstance(found, PlainAnswerSerde) else found


def items_answer_serde_of(function: Callable[..., Any]) -> Serde:
    """Return the serde of results that are iterables of values."""
    found = answer_serde_of(function)
    return IterableAnswerSerde(found) if isinstance(found, PlainAnswerSerde) else found


def pairs_answer_serde_of(function: Callable[..., Any]) -> Serde:
    """Return the serde of results that are iterables of pairs."""
    found = items_answer_serde_of(function)
    return PairsAnswerSerde() if isinstance(found, IterableAnswerSerde) and found.is_plain else found


def no_answer_serde_of(function: Callable[..., Any]) -> Serde:
    """Return the serde of results that are not used."""
    return NoAnswerSerde()


def argument_serde_of(function: Callable[..., Any]) -> Serde:
    """Return the serde of the first argument of `function`: by its annotation, or of plain values."""
    return _serde_of(argument_of(function))


def _serde_of(annotation: Any) -> Serde:
    if any(annotation is each for each in _UNKNOWN_PARTS):
        return PlainAnswerSerde()
    try:
        return Serdes.msgpack(annotation)
    except (TypeError, NotImplementedError):
        return PlainAnswerSerde()


def _parts_of_pair(pair: Any) -> list[Any]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise SerializationError(f"Expected a pair (key, value), got {pair!r:.100}.")
    return [*pair]


def _is_same(found: Any, value: Any) -> bool:
    """Return whether plain values are equal and have the same types, also in lists and dicts."""
    if type(found) is not type(value):
        return False
    if isinstance(value, list):
        return len(found) == len(value) and all(map(_is_same, found, value))
    if isinstance(value, dict):
        kept = {(type(key), key): each for key, each in found.items()}
        return len(kept) == len(value) and all(
            (type(key), key) in kept and _is_same(kept[type(key), key], each) for key, each in value.items()
        )
    return bool(found == value) or repr(found) == repr(value)  # not a number is unequal to itself
