"""The serde of any registry: all framings and both formats, a move to another registry, stores, errors."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Consumed, Materialized, Produced, Serdes, StreamsBuilder
from penstock.errors import SerializationError
from penstock.serdes import Serde
from penstock.serdes.avro import AvroSerde
from penstock.serdes.avro_format import AvroFormat
from penstock.serdes.framing import (
    APICURIO,
    CONFLUENT,
    CONFLUENT_GUID,
    CONFLUENT_HEADERS,
    GLUE,
    GLUE_ZLIB,
    Framing,
    SchemaId,
    SchemaIdKind,
)
from penstock.serdes.payload_format import JsonFormat, PayloadFormat
from penstock.serdes.registry_serde import RegistrySerde
from penstock.serdes.schema_lookup import SchemaTable, TopicSchema
from penstock.serdes.schema_registry import ConfluentSchemas
from penstock.testing import TestRecord, TopologyTestDriver
from tests.serdes.test_avro_format import NEW, OLD, New, Old
from tests.serdes.test_framing import ALL, GUID, OF_UUIDS

TEXT = Serdes.string()
FORMATS: dict[str, PayloadFormat] = {"avro": AvroFormat(OLD, Old), "json": JsonFormat(OLD, Old)}


class CountingTable(SchemaTable):
    """A table that counts its lookups."""

    lookups = 0

    def schema_of(self, id: SchemaId) -> str:
        self.lookups += 1
        return super().schema_of(id)

    def id_of(self, schema: TopicSchema, kind: SchemaIdKind) -> SchemaId:
        self.lookups += 1
        return super().id_of(schema, kind)


def table(numbers: dict[int, str]) -> CountingTable:
    """Return a table with an id of each kind for the schema of each number."""
    ids = {
        SchemaId(kind, GUID if kind in OF_UUIDS and number == 1 else number): text
        for kind in SchemaIdKind
        for number, text in numbers.items()
    }
    return CountingTable(ids)


@pytest.mark.parametrize("format", FORMATS)
@given(framing=st.sampled_from(ALL), a=st.integers(-(2**63), 2**63 - 1), b=st.text())
def test_values_come_back_from_records_and_from_stores(format: str, framing: Framing, a: int, b: str) -> None:
    serde: Serde[Old] = RegistrySerde(table({1: OLD}), FORMATS[format], framing)
    record = serde.serialize_record("t", Old(a, b), (("x", b"1"),))
    assert serde.deserialize("t", *record) == Old(a, b)
    others = (("__value_schema_id", b"\1" + bytes(16)), ("apicurio.value.contentId", bytes(8)))
    assert serde.deserialize("t", serde.serialize("t", Old(a, b)), others) == Old(a, b)
    assert serde.writes_headers == framing.uses_headers


def test_golden_bytes_of_glue_and_apicurio() -> None:
    registry = table({1: OLD})
    glue: Serde[Old] = RegistrySerde(registry, FORMATS["avro"], GLUE)
    apicurio: Serde[Old] = RegistrySerde(registry, FORMATS["avro"], APICURIO)
    assert glue.serialize("t", Old(27, "foo")) == b"\3\0" + GUID.bytes + b"\x36\x06foo"
    assert apicurio.serialize("t", Old(27, "foo")) == b"\0\0\0\0\1\x36\x06foo"


@pytest.mark.parametrize("framing", [CONFLUENT, APICURIO])
def test_old_data_is_read_by_a_newer_program_and_newer_data_by_the_old_one(framing: Framing) -> None:
    registry = table({1: OLD, 2: NEW})
    old: Serde[Any] = RegistrySerde(registry, AvroFormat(OLD, Old), framing)
    new: Serde[Any] = RegistrySerde(registry, AvroFormat(NEW, New), framing)
    assert new.deserialize("t", old.serialize("t", Old(27, "foo"))) == New("foo", 27)
    assert old.deserialize("t", new.serialize("t", New("foo", 27, ["x"]))) == Old(27, "foo")


def test_records_from_before_a_move_to_another_registry_are_read_too() -> None:
    registry = table({1: OLD})
    before: Serde[Any] = RegistrySerde(registry, FORMATS["avro"], CONFLUENT)
    by_header: Serde[Any] = RegistrySerde(registry, FORMATS["avro"], CONFLUENT_HEADERS)
    after: Serde[Any] = RegistrySerde(registry, FORMATS["avro"], GLUE_ZLIB, also_reads=[CONFLUENT_HEADERS, CONFLUENT])
    for serde in (before, by_header, after):
        assert after.deserialize("t", *serde.serialize_record("t", Old(27, "foo"))) == Old(27, "foo")
    assert (after.uses_headers, after.writes_headers) == (True, False)


def test_a_schema_is_looked_up_once_a_process() -> None:
    registry = table({1: OLD})
    serde: Serde[Any] = RegistrySerde(registry, FORMATS["avro"], CONFLUENT)
    for _ in range(3):
        data = serde.serialize("t", Old(1, "a"))
        serde.deserialize("t", data)
    assert registry.lookups == 2
    assert pickle.loads(pickle.dumps(serde)).deserialize("t", data) == Old(1, "a")


@pytest.mark.parametrize("framing", [CONFLUENT, CONFLUENT_GUID, CONFLUENT_HEADERS])
@pytest.mark.parametrize("part", ["key", "value"])
def test_it_agrees_with_the_serde_of_confluents_registry(framing: Framing, part: Any) -> None:
    url = f"mock://registry-serde-{part}-{type(framing).__name__}"
    own: Serde[Old] = RegistrySerde(ConfluentSchemas(url), AvroFormat(OLD, Old), framing, part=part)
    theirs = AvroSerde(url, OLD, Old, is_key=part == "key")
    record = Old(27, "foobar")  # confluent-kafka reads no values of 5 bytes or less, even with an id in a header
    assert theirs.deserialize("t", *own.serialize_record("t", record)) == record
    if framing is CONFLUENT:
        assert own.serialize("t", record) == theirs.serialize("t", record)


def test_a_schema_that_confluents_registry_lacks_is_named() -> None:
    serde: Serde[Any] = RegistrySerde(ConfluentSchemas("mock://registry-serde-empty"), FORMATS["avro"], CONFLUENT)
    with pytest.raises(SerializationError, match=r"from 'orders': mock://registry-serde-empty has no id 99"):
        serde.deserialize("orders", b"\0\0\0\0\x63\x36\x06foo")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the value has no id of a schema: expected NumberPrefix"),
        (b"\0\0\0\0\2\x36\x06foo", "no id 2"),
        (b"\0\0\0\0\1\x36", "Cannot read"),
        (b"\0\0\0\0\1\x36\x06foo!", "1 bytes before the payload"),
    ],
)
def test_other_data_is_refused_with_its_topic(data: bytes, message: str) -> None:
    serde: Serde[Any] = RegistrySerde(table({1: OLD}), FORMATS["avro"], CONFLUENT)
    with pytest.raises(SerializationError, match=rf"{message}") as caught:
        serde.deserialize("orders", data)
    assert "'orders'" in str(caught.value)


def test_values_and_schemas_that_do_not_fit_are_refused_with_their_topic() -> None:
    serde: Serde[Any] = RegistrySerde(table({1: OLD}), FORMATS["avro"], CONFLUENT)
    with pytest.raises(SerializationError, match=r"Cannot write .* to 'orders'"):
        serde.serialize("orders", {"a": "text"})
    unknown: Serde[Any] = RegistrySerde(table({}), FORMATS["avro"], CONFLUENT)
    with pytest.raises(SerializationError, match="to 'orders': the table of schemas has no id"):
        unknown.serialize("orders", Old(1, "a"))
    large: Serde[Any] = RegistrySerde(table({2**32: OLD}), FORMATS["avro"], CONFLUENT)
    with pytest.raises(SerializationError, match="to 'orders': int too big"):
        large.serialize("orders", Old(1, "a"))


@pytest.mark.parametrize("execution", ["record", "auto"])
@pytest.mark.parametrize("framing", [GLUE, CONFLUENT_HEADERS])
def test_a_topology_with_a_store(execution: str, framing: Framing) -> None:
    records: Serde[Old] = RegistrySerde(table({1: OLD}), FORMATS["avro"], framing)
    builder = StreamsBuilder()
    kept = Materialized.as_("kept").with_key_serde(TEXT).with_value_serde(records)
    sums = builder.stream("in", Consumed.with_(TEXT, records)).group_by_key().reduce(_added, kept)
    sums.to_stream().to("out", Produced.with_(TEXT, records))
    with TopologyTestDriver(builder.build(), {"penstock.execution": execution}) as driver:
        source = driver.create_input_topic("in", TEXT, records)
        for number in (1, 2):
            source.pipe_input(TestRecord("k", Old(number, "x")))
        *_, last = driver.create_output_topic("out", TEXT, records).read_values_to_list()
        assert last == Old(3, "xx")


def _added(one: Old, other: Old) -> Old:
    return Old(one.a + other.a, one.b + other.b)
