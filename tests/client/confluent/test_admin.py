"""Topics, their configuration, and offsets of partitions and groups."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaException
from confluent_kafka import KafkaError as Code
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

from penstock.client.api import NewTopic, OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.client.confluent import admin as admin_module
from penstock.config import StreamsConfig
from penstock.errors import BrokerNotFoundError, RetriableError, TopicExistsError, UnknownTopicOrPartitionError
from penstock.record import TopicPartition
from penstock.testing import EmbeddedBroker as FaultyBroker
from tests.client.confluent.records import HERE, NAMES, NO_BROKER, raise_code, together, write
from tests.support.chaos_brokers import EmbeddedBroker
from tests.support.waiting import until


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


def test_an_unreachable_broker_is_reported_in_time_with_address_and_command() -> None:
    config = StreamsConfig({"bootstrap.servers": "127.0.0.1:1"})
    admin = ConfluentAdmin(config, timeout_ms=500)
    with pytest.raises(BrokerNotFoundError, match=r"127\.0\.0\.1:1 answered within \d+ ms.*penstock broker"):
        admin.topics()
    with pytest.raises(BrokerNotFoundError):
        together(ConfluentFetcher(config, timeout_ms=500).fetch(TopicPartition("t", 0), 0, 1, read_committed=True))


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
