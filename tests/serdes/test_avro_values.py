"""What AvroSerde writes, it reads as an equal value, also of unions of several records; the rest is refused."""

from __future__ import annotations

import itertools
import json
import math
from datetime import UTC
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import SerializationError
from penstock.serdes.avro import AvroSerde

_numbers = itertools.count()


class Generated(NamedTuple):
    """A schema, and the values that it has."""

    schema: Any
    values: st.SearchStrategy[Any]


def logical(type_: str, name: str) -> dict[str, str]:
    return {"type": type_, "logicalType": name}


texts = st.text(st.characters(codec="utf-8"), max_size=5)
times = st.datetimes(timezones=st.just(UTC))
PLAIN = [
    Generated("boolean", st.booleans()),
    Generated("int", st.integers(-(2**31), 2**31 - 1)),
    Generated("long", st.integers(-(2**63), 2**63 - 1)),
    Generated("float", st.floats(width=32, allow_nan=False)),
    Generated("double", st.floats(allow_nan=False)),
    Generated("string", texts),
    Generated("bytes", st.binary(max_size=5)),
    Generated(logical("long", "timestamp-micros"), times),
    Generated(
        logical("long", "timestamp-millis"), times.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))
    ),
    Generated(logical("int", "date"), st.dates()),
    Generated(logical("long", "time-micros"), st.times()),
    Generated(logical("string", "uuid"), st.uuids()),
]


@st.composite
def records(draw: st.DrawFn, inner: st.SearchStrategy[Generated]) -> Generated:
    """Few names of fields, so that many records have the same ones."""
    name = draw(st.sampled_from(("", "org.penstock."))) + f"R{next(_numbers)}"
    fields = draw(st.dictionaries(st.sampled_from("ab"), inner, max_size=2))
    schema = {
        "type": "record",
        "name": name,
        "namespace": "",
        "fields": [{"name": each, "type": part.schema} for each, part in fields.items()],
    }
    return Generated(schema, st.fixed_dictionaries({each: part.values for each, part in fields.items()}))


@st.composite
def unions(draw: st.DrawFn, inner: st.SearchStrategy[Generated]) -> Generated:
    branches = draw(st.lists(records(inner), max_size=3))
    has_map = draw(st.booleans())
    several = len(branches) + has_map > 1
    found = [
        Generated(
            each.schema,
            each.values.map(lambda value, name=each.schema["name"]: (name, value)) if several else each.values,
        )
        for each in branches
    ]
    if has_map:
        values = draw(inner)
        found.append(
            Generated({"type": "map", "values": values.schema}, st.dictionaries(texts, values.values, max_size=2))
        )
    found += draw(st.just([]) | st.sampled_from(PLAIN).map(lambda each: [each]))
    found.insert(draw(st.integers(0, len(found))), Generated("null", st.none()))
    return Generated([each.schema for each in found], st.one_of([each.values for each in found]))


def containers(inner: st.SearchStrategy[Generated]) -> st.SearchStrategy[Generated]:
    return st.one_of(
        unions(inner),
        inner.filter(lambda each: isinstance(each.schema, str | dict)).map(
            lambda each: Generated({"type": "array", "items": each.schema}, st.lists(each.values, max_size=2))
        ),
        inner.map(
            lambda each: Generated(
                {"type": "map", "values": each.schema}, st.dictionaries(texts, each.values, max_size=2)
            )
        ),
        records(inner),
    )


@st.composite
def schemas(draw: st.DrawFn) -> Generated:
    value = draw(st.recursive(st.sampled_from(PLAIN), containers, max_leaves=5))
    fields = [{"name": "value", "type": value.schema}, {"name": "number", "type": "int"}]
    schema = {"type": "record", "name": f"R{next(_numbers)}", "fields": fields}
    return Generated(schema, st.fixed_dictionaries({"value": value.values, "number": st.just(7)}))


@settings(max_examples=50)
@given(st.data())
def test_values_of_generated_schemas_come_back(data: st.DataObject) -> None:
    schema, values = data.draw(schemas())
    value = data.draw(values)
    topic = f"t{next(_numbers)}"
    serde: AvroSerde[Any] = AvroSerde("mock://generated", json.dumps(schema))
    written = serde.serialize(topic, value)
    assert serde.deserialize(topic, written) == value
    assert serde.serialize(topic, serde.deserialize(topic, written)) == written
    generic: AvroSerde[Any] = AvroSerde("mock://generated")
    assert generic.deserialize(topic, written) == value
    assert generic.serialize(topic, value) == written


def event(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "id", "type": "string"}, *fields]}


def envelope(*branches: Any) -> str:
    return json.dumps({"type": "record", "name": "Envelope", "fields": [{"name": "event", "type": list(branches)}]})


AT = {"name": "at", "type": ["null", logical("long", "timestamp-micros")], "default": None}
EVENTS = envelope("null", {**event("Created", AT), "namespace": "shop"}, {**event("Deleted", AT), "namespace": "shop"})


