"""Consumers and fetchers: records, their order, and events amid them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Message, Producer

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentConsumer, ConfluentFetcher, ConfluentProducer, consumer
from penstock.client.confluent.connection import ClientConnection
from penstock.config import StreamsConfig
from penstock.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from penstock.record import RecordBatch, TopicPartition
from tests.client.confluent.records import HERE, NAMES, NO_BROKER, together, write
from tests.support.open_clients import clients, clients_but, end_idle_clients
from tests.support.waiting import until

SECONDS = 60.0
"""Longest wait of a call of librdkafka, which no time-out of a test ends."""


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


def test_a_fetcher_that_was_idle_connects_again(
    config: StreamsConfig, fetcher: ConfluentFetcher, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(config, topic, 10)
    before = clients()
    end_idle_clients(monkeypatch)
    for read_committed in (True, False):
        batches = fetcher.fetch(TopicPartition(topic, 0), 0, 10, read_committed)
        assert next(batches).offsets.tolist() == list(range(10))
        assert clients_but(before)  # this range is not over
        batches.close()
        del batches
        assert until(lambda: not clients_but(before))


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
