"""The clients, on the embedded broker and on a real Kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaException, Message, Producer
from confluent_kafka import KafkaError as Code
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

from penstock.client.api import NewTopic, OffsetAndMetadata
from penstock.client.confluent import (
    ConfluentAdmin,
    ConfluentBatchProducer,
    ConfluentConsumer,
    ConfluentFetcher,
    ConfluentProducer,
    consumer,
)
from penstock.client.confluent import admin as admin_module
from penstock.client.confluent.connection import ClientConnection
from penstock.config import StreamsConfig
from penstock.errors import (
    BrokerNotFoundError,
    ConfigError,
    KafkaError,
    OffsetOutOfRangeError,
    RetriableError,
    StreamsError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from penstock.plan.partitioning import partition_for
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from penstock.testing import EmbeddedBroker as FaultyBroker
from tests.support.brokers import RunningBroker
from tests.support.chaos_brokers import EmbeddedBroker
from tests.support.waiting import until

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
    assert until(lambda: admin.topics().get(name) == 5)
    admin.delete_topics([name])
    assert until(lambda: name not in admin.topics())


def test_a_topic_that_is_created_again_has_another_id(admin: ConfluentAdmin, unique_name: NAMES) -> None:
    first, second, nowhere = unique_name("t"), unique_name("t"), unique_name("t")
    admin.create_topics([NewTopic(first), NewTopic(second)])
    before = admin.topic_ids([first, second, nowhere])
    assert before.keys() == {first, second}
    assert before[first] != before[second]
    admin.delete_topics([first])
    assert until(lambda: first not in admin.topics())
    admin.create_topics([NewTopic(first)])
    after = admin.topic_ids([first, second])
    assert after[first] != before[first]
    assert after[second] == before[second]
    assert admin.topic_ids([]) == {}


def test_a_topic_is_not_created_twice_and_the_others_are_made(
    admin: ConfluentAdmin, topic: str, unique_name: NAMES
) -> None:
    other = unique_name("other")
    with pytest.raises(TopicExistsError, match=topic):
        admin.create_topics([NewTopic(topic), NewTopic(other)])
    assert until(lambda: other in admin.topics())


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


def test_records_are_deleted(admin: ConfluentAdmin, config: StreamsConfig, topic: str) -> None:
    write(config, topic, 5, partition=1)
    admin.delete_records({TopicPartition(topic, 1): 3})
    admin.delete_records({})
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert admin.beginning_offsets(partitions) == {partitions[0]: 0, partitions[1]: 3}


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


def test_ranges_are_fetched_in_turns(config: StreamsConfig, fetcher: ConfluentFetcher, topic: str) -> None:
    for number in range(2):
        write(config, topic, 12_500, partition=number)
    ranges = [fetcher.fetch(TopicPartition(topic, number), 0, 12_500, read_committed=True) for number in range(2)]
    found: list[list[int]] = [[], []]
    for of, batches in zip((0, 1, 0, 1), (next(ranges[0]), next(ranges[1]), *ranges), strict=True):
        for batch in [batches] if isinstance(batches, RecordBatch) else batches:
            found[of] += batch.offsets.tolist()
    assert found == [list(range(12_500))] * 2


def test_nulls_and_headers_survive(config: StreamsConfig, fetcher: ConfluentFetcher, topic: str) -> None:
    producer = ConfluentProducer(config)
    producer.send(topic, None, b"", 0)
    producer.send(topic, b"", None, 0, headers=(("h", b"1"), ("h", None)))
    producer.close()
    got = together(fetcher.fetch(TopicPartition(topic, 0), 0, 2, read_committed=True))
    assert got.keys == [None, b""]
    assert got.values == [b"", None]
    assert got.headers == [(), (("h", b"1"), ("h", None))]


def test_topics_are_changed_though_a_quota_puts_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_module, "_QUOTA_PAUSE_SECONDS", 0.0)
    with FaultyBroker() as broker:
        config = StreamsConfig({"bootstrap.servers": broker.bootstrap_servers})
        with contextlib.closing(ConfluentAdmin(config)) as admin:
            broker.fail("CreateTopics", "THROTTLING_QUOTA_EXCEEDED", times=3)
            admin.create_topics([NewTopic("one", 1), NewTopic("two", 1)])
            broker.fail("CreatePartitions", "THROTTLING_QUOTA_EXCEEDED")
            admin.create_partitions("one", 3)
            assert admin.topics() == {"one": 3, "two": 1}
            broker.fail("DeleteTopics", "THROTTLING_QUOTA_EXCEEDED")
            admin.delete_topics(["one", "two"])
            assert admin.topics() == {}
            monkeypatch.setattr(admin_module, "_QUOTA_SECONDS", 0.0)
            broker.fail("CreateTopics", "THROTTLING_QUOTA_EXCEEDED", times=3)
            with pytest.raises(RetriableError, match="creating topic one"):
                admin.create_topics([NewTopic("one", 1)])


def test_records_that_are_not_there_are_an_error(config: StreamsConfig, fetcher: ConfluentFetcher, topic: str) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=f"{topic}-0 from offset 100"):
        together(fetcher.fetch(TopicPartition(topic, 0), 100, 101, read_committed=True))


def test_transactions_leave_gaps_that_end_a_range(
    config: StreamsConfig, admin: ConfluentAdmin, fetcher: ConfluentFetcher, unique_name: NAMES
) -> None:
    topic = unique_name("topic")
    admin.create_topics([NewTopic(topic, 1)])
    producer = Producer({"bootstrap.servers": config.required("bootstrap.servers"), "transactional.id": topic})
    producer.init_transactions(SECONDS)
    for commit in (True, False, True):
        producer.begin_transaction()
        producer.produce(topic, b"committed" if commit else b"aborted")
        assert producer.flush(SECONDS) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(SECONDS)
    partition = TopicPartition(topic, 0)
    end = 6  # three records, three control records, which are written a moment after the commit
    assert until(lambda: admin.end_offsets([partition], read_committed=True)[partition] == end)
    assert together(fetcher.fetch(partition, 0, end, read_committed=True)).values == [b"committed"] * 2
    everything = together(fetcher.fetch(partition, 0, end, read_committed=False))
    assert everything.values == [b"committed", b"aborted", b"committed"]
    assert together(fetcher.fetch(partition, 5, end, read_committed=True)).values == []


def test_a_consumer_follows_its_partitions(config: StreamsConfig, topic: str) -> None:
    consumer = ConfluentConsumer(config)
    write(config, topic, 2, partition=0)
    consumer.assign({TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 0})
    write(config, topic, 2, partition=0)
    write(config, topic, 3, partition=1)
    seen = offsets_read(consumer, 5, most=3)
    consumer.close()
    assert seen == {TopicPartition(topic, 0): [2, 3], TopicPartition(topic, 1): [0, 1, 2]}


def test_a_consumer_takes_up_pauses_and_gives_up_partitions_one_by_one(config: StreamsConfig, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(config, topic, 3, partition=0)
    write(config, topic, 4, partition=1)
    following = ConfluentConsumer(config)
    try:
        assert following.known_ends([first]) == {}
        following.incremental_assign({first: 1})
        assert offsets_read(following, 2) == {first: [1, 2]}
        assert following.known_ends([first, second]) == {first: 3}
        following.incremental_assign({second: 1})
        assert offsets_read(following, 3) == {second: [1, 2, 3]}
        following.pause([first])
        write(config, topic, 2, partition=0, start=3)
        write(config, topic, 1, partition=1, start=4)
        assert offsets_read(following, 1) == {second: [4]}
        following.resume([first])
        assert offsets_read(following, 2) == {first: [3, 4]}
        assert following.reached_ends()[first] >= 3
        following.incremental_unassign([first])
        write(config, topic, 1, partition=0, start=5)
        write(config, topic, 1, partition=1, start=5)
        assert offsets_read(following, 1) == {second: [5]}
    finally:
        following.close()


@pytest.mark.parametrize("takes", [ConfluentConsumer.incremental_assign, ConfluentConsumer.assign])
def test_a_partition_that_was_paused_is_read_when_it_is_taken_again(
    config: StreamsConfig, topic: str, takes: Callable[[ConfluentConsumer, dict[TopicPartition, int]], None]
) -> None:
    partition = TopicPartition(topic, 0)
    write(config, topic, 5, partition=0)
    following = ConfluentConsumer(config)
    try:
        following.incremental_assign({partition: 0})
        assert offsets_read(following, 5) == {partition: [0, 1, 2, 3, 4]}
        following.pause([partition])
        if takes is ConfluentConsumer.incremental_assign:
            following.incremental_unassign([partition])
        takes(following, {partition: 2})
        assert offsets_read(following, 3) == {partition: [2, 3, 4]}
    finally:
        following.close()


def offsets_read(following: ConfluentConsumer, count: int, most: int = 100) -> dict[TopicPartition, list[int]]:
    """Poll until `count` records have come, at most `most` with each poll, and return their offsets."""
    found: dict[TopicPartition, list[int]] = {}

    def have_come() -> bool:
        for partition, batch in following.poll(200, most):
            found.setdefault(partition, []).extend(batch.offsets.tolist())
        return sum(map(len, found.values())) >= count

    until(have_come)
    return found


def test_batches_are_written_and_the_ends_of_partitions_known(
    config: StreamsConfig, fetcher: ConfluentFetcher, topic: str
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    rows = [(b"k", b"v%d" % number, 1_000 + number, 0, (("h", b"1"),)) for number in range(3)]
    batch = RecordBatch.of(rows)
    producer = ConfluentBatchProducer(config)
    try:
        assert producer.flush() == {}
        producer.send([PartitionBatch(*first, batch), PartitionBatch(*second, batch.slice(0, 1))])
        producer.send([PartitionBatch(*first, batch.slice(2, 3))])
        assert producer.flush() == {first: 4, second: 1}
        producer.send([PartitionBatch(*second, batch)])
        assert producer.flush() == {second: 4}
    finally:
        producer.close()
    found = together(fetcher.fetch(first, 0, 4, read_committed=True))
    assert found.values == [b"v0", b"v1", b"v2", b"v2"]
    assert found.timestamps.tolist() == [1_000, 1_001, 1_002, 1_002]
    assert found.headers_at(0) == (("h", b"1"),)


def test_a_client_that_cannot_go_on_fails_its_producer(config: StreamsConfig, topic: str) -> None:
    class Lost:
        def __len__(self) -> int:
            return 0

        def produce(self, *record: object) -> None: ...

        def poll(self, seconds: float) -> None:
            raise KafkaException(Code(Code._FATAL, "the client cannot go on"))

    producer = ConfluentBatchProducer(config)
    client, producer._client = producer._client, Lost()  # type: ignore[assignment]  # a client with that error
    try:
        with pytest.raises(KafkaError, match=f"writing to {topic}-0.*the client cannot go on"):
            producer.send([PartitionBatch(topic, 0, RecordBatch.of([(None, b"v", 1, 0, ())]))])
    finally:
        producer._client = client
        producer.close()


@pytest.mark.parametrize("is_known", [False, True])
def test_a_batch_that_cannot_be_written_fails_its_producer(config: StreamsConfig, topic: str, is_known: bool) -> None:
    record = RecordBatch.of([(None, b"v", 1, 0, ())])
    nowhere = PartitionBatch(topic, 7, record)
    producer = ConfluentBatchProducer(config)
    if is_known:
        producer.send([PartitionBatch(topic, 0, record)])
        producer.flush()

    def write_it() -> None:
        producer.send([nowhere])  # that there is no such partition shows when the leader is known
        producer.flush()

    try:
        with pytest.raises(KafkaError, match=f"writing to {topic}-7"):
            write_it()
    finally:
        producer.close()


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

    def send_and_close() -> None:  # fails immediately, or at the end if the partitions are not known yet
        producer.send(topic, None, b"x", partition=99)
        producer.close()

    with pytest.raises(KafkaError, match=topic):
        send_and_close()
    with contextlib.suppress(KafkaError):
        producer.close()
    with pytest.raises(KafkaError, match="closed"):
        producer.send(topic, None, b"x")


def test_an_unreachable_broker_is_reported_in_time_with_address_and_command() -> None:
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
    connection = ClientConnection({"bootstrap.servers": "localhost:1"}, 60_000)
    answers = [KafkaException(Code(Code.UNKNOWN_LEADER_EPOCH)), KafkaException(Code(Code.FENCED_LEADER_EPOCH)), None]

    def ask() -> str:
        refusal = answers.pop(0)
        if refusal is not None:
            raise refusal
        return "answer"

    assert connection.call("asking", ask) == "answer"


def test_an_offset_that_no_broker_returned_is_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_leaders_are_looked_up_again_where_those_known_are_of_before_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka does not do so itself when it asks for offsets, and at first it may wait for seconds."""
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
    assert len(looked_up) == 2
    admin.close()


