"""The types of Arrow for classes: dataclasses, msgspec structs, typed dicts, pydantic models and their fields."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import inspect

from penstock.errors import StreamsError
from penstock.serdes.objects import field_names, is_model, name_of

_SCALARS: Final[Mapping[type[inspect.Type], pa.DataType]] = {
    inspect.BoolType: pa.bool_(),
    inspect.BytesType: pa.binary(),
    inspect.DateType: pa.date32(),
    inspect.DateTimeType: pa.timestamp("us", tz="UTC"),
    inspect.DecimalType: pa.decimal128(38, 18),
    inspect.FloatType: pa.float64(),
    inspect.IntType: pa.int64(),
    inspect.StrType: pa.string(),
    inspect.TimeType: pa.time64("us"),
    inspect.UUIDType: pa.string(),
}


def type_of_class(kind: Any) -> pa.DataType:
    """Return the type of Arrow for the objects of `kind`.

    Raises StreamsError for a part without such a type, such as a union of several classes.
    """
    return _type(inspect.type_info(kind), name_of(kind), ())


def omits_fields(kind: Any) -> bool:
    """Return whether msgspec leaves fields or their names out of some objects in `kind`, by options of their classes.

    `kind` has a type of Arrow.
    """
    structs = [info.cls for info in _parts(inspect.type_info(kind)) if isinstance(info, inspect.StructType)]
    return any(cls.__struct_config__.omit_defaults or cls.__struct_config__.array_like for cls in structs)


def with_all_fields(value: Any) -> Any:
    """Return an object with dicts of all their fields in place of structs and dataclasses."""
    match value:
        case msgspec.Struct():
            names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
            return {encoded: with_all_fields(getattr(value, name)) for encoded, name in names}
        case dict():
            return {key: with_all_fields(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [with_all_fields(each) for each in value]
        case msgspec.UnsetType():
            return None
        case _ if dataclasses.is_dataclass(value):
            return {each.name: with_all_fields(getattr(value, each.name)) for each in dataclasses.fields(value)}
        case _:
            return value


def _parts(info: inspect.Type) -> Iterator[inspect.Type]:
    yield info
    match info:
        case inspect.UnionType(types=types):
            inner = types
        case inspect.CollectionType(item_type=item) | inspect.VarTupleType(item_type=item):
            inner = (item,)
        case inspect.DictType(key_type=key, value_type=value):
            inner = (key, value)
        case inspect.DataclassType() | inspect.StructType() | inspect.TypedDictType():
            inner = tuple(field.type for field in info.fields)
        case _:
            inner = ()
    for each in inner:
        yield from _parts(each)


def _type(info: inspect.Type, where: str, outer: tuple[Any, ...]) -> pa.DataType:
    match info:
        case inspect.UnionType(types=types) if len(parts := _not_none(types)) == 1:
            return _type(parts[0], where, outer)
        case inspect.EnumType(cls=cls):
            return _scalar({type(member.value) for member in cls}, where)
        case inspect.LiteralType(values=values):
            return _scalar({type(value) for value in values}, where)
        case inspect.CollectionType(item_type=item) | inspect.VarTupleType(item_type=item):
            return pa.list_(_type(item, f"{where}[]", outer))
        case inspect.DictType(key_type=key, value_type=value):
            return pa.map_(_type(key, f"{where} (key)", outer), _type(value, f"{where} (value)", outer))
        case inspect.DataclassType(cls=cls) | inspect.StructType(cls=cls) | inspect.TypedDictType(cls=cls):
            fields = {field.encode_name: field.type for field in info.fields}
            return _record(cls, fields, where, outer)
        case inspect.CustomType(cls=cls) if is_model(cls):
            hints = typing.get_type_hints(cls)
            fields = {name: inspect.type_info(hints[name]) for name in field_names(cls) or ()}
            return _record(cls, fields, where, outer)
    if type(info) not in _SCALARS:
        raise _without_column(where, type(info).__name__.removesuffix("Type"))
    return _SCALARS[type(info)]


def _record(cls: type, fields: Mapping[str, inspect.Type], where: str, outer: tuple[Any, ...]) -> pa.DataType:
    if cls in outer:
        raise StreamsError(f"{where} contains itself: a column has a fixed depth.")
    return pa.struct([(name, _type(info, f"{where}.{name}", (*outer, cls))) for name, info in fields.items()])


def _not_none(types: Collection[inspect.Type]) -> list[inspect.Type]:
    return [each for each in types if not isinstance(each, inspect.NoneType)]


def _scalar(kinds: Collection[type], where: str) -> pa.DataType:
    """Return the type of a column for the values of an enum or a Literal."""
    if set(kinds) == {str}:
        return pa.string()
    if set(kinds) == {int}:
        return pa.int64()
    raise _without_column(where, " | ".join(sorted(kind.__name__ for kind in kinds)))


def _without_column(where: str, kind: str) -> StreamsError:
    return StreamsError(
        f"{where} has no type of a column: {kind}. A column has one type, with or without None; map the value to an "
        "object whose fields have such types."
    )
