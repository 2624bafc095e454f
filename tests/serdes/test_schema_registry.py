"""The rules of both serdes with a schema registry, over that in memory that confluent-kafka has for tests."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest

import penstock
from penstock.aggregations.combined import CombinedSerde
from penstock.calendar_windows import CalendarWindows
from penstock.errors import SerializationError
from penstock.serdes import Serde, Serdes
from penstock.serdes.annotated import AnnotatedSerde
from penstock.serdes.answers import IterableAnswerSerde
from penstock.serdes.avro import AvroSerde
from penstock.serdes.buffer import BufferKeySerde, BufferValueSerde
from penstock.serdes.changed import ChangedSerde
from penstock.serdes.cloud_events import CloudEventSerde, StructuredCloudEventSerde
from penstock.serdes.count_window import CountWindowSerde
from penstock.serdes.debezium import DebeziumKeySerde, DebeziumSerde
from penstock.serdes.framing import CONFLUENT
from penstock.serdes.key_and_id import KeyAndIdSerde
from penstock.serdes.outer_join import LeftOrRightValueSerde, TimestampedKeyAndJoinSideSerde
from penstock.serdes.payload_format import JsonFormat
from penstock.serdes.protobuf import ProtobufSerde
from penstock.serdes.registry_serde import RegistrySerde
from penstock.serdes.schema_registry import ConfluentSchemas, registry_client
from penstock.serdes.sequenced_key import SequencedKeySerde
from penstock.serdes.subscription import SubscriptionResponseWrapperSerde, SubscriptionWrapperSerde
from penstock.serdes.waiting_value import WaitingValueSerde
from penstock.serdes.windowed import WindowedSerde, WindowedSerdes
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


def around(serde: Serde) -> list[Serde]:
    """Return a serde of each class that contains others, around `serde`."""
    windows = CalendarWindows.days("UTC", 0)
    return [
        AnnotatedSerde(serde, is_key=True),
        BufferKeySerde(serde),
        BufferValueSerde(serde),
        ChangedSerde(serde),
        CloudEventSerde(serde),
        CombinedSerde({"count": (Serdes.long(), 0), "last": (serde, None)}),
        CountWindowSerde(serde),
        DebeziumKeySerde(serde),
        DebeziumSerde(inner=serde),
        IterableAnswerSerde(serde),
        KeyAndIdSerde(serde, Serdes.string()),
        KeyAndIdSerde(None, serde),
        LeftOrRightValueSerde(serde, None),
        LeftOrRightValueSerde(Serdes.string(), serde),
        Serdes.list(serde),
        SequencedKeySerde(serde),
        StructuredCloudEventSerde(serde),
        SubscriptionResponseWrapperSerde(serde),
        SubscriptionWrapperSerde(serde),
        TimestampedKeyAndJoinSideSerde(serde),
        WaitingValueSerde(serde),
        WindowedSerdes.calendar_windowed(serde, windows),
        WindowedSerdes.session_windowed(serde),
        WindowedSerdes.time_windowed(serde, 10),
        WindowedSerdes.time_windowed(Serdes.list(serde), 10),
    ]


def test_a_registry_in_memory_is_of_one_process_also_as_an_inner_serde() -> None:
    here, shared = AvroSerde("mock://one"), AvroSerde("http://127.0.0.1:8081")
    for serde in (here, *around(here), *around(registry_serde("mock://one"))):
        assert serde.is_of_one_process, serde
    others = (DebeziumSerde(), CloudEventSerde(), registry_serde("http://127.0.0.1:8081"))
    for serde in (shared, *others, *around(shared)):
        assert not serde.is_of_one_process, serde


def registry_serde(url: str) -> Serde:
    return RegistrySerde(ConfluentSchemas(url), JsonFormat("{}"), CONFLUENT)


def test_each_serde_that_is_made_with_others_names_them() -> None:
    for info in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if info.name.startswith(("penstock.serdes.", "penstock.aggregations.")):
            importlib.import_module(info.name)
    found = {
        each for each in subclasses(Serde) if each.__module__.startswith("penstock.") and is_made_with_others(each)
    }
    assert {type(each) for each in around(AvroSerde("mock://one"))} == found - {WindowedSerde}


def is_made_with_others(kind: type) -> bool:
    """Return whether a parameter of a class is a serde, by its annotation."""
    own = vars(kind).get("__init__")
    return own is not None and "Serde" in str(own.__annotations__)


def subclasses(of: type) -> Iterator[type]:
    for each in of.__subclasses__():
        yield each
        yield from subclasses(each)


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
