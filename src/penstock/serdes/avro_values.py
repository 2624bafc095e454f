"""Processing of AvroSerde's values before fastavro writes them, and after it has read them.

fastavro writes the first matching record of a union, truncates floats to whole numbers, accepts a text as an array, and
drops fields that a schema does not have. Here a value is checked first, and each record in a union of several carries
the name of its branch: `(name, record)`, the notation of fastavro and of confluent-kafka. A union of one record and
other types needs no names.

A schema becomes one function for values to write and one for read values. Unchanged parts have no function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from functools import cached_property, partial
from numbers import Integral, Number, Real
from types import NoneType
from typing import Any

import msgspec
import numpy as np
from fastavro.schema import parse_schema
from fastavro.validation import validate

from penstock.serdes.objects import field_names

Function = Callable[[Any], Any]

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_FIRST_MS, _LAST_MS = (round(time.replace(tzinfo=UTC).timestamp()) * 1000 for time in (datetime.min, datetime.max))
_WHOLE_NUMBERS: Mapping[str, tuple[int, int, str]] = {
    "int": (-(2**31), 2**31 - 1, "a whole number of 32 bits"),
    "long": (-(2**63), 2**63 - 1, "a whole number of 64 bits"),
    "date": (1 - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY, "a date, or whole days since 1970"),
    "time-millis": (0, 86_400_000 - 1, "a time, or whole ms since midnight"),
    "time-micros": (0, 86_400_000_000 - 1, "a time, or whole microseconds since midnight"),
    "timestamp-millis": (_FIRST_MS, _LAST_MS - 1, "a datetime, or whole ms since 1970"),
    "timestamp-micros": (_FIRST_MS * 1000, _LAST_MS * 1000 - 1, "a datetime, or whole microseconds since 1970"),
}
"""The smallest and largest readable number of a type, and the accepted type."""


_LARGEST_FLOAT = float(np.finfo(np.float32).max)
_NAMED = ("record", "enum", "fixed")
_UNTOUCHED: Mapping[str, type] = {"double": float, "boolean": bool, "string": str, "bytes": bytes}
"""The type with values that are all written unchanged, by kind of schema."""


class AvroSchema:
    """A schema, and the functions for its values.

    Args:
        text: the schema, as JSON.
        known: the definitions that it may refer to, by name.
    """

    def __init__(self, text: str, known: Mapping[str, Any] | None = None) -> None:
        self._names: dict[str, Any] = dict(known or {})
        root = msgspec.json.decode(text)
        self._root = parse_schema(root, self._names)
        self._writers: dict[str, Function] = {}
        self._readers: dict[str, Function] = {}
        parts = [part for each in (self._root, *self._names.values()) for part in _parts_of(each)]
        unions = [each for each in parts if isinstance(each, list)]
        self.has_choices = any(map(self._is_choice, unions))
        """Whether a record in one of its unions needs the name of its branch."""
        self.has_named_unions = any(self._kind(each) in _NAMED for union in unions for each in union)
        """Whether a union has a named branch, which fastavro may read with its value."""
        self.has_container_defaults = any(
            isinstance(each, dict) and isinstance(each.get("default"), list | dict) for each in parts
        )
        """Whether a default is a list or a dict: fastavro shares one object among all records."""

    @property
    def root(self) -> Any:
        """The parsed schema, for fastavro."""
        return self._root

    @property
    def names(self) -> Mapping[str, Any]:
        """The definitions of the schema by full name."""
        return self._names

    @cached_property
    def write(self) -> Function:
        """The function for values to write.

        It raises TypeError or ValueError for a value that would not be read back as an equal one.
        """
        return self._writer_of(self._root, "the value") or _unchanged

    @cached_property
    def read(self) -> Function:
        """The function for values that were read with the names of records."""
        return (self._reader_of(self._root) if self.has_named_unions else None) or _unchanged

    def _definition(self, schema: Any) -> Any:
        return self._names.get(schema, schema) if isinstance(schema, str) else schema

    def _kind(self, schema: Any) -> Any:
        definition = self._definition(schema)
        if isinstance(definition, list):
            return "union"
        return definition["type"] if isinstance(definition, dict) else definition

    def _is_choice(self, union: list[Any]) -> bool:
        """Return whether a dict in a union matches several branches."""
        return sum(self._kind(each) in ("record", "map") for each in union) > 1

    def _records(self, union: list[Any]) -> dict[str, Any]:
        return {each["name"]: each for each in map(self._definition, union) if self._kind(each) == "record"}

    def _branch(self, union: list[Any], kind: str) -> Any:
        return next((each for each in union if self._kind(each) == kind), None)

    def _writer_of(self, schema: Any, where: str) -> Function | None:
        definition = self._definition(schema)
        kind = self._kind(definition)
        match kind:
            case "union":
                return self._writer_of_union(definition, where)
            case "record":
                return self._writer_of_record(definition)
            case "array":
                return partial(_write_array, where, self._writer_of(definition["items"], f"an entry of {where}"))
            case "map":
                return partial(_write_map, where, self._writer_of(definition["values"], f"an entry of {where}"))
            case "int" | "long":
                logical = definition.get("logicalType", "") if isinstance(definition, dict) else ""
                limits = _WHOLE_NUMBERS.get(logical.removeprefix("local-"), _WHOLE_NUMBERS[kind])
                return partial(_write_whole_number, where, limits)
            case "float" | "double":
                return partial(_write_float, where, _LARGEST_FLOAT if kind == "float" else math.inf)
            case "boolean":
                return partial(_write_boolean, where)
            case dict() | list():
                return self._writer_of(kind, where)
            case _:
                return None

    def _untouched(self, schema: Any) -> type:
        """Return the type with values that the schema's writer returns unchanged.

        If there is no other, returns NoneType, since None is always unchanged.
        """
        definition = self._definition(schema)
        kind = self._kind(definition)
        if kind == "union":
            not_null = [each for each in definition if self._kind(each) != "null"]
            return self._untouched(not_null[0]) if len(not_null) == 1 else NoneType
        return _UNTOUCHED.get(kind, NoneType) if isinstance(kind, str) else self._untouched(kind)

    def _writer_of_record(self, record: Any) -> Function:
        name = record["name"]
        if name not in self._writers:
            fields: list[tuple[str, type, Function]] = []  # filled below, since a record may contain itself
            known = frozenset(field["name"] for field in record["fields"])
            self._writers[name] = partial(_write_record, name, known, fields)
            for field in record["fields"]:
                write = self._writer_of(field["type"], f"field {field['name']} of {name}")
                if write is not None:
                    fields.append((field["name"], self._untouched(field["type"]), write))
        return self._writers[name]

    def _writer_of_union(self, union: list[Any], where: str) -> Function:
        records = {name: self._writer_of_record(record) for name, record in self._records(union).items()}
        array, map_ = self._branch(union, "array"), self._branch(union, "map")
        write_array = None if array is None else self._writer_of(array, where)
        write_map = None if map_ is None else self._writer_of(map_, where)
        not_null = [each for each in union if self._kind(each) != "null"]
        # Among several types, fastavro chooses the first for which a value is valid.
        write_other = self._writer_of(not_null[0], where) if len(not_null) == 1 else None
        is_choice = self._is_choice(union)

        def write(value: Any) -> Any:
            if value is None:
                return None
            if _is_named(value):
                name = self._named(value[0], records)
                return (name, records[name](value[1])) if name in records else value
            if isinstance(value, Mapping) or field_names(type(value)) is not None:
                chosen = self._chosen(value, union, where)
                if chosen is None:
                    return value if write_map is None else write_map(value)
                return (chosen, records[chosen](value)) if is_choice else records[chosen](value)
            if write_array is not None and isinstance(value, list | tuple | set | frozenset):
                return write_array(value)
            return value if write_other is None else write_other(value)

        return write

    def _named(self, name: str, records: Mapping[str, Any]) -> str:
        """Return a record's full name; `name` may be its last part, as in dataclasses."""
        full = [each for each in records if each == name or each.rpartition(".")[2] == name]
        return full[0] if len(full) == 1 else name

    def _chosen(self, value: Any, union: list[Any], where: str) -> str | None:
        """Return the record name of a dict or object in a union; None for maps."""
        records = self._records(union)
        if not records:
            return None
        if not isinstance(value, Mapping):
            name = self._named(type(value).__name__, records)
            if name in records or len(records) == 1:
                return name if name in records else next(iter(records))
            raise TypeError(f"{where} takes {_listed(records)}, got {_shown(value)}")
        if "-type" in value:
            return self._named(value["-type"], records)
        if not self._is_choice(union):
            return next(iter(records))
        map_ = self._branch(union, "map")
        if map_ is not None and self._is_valid(value, map_):
            return None
        fitting = [name for name, record in records.items() if _has_fields_of(value, record)]
        complete = [name for name in fitting if len(records[name]["fields"]) == len(value)] or fitting
        found = complete if len(complete) == 1 else [name for name in complete if self._is_valid(value, records[name])]
        if len(found) == 1:
            return found[0]
        if not found:
            raise ValueError(f"{where} takes {_listed(records)}, got {_shown(value)}")
        raise ValueError(f"{where} may be {_listed(found)}: name one, as in ({found[0]!r}, {value!r:.100})")

    def _is_valid(self, value: Any, schema: Any) -> bool:
        return bool(validate(value, self._standalone(schema, set()), raise_errors=False))

    def _standalone(self, schema: Any, defined: set[str]) -> Any:
        """Return a schema that includes the definitions of its names."""
        if isinstance(schema, list):
            return [self._standalone(each, defined) for each in schema]
        definition = schema if isinstance(schema, str) and schema in defined else self._definition(schema)
        if not isinstance(definition, dict):
            return definition
        if "name" in definition:
            defined.add(definition["name"])
        whole = {name: part for name, part in definition.items() if not name.startswith("__")}
        for name in {"items", "values"} & whole.keys():
            whole[name] = self._standalone(whole[name], defined)
        if "fields" in whole:
            whole["fields"] = [{**each, "type": self._standalone(each["type"], defined)} for each in whole["fields"]]
        return whole

    def _reader_of(self, schema: Any) -> Function | None:
        definition = self._definition(schema)
        match self._kind(definition):
            case "union":
                return self._reader_of_union(definition)
            case "record":
                return self._reader_of_record(definition)
            case "array":
                read = self._reader_of(definition["items"])
                return None if read is None else partial(_read_array, read)
            case "map":
                read = self._reader_of(definition["values"])
                return None if read is None else partial(_read_map, read)
            case "enum" | "fixed":
                return _without_name
            case _:
                return None

    def _reader_of_record(self, record: Any) -> Function:
        name = record["name"]
        if name not in self._readers:
            fields: dict[str, Function] = {}  # filled below, since a record may contain itself
            self._readers[name] = partial(_read_record, fields)
            for field in record["fields"]:
                read = self._reader_of(field["type"])
                if read is not None:
                    fields[field["name"]] = read
        return self._readers[name]

    def _reader_of_union(self, union: list[Any]) -> Function:
        definitions = self._records(union)
        records = {name: self._reader_of_record(record) for name, record in definitions.items()}
        array, map_ = self._branch(union, "array"), self._branch(union, "map")
        read_array = None if array is None else self._reader_of(array)
        read_map = None if map_ is None else self._reader_of(map_)
        is_choice = self._is_choice(union)

        def read(value: Any) -> Any:
            if isinstance(value, tuple):
                name, inner = value
                found = records[name](inner) if name in records else inner
                return (name, found) if is_choice and name in records else found
            if isinstance(value, list):
                return value if read_array is None else read_array(value)
            if not isinstance(value, dict):
                return value
            if map_ is not None:
                return value if read_map is None else read_map(value)
            # A default, or written without a union: the record's name is unknown.
            fitting = [name for name, record in definitions.items() if _has_fields_of(value, record)]
            if len(fitting) != 1:
                return value
            found = records[fitting[0]](value)
            return (fitting[0], found) if is_choice else found

        return read


