"""What one client may cost the embedded broker, and the others."""

from __future__ import annotations

import multiprocessing
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock_broker.batch import LOG_APPEND_TIME, InvalidBatchError, read_header
from penstock_broker.config import BrokerConfig
from penstock_broker.log_validator import MOST_REFUSED
from penstock_broker.process import BrokerProcess
from penstock_broker.records import MOST_DECOMPRESSED, record_times
from penstock_broker.server import run
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.primitives import MOST_ELEMENTS, MOST_STRING
from penstock_broker.wire.record_batches import HEADER_SIZE
from penstock_broker.wire.record_batches import encode_batch as encode_with_header
from tests.support.api_keys import API_VERSIONS, CREATE_TOPICS, FETCH, METADATA, PRODUCE
from tests.support.protocol_client import ProtocolClient
from tests.support.record_batches import BatchRecord, Compression, encode_batch
from tests.support.waiting import until

MIB = 1024 * 1024


def resident_bytes(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory of a process is read from /proc")
def test_memory_follows_what_has_arrived_and_not_what_is_announced(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, ProtocolClient(broker.bootstrap_servers) as client, ExitStack() as opened:
        client.call(API_VERSIONS, 3, {})
        assert broker.pid is not None
        before = resident_bytes(broker.pid)
        host, _, port = broker.bootstrap_servers.rpartition(":")
        for _ in range(30):
            connection = opened.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(struct.pack(">i", 100 * MIB) + b"x" * 100)
        for _ in range(3):  # by then the broker has taken note of them
            client.call(API_VERSIONS, 3, {})
        assert resident_bytes(broker.pid) - before < 64 * MIB


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory of a process is read from /proc")
def test_memory_does_not_grow_with_what_a_short_request_asks_for(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, ProtocolClient(broker.bootstrap_servers) as client:
        compacted = {
            "name": "compacted",
            "num_partitions": 1,
            "configs": [{"name": "cleanup.policy", "value": "compact"}],
        }
        wide = {"name": "wide", "num_partitions": 100}
        topics = [topic | {"replication_factor": 1} for topic in (compacted, wide)]
        client.call(CREATE_TOPICS, 7, {"topics": topics, "timeout": 1_000})
        assert broker.pid is not None
        before = most_resident_bytes(broker.pid)
        # As in Kafka, a topic that is wanted again is answered once.
        again = client.call(METADATA, 12, {"topics": [{"name": "wide"}] * 5_000})
        assert [len(topic["partitions"]) for topic in again["topics"]] == [100]
        many, one_more, wrong = produce(client, without_keys(100_000), without_keys(1), with_wrong_count(1_000_000))
        assert [refused["batch_index"] for refused in many["record_errors"]] == list(range(MOST_REFUSED))
        assert (one_more["error_code"], one_more["record_errors"]) == (ErrorCode.invalid_record, [])
        assert wrong["error_code"] == ErrorCode.corrupt_message
        assert most_resident_bytes(broker.pid) - before < 64 * MIB


def most_resident_bytes(pid: int) -> int:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def produce(client: ProtocolClient, *batches: bytes) -> list[Message]:
    data = [{"index": 0, "records": batch} for batch in batches]
    body = {"acks": -1, "timeout": 1, "topic_data": [{"name": "compacted", "partition_data": data}]}
    answers: list[Message] = client.call(PRODUCE, 11, body)["responses"][0]["partition_responses"]
    return answers


def without_keys(count: int) -> bytes:
    return bytes(encode_batch([BatchRecord(1000, None, b"")] * count, compression=Compression.ZSTD))


def with_wrong_count(count: int) -> bytes:
    """A batch of one record, with the time of the append, that counts more."""
    batch = encode_batch([BatchRecord(1000, b"k", b"v")], attributes=LOG_APPEND_TIME)
    header = read_header(batch)._replace(last_offset_delta=count - 1, record_count=count)
    return bytes(encode_with_header(header, memoryview(batch)[HEADER_SIZE:]))


def test_a_large_request_arrives_whole(embedded_broker: BrokerProcess) -> None:
    with ProtocolClient(embedded_broker.bootstrap_servers) as client:
        names = ["n" * 200 + str(n) for n in range(5_000)]
        # None is created: other tests use this broker, and all of them would have 5,000 topics more to list.
        body = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
        assert [topic["name"] for topic in client.call(METADATA, 12, body)["topics"]] == names


def test_a_request_of_too_many_elements_closes_its_connection_alone(embedded_broker: BrokerProcess) -> None:
    with ProtocolClient(embedded_broker.bootstrap_servers) as client:
        with ProtocolClient(embedded_broker.bootstrap_servers) as greedy:
            greedy.send(METADATA, 1, {"topics": [{"name": "n"}] * (MOST_ELEMENTS + 1)})
            with pytest.raises((ConnectionError, EOFError, struct.error)):
                greedy.receive(METADATA, 1)
        assert client.call(API_VERSIONS, 3, {})["error_code"] == 0


def test_an_error_message_that_repeats_the_longest_name_is_sent(embedded_broker: BrokerProcess) -> None:
    with ProtocolClient(embedded_broker.bootstrap_servers) as client:
        configs = [{"name": "n" * MOST_STRING, "value": "1"}]
        topic = {"name": "topic", "num_partitions": 1, "replication_factor": 1, "configs": configs}
        [refused] = client.call(CREATE_TOPICS, 7, {"topics": [topic], "timeout": 1_000})["topics"]
        assert refused["error_code"] == ErrorCode.invalid_config
        assert "nnnn" in refused["error_message"]


def test_only_the_requests_of_produce_may_be_large(embedded_broker: BrokerProcess) -> None:
    with ProtocolClient(embedded_broker.bootstrap_servers) as client:
        announced = struct.pack(">ihhi", 30 * MIB, METADATA, 12, 1)
        client.socket.sendall(announced)
        with pytest.raises(ConnectionError):
            client.receive_frame()
    with ProtocolClient(embedded_broker.bootstrap_servers) as client:
        data = {"name": "no-such-topic", "partition_data": [{"index": 0, "records": bytes(30 * MIB)}]}
        answer = client.call(PRODUCE, 11, {"acks": -1, "timeout": 1, "topic_data": [data]})
        [refused] = answer["responses"][0]["partition_responses"]
        assert refused["error_code"] == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("compression", [each for each in Compression if each.value])
def test_records_that_decompress_to_too_much_are_refused(compression: Compression) -> None:
    large = BatchRecord(1000, b"key", bytes(MOST_DECOMPRESSED))
    batch = memoryview(bytes(encode_batch([large], compression=compression)))
    assert len(batch) < MOST_DECOMPRESSED // 4
    with pytest.raises(InvalidBatchError, match="cannot be read"):
        next(record_times(batch))


def serve(config: BrokerConfig, output: Any) -> None:
    run(config, lambda address, _: output.send(address))


@pytest.fixture
def small_broker(tmp_path: Path) -> Iterator[str]:
    """The address of a broker that holds little in memory."""
    config = BrokerConfig(
        data_dir=tmp_path, max_unread_bytes=1 << 20, max_waiting_fetch_bytes=1_000, max_partial_request_bytes=3 << 20
    )
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(config, theirs), daemon=True)
    process.start()
    assert ours.poll(60)
    yield ours.recv()
    process.kill()
    process.join()


def fetch_body(min_bytes: int, partition_bytes: int) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": partition_bytes}
    topics = [{"topic": "topic", "partitions": [partition]}]
    return {"max_wait": 60_000, "min_bytes": min_bytes, "max_bytes": 1 << 26, "topics": topics}


def test_a_client_that_reads_nothing_is_closed_and_a_fetch_waits_for_no_more_than_it_may_hold(
    small_broker: str,
) -> None:
    batch = bytes(encode_batch([BatchRecord(1000, None, b"x" * 500_000)]))
    data = {"name": "topic", "partition_data": [{"index": 0, "records": batch}]}
    with ProtocolClient(small_broker) as client, ProtocolClient(small_broker) as unread:
        client.call(METADATA, 12, {"topics": [{"name": "topic"}], "allow_auto_topic_creation": True})
        for _ in range(40):
            client.call(PRODUCE, 11, {"acks": -1, "timeout": 1, "topic_data": [data]})
        # It would wait for a minute, and time out, if it waited for so many bytes.
        client.call(FETCH, 11, fetch_body(min_bytes=1 << 30, partition_bytes=1 << 20))
        unread.send(FETCH, 11, fetch_body(min_bytes=1, partition_bytes=1 << 25))
        client.call(API_VERSIONS, 3, {})
        with pytest.raises(ConnectionError):
            unread.receive(FETCH, 11)


def test_requests_that_arrive_too_slowly_are_given_up_where_they_hold_too_much_memory(small_broker: str) -> None:
    with ExitStack() as opened:
        slow = [opened.enter_context(ProtocolClient(small_broker)) for _ in range(6)]
        for client in slow:
            with suppress(ConnectionError):  # it may be closed already
                client.socket.sendall(struct.pack(">ihhi", 100 * MIB, PRODUCE, 11, 1) + bytes(300_000))
        closed, _, _ = select.select([client.socket for client in slow], [], [], 60)
        assert closed
        other = opened.enter_context(ProtocolClient(small_broker))
        assert other.call(API_VERSIONS, 3, {})["error_code"] == 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open sockets of a process are read from /proc")
def test_a_client_that_is_lost_while_its_answer_waits_is_noticed_at_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, ProtocolClient(broker.bootstrap_servers) as client:
        client.call(METADATA, 12, {"topics": [{"name": "topic"}], "allow_auto_topic_creation": True})
        before = open_sockets(broker)
        with ProtocolClient(broker.bootstrap_servers) as lost:
            lost.send(FETCH, 11, fetch_body(min_bytes=1 << 20, partition_bytes=1 << 20))
            assert until(lambda: open_sockets(broker) == before + 1)
            client.call(API_VERSIONS, 3, {})  # by now the fetch waits; it would do so for a minute
        assert until(lambda: open_sockets(broker) == before)


def open_sockets(broker: BrokerProcess) -> int:
    found = 0
    for path in Path(f"/proc/{broker.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            found += "socket:" in str(path.readlink())
    return found
