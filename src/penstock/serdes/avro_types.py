"""The classes of objects that Avro's serdes read and write, if msgspec alone is not enough.

These are pydantic models, and unions of several classes, whose records carry class names (serdes/avro_values.py).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from penstock.serdes.avro_values import AvroSchema
from penstock.serdes.objects import check_readable, field_names, is_model, name_of

_NATIVE = (bytes, datetime, date, time, Decimal, UUID)
"""Types that Avro's logical types accept unchanged."""

_UNIONS = (typing.Union, types.UnionType)


def has_choices(type_: Any) -> bool:
    """Return whether a type contains a union of several record classes."""
    return _known_choices(type_)


def check_type(type_: Any) -> None:
    """Raise TypeError for a type with objects that AvroSerde cannot read."""
    if not is_model(type_) and not has_choices(type_):
        check_readable(type_, "AvroSerde")


def converter(type_: Any) -> Callable[[Any], Any]:
    """Return the function from read records to objects of `type_`."""
    if has_choices(type_):
        return lambda value: _made(type_, value)
    if is_model(type_):
        validate: Callable[[Any], Any] = type_.model_validate
        return validate
    return lambda value: msgspec.convert(value, type_)


def writer(type_: Any, schema: AvroSchema | None) -> Callable[[Any], Any]:
    """Return the function from a value to fastavro's input."""
    check = _unchanged if schema is None else schema.write
    if type_ is None:
        return check
    if is_model(type_) or has_choices(type_) or (schema is not None and schema.has_choices):
        # msgspec does not support models, and in a union an object's class determines its branch.
        return lambda value: msgspec.to_builtins(check(value), builtin_types=_NATIVE)
    return lambda value: check(msgspec.to_builtins(value, builtin_types=_NATIVE))


@lru_cache(maxsize=1024)
def _known_choices(type_: Any) -> bool:
    return _has_choices(type_, set())


def _has_choices(type_: Any, seen: set[Any]) -> bool:
    arguments = typing.get_args(type_)
    if typing.get_origin(type_) in _UNIONS and sum(map(_is_class_of_records, arguments)) > 1:
        return True
    inner: tuple[Any, ...] = tuple(each for each in arguments if each is not Ellipsis)
    if _is_class_of_records(type_) and type_ not in seen:
        seen.add(type_)
        inner = tuple(_hints(type_).values())
    return any(_has_choices(each, seen) for each in inner)


@lru_cache(maxsize=1024)
def _hints(type_: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(type_)


def _is_class_of_records(type_: Any) -> bool:
    return isinstance(type_, type) and field_names(type_) is not None


def _made(type_: Any, value: Any) -> Any:
    if not has_choices(type_):
        return converter(type_)(value)
    arguments = typing.get_args(type_)
    match typing.get_origin(type_):
        case typing.Union | types.UnionType:
            return _made_of_union(arguments, value)
        case None:
            return _made_object(type_, value)
        case origin if issubclass(origin, Mapping):
            return {name: _made(arguments[1], part) for name, part in value.items()}
        case origin if issubclass(origin, tuple) and Ellipsis not in arguments:
            return tuple(map(_made, arguments, value))
        case origin:
            make = origin if issubclass(origin, list | tuple | set | frozenset) else list
            return make(_made(arguments[0], part) for part in value)


def _made_of_union(arguments: tuple[Any, ...], value: Any) -> Any:
    if value is None:
        return None
    classes = [each for each in arguments if _is_class_of_records(each)]
    others = tuple(each for each in arguments if each not in classes and each is not type(None))
    if isinstance(value, tuple):
        name, fields = value
        named = [each for each in classes if each.__name__ == name.rpartition(".")[2]]
        if len(named) == 1:
            return _made(named[0], fields)
    elif isinstance(value, Mapping) and len(classes) == 1:
        return _made(classes[0], value)
    elif others:
        return _made(typing.Union[others], value)  # noqa: UP007  # the types are in a tuple
    expected = " or ".join(map(name_of, arguments))
    raise ValueError(f"expected {expected}, got {value!r:.100}")


def _made_object(type_: Any, value: Any) -> Any:
    hints, fields = _hints(type_), {}
    for field, name in (field_names(type_) or {}).items():
        if name in value:
            fields[name if is_model(type_) else field] = _made(hints[field], value[name])
    return type_.model_validate(fields) if is_model(type_) else type_(**fields)


def _unchanged(value: Any) -> Any:
    return value
