"""What functions of users are shown of a record besides key and value, in both executions and in batches of many
records: serdes the headers, timestamp extractors and topic name extractors all of it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Consumed, Headers, Materialized, Produced, RecordContext, Serde, StreamsBuilder
from penstock.record import ConsumerRecord, RecordBatch
from penstock.serdes.primitive import StringSerde
from tests.task.topologies import STRING, sent, task_of

HEADERS: list[Headers] = [(("at", b"5"),), (), (("at", b"7"), ("n", None)), (("at", b"1"),)]
EXECUTIONS = pytest.mark.parametrize("execution", ["auto", "record"])


class TellingSerde(Serde[str]):
    """A text with the headers that it was read or written with."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        return f"{value}>{shown(headers)}".encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        return f"{data.decode()}<{shown(headers)}"


def shown(headers: Headers) -> str:
    return ",".join(f"{name}={value.decode() if value else None}" for name, value in headers)


def records() -> RecordBatch:
    keys: list[bytes | None] = [b"a", b"b", None, b"a"]
    return RecordBatch.of([(key, b"v", 10 + row, row, HEADERS[row]) for row, key in enumerate(keys)])


def output(builder: StreamsBuilder, execution: str) -> list[Any]:
    task = task_of(builder.build(), execution=execution)
    task.add_records("in", 0, records())
    task.process()
    return sent(task)


@EXECUTIONS
def test_serdes_of_sources_and_sinks_are_shown_the_headers_of_each_record(execution: str) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(key_serde=TellingSerde(), value_serde=TellingSerde()))
    stream.to("out", Produced.with_(key_serde=TellingSerde(), value_serde=TellingSerde()))
    assert output(builder, execution) == [
        ("out", "a<at=5>at=5", "v<at=5>at=5", 10),
        ("out", "b<>", "v<>", 11),
        ("out", None, "v<at=7,n=None>at=7,n=None", 12),
        ("out", "a<at=1>at=1", "v<at=1>at=1", 13),
    ]


@EXECUTIONS
@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
def test_the_serdes_of_a_store_are_shown_the_headers_of_the_record_in_process(execution: str, cache_bytes: int) -> None:
    builder = StreamsBuilder()
    table = (
        builder.stream("in")
        .group_by_key()
        .reduce(lambda old, new: f"{old}+{new}", Materialized.as_("table").with_value_serde(TellingSerde()))
    )
    table.to_stream().to("out", Produced.with_(value_serde=STRING))
    task = task_of(builder.build(), execution=execution, cache_bytes=cache_bytes)
    task.add_records("in", 0, records())
    task.process()
    task.add_records("in", 0, RecordBatch.of([(b"a", b"w", 20, 4, ())]))  # read and written without any
    task.process()
    task.flush()
    of_a = [value for topic, key, value, _ in sent(task) if key == "a"]
    if cache_bytes:
        assert of_a == ["v>at=5<at=1+v>at=1<+w><"]
    else:
        assert of_a == ["v", "v>at=5<at=1+v", "v>at=5<at=1+v>at=1<+w"]


class CountingSerde(StringSerde):
    """Counts the values that are written one by one; takes no notice of headers."""

    uses_headers = False
    unchanging_types = StringSerde.unchanging_types

    def __init__(self) -> None:
        self.written = 0

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        self.written += 1
        return super().serialize(topic, value, headers)

    serialize_column = StringSerde.serialize_column
    serialize_distinct = StringSerde.serialize_distinct


@pytest.mark.parametrize(("execution", "written"), [("auto", 0), ("record", 3)])
def test_records_with_headers_stay_in_columns_where_the_serdes_do_not_use_these(execution: str, written: int) -> None:
    serde = CountingSerde()
    builder = StreamsBuilder()
    named = Materialized.as_("table").with_value_serde(serde)
    builder.stream("in").group_by_key().reduce(lambda old, new: new, named)
    task = task_of(builder.build(), execution=execution)
    task.add_records("in", 0, records())
    task.process()
    assert serde.written == written


@EXECUTIONS
def test_a_timestamp_extractor_is_shown_the_headers_and_where_the_record_came_from(execution: str) -> None:
    asked: list[ConsumerRecord] = []

    def extract(record: ConsumerRecord, partition_time: int) -> int:
        asked.append(record)
        return int(dict(record.headers).get("at") or 100)

    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(timestamp_extractor=extract)).to("out")
    assert [record[3] for record in output(builder, execution)] == [5, 100, 7, 1]
    assert [(each.topic, each.partition, each.offset, each.timestamp, each.headers) for each in asked] == [
        ("in", 0, row, 10 + row, HEADERS[row]) for row in range(4)
    ]


@EXECUTIONS
def test_a_topic_name_extractor_is_shown_the_context_of_the_record_that_is_sent(execution: str) -> None:
    asked: list[RecordContext] = []

    def extract(key: Any, value: Any, context: RecordContext) -> str:
        asked.append(context)
        return f"out-{context.topic}-{context.partition}-{context.offset}"

    builder = StreamsBuilder()
    builder.stream("in").to(extract, Produced.with_(value_serde=TellingSerde()))
    assert [(topic, value) for topic, _, value, _ in output(builder, execution)] == [
        (f"out-in-0-{row}", f"v>{shown(HEADERS[row])}") for row in range(4)
    ]
    assert [(context.timestamp, context.headers) for context in asked] == [(10 + row, HEADERS[row]) for row in range(4)]
