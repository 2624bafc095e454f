"""The rules of both serdes with a schema registry, over that in memory that confluent-kafka has for tests."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import cloudpickle
import pytest

from penstock.errors import SerializationError
from penstock.serdes import Serde
from penstock.serdes.avro import AvroSerde
from penstock.serdes.cloud_events import CloudEventSerde, StructuredCloudEventSerde
from penstock.serdes.debezium import DebeziumSerde
from penstock.serdes.protobuf import ProtobufSerde
from penstock.serdes.schema_registry import registry_client
from tests.serdes.test_avro import SCHEMA, TRADE, Trade
from tests.serdes.test_protobuf import Point

REGISTRY = "mock://serdes"
SERDES = {
    "avro": (AvroSerde(REGISTRY, SCHEMA, Trade), TRADE),
    "protobuf": (ProtobufSerde(REGISTRY, Point), Point(x=3, name="three")),
}


@pytest.mark.parametrize("name", SERDES)
def test_what_is_written_is_read_again(name: str) -> None:
    serde, value = SERDES[name]
    column = [value, None]
    written = serde.serialize_column("topic", column)
    assert bytes(written[0] or b"")[:1] == b"\0"  # Confluent's framing: a zero byte, then the id of the schema
    assert serde.deserialize_column("topic", written) == column


def test_a_serde_that_was_used_can_be_sent_to_workers() -> None:
    serde, value = SERDES["avro"]
    data = serde.serialize("topic", value)
    assert cloudpickle.loads(cloudpickle.dumps(serde)).deserialize("topic", data) == value


@pytest.mark.parametrize(("is_key", "subject"), [(False, "trades-value"), (True, "trades-key")])
def test_schemas_are_registered_under_the_topic_and_the_field(is_key: bool, subject: str) -> None:
    registry = f"mock://{subject}"
    AvroSerde(registry, SCHEMA, Trade, is_key=is_key).serialize("trades", TRADE)
    assert registry_client({"url": registry}).get_subjects() == [subject]


@pytest.mark.parametrize("name", SERDES)
@pytest.mark.parametrize(
    "broken",
    [
        lambda data: b"",
        lambda data: b"no framing",
        lambda data: b"\0\0\0\0c" + data[5:],  # a schema that nobody registered
        lambda data: data[:-1],
    ],
)
def test_bytes_that_no_serializer_wrote_are_refused(name: str, broken: Any) -> None:
    serde, value = SERDES[name]
    with pytest.raises(SerializationError, match="topic"):
        serde.deserialize("topic", broken(serde.serialize("topic", value)))


@pytest.mark.parametrize(("name", "wrong"), [("avro", Trade("ABC", "dear", TRADE.at)), ("protobuf", "text")])  # type: ignore[arg-type]  # the mistake that is tested
def test_values_that_do_not_fit_the_schema_are_refused(name: str, wrong: Any) -> None:
    with pytest.raises(SerializationError, match="topic"):
        SERDES[name][0].serialize("topic", wrong)


@pytest.mark.parametrize(
    ("extra", "module", "package"),
    [
        ("avro", "avro", "fastavro"),
        ("avro", "avro", "httpx"),
        ("avro", "avro_format", "fastavro"),
        ("jsonschema", "json_schema", "jsonschema"),
        ("protobuf", "protobuf", "google.protobuf"),
        ("protobuf", "protobuf", "cachetools"),
    ],
)
def test_a_missing_package_names_the_extra_that_brings_it(extra: str, module: str, package: str) -> None:
    program = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("{package}"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import penstock.serdes.{module}
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    *_, told = ran.stderr.splitlines()
    assert told == (
        f"ModuleNotFoundError: penstock.serdes.{module} needs the package {package}, "
        f"which is not installed: pip install 'penstock-streams[{extra}]'."
    )


def test_a_registry_in_memory_is_of_one_process_also_as_an_inner_serde() -> None:
    here, shared = AvroSerde("mock://one"), AvroSerde("http://127.0.0.1:8081")
    for serde in (here, DebeziumSerde(inner=here), CloudEventSerde(here), StructuredCloudEventSerde(here)):
        assert serde.is_of_one_process
    for serde in (shared, DebeziumSerde(inner=shared), DebeziumSerde(), CloudEventSerde(shared), CloudEventSerde()):
        assert not serde.is_of_one_process


def test_a_registry_in_memory_says_what_it_is_when_it_lacks_a_schema() -> None:
    data = AvroSerde("mock://one-process", SCHEMA, Trade).serialize("trades", TRADE)
    elsewhere: Serde = AvroSerde("mock://another-process", SCHEMA, Trade)
    latest: Serde = AvroSerde("mock://empty")
    for use in (lambda: elsewhere.deserialize("trades", data), lambda: latest.serialize("trades", {})):
        with pytest.raises(SerializationError, match="'trades': mock://") as caught:
            use()
        assert "memory of this process" in str(caught.value)
        assert "penstock broker --schema-registry" in str(caught.value)
        assert "HTTP" not in str(caught.value)
