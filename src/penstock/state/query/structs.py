"""Columns of structs for objects of classes, with field types from annotations.

This module does not import Spark. Fields have the names of the objects' JSON form. A field without a table type, such
as a union or a class that contains itself, is JSON text.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pyarrow as pa

from penstock.serdes.objects import field_names

Convert = Callable[[Any], Any]


class ColumnType(NamedTuple):
    """A type in Spark's DDL and in Arrow, with the conversion to Arrow's form.

    The conversion receives an object, never None.
    """

    ddl: str
    type: pa.DataType
    convert: Convert


def struct_of(kind: Any) -> ColumnType | None:
    """Return the type for objects of a record class, or None for any other class."""
    return _struct(kind, ()) if isinstance(kind, type) else None


def _unchanged(value: Any) -> Any:
    return value


def _utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _text(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


_TEXT = ColumnType("string", pa.string(), _text)
_PLAIN: Mapping[Any, ColumnType] = {
    str: ColumnType("string", pa.string(), str),
    int: ColumnType("bigint", pa.int64(), _unchanged),
    float: ColumnType("double", pa.float64(), _unchanged),
    bool: ColumnType("boolean", pa.bool_(), _unchanged),
    bytes: ColumnType("binary", pa.binary(), _unchanged),
    UUID: ColumnType("string", pa.string(), str),
    datetime: ColumnType("timestamp", pa.timestamp("us", tz="UTC"), _utc),
    date: ColumnType("date", pa.date32(), _unchanged),
}


def _column_type(kind: Any, outer: tuple[Any, ...]) -> ColumnType:
    if isinstance(kind, type) and kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        others = [each for each in arguments if each is not type(None)]
        return _column_type(others[0], outer) if len(others) == 1 else _TEXT
    if origin in (list, set, frozenset) or (origin is tuple and arguments[1:] == (...,)):
        return _list(_column_type(arguments[0], outer))
    if origin is dict and arguments[0] is str:
        return _map(_column_type(arguments[1], outer))
    if isinstance(kind, type) and issubclass(kind, Enum):
        texts = all(isinstance(each.value, str) for each in kind)
        return ColumnType("string", pa.string(), lambda each: each.value) if texts else _TEXT
    return (_struct(kind, outer) if isinstance(kind, type) and kind not in outer else None) or _TEXT


def _struct(kind: type, outer: tuple[Any, ...]) -> ColumnType | None:
    names = field_names(kind)
    if not names:
        return None
    hints = typing.get_type_hints(kind)
    fields = {field: _column_type(hints[field], (*outer, kind)) for field in names}
    converters = [(field, name, fields[field].convert) for field, name in names.items()]

    def convert(value: Any) -> dict[str, Any]:
        return {name: _unless_none(make, getattr(value, field)) for field, name, make in converters}

    ddl = ", ".join(f"`{names[field].replace('`', '``')}`: {each.ddl}" for field, each in fields.items())
    type_ = pa.struct([(names[field], each.type) for field, each in fields.items()])
    return ColumnType(f"struct<{ddl}>", type_, convert)


def _list(part: ColumnType) -> ColumnType:
    return ColumnType(
        f"array<{part.ddl}>", pa.list_(part.type), lambda value: [_unless_none(part.convert, each) for each in value]
    )


def _map(part: ColumnType) -> ColumnType:
    return ColumnType(
        f"map<string, {part.ddl}>",
        pa.map_(pa.string(), part.type),
        lambda value: [(name, _unless_none(part.convert, each)) for name, each in value.items()],
    )


def _unless_none(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)
