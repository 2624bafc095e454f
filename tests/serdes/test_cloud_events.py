"""CloudEvents in both content modes: the examples of the specification, round trips, stores, topologies."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Consumed, Materialized, Produced, Serdes, StreamsBuilder
from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes import Serde, serde_of_type
from penstock.serdes.avro import AvroSerde
from penstock.serdes.cloud_event import CloudEvent
from penstock.serdes.cloud_events import CloudEventSerde, StructuredCloudEventSerde
from penstock.testing import TestRecord, TopologyTestDriver
from tests.serdes.test_avro import SCHEMA, TRADE, Trade
from tests.serdes.test_cloud_event import EVENT

TEXT = Serdes.string()
BINARY: Serde[CloudEvent[Any]] = CloudEventSerde()
STRUCTURED: Serde[CloudEvent[Any]] = StructuredCloudEventSerde()
STRUCTURED_TYPE = ("content-type", b"application/cloudevents+json; charset=UTF-8")


@dataclass
class Order:
    id: str
    total: float


@dataclass
class NewerOrder:
    id: str
    total: float
    currency: str = "EUR"


def test_binary_mode_is_that_of_the_kafka_binding() -> None:
    """The example of section 3.2.5."""
    event = CloudEvent(
        "com.example.someevent",
        "/mycontext/subcontext",
        "1234-1234-1234",
        b"\x02\x04",
        time=datetime(2018, 4, 5, 3, 56, 24, tzinfo=UTC),
        datacontenttype="application/avro",
    )
    headers = (
        ("ce_type", b"com.example.someevent"),
        ("ce_source", b"/mycontext/subcontext"),
        ("ce_id", b"1234-1234-1234"),
        ("ce_specversion", b"1.0"),
        ("ce_time", b"2018-04-05T03:56:24Z"),
        ("content-type", b"application/avro"),
    )
    assert BINARY.serialize_record("t", event) == (b"\x02\x04", headers)
    assert BINARY.deserialize("t", b"\x02\x04", headers) == event


JSON_EXAMPLES = [  # section 3.2 of the JSON event format, with the record of each in binary mode
    (
        {"datacontenttype": "application/vnd.apache.thrift.binary", "data_base64": "AAEC"},
        b"application/vnd.apache.thrift.binary",
        b"\0\1\2",
    ),
    (
        {"unsetextension": None, "datacontenttype": "application/xml", "data": '<much wow="xml"/>'},
        b"application/xml",
        b'<much wow="xml"/>',
    ),
    (
        {
            "subject": None,
            "datacontenttype": "application/json",
            "data": {"appinfoA": "abc", "appinfoB": 123, "appinfoC": True},
        },
        b"application/json",
        b'{"appinfoA":"abc","appinfoB":123,"appinfoC":true}',
    ),
    ({"subject": None, "data": "I'm just a string"}, b"application/json", b'"I\'m just a string"'),
]


@pytest.mark.parametrize(("members", "media_type", "data"), JSON_EXAMPLES)
def test_events_of_the_json_format_become_records_in_binary_mode(
    members: dict[str, Any], media_type: bytes, data: bytes
) -> None:
    attributes = {
        "specversion": "1.0",
        "type": "com.example.someevent",
        "source": "/mycontext",
        "id": "A234-1234-1234",
        "time": "2018-04-05T17:31:00Z",
        "comexampleextension1": "value",
        "comexampleothervalue": 5,
    }
    event = STRUCTURED.deserialize("t", json.dumps(attributes | members).encode())
    written, headers = BINARY.serialize_record("t", event)
    assert (written, dict(headers)["content-type"]) == (data, media_type)
    assert {name: value.decode() for name, value in headers if name.startswith("ce_") and value} == {
        f"ce_{name}": str(value) for name, value in attributes.items()
    }
    again = json.loads(STRUCTURED.serialize("t", event))
    expected = {name: value for name, value in (attributes | members).items() if value is not None}
    assert again == {"datacontenttype": "application/json"} | expected


def test_structured_mode_has_the_media_type_of_the_json_format() -> None:
    others: Headers = (("ce_id", b"of another event"), ("content-type", b"text/plain"), ("x", b"1"))
    data, headers = STRUCTURED.serialize_record("t", EVENT, others)
    assert headers == (("x", b"1"), STRUCTURED_TYPE)
    found = BINARY.deserialize("t", data, headers)
    assert (found.id, found.data, found.time, dict(found.extensions)) == (
        EVENT.id,
        EVENT.data,
        EVENT.time,
        dict(EVENT.extensions),
    )


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=5)
json_data = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(st.none() | inner, max_size=3) | st.dictionaries(texts, st.none() | inner, max_size=3),
    max_leaves=4,
)
contents = st.one_of(
    st.tuples(st.sampled_from(["application/json", "application/x+json"]), json_data),
    st.tuples(st.just("text/plain"), st.text(st.characters(codec="utf-8"), max_size=5)),
    st.tuples(st.sampled_from(["application/avro", "image/png"]), st.binary(max_size=5)),
    st.tuples(st.none(), st.binary(max_size=5)),
)
names = st.from_regex(r"x[a-z0-9]{0,5}", fullmatch=True)


@st.composite
def events(draw: st.DrawFn) -> CloudEvent[Any]:
    media_type, data = draw(contents)
    return CloudEvent(
        draw(texts),
        draw(texts),
        draw(texts),
        data,
        draw(st.none() | texts),
        draw(st.none() | st.datetimes(timezones=st.just(UTC))),
        media_type,
        draw(st.none() | texts),
        draw(st.dictionaries(names, texts, max_size=3)),
    )


@given(events(), st.sampled_from([BINARY, STRUCTURED]))
def test_events_come_back_from_records_and_from_stores(event: CloudEvent[Any], serde: Serde[CloudEvent[Any]]) -> None:
    assert serde.deserialize("t", *serde.serialize_record("t", event, (("ce_xold", b"1"),))) == event
    assert serde.deserialize("t", serde.serialize("t", event), (("ce_id", b"of another event"),)) == event


@pytest.mark.parametrize("serde", [CloudEventSerde, StructuredCloudEventSerde])
def test_data_of_an_inner_serde_is_an_object_and_a_newer_class_reads_it(serde: Any) -> None:
    old, new = serde(Serdes.json(Order)), serde(Serdes.json(NewerOrder))
    event = CloudEvent("order.created", "/shop", "1", Order("7", 2.5))
    record = old.serialize_record("t", event)
    assert new.deserialize("t", *record).data == NewerOrder("7", 2.5)
    newer = CloudEvent("order.created", "/shop", "1", NewerOrder("7", 2.5, "USD"))
    assert old.deserialize("t", *new.serialize_record("t", newer)).data == Order("7", 2.5)


def test_json_of_an_inner_serde_is_a_json_value_in_structured_mode() -> None:
    serde: Serde[Any] = StructuredCloudEventSerde(Serdes.json(Order))
    assert json.loads(serde.serialize("t", CloudEvent("a", "b", "c", Order("7", 2.5))))["data"] == {
        "id": "7",
        "total": 2.5,
    }


@pytest.mark.parametrize("serde", [CloudEventSerde, StructuredCloudEventSerde])
def test_avro_of_an_inner_serde_is_binary_data(serde: Any) -> None:
    trades = serde(AvroSerde("mock://cloud-events", SCHEMA, Trade))
    event = CloudEvent("trade", "/exchange", "1", TRADE, datacontenttype="application/avro")
    assert trades.deserialize("t", *trades.serialize_record("t", event)) == event
    with pytest.raises(SerializationError, match=r"its data is not JSON: .*Set datacontenttype"):
        trades.serialize("t", CloudEvent("trade", "/exchange", "1", TRADE))


def test_an_event_without_data_is_written_in_structured_mode_only() -> None:
    event: CloudEvent[Any] = CloudEvent("a", "b", "c")
    assert STRUCTURED.deserialize("t", STRUCTURED.serialize("t", event)) == event
    with pytest.raises(SerializationError, match=r"to 'orders': .* null value.* StructuredCloudEventSerde"):
        BINARY.serialize_record("orders", event)


@pytest.mark.parametrize(
    ("data", "headers", "message"),
    [
        (b"{}", (), "no ce_specversion and no content-type application/cloudevents"),
        (b"{}", (("ce_specversion", b"1.0"), ("ce_type", b"t"), ("ce_source", b"s")), "no ce_id"),
        (b"{}", (STRUCTURED_TYPE,), "expected a JSON object with specversion"),
        (b"{", (STRUCTURED_TYPE,), "as JSON"),
        (b'{"specversion":"1.0","type":"t","source":"s","id":"i","data_base64":"?"}', (STRUCTURED_TYPE,), "base64"),
        (b'{"specversion":"1.0","type":"t","source":"s","id":"i","time":"now"}', (STRUCTURED_TYPE,), "isoformat"),
        (b'{"specversion":"1.0","type":"t","source":"s","id":"i","time":"2024-01-01"}', (STRUCTURED_TYPE,), "zone"),
        (b'{"specversion":"1.0","type":"t","source":"s","id":"i","x":1.5}', (STRUCTURED_TYPE,), "extension x"),
        (b"{", (("ce_specversion", b"1.0"), ("content-type", b"application/json")), "as JSON"),
        (b"\xff", (("ce_specversion", b"1.0"), ("content-type", b"text/plain")), "as text/plain"),
        (b"x", (("ce_id", b"\xff"),), "can't decode byte 0xff"),
    ],
)
def test_a_record_that_is_no_event_is_refused_with_its_topic(data: bytes, headers: Headers, message: str) -> None:
    with pytest.raises(SerializationError, match=f"'orders'.*{message}"):
        BINARY.deserialize("orders", data, headers)


@pytest.mark.parametrize("serde", [BINARY, STRUCTURED])
def test_a_value_that_does_not_fit_is_refused(serde: Serde[Any]) -> None:
    with pytest.raises(TypeError, match="'orders': expected a CloudEvent, got dict"):
        serde.serialize("orders", {"id": 1})
    with pytest.raises(SerializationError, match="data of the type image/png is bytes, not str"):
        serde.serialize("orders", CloudEvent("a", "b", "c", "text", datacontenttype="image/png"))


@pytest.mark.parametrize("execution", ["record", "auto"])
def test_a_topology_reads_both_modes_and_stores_events(execution: str) -> None:
    builder = StreamsBuilder()
    kept = Materialized.as_("kept").with_key_serde(TEXT).with_value_serde(BINARY)
    events = builder.stream("in", Consumed.with_(TEXT, BINARY)).group_by_key().reduce(lambda _, new: new, kept)
    events.to_stream().to("out", Produced.with_(TEXT, BINARY))
    binary, structured = (
        CloudEvent("t", "/s", id, {"n": id}, datacontenttype="application/json", extensions={"x": id}) for id in "12"
    )
    with TopologyTestDriver(builder.build(), {"penstock.execution": execution}) as driver:
        driver.create_input_topic("in", TEXT, BINARY).pipe_input(TestRecord("a", binary, headers=[("x", b"1")]))
        driver.create_input_topic("in", TEXT, STRUCTURED).pipe_input("b", structured)
        target = driver.create_output_topic("out", TEXT, BINARY)
        first, second = target.read_records_to_list()
        assert (first.value, second.value) == (binary, structured)
        assert (first.headers[0], dict(second.headers)["ce_id"]) == (("x", b"1"), b"2")
        store = driver.get_key_value_store("kept")
        assert store is not None
        assert [store.get("a"), store.get("b")] == [binary, structured]


def test_an_annotation_does_not_choose_a_content_mode() -> None:
    assert serde_of_type(CloudEvent) is None
    assert serde_of_type(CloudEvent[Order]) is None


@pytest.mark.parametrize("serde", [BINARY, STRUCTURED, CloudEventSerde(Serdes.json(Order))])
def test_a_serde_can_be_sent_to_workers(serde: Serde[Any]) -> None:
    event = CloudEvent("t", "/s", "1", Order("7", 1.0))
    serde = pickle.loads(pickle.dumps(serde))
    assert serde.deserialize("t", *serde.serialize_record("t", event)).id == "1"
