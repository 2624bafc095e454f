"""Serdes of JSON Schema, Debezium, MessagePack, AWS Glue and Apicurio give the same records on each host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from penstock import Consumed, Grouped, Materialized, Produced, Serdes, StreamsBuilder, Topology
from penstock.serdes import Serde
from penstock.serdes.avro_format import AvroFormat
from penstock.serdes.debezium import DebeziumChange, DebeziumOperation, DebeziumSerde
from penstock.serdes.framing import APICURIO_HEADERS, GLUE
from penstock.serdes.json_schema import JsonSchemaSerde
from penstock.serdes.payload_format import JsonFormat
from penstock.serdes.registry_serde import RegistrySerde
from penstock.testing import EmbeddedBroker
from tests.host.support import WITH_PROCESSES, InputRecord, Runner
from tests.serdes.test_registry_serde import table

pytestmark = [WITH_PROCESSES, pytest.mark.one_broker]

TEXT = Serdes.string()
SENSORS = 3


@dataclass
class Reading:
    sensor: str
    number: int


FIELDS = [{"name": "sensor", "type": "string"}, {"name": "number", "type": "long"}]
AVRO = json.dumps({"type": "record", "name": "Reading", "fields": FIELDS})
JSON = json.dumps({"title": "Reading", **msgspec.json.schema(Reading)})


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with EmbeddedBroker(schema_registry_port=0) as started:
        yield started.schema_registry_url


def serdes(registry: str) -> dict[str, Serde[Any]]:
    """Return the serdes by the ends of the names of their topics."""
    ids = table({1: AVRO})
    return {
        "json-schema": JsonSchemaSerde(registry, JSON, Reading),
        "debezium": DebeziumSerde(Reading),
        "msgpack": Serdes.msgpack(Reading),
        "glue": RegistrySerde(ids, AvroFormat(AVRO, Reading), GLUE),
        "apicurio": RegistrySerde(ids, JsonFormat(AVRO, Reading), APICURIO_HEADERS),
    }


def value(name: str, number: int) -> Any:
    reading = Reading(f"s{number % SENSORS}", number)
    if name == "debezium":
        return DebeziumChange(DebeziumOperation.CREATE, after=reading, source={"table": "readings"})
    return reading


def reading_of(given: Any) -> Reading:
    return given.after if isinstance(given, DebeziumChange) else given


def largest(one: Any, other: Any) -> Any:
    return max(one, other, key=lambda each: reading_of(each).number)


def largest_of_sensors(prefix: str, registry: str) -> Topology:
    """Values of each serde pass a repartition topic and a store."""
    builder = StreamsBuilder()
    for name, serde in serdes(registry).items():
        kept = Materialized.as_(f"largest-{name}").with_key_serde(TEXT).with_value_serde(serde)
        readings = builder.stream(f"{prefix}-in-{name}", Consumed.with_(TEXT, serde))
        by_sensor = readings.group_by(lambda _, each: reading_of(each).sensor, Grouped.with_(TEXT, serde))
        by_sensor.reduce(largest, kept).to_stream().to(f"{prefix}-out-{name}", Produced.with_(TEXT, serde))
    return builder.build()


@pytest.mark.parametrize("execution", ["record", "auto"])
def test_values_pass_repartition_topics_stores_and_restarts(
    runner: Runner, application: str, unique_name: Callable[[str], str], registry: str, execution: str
) -> None:
    prefix, own = unique_name("payloads"), serdes(registry)
    runner.create_topics({f"{prefix}-{side}-{name}": 1 for name in own for side in ("in", "out")})
    config = runner.config(application, {"penstock.execution": execution})
    for part in (range(30), range(30, 60)):
        for name, serde in own.items():
            source = f"{prefix}-in-{name}"
            written = (serde.serialize_record(source, value(name, number)) for number in part)
            rows = zip(part, written, strict=True)
            runner.write(source, [InputRecord(b"k", data, number, 0, headers) for number, (data, headers) in rows])
        runner.run_here(largest_of_sensors(prefix, registry), config)
    for name, serde in own.items():
        target = f"{prefix}-out-{name}"
        found = {
            record.key: serde.deserialize(target, record.value or b"", record.headers) for record in runner.read(target)
        }
        assert found == {f"s{number % SENSORS}".encode(): value(name, number) for number in (57, 58, 59)}, name