def _parts_of(schema: Any) -> Iterator[Any]:
    """Yield a schema and all nested schemas, without those referred to by name."""
    yield schema
    parts = schema if isinstance(schema, list) else ()
    if isinstance(schema, dict):
        inner = [schema.get(name) for name in ("type", "items", "values")]
        parts = [*inner, *schema.get("fields", ())]
    for part in parts:
        if isinstance(part, list | dict):
            yield from _parts_of(part)


def _has_fields_of(value: Mapping[str, Any], record: Any) -> bool:
    fields = {each["name"] for each in record["fields"]}
    needed = {each["name"] for each in record["fields"] if "default" not in each and "null" not in each["type"]}
    return needed <= value.keys() <= fields


def _write_record(name: str, known: frozenset[str], fields: list[tuple[str, type, Function]], value: Any) -> Any:
    record = _as_dict(value)
    if record is None:
        raise TypeError(f"expected a record {name}, got {_shown(value)}")
    if not record.keys() <= known:
        lost = [field for field in record if field not in known and record[field] is not None and field != "-type"]
        if lost:
            raise ValueError(f"{name} has no field {lost[0]!r}, got {_shown(value)}")
    changed = {}
    for field, untouched, write in fields:
        part = record.get(field)
        if part is not None and type(part) is not untouched:
            written = write(part)
            if written is not part:
                changed[field] = written
    return {**record, **changed} if changed else record


