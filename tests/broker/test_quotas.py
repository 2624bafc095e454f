"""Quotas of clients: rates, and clients that are throttled."""

from __future__ import annotations

import asyncio
import json
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.record import TopicPartition
from penstock_broker.answers import LaterAnswer
from penstock_broker.apis import Api
from penstock_broker.config import BrokerConfig
from penstock_broker.connection import Connection, Connections
from penstock_broker.errors import ApiError
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.process import BrokerProcess
from penstock_broker.quotas import ClientQuotas, Rate
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import API_VERSIONS, CREATE_TOPICS, DESCRIBE_CLUSTER, FETCH, PRODUCE, WRITE_TXN_MARKERS
from tests.support.client_quotas import alter, described
from tests.support.protocol_client import ProtocolClient
from tests.support.record_batches import BatchRecord, encode_batch
from tests.support.waiting import until

CLIENT = "test"  # the client id of ProtocolClient
WAIT = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), arguments=("--quota-window-num", "3")) as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ProtocolClient]:
    with ProtocolClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture(autouse=True)
def no_quotas_stay(broker: BrokerProcess) -> Iterator[None]:
    yield
    with ProtocolClient(broker.bootstrap_servers) as other:
        for name, quotas in described(other).items():
            alter(other, name, **dict.fromkeys(quotas))


def produce(client: ProtocolClient, topic: str, size: int, acks: int = -1) -> Message:
    records = bytes(encode_batch([BatchRecord(1000, b"k", b"v" * size)]))
    data = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
    client.send(PRODUCE, 11, {"acks": acks, "timeout": 1000, "topic_data": [data]})
    return client.receive(PRODUCE, 11) if acks else {}


def fetch(client: ProtocolClient, topic: str) -> Message:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    wanted = [{"topic": topic, "partitions": [partition]}]
    return client.call(FETCH, 11, {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": wanted})


def create(broker: BrokerProcess) -> str:
    name = f"topic-{uuid.uuid4()}"
    with ProtocolClient(broker.bootstrap_servers) as client:
        client.call(CREATE_TOPICS, 7, {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}]})
    return name


def is_muted(client: ProtocolClient, broker: BrokerProcess) -> bool:
    """Return whether a request of a client is not handled while one that another sends later is."""
    client.send(API_VERSIONS, 0, {})
    with ProtocolClient(broker.bootstrap_servers) as other:
        other.call(API_VERSIONS, 0, {})
    client.socket.setblocking(False)
    try:
        client.socket.recv(1)
    except BlockingIOError:
        return True
    return False


def test_a_rate_is_averaged_over_the_windows() -> None:
    rate = Rate(windows=11, window_ms=1000)
    rate.record(1500, 0)
    # As in Kafka, the windows before the first use count, but for the present one.
    assert rate.span_ms(0) == 10_000
    assert rate.throttle_ms(quota=150, now=0) == 0
    assert rate.throttle_ms(quota=100, now=0) == 5_000
    assert rate.throttle_ms(quota=100, now=5_500) == pytest.approx((1500 / 10.5 - 100) / 100 * 10_500)
    assert rate.throttle_ms(quota=1, now=10_999) > 0
    assert rate.throttle_ms(quota=1, now=11_000) == 0


def test_a_rate_forgets_what_was_taken_back() -> None:
    rate = Rate(windows=3, window_ms=1000)
    rate.record(5_000, 0)
    rate.record(-5_000, 10)
    assert rate.throttle_ms(quota=1, now=10) == 0


@pytest.fixture
def quotas(tmp_path: Path) -> Iterator[ClientQuotas]:
    store = MetadataStore(tmp_path / "metadata.sqlite")
    yield ClientQuotas(BrokerConfig(data_dir=tmp_path, max_quota_clients=2), store)
    store.close()