def test_a_record_beside_null_has_no_name() -> None:
    serde: AvroSerde[Any] = AvroSerde("mock://nullable", envelope("null", event("Created")))
    value = {"event": {"id": "7"}}
    written = serde.serialize("t", value)
    assert serde.deserialize("t", written) == AvroSerde("mock://nullable").deserialize("t", written) == value


@pytest.mark.parametrize(
    ("branches", "value", "found"),
    [
        ((event("A"), event("B", {"name": "to", "type": "int"})), {"id": "7"}, ("A", {"id": "7"})),
        ((event("A"), event("B", {"name": "to", "type": "int"})), {"id": "7", "to": 1}, ("B", {"id": "7", "to": 1})),
        ((event("A", AT), event("B")), {"id": "7"}, ("B", {"id": "7"})),
        ((event("A"), event("B")), {"-type": "B", "id": "7"}, ("B", {"id": "7"})),
        ((event("A"), {"type": "map", "values": "string"}), {"id": "7"}, {"id": "7"}),
        ((event("A"), {"type": "map", "values": "string"}), ("A", {"id": "7"}), ("A", {"id": "7"})),
        (
            (event("A", {"name": "to", "type": "int"}), event("B", {"name": "to", "type": "string"})),
            {"id": "7", "to": "x"},
            ("B", {"id": "7", "to": "x"}),
        ),
    ],
)
def test_a_dict_is_the_one_record_that_it_fits(branches: Any, value: Any, found: Any) -> None:
    serde: AvroSerde[Any] = AvroSerde(f"mock://fits-{next(_numbers)}", envelope(*branches))
    assert serde.deserialize("t", serde.serialize("t", {"event": value})) == {"event": found}


@pytest.mark.parametrize("schema", [EVENTS, None])
def test_a_dict_that_may_be_several_records_is_refused(schema: str | None) -> None:
    AvroSerde("mock://several", EVENTS).serialize("t", {"event": ("Deleted", {"id": "7"})})
    with pytest.raises(SerializationError, match=r"name one, as in \('shop.Created'"):
        AvroSerde("mock://several", schema).serialize("t", {"event": {"id": "7"}})


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        (logical("long", "timestamp-millis"), 1690451888.453, "takes a datetime, or whole ms since 1970, got float"),
        (
            logical("long", "timestamp-micros"),
            math.nan,
            "takes a datetime, or whole microseconds since 1970, got float",
        ),
        (logical("long", "timestamp-millis"), True, "takes a datetime, or whole ms since 1970, got bool"),
        (logical("long", "timestamp-millis"), 2**60, "takes a datetime, or whole ms since 1970, from"),
        (logical("int", "date"), 1690451888.453, "takes a date, or whole days since 1970, got float"),
        (logical("int", "date"), 2**30, "takes a date, or whole days since 1970, from"),
        (logical("int", "time-millis"), 86_400_000, "takes a time, or whole ms since midnight, from"),
        (["null", logical("long", "timestamp-millis")], 5.5, "takes a datetime, or whole ms since 1970, got float"),
        ("long", 5.7, "takes a whole number of 64 bits, got float 5.7"),
        ("int", 2**31, "takes a whole number of 32 bits, from"),
        ({"type": "array", "items": "int"}, [5.5], "an entry of field f of R takes a whole number"),
        ({"type": "map", "values": "int"}, {"a": True}, "an entry of field f of R takes a whole number"),
        ({"type": "array", "items": "string"}, "abc", "takes a list, got str 'abc'"),
        ({"type": "map", "values": "int"}, [1], "takes a dict, got list"),
        ("boolean", "x", "takes a bool, got str"),
        ("double", True, "takes a float, got bool"),
        ("double", "1.5", "takes a float, got str"),
        ("double", 2**53 + 1, "takes a float, which 9007199254740993 is not exactly"),
        ("float", 1e300, "takes a float of 32 bits"),
        (event("A"), {"id": "7", "ip": "8"}, "A has no field 'ip'"),
        (event("A"), "7", "expected a record A, got str"),
        ([event("A"), event("B")], {"id": "7", "ip": "8"}, "field f of R takes A or B, got dict"),
    ],
)
def test_what_would_not_come_back_is_refused_with_its_field(type_: Any, value: Any, message: str) -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": type_}]})
    with pytest.raises(SerializationError, match=message):
        AvroSerde(f"mock://refused-{next(_numbers)}", schema).serialize("t", {"f": value})


@pytest.mark.parametrize("value", [5, np.int64(5), np.float64(5), np.float32(0.5)])
def test_numbers_that_lose_nothing_are_written(value: Any) -> None:
    serde: AvroSerde[Any] = AvroSerde(
        "mock://numbers", '{"type": "record", "name": "R", "fields": [{"name": "f", "type": "double"}]}'
    )
    assert serde.deserialize("t", serde.serialize("t", {"f": value})) == {"f": value}
