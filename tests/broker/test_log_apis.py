"""The APIs of records on the wire: Produce, ListOffsets, DeleteRecords and OffsetForLeaderEpoch."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_broker.process import BrokerProcess
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.record_batches import TRANSACTIONAL
from tests.broker.test_connection import serves
from tests.support.api_keys import CREATE_TOPICS, DELETE_RECORDS, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, PRODUCE
from tests.support.brokers import EMBEDDED_ONLY, RunningBroker
from tests.support.protocol_client import ProtocolClient, versions_of
from tests.support.record_batches import BatchRecord, Compression, encode_batch
from tests.support.topic_requests import RECORDS, create, fetch_body, fetched, produce
from tests.support.waiting import until

MAGIC_AT = 16
RECORD = [BatchRecord(1000, b"k", b"v")]


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[ProtocolClient]:
    with ProtocolClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def topic(client: ProtocolClient) -> str:
    return created(client)


def created(client: ProtocolClient, **configs: str) -> str:
    name = f"topic-{uuid.uuid4()}"
    wanted = {"name": name, "num_partitions": 2, "replication_factor": 1}
    wanted["configs"] = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    client.call(CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 10_000})
    # A real Kafka elects the leader after its answer.
    assert until(lambda: list_offset(client, name, 7, -1) == (ErrorCode.none, 0))
    return name


def list_offset(client: ProtocolClient, topic: str, version: int, timestamp: int) -> tuple[int, int]:
    wanted = {"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}
    [answer] = client.call(LIST_OFFSETS, version, {"replica_id": -1, "topics": [wanted]})["topics"]
    [found] = answer["partitions"]
    return found["error_code"], found["offset"]


def code_of_produce(client: ProtocolClient, topic: str, batch: bytes | bytearray, version: int = 11) -> int:
    code: int = answer_to_produce(client, topic, batch, version)["error_code"]
    return code


def answer_to_produce(client: ProtocolClient, topic: str, batch: bytes | bytearray, version: int = 11) -> Message:
    data = {"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}
    body = {"acks": -1, "timeout": 10_000, "topic_data": [data]}
    answer: Message = client.call(PRODUCE, version, body)["responses"][0]["partition_responses"][0]
    return answer


def test_a_repeated_batch_is_answered_with_the_time_of_its_append(client: ProtocolClient) -> None:
    topic = created(client, message_timestamp_type="LogAppendTime")
    batch = encode_batch(RECORD, producer_id=7, producer_epoch=0, base_sequence=0)
    first, again = [answer_to_produce(client, topic, batch) for _ in range(2)]
    assert (first["error_code"], again["base_offset"]) == (ErrorCode.none, 0)
    assert again["log_append_time"] == first["log_append_time"] > 1_000_000_000_000


def test_batches_that_no_producer_sends_are_refused(client: ProtocolClient, topic: str) -> None:
    old = encode_batch(RECORD)
    old[MAGIC_AT] = 1
    without_sequence = encode_batch(RECORD, producer_id=7, producer_epoch=0, base_sequence=-1)
    damaged = encode_batch(RECORD)
    damaged[-1] ^= 1
    for batch, code in (
        (old, ErrorCode.invalid_record),
        (without_sequence, ErrorCode.invalid_record),
        (encode_batch(RECORD) * 2, ErrorCode.invalid_record),
        (encode_batch(RECORD, attributes=0x20), ErrorCode.invalid_record),
        (damaged, ErrorCode.corrupt_message),
    ):
        assert code_of_produce(client, topic, batch) == code
    assert list_offset(client, topic, 7, -1) == (ErrorCode.none, 0)


@pytest.mark.parametrize("version", versions_of(PRODUCE))
def test_zstd_needs_a_version_of_produce_that_has_it(client: ProtocolClient, topic: str, version: int) -> None:
    batch = encode_batch(RECORD, compression=Compression.ZSTD)
    expected = ErrorCode.none if version >= 7 else ErrorCode.unsupported_compression_type
    assert code_of_produce(client, topic, batch, version) == expected


@pytest.mark.parametrize("version", versions_of(LIST_OFFSETS))
def test_special_times_need_a_version_of_list_offsets_that_has_them(
    client: ProtocolClient, topic: str, version: int
) -> None:
    assert code_of_produce(client, topic, encode_batch(RECORD)) == ErrorCode.none
    for timestamp, first_version, offset in ((-1, 1, 1), (-2, 1, 0), (-3, 7, 0), (-4, 8, 0), (-5, 9, -1), (-7, 99, -1)):
        expected = (ErrorCode.none, offset) if version >= first_version else (ErrorCode.unsupported_version, -1)
        assert list_offset(client, topic, version, timestamp) == expected, timestamp


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", versions_of(PRODUCE))
def test_every_version_of_produce(client: ProtocolClient, topic: str, version: int) -> None:
    for expected in (0, 3, 6):
        answer = produce(client, topic, version)
        assert (answer["error_code"], answer["base_offset"]) == (ErrorCode.none, expected)


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", versions_of(LIST_OFFSETS))
def test_every_version_of_list_offsets(client: ProtocolClient, topic: str, version: int) -> None:
    produce(client, topic)

    def ask(timestamp: int, partition: int = 0) -> tuple[int, int, int]:
        wanted = {"name": topic, "partitions": [{"partition_index": partition, "timestamp": timestamp}]}
        answer = client.call(LIST_OFFSETS, version, {"replica_id": -1, "topics": [wanted]})["topics"][0]["partitions"][
            0
        ]
        return answer["error_code"], answer["offset"], answer["timestamp"]

    assert ask(-1) == (ErrorCode.none, 3, -1)
    assert ask(-2) == (ErrorCode.none, 0, -1)
    unsupported = (ErrorCode.unsupported_version, -1, -1)
    assert ask(-3) == ((ErrorCode.none, 2, 1002) if version >= 7 else unsupported)
    assert ask(-4) == ((ErrorCode.none, 0, -1) if version >= 8 else unsupported)
    assert ask(-5) == ((ErrorCode.none, -1, -1) if version >= 9 else unsupported)
    assert ask(-6) == unsupported
    assert ask(1001) == (ErrorCode.none, 1, 1001)
    assert ask(1003) == (ErrorCode.none, -1, -1)
    assert ask(-3, partition=1) == ((ErrorCode.none, -1, -1) if version >= 7 else unsupported)
    assert ask(-1, partition=2)[0] == ErrorCode.unknown_topic_or_partition


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", versions_of(DELETE_RECORDS))
def test_every_version_of_delete_records(client: ProtocolClient, topic: str, version: int) -> None:
    produce(client, topic)

    def delete(offset: int, partition: int = 0, name: str = topic) -> tuple[int, int]:
        wanted = {"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}
        answer = client.call(DELETE_RECORDS, version, {"topics": [wanted], "timeout": 1000})
        found = answer["topics"][0]["partitions"][0]
        return found["error_code"], found["low_watermark"]

    assert delete(1) == (ErrorCode.none, 1)
    assert delete(4) == (ErrorCode.offset_out_of_range, -1)
    assert delete(0, partition=2) == (ErrorCode.unknown_topic_or_partition, -1)
    assert produce(client, topic)["log_start_offset"] == 1
    assert delete(-1) == (ErrorCode.none, 6)
    answer = fetched(client.call(FETCH, 16, fetch_body(client, topic, 5)))
    assert (answer["error_code"], answer["high_watermark"]) == (ErrorCode.offset_out_of_range, 6)
    assert fetched(client.call(FETCH, 16, fetch_body(client, topic, 6)))["log_start_offset"] == 6


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", versions_of(OFFSET_FOR_LEADER_EPOCH))
def test_every_version_of_offset_for_leader_epoch(client: ProtocolClient, topic: str, version: int) -> None:
    produce(client, topic)

    def end_of(epoch: int, partition: int = 0, current: int = -1) -> tuple[int, int, int]:
        wanted = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [wanted]}]}
        found = client.call(OFFSET_FOR_LEADER_EPOCH, version, body)["topics"][0]["partitions"][0]
        return found["error_code"], found["leader_epoch"], found["end_offset"]

    assert end_of(0) == (ErrorCode.none, 0, 3)
    assert end_of(1) == (ErrorCode.none, -1, -1)
    assert end_of(0, partition=2) == (ErrorCode.unknown_topic_or_partition, -1, -1)
    assert end_of(0, current=1) == (ErrorCode.unknown_leader_epoch, -1, -1)


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", versions_of(PRODUCE))
def test_every_version_of_produce_names_the_records_that_are_refused(client: ProtocolClient, version: int) -> None:
    name = f"compacted-{uuid.uuid4()}"
    create(client, name, 1, configs=[{"name": "cleanup.policy", "value": "compact"}])
    records = bytes(encode_batch([BatchRecord(0, b"k", b"v"), BatchRecord(0, None, b"v")]))
    data = [{"name": name, "partition_data": [{"index": 0, "records": records}]}]
    answer = produce(client, name, version, topic_data=data)
    assert (answer["error_code"], answer["base_offset"]) == (ErrorCode.invalid_record, -1)
    if version >= 8:
        assert [one["batch_index"] for one in answer["record_errors"]] == [1]
        assert "compacted" in answer["error_message"]


@EMBEDDED_ONLY
def test_a_batch_of_a_transaction_that_is_cut_within_its_header_is_refused(client: ProtocolClient, topic: str) -> None:
    batch = encode_batch([BatchRecord(0, b"k", b"v")], attributes=TRANSACTIONAL, producer_id=7, base_sequence=0)
    data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch[:40])}]}]
    assert produce(client, topic, topic_data=data)["error_code"] == ErrorCode.corrupt_message


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", versions_of(PRODUCE))
def test_every_version_of_produce_gives_the_time_of_the_append(client: ProtocolClient, version: int) -> None:
    name = f"append-time-{uuid.uuid4()}"
    create(client, name, 1, configs=[{"name": "message.timestamp.type", "value": "LogAppendTime"}])
    time = produce(client, name, version)["log_append_time"]
    [[found]] = [
        one["partitions"]
        for one in client.call(
            LIST_OFFSETS,
            9,
            {"replica_id": -1, "topics": [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -3}]}]},
        )["topics"]
    ]
    assert (found["offset"], found["timestamp"]) == (0, time)
    assert time > 1_000_000_000_000


@EMBEDDED_ONLY
def test_a_refused_produce_says_why(client: ProtocolClient, topic: str) -> None:
    assert produce(client, topic, acks=2)["error_code"] == ErrorCode.invalid_required_acks
    assert produce(client, topic, partition=5)["error_code"] == ErrorCode.unknown_topic_or_partition
    assert produce(client, "no-such-topic")["error_code"] == ErrorCode.unknown_topic_or_partition


@EMBEDDED_ONLY
def test_acks_0_has_no_answer_and_the_records_are_there(client: ProtocolClient, topic: str) -> None:
    data = {"name": topic, "partition_data": [{"index": 0, "records": RECORDS}]}
    client.send(PRODUCE, 11, {"acks": 0, "timeout": 1000, "topic_data": [data]})
    assert produce(client, topic)["base_offset"] == 3


@EMBEDDED_ONLY
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(max_size=200), at=st.integers(0, 1000), version=st.sampled_from(versions_of(PRODUCE)))
def test_damaged_records_never_stop_the_broker_nor_enter_the_log(
    embedded_broker: BrokerProcess, client: ProtocolClient, topic: str, garbage: bytes, at: int, version: int
) -> None:
    damaged = bytearray(RECORDS)
    at %= len(damaged)
    damaged[at : at + len(garbage)] = garbage
    data = {"name": topic, "partition_data": [{"index": 0, "records": bytes(damaged)}]}
    answer = client.call(PRODUCE, version, {"acks": -1, "timeout": 1, "topic_data": [data]})["responses"][0]
    # The first 16 bytes are the broker's to write, and nothing checks them.
    if answer["partition_responses"][0]["error_code"] == ErrorCode.none:
        assert bytes(damaged[17:]) == RECORDS[17:]
    assert serves(embedded_broker)