def test_each_client_is_measured_on_its_own_and_its_own_quota_counts_before_the_default(quotas: ClientQuotas) -> None:
    quotas.set(None, {"producer_byte_rate": 100.0})
    quotas.set("large", {"producer_byte_rate": 1000.0})
    assert quotas.throttle(PRODUCE, "a", 1500, {}, 0, 0) == ({"throttle_time": 5000}, 5000)
    assert quotas.throttle(PRODUCE, "b", 500, {}, 0, 0) == ({}, 0)
    assert quotas.throttle(PRODUCE, "large", 1500, {}, 0, 0) == ({}, 0)
    assert quotas.throttle(FETCH, "a", 10**9, {"responses": []}, 0, 0)[1] == 0


def test_the_time_of_requests_is_throttled_for_a_window_at_most(quotas: ClientQuotas) -> None:
    quotas.set("slow", {"request_percentage": 1.0})
    assert quotas.throttle(API_VERSIONS, "slow", 0, {}, 50, 0) == ({}, 0)
    assert quotas.throttle(API_VERSIONS, "slow", 0, {}, 100, 0) == ({"throttle_time": 1000}, 1000)


def test_clients_and_quotas_are_bounded(quotas: ClientQuotas) -> None:
    quotas.set(None, {"producer_byte_rate": 1.0})
    for number in range(10):
        quotas.throttle(PRODUCE, str(number), 1, {}, 0, 0)
    assert len(quotas._rates) == 2
    quotas.set("a", {"producer_byte_rate": 1.0})
    with pytest.raises(ApiError, match="max_quota_clients"):
        quotas.set("b", {"producer_byte_rate": 1.0})
    quotas.set("a", {})
    quotas.set("b", {"producer_byte_rate": 1.0})


class BusyAnswer(LaterAnswer):
    """Is busy for a while before it answers, as a Fetch that reads is."""

    def start(self, done: Callable[[Message], None]) -> None:
        deadline = time.perf_counter() + 0.05
        while time.perf_counter() < deadline:
            pass
        done({})

    def cancel(self) -> None:
        pass


def test_the_time_in_which_an_answer_is_made_counts(quotas: ClientQuotas, tmp_path: Path) -> None:
    async def exchange() -> bytes:
        loop = asyncio.get_running_loop()
        quotas.set("", {"request_percentage": 0.01})
        state: Any = SimpleNamespace(config=BrokerConfig(data_dir=tmp_path), quotas=quotas)
        connections = Connections(state.config)
        apis = {DESCRIBE_CLUSTER: Api(lambda state, request: BusyAnswer(), 0, 0, 0)}
        server = await loop.create_server(lambda: Connection(state, connections, apis), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        frame = struct.pack(">hhih", DESCRIBE_CLUSTER, 0, 1, -1) + b"\0\0\0"
        writer.write(struct.pack(">i", len(frame)) + frame)
        [size] = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), WAIT))
        answer = await reader.readexactly(size)
        writer.close()
        server.close()
        return answer

    # After the number of the request and a tag section comes the time to wait, a whole window.
    assert struct.unpack_from(">i", asyncio.run(exchange()), 5) == (1000,)


def test_quotas_survive_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with ProtocolClient(broker.bootstrap_servers) as client:
            alter(client, "a", producer_byte_rate=5)
            alter(client, None, request_percentage=90.5)
        broker.kill()
        broker.start()
        with ProtocolClient(broker.bootstrap_servers) as client:
            assert described(client) == {"a": {"producer_byte_rate": 5}, None: {"request_percentage": 90.5}}


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_producer_above_its_quota_is_muted_after_its_answer(
    client: ProtocolClient, broker: BrokerProcess, acks: int
) -> None:
    topic = create(broker)
    alter(client, CLIENT, producer_byte_rate=100)
    answer = produce(client, topic, 10_000, acks)
    if acks:
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == ErrorCode.none
        assert answer["throttle_time"] > 50_000
    assert is_muted(client, broker)


