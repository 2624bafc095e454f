"""Avro by a schema of its own, by that of the writer, and by the latest of the registry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference

from penstock.errors import SerializationError
from penstock.serdes import Serde
from penstock.serdes.avro import AvroSerde
from penstock.serdes.schema_registry import registry_client
from tests.serdes.test_avro_types import Envelope
from tests.serdes.test_avro_values import envelope, event

REGISTRY = "mock://avro"


SCHEMA = """
{"type": "record", "name": "Trade", "fields": [
  {"name": "symbol", "type": "string"},
  {"name": "price", "type": "double"},
  {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
]}
"""


@dataclass
class Trade:
    symbol: str
    price: float
    at: datetime


TRADE = Trade("ABC", 1.5, datetime(2013, 1, 1, tzinfo=UTC))


def test_without_a_schema_records_are_dicts_of_the_schema_they_were_written_with() -> None:
    data = AvroSerde(REGISTRY, SCHEMA, Trade).serialize("generic", TRADE)
    generic: Serde = AvroSerde(REGISTRY)
    assert generic.deserialize("generic", data) == {"symbol": "ABC", "price": 1.5, "at": TRADE.at}
    assert generic.serialize("generic", generic.deserialize("generic", data)) == data


@dataclass
class User:
    id: str
    tags: list[str]
    more: dict[str, list[str]]


@pytest.mark.parametrize("type_", [None, User])
def test_each_record_has_defaults_of_its_own(type_: type | None) -> None:
    fields = [
        {"name": "id", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {
            "name": "more",
            "type": {"type": "map", "values": {"type": "array", "items": "string"}},
            "default": {"a": ["b"]},
        },
    ]
    old, new = (json.dumps({"type": "record", "name": "User", "fields": each}) for each in (fields[:1], fields))
    data = AvroSerde("mock://users", old).serialize("users", {"id": "1"})
    serde = AvroSerde("mock://users", new, type_)
    for _ in range(2):
        found: Any = serde.deserialize("users", data)
        found = found if type_ is None else vars(found)
        assert (found["tags"], found["more"]) == ([], {"a": ["b"]})
        found["tags"].append("seen")
        found["more"]["a"].append("seen")


def test_a_union_of_classes_needs_the_schema() -> None:
    with pytest.raises(TypeError, match="needs the schema of Envelope"):
        AvroSerde("mock://plain", None, Envelope)


def test_an_empty_value_that_could_not_be_read_is_refused() -> None:
    with pytest.raises(SerializationError, match="reads no value of 5 bytes"):
        AvroSerde("mock://empty", '{"type": "record", "name": "Empty", "fields": []}').serialize("t", {})


def test_a_schema_of_several_subjects_is_read_without_its_text() -> None:
    client = registry_client({"url": "mock://references"})
    client.register_schema("created", Schema(json.dumps(event("Created")), "AVRO"))
    client.register_schema("deleted", Schema(json.dumps(event("Deleted")), "AVRO"))
    references = [SchemaReference("Created", "created", 1), SchemaReference("Deleted", "deleted", 1)]
    client.register_schema("t-value", Schema(envelope("Created", "Deleted"), "AVRO", references))
    serde: AvroSerde[Any] = AvroSerde("mock://references")
    value = {"event": ("Deleted", {"id": "7"})}
    assert serde.deserialize("t", serde.serialize("t", value)) == value


def test_a_record_that_became_a_union_is_read_by_the_new_schema() -> None:
    old = json.dumps({"type": "record", "name": "Envelope", "fields": [{"name": "event", "type": event("Created")}]})
    new = envelope(event("Created"), event("Moved", {"name": "to", "type": "int"}))
    data = AvroSerde("mock://evolved", old).serialize("t", {"event": {"id": "7"}})
    serde: AvroSerde[Any] = AvroSerde("mock://evolved", new)
    assert serde.deserialize("t", data) == {"event": ("Created", {"id": "7"})}