def test_offsets_are_found_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    places = [TopicPartition("t", number) for number in range(3)]
    with EmbeddedBroker(tmp_path) as broker:
        admin = ConfluentAdmin(StreamsConfig({"bootstrap.servers": broker.bootstrap_servers}))
        try:
            admin.create_topics([NewTopic("t", 3)])
            assert admin.end_offsets(places) == dict.fromkeys(places, 0)
            broker.kill()
            broker.resume()
            assert admin.end_offsets(places) == dict.fromkeys(places, 0)
            with pytest.raises(UnknownTopicOrPartitionError):
                admin.end_offsets([TopicPartition("t", 3)])
        finally:
            admin.close()


NO_BROKER = StreamsConfig({"bootstrap.servers": "127.0.0.1:1"})
HERE = TopicPartition("t", 0)


def record(offset: int) -> Message:
    return Message(topic="t", partition=0, offset=offset, key=b"k", value=b"%d" % offset, timestamp=(1, 1_000))


def event(code: int, offset: int = -1001) -> Message:
    return Message(topic="t", partition=0, offset=offset, error=Code(code))


@pytest.fixture
def arriving(monkeypatch: pytest.MonkeyPatch) -> list[list[Message]]:
    """What consumers are given, a list for each time that they look."""
    arrivals: list[list[Message]] = []

    class Scripted:
        def __init__(self, settings: object) -> None:
            self._is_deaf = bool(arrivals) and not arrivals[0]  # an empty list at the front: one that gets nothing
            if self._is_deaf:
                arrivals.pop(0)

        def assign(self, targets: object) -> None: ...

        def incremental_assign(self, targets: object) -> None: ...

        def incremental_unassign(self, targets: object) -> None: ...

        def unassign(self) -> None: ...

        def poll(self, timeout: float) -> None: ...

        def list_topics(self, topic: str, timeout: float) -> None:
            raise KafkaException(Code(Code._TRANSPORT))

        def close(self) -> None: ...

        def consume(self, most: int, timeout: float) -> list[Message]:
            return arrivals.pop(0) if arrivals and not self._is_deaf else []

    monkeypatch.setattr(consumer, "Consumer", Scripted)
    return arrivals


