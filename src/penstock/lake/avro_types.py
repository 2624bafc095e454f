"""The types of Arrow for Avro schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from penstock.errors import StreamsError

_PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
    "double": pa.float64(),
    "enum": pa.string(),
    "fixed": pa.binary(),
    "float": pa.float32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
}
_LOGICAL: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-millis": pa.timestamp("us"),
    "time-micros": pa.time64("us"),
    "time-millis": pa.time64("us"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "uuid": pa.string(),
}


def type_of_avro(schema: str) -> pa.DataType:
    """Return the type of Arrow for the objects of an Avro schema (JSON).

    Raises StreamsError for a part without such a type, such as a union of several types.
    """
    return _AvroTypes({}).type_of(json.loads(schema), "the value")


class _AvroTypes:
    """The types of one schema.

    Args:
        named: the finished definitions by their full names.
    """

    def __init__(self, named: dict[str, pa.DataType]) -> None:
        self._named = named

    def type_of(self, schema: Any, where: str, namespace: str = "") -> pa.DataType:
        match schema:
            case [*types] if len(parts := [each for each in types if each != "null"]) == 1:
                return self.type_of(parts[0], where, namespace)
            case {"logicalType": "decimal", "precision": int(precision)}:
                return pa.decimal128(precision, schema.get("scale", 0))
            case {"logicalType": str(name)} if name in _LOGICAL:
                return _LOGICAL[name]
            case {"type": "record", "name": str(name), "fields": [*fields]}:
                full = _full_name(name, schema.get("namespace", namespace))
                return self._named.setdefault(full, self._record(fields, where, full.rpartition(".")[0]))
            case {"type": "enum" | "fixed" as kind, "name": str(name)}:
                full = _full_name(name, schema.get("namespace", namespace))
                return self._named.setdefault(full, _PRIMITIVES[kind])
            case {"type": "array", "items": items}:
                return pa.list_(self.type_of(items, f"{where}[]", namespace))
            case {"type": "map", "values": values}:
                return pa.map_(pa.string(), self.type_of(values, f"{where} (value)", namespace))
            case {"type": inner}:
                return self.type_of(inner, where, namespace)
            case str(name) if name in _PRIMITIVES:
                return _PRIMITIVES[name]
            case str(name) if _full_name(name, namespace) in self._named:
                return self._named[_full_name(name, namespace)]
        raise StreamsError(
            f"{where} has no type of a column: {json.dumps(schema)}. A column has one type, with or without null, and "
            "no record that contains itself; map the value to another one."
        )

    def _record(self, fields: list[Any], where: str, namespace: str) -> pa.DataType:
        types = {field["name"]: self.type_of(field["type"], f"{where}.{field['name']}", namespace) for field in fields}
        return pa.struct(list(types.items()))


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
