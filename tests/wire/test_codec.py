"""The codec of messages, compared with kio's own reader and writer, and fed with garbage."""

from __future__ import annotations

import dataclasses
import datetime
import io
import resource
import types
import uuid
from functools import cache
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from penstock_broker.apis import APIS
from penstock_broker.wire.codec import LazyArray, Message, entity_codec, request_decoder, response_encoder
from penstock_broker.wire.primitives import Cursor, MalformedMessageError, OversizedMessageError, Sink
from tests.support.api_keys import METADATA

VERSIONS = [
    pytest.param(key, version, id=f"{load_request_schema(key, version).__name__}-{version}")
    for key, api in APIS.items()
    for version in range(api.min_version, api.max_version + 1)
]
NUMBERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def value_strategy(kind: str | None, declared: type[Any], nullable: bool) -> st.SearchStrategy[Any]:
    """Values of one field in the plain form of the broker's messages."""
    match kind:
        case None:
            values: st.SearchStrategy[Any] = message_strategy(declared)
        case "string":
            values = st.text(max_size=5)
        case "bytes" | "records":
            values = st.binary(max_size=5)
        case "uuid":
            return st.uuids()
        case "bool":
            return st.booleans()
        case "error_code":
            return st.sampled_from(ErrorCode).map(int)
        case "timedelta_i32":
            return st.integers(0, 2**31 - 1)
        case "datetime_i64":
            # kio reads -1 as null, where the field may be null.
            return st.just(-1) if nullable else st.integers(0, 2**45)
        case "float64":
            return st.floats(allow_nan=False)
        case "timedelta_i64":
            return st.integers(0, 2**40)
        case _:
            return st.integers(-(2 ** NUMBERS[kind]), 2 ** NUMBERS[kind] - 1)
    return st.none() | values if nullable else values


def field_strategy(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    declared: Any = field.type
    nullable = get_origin(declared) is types.UnionType
    if nullable:
        declared = next(part for part in get_args(declared) if part is not type(None))
    # A tagged field of kio is left out where it is null.
    nullable = nullable and "tag" not in field.metadata
    kind = field.metadata.get("kafka_type")
    if get_origin(declared) is not tuple:
        return value_strategy(kind, declared, nullable)
    items = st.lists(value_strategy(kind, get_args(declared)[0], False), max_size=3)
    return st.none() | items if nullable else items


@cache
def message_strategy(entity: type[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.name: field_strategy(field) for field in dataclasses.fields(entity)})


def plain(value: Any) -> Any:
    """A message of kio in the plain form of the broker's messages."""
    match value:
        case datetime.datetime():
            return round(value.timestamp() * 1000)
        case datetime.timedelta():
            return round(value.total_seconds() * 1000)
        case tuple():
            return [plain(item) for item in value]
        case memoryview():
            return bytes(value)
        case list():
            return [plain(item) for item in value]
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case _ if dataclasses.is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            return value


def matches(found: Any, wanted: Any) -> bool:
    """Whether a message has all the values wanted; nulls of kio stand for zero ids and missing times."""
    if isinstance(wanted, dict):
        return all(matches(found[name], value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(matches, found, wanted))
    if found is None and wanted in (uuid.UUID(int=0), -1):
        return True
    return bool(found == wanted)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_kio_reads_what_the_encoder_writes(key: int, version: int, data: st.DataObject) -> None:
    schema = load_response_schema(key, version)
    message = data.draw(message_strategy(schema))
    sink = Sink()
    response_encoder(key, version)(sink, message)
    content = b"".join(bytes(chunk) for chunk in sink.chunks)
    assert len(content) == sink.size
    found, read = entity_reader(schema)(content, 0)
    assert read == len(content)
    assert matches(plain(found), message)


def test_the_elements_of_a_lazy_array_are_made_while_they_are_written() -> None:
    sink, before = Sink(), []

    def topic(number: int) -> Message:
        before.append(sink.size)
        return {"name": f"topic-{number}"}

    response_encoder(METADATA, 1)(sink, {"topics": LazyArray(range(3), topic)})
    assert before == sorted(set(before))
    eager = Sink()
    response_encoder(METADATA, 1)(eager, {"topics": [{"name": f"topic-{number}"} for number in range(3)]})
    assert sink.chunks == eager.chunks


def test_a_message_has_a_largest_size() -> None:
    topic = {"name": "x" * 50, "partitions": []}
    response_encoder(METADATA, 1)(Sink(most_bytes=1_000), {"topics": [topic] * 10})
    with pytest.raises(OversizedMessageError):
        response_encoder(METADATA, 1)(Sink(most_bytes=1_000), {"topics": [topic] * 30})


@pytest.mark.parametrize("version", [8, 9])  # from 9 on, the lengths of strings are compact
def test_a_string_has_a_largest_size(version: int) -> None:
    def sent(name: str) -> Sink:
        sink = Sink()
        response_encoder(METADATA, version)(sink, {"topics": [{"name": name}]})
        return sink

    sent("x" * 32_767)
    with pytest.raises(OversizedMessageError, match="a string of more than 32767 bytes"):
        sent("x" * 32_768)


def test_a_string_that_is_too_long_is_refused() -> None:
    def read(length: int) -> Message:
        sink = Sink()
        sink.length(1, compact=True)
        sink.write(bytes(16))  # the id of a topic
        sink.length(length, compact=True)
        sink.write(b"x" * length + b"\0" * 10)
        return request_decoder(METADATA, 12)(Cursor(memoryview(b"".join(map(bytes, sink.chunks)))))

    assert read(32_767)["topics"][0]["name"] == "x" * 32_767
    with pytest.raises(MalformedMessageError, match="a string of 32768 bytes"):
        read(32_768)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_the_decoder_reads_what_kio_writes(key: int, version: int, data: st.DataObject) -> None:
    schema = load_request_schema(key, version)
    sink = Sink()
    message = data.draw(message_strategy(schema))
    entity_codec(schema).encode(sink, message)
    entity, _ = entity_reader(schema)(b"".join(bytes(chunk) for chunk in sink.chunks), 0)
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, entity)
    cursor = Cursor(memoryview(bytearray(buffer.getvalue())))
    found = request_decoder(key, version)(cursor)
    assert cursor.position == len(cursor.view)
    absent = {field.name for field in dataclasses.fields(schema) if "tag" in field.metadata and field.name not in found}
    assert matches(plain(found), {name: value for name, value in message.items() if name not in absent})


@pytest.mark.parametrize(("key", "version"), VERSIONS)
@settings(max_examples=15, deadline=None)
@given(garbage=st.binary(max_size=60))
def test_garbage_is_read_or_refused_within_its_own_size(key: int, version: int, garbage: bytes) -> None:
    cursor = Cursor(memoryview(bytearray(garbage)))
    try:
        request_decoder(key, version)(cursor)
    except MalformedMessageError:
        return
    assert cursor.position <= len(garbage)


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07\x00"])
@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_a_huge_count_reserves_no_memory(key: int, version: int, count: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for position in range(8):
        try:
            request_decoder(key, version)(Cursor(memoryview(bytearray(b"\x00" * position + count + b"\x00" * 20))))
        except MalformedMessageError:
            continue
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