@pytest.mark.parametrize("code", [Code._PARTITION_EOF, Code.NOT_LEADER_FOR_PARTITION, Code.FENCED_LEADER_EPOCH])
def test_events_amid_records_of_a_range_are_no_records(arriving: list[list[Message]], code: int) -> None:
    arriving += [[record(0), event(code, 1), record(1)], [event(code, 2)], [record(2), event(code, 3), record(3)]]
    got = list(ConfluentFetcher(NO_BROKER).fetch(HERE, 0, 3, read_committed=True))
    assert [batch.values for batch in got] == [[b"0", b"1"], [b"2"]]


def test_records_before_an_error_of_a_range_are_not_lost(arriving: list[list[Message]]) -> None:
    arriving += [[record(0), event(Code._AUTO_OFFSET_RESET, 1), record(7)]]
    reading = ConfluentFetcher(NO_BROKER).fetch(HERE, 0, 9, read_committed=True)
    assert next(reading).values == [b"0"]
    with pytest.raises(OffsetOutOfRangeError):
        next(reading)


def test_events_and_errors_amid_records_lose_none_of_a_consumer(arriving: list[list[Message]]) -> None:
    arriving += [[record(0), event(Code._PARTITION_EOF, 1), record(1), event(Code._BAD_MSG, 2), record(3)], [record(4)]]
    following = ConfluentConsumer(NO_BROKER)
    ((partition, batch),) = following.poll(timeout_ms=0, max_records=10)
    assert (partition, batch.values) == (HERE, [b"0", b"1"])
    with pytest.raises(KafkaError, match="reading t-0 at offset 2"):
        following.poll(timeout_ms=0, max_records=10)
    assert [batch.values for _ in range(2) for _, batch in following.poll(0, 10)] == [[b"3"], [b"4"]]


