"""JSON Schema with a registry: framing, validation, evolution, ids in headers, and the registry of the broker."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("jsonschema", reason="jsonschema is not installed")

from confluent_kafka.schema_registry import header_schema_id_serializer

from penstock import Consumed, Produced, Serdes, StreamsBuilder
from penstock.errors import SerializationError
from penstock.serdes import Serde
from penstock.serdes.json_schema import JsonSchemaSerde
from penstock.serdes.schema_registry import registry_client
from penstock.testing import EmbeddedBroker, TopologyTestDriver

TEXT = Serdes.string()


@dataclass
class Order:
    id: str
    total: float
    tags: list[str] = field(default_factory=list)


@dataclass
class NewerOrder:
    id: str
    total: float
    tags: list[str] = field(default_factory=list)
    currency: str = "EUR"


class Model(pydantic.BaseModel):
    id: str
    total: float


ORDER = json.dumps({"title": "Order", **msgspec.json.schema(Order)})
NEWER = json.dumps({"title": "Order", **msgspec.json.schema(NewerOrder)})


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(schema_registry_port=0) as started:
        yield started


def test_a_value_follows_a_zero_byte_and_the_id_of_its_schema() -> None:
    serde = JsonSchemaSerde("mock://json-framing", ORDER, Order)
    assert serde.serialize("t", Order("7", 2.5)) == b'\0\0\0\0\1{"id":"7","tags":[],"total":2.5}'
    assert registry_client({"url": "mock://json-framing"}).get_subjects() == ["t-value"]


@given(st.builds(Order, st.text(), st.floats(allow_nan=False, allow_infinity=False), st.lists(st.text(), max_size=2)))
def test_objects_come_back(order: Order) -> None:
    serde = JsonSchemaSerde("mock://json-objects", ORDER, Order)
    assert serde.deserialize("t", serde.serialize("t", order)) == order


def test_models_and_plain_values_come_back() -> None:
    schema = json.dumps(Model.model_json_schema())
    models = JsonSchemaSerde("mock://json-models", schema, Model)
    data = models.serialize("t", Model(id="7", total=2.5))
    assert models.deserialize("t", data) == Model(id="7", total=2.5)
    assert JsonSchemaSerde("mock://json-models", schema).deserialize("t", data) == {"id": "7", "total": 2.5}


def test_without_a_schema_values_are_validated_by_their_writers_and_written_by_the_latest() -> None:
    data = JsonSchemaSerde("mock://json-generic", ORDER, Order).serialize("t", Order("7", 2.5))
    generic: Serde[Any] = JsonSchemaSerde("mock://json-generic")
    value = generic.deserialize("t", data)
    assert value == {"id": "7", "tags": [], "total": 2.5}
    assert generic.serialize("t", value) == data
    with pytest.raises(SerializationError, match=r"'t': 7 is not of type 'string' at \$\.id\."):
        generic.serialize("t", {"id": 7, "total": 2.5})


@pytest.mark.parametrize("registry", ["mock", "broker"])
def test_old_data_is_read_by_a_newer_program_and_newer_data_by_the_old_one(
    registry: str, broker: EmbeddedBroker
) -> None:
    url = "mock://json-evolution" if registry == "mock" else broker.schema_registry_url
    old, new = JsonSchemaSerde(url, ORDER, Order), JsonSchemaSerde(url, NEWER, NewerOrder)
    first = old.serialize("evolution", Order("7", 2.5))
    if registry == "broker":  # which compares schemas of AVRO only
        registry_client({"url": url}).set_compatibility("evolution-value", "NONE")
    second = new.serialize("evolution", NewerOrder("7", 2.5, ["a"], "USD"))
    assert first[:5] != second[:5]
    assert new.deserialize("evolution", first) == NewerOrder("7", 2.5)
    assert old.deserialize("evolution", second) == Order("7", 2.5, ["a"])


def test_data_that_does_not_fit_the_newer_schema_is_refused_at_the_read() -> None:
    strict = json.loads(ORDER)
    strict["$defs"]["Order"]["properties"]["id"]["maxLength"] = 1
    data = JsonSchemaSerde("mock://json-strict", ORDER, Order).serialize("orders", Order("77", 2.5))
    serde: Serde[Any] = JsonSchemaSerde("mock://json-strict", json.dumps(strict), Order)
    with pytest.raises(SerializationError, match=r"Cannot read .* from 'orders': '77' is too long at \$\.id"):
        serde.deserialize("orders", data)


def test_validation_can_be_turned_off_in_both_directions() -> None:
    lenient: Serde[Any] = JsonSchemaSerde("mock://json-lenient", ORDER, config={"validate": False})
    data = lenient.serialize("t", {"id": 7})
    assert lenient.deserialize("t", data) == {"id": 7}
    with pytest.raises(SerializationError, match="not of type 'string'"):
        JsonSchemaSerde("mock://json-lenient", ORDER).deserialize("t", data)


@pytest.mark.parametrize("value", [{"id": float("nan")}, {"id": object()}])
def test_values_that_json_lacks_are_refused_with_their_topic(value: Any) -> None:
    with pytest.raises(SerializationError, match="'orders' as JSON"):
        JsonSchemaSerde("mock://json-values", ORDER).serialize("orders", value)


def test_a_schema_that_is_not_valid_is_named() -> None:
    with pytest.raises(SerializationError, match="the schema is not valid: 5 is not valid"):
        JsonSchemaSerde("mock://json-invalid", '{"title": "A", "type": 5}').serialize("t", {})


@pytest.mark.parametrize("broken", [b"", b"no framing", b'\0\0\0\0c{"id":"7"}', b"\0\0\0\0\1{"])
def test_other_bytes_are_refused_with_their_topic(broken: bytes) -> None:
    serde = JsonSchemaSerde("mock://json-broken", ORDER, Order)
    serde.serialize("orders", Order("7", 2.5))
    with pytest.raises(SerializationError, match="'orders'"):
        serde.deserialize("orders", broken)


def test_an_id_may_be_a_header() -> None:
    url, config = "mock://json-headers", {"schema.id.serializer": header_schema_id_serializer}
    serde = JsonSchemaSerde(url, ORDER, Order, config=config)
    data, headers = serde.serialize_record("t", Order("7", 2.5), (("__value_schema_id", b"old"), ("x", b"1")))
    assert data == b'{"id":"7","tags":[],"total":2.5}'
    assert [name for name, _ in headers] == ["x", "__value_schema_id"]
    assert JsonSchemaSerde(url, ORDER, Order).deserialize("t", data, headers) == Order("7", 2.5)
    assert serde.deserialize("t", serde.serialize("t", Order("7", 2.5)), (("__value_schema_id", b"?"),)).id == "7"


@pytest.mark.parametrize("execution", ["record", "auto"])
def test_a_topology_reads_and_writes(execution: str) -> None:
    orders = JsonSchemaSerde("mock://json-topology", ORDER, Order)
    builder = StreamsBuilder()
    large = builder.stream("in", Consumed.with_(TEXT, orders)).filter(lambda _, order: order.total > 2)
    large.to("out", Produced.with_(TEXT, orders))
    with TopologyTestDriver(builder.build(), {"penstock.execution": execution}) as driver:
        source = driver.create_input_topic("in", TEXT, orders)
        for total in (1.0, 3.0):
            source.pipe_input("a", Order("7", total))
        assert driver.create_output_topic("out", TEXT, orders).read_values_to_list() == [Order("7", 3.0)]


def test_a_serde_that_was_used_can_be_sent_to_workers() -> None:
    serde = JsonSchemaSerde("mock://json-pickled", ORDER, Order)
    data = serde.serialize("t", Order("7", 2.5))
    assert pickle.loads(pickle.dumps(serde)).deserialize("t", data) == Order("7", 2.5)
