"""The limits of the codec of messages, also for garbage; test_schema.py compares it with another."""

from __future__ import annotations

import resource
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_broker.apis import APIS
from penstock_broker.wire.api_schemas import request_schema
from penstock_broker.wire.codec import LazyArray, Message, encoded_element, request_decoder, response_encoder
from penstock_broker.wire.primitives import Cursor, MalformedMessageError, OversizedMessageError, Sink
from tests.support.api_keys import METADATA

VERSIONS = [
    pytest.param(key, version, id=f"{request_schema(key).name}-{version}")
    for key, api in APIS.items()
    for version in range(api.min_version, api.max_version + 1)
]


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


@pytest.mark.parametrize("version", range(13))
def test_an_encoded_element_is_written_as_its_message(version: int) -> None:
    topic = {"name": "a", "is_internal": True, "partitions": [{"partition_index": 1, "replica_nodes": [2, 3]}]}
    encode, once, each_time = response_encoder(METADATA, version), Sink(), Sink()
    encode(once, {"topics": [encoded_element(METADATA, version, "topics", topic)] * 2})
    encode(each_time, {"topics": [topic] * 2})
    assert once.chunks == each_time.chunks


def test_a_field_of_another_version_is_left_out_and_an_unknown_one_is_refused() -> None:
    encode, old, new = response_encoder(METADATA, 1), Sink(), Sink()
    encode(old, {"topics": [{"name": "a", "is_internal": True}]})
    encode(new, {"topics": [{"name": "a", "is_internal": True, "topic_id": uuid.uuid4()}], "throttle_time": 7})
    assert old.chunks == new.chunks
    with pytest.raises(ValueError, match=r"^MetadataResponseTopic has no field internal, nam$"):
        encode(Sink(), {"topics": [{"nam": "a", "internal": True}]})


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
