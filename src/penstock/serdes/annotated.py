"""The serdes that annotations choose: the return type of `mapper`, or the type parameters of a processor, select the
serde if the operator and the configuration name none.

Rules: only types with one built-in serde choose one (`serde_of_type`); a default of the configuration goes before, so
that an annotation never changes what a program writes that runs without it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any

from penstock.record import Headers
from penstock.serdes.api import Serde
from penstock.serdes.factory import serde_of_type


class AnnotatedSerde(Serde[Any]):
    """Stands for the default serde of keys or of values until a task knows the configuration."""

    def __init__(self, serde: Serde, *, is_key: bool) -> None:
        """Use `serde` where there is no default; is_key: it is for keys."""
        self._serde = serde
        self._is_key = is_key

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde:
        """Return the default, or the serde of the annotation if there is none."""
        default = key_serde if self._is_key else value_serde
        return self._serde if default is None else default.with_defaults(key_serde, value_serde)

    @property
    def uses_headers(self) -> bool:
        """Whether the serde of the annotation uses the headers."""
        return self._serde.uses_headers

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return `value` as the serde of the annotation writes it."""
        return self._serde.serialize(topic, value, headers)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Return what the serde of the annotation reads."""
        return self._serde.deserialize(topic, data, headers)


def serde_of_result(function: Callable[..., Any], *, is_key: bool = False) -> Serde | None:
    """Return the serde of what `function` returns as its annotation says it, None if that chooses none."""
    return serde_of_annotation(_result(function), is_key=is_key)


def serde_of_aggregate(initializer: Callable[..., Any], *aggregators: Callable[..., Any]) -> Serde | None:
    """Return the serde of an aggregate as the annotation of the first of `aggregators` that chooses one says it, else
    that of `initializer`; None if none does."""
    return next(filter(None, map(serde_of_result, (*aggregators, initializer))), None)


def serde_of_items(function: Callable[..., Any]) -> Serde | None:
    """Return the serde of the values of the iterable that `function` returns, None if its annotation chooses none."""
    arguments = typing.get_args(_result(function))
    return serde_of_annotation(arguments[0]) if len(arguments) == 1 else None


def serdes_of_pair(function: Callable[..., Any]) -> tuple[Serde | None, Serde | None]:
    """Return the serdes of the (key, value) that `function` returns, each None if its annotation chooses none."""
    return _pair(_result(function))


def serdes_of_pairs(function: Callable[..., Any]) -> tuple[Serde | None, Serde | None]:
    """Return the serdes of the pairs (key, value) of the iterable that `function` returns, each None if its annotation
    chooses none."""
    arguments = typing.get_args(_result(function))
    return _pair(arguments[0]) if len(arguments) == 1 else (None, None)


def _pair(annotation: Any) -> tuple[Serde | None, Serde | None]:
    """Return the serdes of a pair as `tuple[K, V]`, or `tuple[K, V] | None`, says them."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        others = [argument for argument in typing.get_args(annotation) if argument is not type(None)]
        annotation = others[0] if len(others) == 1 else None
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is not tuple or len(arguments) != 2:
        return None, None
    return serde_of_annotation(arguments[0], is_key=True), serde_of_annotation(arguments[1])


def serde_of_annotation(annotation: Any, *, is_key: bool = False) -> Serde | None:
    """Return the serde of keys or values of the type `annotation`, None if it chooses none."""
    serde = None if annotation is None else serde_of_type(annotation)
    return None if serde is None else AnnotatedSerde(serde, is_key=is_key)


def _result(function: Callable[..., Any]) -> Any:
    """Return the annotation of what `function` returns, None if there is none or it cannot be read; a class returns its
    own objects."""
    if isinstance(function, type):
        return function
    try:
        return typing.get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):  # a name that exists for type checkers only, or no function at all
        return None
