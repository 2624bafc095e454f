"""Serdes that read and write headers of records give the same records on each host, in both executions."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Consumed, Grouped, Materialized, Produced, Serdes, StreamsBuilder, Topology
from penstock.serdes.cloud_event import CloudEvent
from penstock.serdes.cloud_events import CloudEventSerde, StructuredCloudEventSerde
from tests.host.support import WITH_PROCESSES, InputRecord, Runner

pytestmark = WITH_PROCESSES

TEXT = Serdes.string()
EVENTS: CloudEventSerde[Any] = CloudEventSerde()
STRUCTURED: StructuredCloudEventSerde[Any] = StructuredCloudEventSerde()


def event(number: int) -> CloudEvent[Any]:
    return CloudEvent(
        "counted", f"/sensor/{number % 3}", str(number), {"n": number}, datacontenttype="application/json"
    )


def largest(one: CloudEvent[Any], other: CloudEvent[Any]) -> CloudEvent[Any]:
    return max(one, other, key=lambda each: int(each.data["n"]))


def largest_by_source(source: str, target: str) -> Topology:
    """Events pass a repartition topic and a store, both in binary mode."""
    builder = StreamsBuilder()
    kept = Materialized.as_("largest").with_key_serde(TEXT).with_value_serde(EVENTS)
    by_source = builder.stream(source, Consumed.with_(TEXT, EVENTS)).group_by(
        lambda _, each: each.source, Grouped.with_(TEXT, EVENTS)
    )
    by_source.reduce(largest, kept).to_stream().to(target, Produced.with_(TEXT, EVENTS))
    return builder.build()


@pytest.mark.parametrize("execution", ["record", "auto"])
def test_events_of_both_modes_pass_repartition_topics_stores_and_restarts(
    runner: Runner, application: str, topics: tuple[str, str], execution: str
) -> None:
    source, target = topics
    config = runner.config(application, {"penstock.execution": execution})
    for part in (range(60), range(60, 120)):
        records = []
        for number in part:
            serde = STRUCTURED if number % 2 else EVENTS
            data, headers = serde.serialize_record(source, event(number))
            records.append(InputRecord(b"k", data, 1_000 + number, number % 3, headers))
        runner.write(source, records)
        runner.run_here(largest_by_source(source, target), config)
    found = {}
    for record in runner.read(target):
        assert record.value is not None
        assert dict(record.headers)["content-type"] == b"application/json"
        read = EVENTS.deserialize(target, record.value, record.headers)
        assert record.key == read.source.encode()
        found[record.key] = read
    assert set(found.values()) == {event(117), event(118), event(119)}


def test_a_header_of_the_input_that_belongs_to_the_serde_is_replaced(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    builder = StreamsBuilder()
    builder.stream(source, Consumed.with_(TEXT, TEXT)).map_values(lambda text: event(int(text))).to(
        target, Produced.with_(TEXT, EVENTS)
    )
    others = (("ce_subject", b"old"), ("trace", b"1"), ("trace", None))
    runner.write(source, [InputRecord(b"k", str(number).encode(), number, 0, others) for number in range(40)])
    runner.run_here(builder.build(), runner.config(application))
    found = runner.read(target)
    assert len(found) == 40
    for record in found:
        assert record.headers[:2] == (("trace", b"1"), ("trace", None))
        assert record.value is not None
        assert EVENTS.deserialize(target, record.value, record.headers).subject is None
