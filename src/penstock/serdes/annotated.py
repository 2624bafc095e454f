"""Serdes selected by annotations, if the operator and the configuration specify no serde.

Sources are the return type of functions such as `mapper`, and the type parameters of a processor.

Rules: only types with exactly one built-in serde select one (`serde_of_type`); a configured default takes precedence,
so that an annotation never changes the output of a program that runs without it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any

from penstock.record import Headers
from penstock.serdes.api import Serde
from penstock.serdes.factory import serde_of_type
from penstock.signatures import signature_of


class AnnotatedSerde(Serde[Any]):
    """Represents the default serde of keys or values until a task knows the configuration.

    Args:
        serde: the serde without a configured default.
        is_key: whether it is for keys.
    """

    def __init__(self, serde: Serde, *, is_key: bool) -> None:
        self._serde = serde
        self._is_key = is_key

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde:
        """Return the default, or the annotation's serde without a default."""
        default = key_serde if self._is_key else value_serde
        return self._serde if default is None else default.with_defaults(key_serde, value_serde)

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde without a configured default."""
        return (self._serde,)

    @property
    def uses_headers(self) -> bool:
        """Whether the annotation's serde uses the headers."""
        return self._serde.uses_headers

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise `value` with the annotation's serde."""
        return self._serde.serialize(topic, value, headers)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Deserialise `data` with the annotation's serde."""
        return self._serde.deserialize(topic, data, headers)


def serde_of_result(function: Callable[..., Any], *, is_key: bool = False) -> Serde | None:
    """Return the serde selected by the return annotation of `function`, or None."""
    return serde_of_annotation(result_of(function), is_key=is_key)


def serde_of_aggregate(initializer: Callable[..., Any], *aggregators: Callable[..., Any]) -> Serde | None:
    """Return the serde of an aggregate, or None.

    It is selected by the first return annotation of `aggregators` that selects one, otherwise by that of `initializer`.
    """
    return next(filter(None, map(serde_of_result, (*aggregators, initializer))), None)


def serde_of_items(function: Callable[..., Any]) -> Serde | None:
    """Return the value serde of the iterable returned by `function`, or None.

    The return annotation selects it.
    """
    arguments = typing.get_args(result_of(function))
    return serde_of_annotation(arguments[0]) if len(arguments) == 1 else None


def serdes_of_pair(function: Callable[..., Any]) -> tuple[Serde | None, Serde | None]:
    """Return the serdes of the (key, value) pair returned by `function`.

    The return annotation selects them; each may be None.
    """
    return _pair(result_of(function))


def serdes_of_pairs(function: Callable[..., Any]) -> tuple[Serde | None, Serde | None]:
    """Return the serdes of the (key, value) pairs in the iterable returned by `function`.

    The return annotation selects them; each may be None.
    """
    arguments = typing.get_args(result_of(function))
    return _pair(arguments[0]) if len(arguments) == 1 else (None, None)


def _pair(annotation: Any) -> tuple[Serde | None, Serde | None]:
    """Return the serdes of a pair annotated as `tuple[K, V]` or `tuple[K, V] | None`."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        others = [argument for argument in typing.get_args(annotation) if argument is not type(None)]
        annotation = others[0] if len(others) == 1 else None
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is not tuple or len(arguments) != 2:
        return None, None
    return serde_of_annotation(arguments[0], is_key=True), serde_of_annotation(arguments[1])


def serde_of_annotation(annotation: Any, *, is_key: bool = False) -> Serde | None:
    """Return the serde selected by the type `annotation` of keys or values, or None."""
    serde = None if annotation is None else serde_of_type(annotation)
    return None if serde is None else AnnotatedSerde(serde, is_key=is_key)


def result_of(function: Callable[..., Any]) -> Any:
    """Return the return annotation of `function`, or None if it is missing or unreadable.

    A class returns its own instances.
    """
    if isinstance(function, type):
        return function
    try:
        return typing.get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):  # a name that exists only for type checkers, or not a function
        return None


def argument_of(function: Callable[..., Any]) -> Any:
    """Return the annotation of the first parameter of `function`, or None if it is missing or unreadable."""
    signature = signature_of(function)
    first = None if signature is None else next(iter(signature.parameters), None)
    try:
        return None if first is None else typing.get_type_hints(function).get(first)
    except (NameError, TypeError, AttributeError):  # a name that exists only for type checkers, or not a function
        return None