def test_a_muted_client_is_served_when_its_time_is_over(client: ProtocolClient, broker: BrokerProcess) -> None:
    topic = create(broker)
    alter(client, CLIENT, producer_byte_rate=5_000)
    assert 0 < produce(client, topic, 10_000)["throttle_time"] < 10_000
    assert client.call(API_VERSIONS, 0, {})["error_code"] == ErrorCode.none


def test_an_answer_without_a_throttle_time_is_sent(client: ProtocolClient, broker: BrokerProcess) -> None:
    alter(client, CLIENT, request_percentage=0.000001)
    assert client.call(WRITE_TXN_MARKERS, 1, {"markers": []}) == {"markers": []}
    assert is_muted(client, broker)


def test_a_fetch_above_the_quota_has_no_records_and_one_within_it_no_more_than_it(
    client: ProtocolClient, broker: BrokerProcess
) -> None:
    topic = create(broker)
    for _ in range(5):
        produce(client, topic, 1_000)
    assert len(fetch(client, topic)["responses"][0]["partitions"][0]["records"]) > 5_000
    alter(client, CLIENT, consumer_byte_rate=1_000)
    within = fetch(client, topic)
    assert within["throttle_time"] == 0
    assert 1_000 < len(within["responses"][0]["partitions"][0]["records"]) <= 2_000

    def is_above() -> bool:
        answer = fetch(client, topic)
        assert (answer["throttle_time"] > 0) == (answer["responses"] == [])
        return answer["responses"] == []

    assert until(is_above)  # the first one is not where a second has passed since
    # It got nothing, so it waits no longer than for what it had before.
    assert len(fetch(client, topic)["responses"][0]["partitions"][0]["records"]) > 1_000


@pytest.mark.slow
def test_librdkafka_sees_that_it_is_throttled_and_loses_nothing(broker: BrokerProcess) -> None:
    topic, name = create(broker), f"quota-{uuid.uuid4()}"
    with ProtocolClient(broker.bootstrap_servers) as client:
        alter(client, name, producer_byte_rate=20_000, consumer_byte_rate=20_000)
    throttled: list[float] = []

    def note(statistics: str) -> None:
        throttled.extend(each["throttle"]["max"] for each in json.loads(statistics)["brokers"].values())

    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "client.id": name,
        "statistics.interval.ms": 50,
        "stats_cb": note,
        "log_level": 0,
    }
    producer = Producer({**settings, "batch.size": 20_000, "linger.ms": 0})
    for _ in range(10):
        producer.produce(topic, b"x" * 10_000)
    assert producer.flush(2 * WAIT) == 0
    assert max(throttled) > 0
    throttled.clear()
    consumer = Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10})
    consumer.subscribe([topic])
    read = 0
    deadline = time.monotonic() + 2 * WAIT
    while read < 10 and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        read += message is not None and message.error() is None
    consumer.close()
    assert read == 10
    assert max(throttled) > 0


@pytest.mark.slow
def test_a_reader_that_is_throttled_for_longer_than_its_time_out_reads_on(tmp_path: Path) -> None:
    name = f"reader-{uuid.uuid4()}"
    # The second batch is served when the first is nine seconds old: both together are more than nine seconds allow.
    with (
        BrokerProcess(tmp_path, arguments=("--quota-window-num", "9")) as broker,
        ProtocolClient(broker.bootstrap_servers) as client,
    ):
        topic = create(broker)
        for _ in range(2):
            produce(client, topic, 6_000)
        alter(client, f"{name}-consumer", consumer_byte_rate=1_000)
        config = StreamsConfig({"bootstrap.servers": broker.bootstrap_servers, "application.id": name})
        fetcher = ConfluentFetcher(config, timeout_ms=6_000)
        read = list(fetcher.fetch(TopicPartition(topic, 0), 0, 2, read_committed=True))
        fetcher.close()
    assert sum(map(len, read)) == 2
