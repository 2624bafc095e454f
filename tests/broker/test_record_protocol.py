"""What Produce and ListOffsets refuse on the wire, on the embedded broker and on a real Kafka alike."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import CREATE_TOPICS, LIST_OFFSETS, PRODUCE
from tests.support.brokers import RunningBroker
from tests.support.protocol_client import ProtocolClient, versions_of
from tests.support.record_batches import BatchRecord, Compression, encode_batch
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
    wanted = {"name": name, "num_partitions": 1, "replication_factor": 1}
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


def produce(client: ProtocolClient, topic: str, batch: bytes | bytearray, version: int = 11) -> int:
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
        assert produce(client, topic, batch) == code
    assert list_offset(client, topic, 7, -1) == (ErrorCode.none, 0)


@pytest.mark.parametrize("version", versions_of(PRODUCE))
def test_zstd_needs_a_version_of_produce_that_has_it(client: ProtocolClient, topic: str, version: int) -> None:
    batch = encode_batch(RECORD, compression=Compression.ZSTD)
    expected = ErrorCode.none if version >= 7 else ErrorCode.unsupported_compression_type
    assert produce(client, topic, batch, version) == expected


@pytest.mark.parametrize("version", versions_of(LIST_OFFSETS))
def test_special_times_need_a_version_of_list_offsets_that_has_them(
    client: ProtocolClient, topic: str, version: int
) -> None:
    assert produce(client, topic, encode_batch(RECORD)) == ErrorCode.none
    for timestamp, first_version, offset in ((-1, 1, 1), (-2, 1, 0), (-3, 7, 0), (-4, 8, 0), (-5, 9, -1), (-7, 99, -1)):
        expected = (ErrorCode.none, offset) if version >= first_version else (ErrorCode.unsupported_version, -1)
        assert list_offset(client, topic, version, timestamp) == expected, timestamp
