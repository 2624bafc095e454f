"""The clients, on the embedded broker and on a real Kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaException, Producer
from confluent_kafka import KafkaError as Code
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

from penstock.client.api import NewTopic, OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin, ConfluentConsumer, ConfluentFetcher, ConfluentProducer
from penstock.client.confluent.connection import Connection
from penstock.config import StreamsConfig
from penstock.errors import (
    BrokerNotFoundError,
    ConfigError,
    KafkaError,
    OffsetOutOfRangeError,
    StreamsError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from penstock.plan.partitioning import partition_for
from penstock.record import RecordBatch, TopicPartition
from tests.support.brokers import EMBEDDED_ONLY, KAFKA_ONLY, RunningBroker

NAMES = Callable[[str], str]
SECONDS = 60.0
"""Longest wait of a call of librdkafka, which no time-out of a test ends."""


@pytest.fixture
def config(broker: RunningBroker) -> StreamsConfig:
    return StreamsConfig({"application.id": "clients", "bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def admin(config: StreamsConfig) -> Iterator[ConfluentAdmin]:
    admin = ConfluentAdmin(config)
    yield admin
    admin.close()


@pytest.fixture
def topic(admin: ConfluentAdmin, unique_name: NAMES) -> str:
    name = unique_name("topic")
    admin.create_topics([NewTopic(name, 2)])
    return name


@pytest.fixture
def fetcher(config: StreamsConfig) -> Iterator[ConfluentFetcher]:
    fetcher = ConfluentFetcher(config, timeout_ms=20_000)
    yield fetcher
    fetcher.close()


def write(config: StreamsConfig, topic: str, count: int, partition: int | None = 0, start: int = 0) -> None:
    producer = ConfluentProducer(config)
    for number in range(start, start + count):
        producer.send(topic, b"k%d" % number, b"v%d" % number, partition, timestamp=1_000 + number)
    producer.close()


def together(batches: Iterator[RecordBatch]) -> RecordBatch:
    return RecordBatch.concat(list(batches))


def test_topics_are_created_described_grown_and_deleted(admin: ConfluentAdmin, unique_name: NAMES) -> None:
    name = unique_name("t")
    admin.create_topics([NewTopic(name, 3, config={"segment.bytes": "1048576"})])
    assert admin.topics()[name] == 3
    found = admin.describe_topic(name)
    assert [each.partition for each in found.partitions] == [0, 1, 2]
    assert all(each.leader >= 0 and each.leader in each.replicas for each in found.partitions)
    assert found.config["segment.bytes"] == "1048576"
    assert found.overrides == {"segment.bytes"}
    admin.create_partitions(name, 5)
    assert eventually(lambda: admin.topics().get(name) == 5)
    admin.delete_topics([name])
    assert eventually(lambda: name not in admin.topics())


def test_a_topic_that_is_made_anew_has_another_id(admin: ConfluentAdmin, unique_name: NAMES) -> None:
    first, second, nowhere = unique_name("t"), unique_name("t"), unique_name("t")
    admin.create_topics([NewTopic(first), NewTopic(second)])
    before = admin.topic_ids([first, second, nowhere])
    assert before.keys() == {first, second}
    assert before[first] != before[second]
    admin.delete_topics([first])
    assert eventually(lambda: first not in admin.topics())
    admin.create_topics([NewTopic(first)])
    after = admin.topic_ids([first, second])
    assert after[first] != before[first]
    assert after[second] == before[second]
    assert admin.topic_ids([]) == {}


def eventually(condition: Callable[[], bool], attempts: int = 200) -> bool:
    """Ask again, each time over the network, until `condition` holds."""
    return any(condition() for _ in range(attempts))


def test_a_topic_is_not_created_twice_and_the_others_are_made(
    admin: ConfluentAdmin, topic: str, unique_name: NAMES
) -> None:
    other = unique_name("other")
    with pytest.raises(TopicExistsError, match=topic):
        admin.create_topics([NewTopic(topic), NewTopic(other)])
    assert eventually(lambda: other in admin.topics())


def test_what_does_not_exist_is_named(admin: ConfluentAdmin, fetcher: ConfluentFetcher, unique_name: NAMES) -> None:
    nowhere = unique_name("nowhere")
    with pytest.raises(UnknownTopicOrPartitionError, match=nowhere):
        admin.delete_topics([nowhere])
    with pytest.raises(UnknownTopicOrPartitionError, match=nowhere):
        admin.describe_topic(nowhere)
    with pytest.raises(UnknownTopicOrPartitionError, match=nowhere):
        admin.end_offsets([TopicPartition(nowhere, 0)])
    with pytest.raises(UnknownTopicOrPartitionError, match=nowhere):
        together(fetcher.fetch(TopicPartition(nowhere, 0), 0, 1, read_committed=True))


def test_offsets_of_partitions(admin: ConfluentAdmin, config: StreamsConfig, topic: str) -> None:
    write(config, topic, 5, partition=1)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert admin.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
    for read_committed in (True, False):
        assert admin.end_offsets(partitions, read_committed) == {partitions[0]: 0, partitions[1]: 5}
    assert admin.end_offsets([]) == {}


def test_offsets_for_a_time(admin: ConfluentAdmin, config: StreamsConfig, topic: str) -> None:
    write(config, topic, 5, partition=1)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert admin.offsets_for_time(partitions, 0) == {partitions[1]: 0}
    assert admin.offsets_for_time(partitions, 1 << 60) == {}


def test_offsets_of_a_group(admin: ConfluentAdmin, topic: str, unique_name: NAMES) -> None:
    group, partitions = unique_name("group"), [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert admin.committed_offsets(group, partitions) == {}
    admin.commit_offsets(group, {partitions[1]: OffsetAndMetadata(7, "a note")})
    assert admin.committed_offsets(group, partitions) == {partitions[1]: OffsetAndMetadata(7, "a note")}


@KAFKA_ONLY
def test_records_are_deleted(admin: ConfluentAdmin, config: StreamsConfig, topic: str) -> None:
    write(config, topic, 5, partition=1)
    admin.delete_records({TopicPartition(topic, 1): 3})
    admin.delete_records({})
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert admin.beginning_offsets(partitions) == {partitions[0]: 0, partitions[1]: 3}


@EMBEDDED_ONLY
def test_a_broker_that_deletes_no_records_says_so(admin: ConfluentAdmin, topic: str) -> None:
    with pytest.raises(KafkaError):
        admin.delete_records({TopicPartition(topic, 1): 3})


@pytest.mark.parametrize("read_committed", [True, False])
def test_ranges_are_fetched_exactly(
    config: StreamsConfig, fetcher: ConfluentFetcher, topic: str, read_committed: bool
) -> None:
    write(config, topic, 25_000)
    partition = TopicPartition(topic, 0)
    for start, end in ((0, 25_000), (10, 11), (24_990, 25_000), (5, 12_345), (7, 7)):
        got = together(fetcher.fetch(partition, start, end, read_committed))
        assert got.offsets.tolist() == list(range(start, end))
        assert got.keys == [b"k%d" % number for number in range(start, end)]
        assert got.values == [b"v%d" % number for number in range(start, end)]
        assert got.timestamps.tolist() == [1_000 + number for number in range(start, end)]
        assert got.headers is None


def test_nulls_and_headers_survive(config: StreamsConfig, fetcher: ConfluentFetcher, topic: str) -> None:
    producer = ConfluentProducer(config)
    producer.send(topic, None, b"", 0)
    producer.send(topic, b"", None, 0, headers=(("h", b"1"), ("h", None)))
    producer.close()
    got = together(fetcher.fetch(TopicPartition(topic, 0), 0, 2, read_committed=True))
    assert got.keys == [None, b""]
    assert got.values == [b"", None]
    assert got.headers == [(), (("h", b"1"), ("h", None))]


def test_records_that_are_not_there_are_an_error(config: StreamsConfig, fetcher: ConfluentFetcher, topic: str) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=f"{topic}-0 from offset 100"):
        together(fetcher.fetch(TopicPartition(topic, 0), 100, 101, read_committed=True))


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_transactions_leave_gaps_that_end_a_range(real_kafka: Any, unique_name: NAMES) -> None:
    config = StreamsConfig({"application.id": "clients", "bootstrap.servers": real_kafka.bootstrap_servers})
    admin, topic = ConfluentAdmin(config), unique_name("topic")
    admin.create_topics([NewTopic(topic, 1)])
    producer = Producer({"bootstrap.servers": real_kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    for commit in (True, False, True):
        producer.begin_transaction()
        producer.produce(topic, b"committed" if commit else b"aborted")
        assert producer.flush(SECONDS) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(SECONDS)
    partition = TopicPartition(topic, 0)
    end = 6  # three records, three control records, which are written a moment after the commit
    assert eventually(lambda: admin.end_offsets([partition], read_committed=True)[partition] == end)
    fetcher = ConfluentFetcher(config, timeout_ms=20_000)
    assert together(fetcher.fetch(partition, 0, end, read_committed=True)).values == [b"committed"] * 2
    everything = together(fetcher.fetch(partition, 0, end, read_committed=False))
    assert everything.values == [b"committed", b"aborted", b"committed"]
    assert together(fetcher.fetch(partition, 5, end, read_committed=True)).values == []
    fetcher.close()
    admin.close()


def test_a_consumer_follows_its_partitions(config: StreamsConfig, topic: str) -> None:
    consumer = ConfluentConsumer(config)
    write(config, topic, 2, partition=0)
    consumer.assign({TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 0})
    write(config, topic, 2, partition=0)
    write(config, topic, 3, partition=1)
    seen: dict[TopicPartition, list[int]] = {}
    for _ in range(100):
        for partition, batch in consumer.poll(timeout_ms=200, max_records=3):
            seen.setdefault(partition, []).extend(batch.offsets.tolist())
        if sum(map(len, seen.values())) == 5:
            break
    consumer.close()
    assert seen == {TopicPartition(topic, 0): [2, 3], TopicPartition(topic, 1): [0, 1, 2]}


def test_keys_go_to_the_partition_that_kafka_gives_them(
    admin: ConfluentAdmin, config: StreamsConfig, fetcher: ConfluentFetcher, topic: str
) -> None:
    write(config, topic, 20, partition=None)
    for partition, end in admin.end_offsets([TopicPartition(topic, 0), TopicPartition(topic, 1)]).items():
        keys = together(fetcher.fetch(partition, 0, end, read_committed=False)).keys
        assert keys
        assert {partition_for(key, 2) for key in keys} == {partition.partition}


def test_a_record_that_cannot_be_written_fails_the_producer(config: StreamsConfig, topic: str) -> None:
    producer = ConfluentProducer(config)
    with pytest.raises(KafkaError, match=topic):
        producer.send(topic, None, b"x" * 2_000_000)

    def send_and_close() -> None:  # fails at once, or at the end where the partitions are not known yet
        producer.send(topic, None, b"x", partition=99)
        producer.close()

    with pytest.raises(KafkaError, match=topic):
        send_and_close()
    with contextlib.suppress(KafkaError):
        producer.close()
    with pytest.raises(KafkaError, match="closed"):
        producer.send(topic, None, b"x")


def test_an_unreachable_broker_is_told_in_time_with_address_and_command() -> None:
    config = StreamsConfig({"bootstrap.servers": "127.0.0.1:1"})
    admin = ConfluentAdmin(config, timeout_ms=500)
    with pytest.raises(BrokerNotFoundError, match=r"127\.0\.0\.1:1 answered within 500 ms.*penstock broker"):
        admin.topics()
    with pytest.raises(BrokerNotFoundError):
        together(ConfluentFetcher(config, timeout_ms=500).fetch(TopicPartition("t", 0), 0, 1, read_committed=True))


@pytest.mark.parametrize(
    ("key", "value"), [("sasl.passwort", "hunter2"), ("security.protocol", "hunter2"), ("ssl.ca.pem", "hunter2")]
)
def test_a_key_that_the_client_refuses_is_named_and_its_value_is_not(key: str, value: str) -> None:
    with pytest.raises(StreamsError) as refused:
        ConfluentProducer(StreamsConfig({"bootstrap.servers": "x:1", "security.protocol": "SSL", key: value}))
    assert isinstance(refused.value, ConfigError | KafkaError)
    assert value not in f"{refused.value}{refused.value.__cause__}"


def test_a_call_is_made_again_while_the_broker_lags_behind_the_client() -> None:
    connection = Connection({"bootstrap.servers": "localhost:1"}, 60_000)
    answers = [KafkaException(Code(Code.UNKNOWN_LEADER_EPOCH)), KafkaException(Code(Code.FENCED_LEADER_EPOCH)), None]

    def ask() -> str:
        refusal = answers.pop(0)
        if refusal is not None:
            raise refusal
        return "answer"

    assert connection.call("asking", ask) == "answer"


def test_an_offset_that_no_broker_told_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka gives one that cannot be, and no error, for a partition whose leader goes away meanwhile."""
    partition, told = TopicPartition("t", 0), [OFFSET_INVALID, 7]

    def list_offsets(*_: object, **__: object) -> dict[Position, Future[ListOffsetsResultInfo]]:
        future: Future[ListOffsetsResultInfo] = Future()
        future.set_result(ListOffsetsResultInfo(told.pop(0), -1, 0))
        return {Position(*partition): future}

    monkeypatch.setattr(AdminClient, "list_offsets", list_offsets)
    monkeypatch.setattr(AdminClient, "list_topics", lambda _, timeout: None)
    admin = ConfluentAdmin(StreamsConfig({"bootstrap.servers": "127.0.0.1:1"}))
    assert admin.end_offsets([partition]) == {partition: 7}
    assert told == []
    admin.close()


def test_leaders_are_looked_up_anew_where_those_known_are_of_before_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka does not do so by itself when it asks for offsets, and at first it may wait for seconds."""
    partition, looked_up = TopicPartition("t", 0), list[float]()

    def list_offsets(*_: object, **__: object) -> dict[Position, Future[ListOffsetsResultInfo]]:
        future: Future[ListOffsetsResultInfo] = Future()
        if len(looked_up) == 2:
            future.set_result(ListOffsetsResultInfo(7, -1, 0))
        else:
            future.set_exception(KafkaException(Code(Code.FENCED_LEADER_EPOCH)))
        return {Position(*partition): future}

    monkeypatch.setattr(AdminClient, "list_offsets", list_offsets)
    monkeypatch.setattr(AdminClient, "list_topics", lambda _, timeout: looked_up.append(timeout))
    admin = ConfluentAdmin(StreamsConfig({"bootstrap.servers": "127.0.0.1:1"}), timeout_ms=5_000)
    assert [admin.end_offsets([partition]) for _ in range(2)] == [{partition: 7}] * 2
    assert looked_up == [5.0, 5.0]
    admin.close()