def test_ends_amid_records_lose_none_of_a_consumer_and_the_last_one_is_kept(arriving: list[list[Message]]) -> None:
    end = Code._PARTITION_EOF
    arriving += [[event(end, 0), record(0), event(end, 1), record(1), event(end, 2)], [event(end, 3)]]
    following = ConfluentConsumer(NO_BROKER)
    batches = following.poll(timeout_ms=0, max_records=10)
    assert [(partition, batch.values) for partition, batch in batches] == [(HERE, [b"0", b"1"])]
    assert following.reached_ends() == {HERE: 2}
    assert following.reached_ends() == {}
    assert following.poll(timeout_ms=0, max_records=10) == []
    assert following.reached_ends() == {HERE: 3}


def test_an_end_that_was_reached_is_forgotten_with_its_partition(arriving: list[list[Message]]) -> None:
    arriving.append([event(Code._PARTITION_EOF, 9), event(Code.TOPIC_AUTHORIZATION_FAILED, 0)])
    following = ConfluentConsumer(NO_BROKER)
    with pytest.raises(KafkaError):
        following.poll(timeout_ms=0, max_records=10)
    following.incremental_unassign([HERE])  # and then read again from offset 5
    assert following.reached_ends() == {}


def test_who_leads_a_topic_is_asked_before_its_first_read(
    arriving: list[list[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka looks for the leaders of new topics once a second."""

    def list_topics(_: object, topic: str, timeout: float) -> None:
        arriving.append([record(0)])
        raise KafkaException(Code(Code._TRANSPORT))

    def poll(_: object, timeout: float) -> None:
        raise AssertionError("it waits for records")

    monkeypatch.setattr(consumer.Consumer, "list_topics", list_topics)
    monkeypatch.setattr(consumer.Consumer, "poll", poll)
    fetcher = ConfluentFetcher(NO_BROKER)
    for _ in range(2):
        (batch,) = fetcher.fetch(HERE, 0, 1, read_committed=True)
        assert batch.values == [b"0"]
        arriving.append([record(0)])  # for the second time, the leader is known


def test_a_consumer_asks_who_leads_a_topic_before_it_follows_it(
    arriving: list[list[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def list_topics(_: object, topic: str, timeout: float) -> None:
        asked.append(topic)
        if len(asked) == 1:
            raise KafkaException(Code(Code._TRANSPORT))

    monkeypatch.setattr(consumer.Consumer, "list_topics", list_topics)
    following = ConfluentConsumer(NO_BROKER)
    one, other = TopicPartition("a", 0), TopicPartition("b", 0)
    following.assign({one: 0, other: 0})
    assert asked == ["a"], "where no broker answers, nothing waits for the next topic"
    following.incremental_assign({one: 0, other: 0})
    following.assign({one: 0, TopicPartition("a", 1): 0})
    assert asked == ["a", "a", "b"]


def test_a_consumer_that_gets_nothing_is_replaced(arriving: list[list[Message]]) -> None:
    """librdkafka may keep asking a broker that is away."""
    arriving += [[], [record(0)], [record(1)]]
    got = list(ConfluentFetcher(NO_BROKER, timeout_ms=1_000).fetch(HERE, 0, 2, read_committed=True))
    assert [batch.values for batch in got] == [[b"0"], [b"1"]]


def test_a_consumer_that_gets_nothing_learns_who_leads_now(
    arriving: list[list[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka looks when it loses a connection, where brokers may still name the leader that is gone."""
    made: list[object] = []
    make = ClientConnection.make

    def counted(connection: ClientConnection, client: Callable[[dict[str, Any]], Any]) -> Any:
        made.append(client)
        return make(connection, client)

    looked_up: list[str] = []

    def list_topics(_: object, topic: str, timeout: float) -> None:
        if looked_up:
            arriving.append([record(0)])
        looked_up.append(topic)
        raise KafkaException(Code(Code._TRANSPORT))

    monkeypatch.setattr(ClientConnection, "make", counted)
    monkeypatch.setattr(consumer.Consumer, "list_topics", list_topics)
    (batch,) = ConfluentFetcher(NO_BROKER).fetch(HERE, 0, 1, read_committed=True)
    assert batch.values == [b"0"]
    assert len(made) == 1


@pytest.mark.parametrize(("topic", "is_read"), [("t", False), ("t-before", True)])
def test_a_topic_that_was_deleted_ends_only_its_own_reads(
    arriving: list[list[Message]], monkeypatch: pytest.MonkeyPatch, topic: str, is_read: bool
) -> None:
    """librdkafka keeps reporting a missing topic that this consumer read before."""
    report: list[Callable[[Code], None]] = []
    make = ClientConnection.make

    def made(connection: ClientConnection, client: Callable[[dict[str, Any]], Any]) -> Any:
        report.append(connection.settings["error_cb"])
        return make(connection, client)

    looked_up: list[str] = []

    def list_topics(_: object, asked: str, timeout: float) -> None:
        looked_up.append(asked)
        if len(looked_up) == 1:  # before the first look for records
            raise KafkaException(Code(Code._TRANSPORT))
        report[0](Code(Code.UNKNOWN_TOPIC_OR_PART, f"{topic} [0]: topic does not exist"))
        arriving.append([record(0)])
        raise KafkaException(Code(Code._TRANSPORT))

    monkeypatch.setattr(ClientConnection, "make", made)
    monkeypatch.setattr(consumer.Consumer, "list_topics", list_topics)
    reading = ConfluentFetcher(NO_BROKER).fetch(HERE, 0, 1, read_committed=True)
    with contextlib.nullcontext() if is_read else pytest.raises(UnknownTopicOrPartitionError):
        assert [batch.values for batch in reading] == [[b"0"]]


def asked_of_silent_brokers(monkeypatch: pytest.MonkeyPatch, unanswered: int) -> list[tuple[AdminClient, float]]:
    """Make brokers answer a request for offsets only after `unanswered` others; return the client and the seconds of
    each request."""
    asked: list[tuple[AdminClient, float]] = []

    def list_offsets(
        client: AdminClient, *_: object, request_timeout: float, **__: object
    ) -> dict[Position, Future[ListOffsetsResultInfo]]:
        future: Future[ListOffsetsResultInfo] = Future()
        asked.append((client, request_timeout))
        if len(asked) <= unanswered:
            future.set_exception(KafkaException(Code(Code._TIMED_OUT)))
        else:
            future.set_result(ListOffsetsResultInfo(7, -1, 0))
        return {Position(*HERE): future}

    monkeypatch.setattr(AdminClient, "list_offsets", list_offsets)
    monkeypatch.setattr(AdminClient, "list_topics", lambda _, timeout: None)
    return asked


def test_an_admin_client_that_is_not_answered_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_of_silent_brokers(monkeypatch, unanswered=1)
    admin = ConfluentAdmin(NO_BROKER)
    assert admin.end_offsets([HERE]) == {HERE: 7}
    assert len({id(client) for client, _ in asked}) == len(asked) == 2
    admin.close()


def test_a_long_bound_is_no_long_wait_for_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_of_silent_brokers(monkeypatch, unanswered=3)
    admin = ConfluentAdmin(NO_BROKER, timeout_ms=600_000)
    assert admin.end_offsets([HERE]) == {HERE: 7}
    assert [seconds for _, seconds in asked] == [2.5, 5.0, 10.0, 20.0]
    assert len({id(client) for client, _ in asked}) == 4
    admin.close()


@pytest.mark.parametrize(
    "code",
    [
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.NOT_LEADER_FOR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.OFFSET_NOT_AVAILABLE,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.REQUEST_TIMED_OUT,
        Code._TRANSPORT,
        Code._TIMED_OUT,
        Code._ALL_BROKERS_DOWN,
    ],
)
def test_a_passing_error_is_reported_as_one(code: int) -> None:
    connection = ClientConnection({"bootstrap.servers": "localhost:1"}, 0)
    with pytest.raises(RetriableError):
        connection.call("asking", lambda: raise_code(code))
    with pytest.raises(KafkaError) as refused:
        connection.call("asking", lambda: raise_code(Code.TOPIC_AUTHORIZATION_FAILED))
    assert not isinstance(refused.value, RetriableError)


def test_a_client_that_cannot_go_on_hides_no_error() -> None:
    """confluent-kafka raises what ends a client wherever its reports are taken."""
    connection = ClientConnection({"bootstrap.servers": "localhost:1"}, 0)
    connection.serve = lambda _: raise_code(Code.INVALID_TXN_STATE)
    with pytest.raises(BrokerNotFoundError):
        connection.call("committing", lambda: raise_code(Code._TIMED_OUT))


def raise_code(code: int) -> None:
    raise KafkaException(Code(code))


def test_offsets_of_a_group_are_asked_for_again_while_its_coordinator_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """An admin client of librdkafka ends the process there."""
    answers: list[Position | int] = [Code.NOT_COORDINATOR, Position(*HERE, 7, "a note")]

    class Moved:
        def __init__(self, settings: object) -> None: ...

        def committed(self, asked: list[Position], timeout: float) -> list[Position]:
            if asked[0].partition != HERE.partition:  # to find the coordinator
                return []
            answer = answers.pop(0)
            if isinstance(answer, int):
                raise_code(answer)
            assert isinstance(answer, Position)
            return [answer]

        def poll(self, timeout: float) -> None: ...

        def close(self) -> None: ...

    monkeypatch.setattr("penstock.client.confluent.admin.Consumer", Moved)
    admin = ConfluentAdmin(NO_BROKER)
    assert admin.committed_offsets("group", [HERE]) == {HERE: OffsetAndMetadata(7, "a note")}
    admin.close()
