"""The fields of record classes and schemas."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import BaseModel, Field

from penstock import Serde, Serdes
from penstock.serdes.annotated import serde_of_annotation
from penstock.serdes.avro import AvroSerde
from penstock.serdes.fields import fields_of, fields_of_class
from penstock.serdes.json_schema import JsonSchemaSerde
from penstock.serdes.protobuf import ProtobufSerde


@dataclass
class Address:
    city: str


@dataclass
class Order:
    number: int
    at: datetime
    notes: list[str] | None
    ship_to: Address
    kind: Literal["new", "old"]
    prices: dict[str, float]
    pair: tuple[int, ...]
    weight: Annotated[float, "kg"] = 0.0


class Renamed(msgspec.Struct, rename="camel"):
    order_number: int


class Model(BaseModel):
    number: int
    text: str = Field(alias="theText")


class Typed(TypedDict):
    number: int
    text: NotRequired[str]


class Row(NamedTuple):
    number: int


def pairs(serde: Serde[Any]) -> list[tuple[str, str]]:
    return [(field.name, field.type) for field in fields_of(serde)]


def test_the_fields_of_a_dataclass_have_the_types_of_its_annotations() -> None:
    assert pairs(Serdes.json(Order)) == [
        ("number", "int"),
        ("at", "datetime"),
        ("notes", "list[str] | None"),
        ("ship_to", "Address"),
        ("kind", "Literal['new', 'old']"),
        ("prices", "dict[str, float]"),
        ("pair", "tuple[int, ...]"),
        ("weight", "float"),
    ]


def test_fields_have_the_names_that_are_written() -> None:
    assert pairs(Serdes.json(Renamed)) == [("orderNumber", "int")]
    assert pairs(Serdes.json(Model)) == [("number", "int"), ("theText", "str")]
    assert pairs(Serdes.msgpack(Renamed)) == [("orderNumber", "int")]
    assert pairs(Serdes.msgpack(Model)) == [("number", "int"), ("theText", "str")]
    assert pairs(Serdes.json(Typed)) == [("number", "int"), ("text", "str")]


def test_an_annotation_has_the_fields_of_its_class() -> None:
    serde = serde_of_annotation(Address)
    assert serde is not None
    assert pairs(serde) == [("city", "str")]


@pytest.mark.parametrize("serde", [Serdes.string(), Serdes.json(), Serdes.json(Row), Serdes.list(Serdes.long())])
def test_other_objects_have_no_fields(serde: Serde[Any]) -> None:
    assert pairs(serde) == []


def test_annotations_that_cannot_be_resolved_have_no_fields() -> None:
    @dataclass
    class Unknown:
        other: "Nowhere"  # type: ignore[name-defined]  # noqa: F821, UP037 - a name that exists only for type checkers

    assert fields_of_class(Unknown) == ()
    assert fields_of_class(None) == ()


def test_the_fields_of_an_avro_schema_have_its_types() -> None:
    fields = [
        {"name": "number", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": {"type": "int"}}},
        {"name": "address", "type": {"type": "record", "name": "Address", "fields": []}},
    ]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    assert pairs(AvroSerde("mock://fields", schema)) == [
        ("number", "long"),
        ("at", "timestamp-millis"),
        ("note", "null | string"),
        ("tags", "array<string>"),
        ("counts", "map<int>"),
        ("address", "Address"),
    ]
    assert pairs(AvroSerde("mock://fields", '"string"')) == []
    assert pairs(AvroSerde("mock://fields")) == []
    assert pairs(AvroSerde("mock://fields", type=Address)) == [("city", "str")]


def test_the_fields_of_a_json_schema_are_those_of_the_class() -> None:
    assert pairs(JsonSchemaSerde("mock://fields", type=Address)) == [("city", "str")]
    assert pairs(JsonSchemaSerde("mock://fields")) == []


def test_the_fields_of_a_message_have_the_types_of_its_file() -> None:
    assert pairs(ProtobufSerde("mock://fields", Timestamp)) == [("seconds", "int64"), ("nanos", "int32")]
    assert pairs(ProtobufSerde("mock://fields", Struct)) == [("fields", "repeated FieldsEntry")]
    assert ("null_value", "NullValue") in pairs(ProtobufSerde("mock://fields", Value))