def _as_dict(value: Any) -> Mapping[str, Any] | None:
    """Return a dict, or the fields of an object, or None for any other value."""
    if type(value) is dict:
        return value
    names = field_names(type(value))
    if names is not None:
        return {written: getattr(value, field) for field, written in names.items()}
    return value if isinstance(value, Mapping) else None


def _write_array(where: str, write: Function | None, value: Any) -> Any:
    if type(value) is not list and isinstance(value, str | bytes | bytearray | Mapping):
        raise TypeError(f"{where} takes a list, got {_shown(value)}")
    return value if write is None else list(map(write, value))


def _write_map(where: str, write: Function | None, value: Any) -> Any:
    entries = _as_dict(value)
    if entries is None:
        raise TypeError(f"{where} takes a dict, got {_shown(value)}")
    return entries if write is None else {name: write(part) for name, part in entries.items()}


def _write_whole_number(where: str, limits: tuple[int, int, str], value: Any) -> Any:
    least, largest, taken = limits
    if type(value) is int and least <= value <= largest:
        return value
    if isinstance(value, bool) or (isinstance(value, Number) and not isinstance(value, Integral)):
        raise TypeError(f"{where} takes {taken}, got {_shown(value)}")
    if isinstance(value, Integral) and not least <= int(value) <= largest:
        raise ValueError(f"{where} takes {taken}, from {least} to {largest}, got {value}")
    return value  # a datetime or similar, or a type that fastavro rejects


def _write_float(where: str, largest: float, value: Any) -> Any:
    if type(value) is not float:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{where} takes a float, got {_shown(value)}")
        if float(value) != value == value:
            raise ValueError(f"{where} takes a float, which {value} is not exactly")
    if abs(value) > largest and math.isfinite(value):
        raise ValueError(f"{where} takes a float of 32 bits, got {value}")
    return value


def _write_boolean(where: str, value: Any) -> Any:
    if not isinstance(value, bool):
        raise TypeError(f"{where} takes a bool, got {_shown(value)}")
    return value


def _read_record(fields: Mapping[str, Function], value: Any) -> Any:
    record = _without_name(value)
    for field, read in fields.items():
        if field in record:
            record[field] = read(record[field])
    return record


def _read_array(read: Function, value: Any) -> Any:
    return list(map(read, value))


def _read_map(read: Function, value: Any) -> Any:
    return {name: read(part) for name, part in value.items()}


def _without_name(value: Any) -> Any:
    return value[1] if isinstance(value, tuple) else value


def _is_named(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2 and isinstance(value[0], str)


def _unchanged(value: Any) -> Any:
    return value


def _listed(names: Any) -> str:
    return " or ".join(names)


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.100}"
