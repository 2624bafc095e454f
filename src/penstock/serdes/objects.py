"""Fields and JSON names of record classes: dataclasses, msgspec structs, pydantic models.

Pydantic is not imported here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol, Self, runtime_checkable

import msgspec


@runtime_checkable
class JsonModel(Protocol):
    """The required methods of a pydantic model."""

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> Self:
        """Return the model from JSON; raises ValueError for invalid data."""
        ...

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """Return the model from the fields of `obj`; raises ValueError for invalid data."""
        ...

    def model_dump(self, *, by_alias: bool, round_trip: bool) -> dict[str, Any]:
        """Return the fields of the model and of nested models."""
        ...

    def model_dump_json(self, *, by_alias: bool, round_trip: bool) -> str:
        """Return the model as JSON."""
        ...


def is_model(type_: Any) -> bool:
    """Return whether `type_` is a class of pydantic models."""
    return isinstance(type_, type) and issubclass(type_, JsonModel)


def field_names(kind: Any) -> Mapping[str, str] | None:
    """Return the written names of a record class's fields by field; None for other classes."""
    return _field_names(kind)  # type checkers do not accept a class as the hashable argument of a cache


@lru_cache(maxsize=1024)
def _field_names(kind: Any) -> Mapping[str, str] | None:
    if issubclass(kind, msgspec.Struct):
        return dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    if issubclass(kind, JsonModel):
        by_alias = is_written_by_alias(kind)
        fields = _model_fields(kind).items()
        return {name: (by_alias and field.serialization_alias) or name for name, field in fields}
    return {each.name: each.name for each in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else None


def is_written_by_alias(model: type) -> bool:
    """Return whether a model is written by alias: a write-only alias would not be read."""
    fields = _model_fields(model).values()
    return all(each.serialization_alias in (None, each.validation_alias) for each in fields)


def check_readable(type_: Any, serde: str) -> list[msgspec.inspect.Type]:
    """Return the types within a type; raises TypeError for a type that msgspec cannot read.

    serde: the call of the serde, for the error.
    """
    if isinstance(type_, str):
        raise TypeError(f"{serde} expects a class, not its name: write {serde.partition('(')[0]}({type_}).")
    parts = list(_parts_of(msgspec.inspect.type_info(type_)))
    for part in parts:
        if isinstance(part, msgspec.inspect.CustomType):
            raise TypeError(
                f"{serde} cannot read a {name_of(part.cls)}: name a dict, a list or a dataclass in its place."
            )
    return parts


def name_of(type_: Any) -> str:
    """Return the name of a type in messages."""
    return getattr(type_, "__name__", None) or repr(type_)


def _model_fields(model: Any) -> Mapping[str, Any]:
    """Return the fields of a pydantic model; their types are unavailable without importing pydantic."""
    fields: Mapping[str, Any] = model.model_fields
    return fields


def _parts_of(info: Any, seen: set[int] | None = None) -> Iterator[msgspec.inspect.Type]:
    """Yield a type and all types within it, each once: types may refer to themselves."""
    seen = set() if seen is None else seen
    if isinstance(info, tuple):
        for each in info:
            yield from _parts_of(each, seen)
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) and id(info) not in seen:
        seen.add(id(info))
        if isinstance(info, msgspec.inspect.Type):
            yield info
        for name in info.__struct_fields__:
            yield from _parts_of(getattr(info, name), seen)
