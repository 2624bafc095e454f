"""DescribeTopicPartitions (KIP-966), by which Kafka's newer tools ask about topics, on every broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import CREATE_TOPICS, DESCRIBE_TOPIC_PARTITIONS
from tests.support.brokers import RunningBroker
from tests.support.protocol_client import ProtocolClient
from tests.support.waiting import until


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[ProtocolClient]:
    with ProtocolClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def topics(client: ProtocolClient, unique_name: Callable[[str], str]) -> list[str]:
    """Two topics of three and two partitions, in the order of their names."""
    names = sorted((unique_name("a"), unique_name("b")))
    wanted = [
        {"name": name, "num_partitions": count, "replication_factor": 1}
        for name, count in zip(names, (3, 2), strict=True)
    ]
    created = client.call(CREATE_TOPICS, 7, {"topics": wanted, "timeout": 30_000})["topics"]
    assert {one["error_code"] for one in created} == {ErrorCode.none}
    # On Kafka, a broker hears of a topic a moment after its creation.
    assert until(lambda: {one["error_code"] for one in describe(client, *names)["topics"]} == {ErrorCode.none})
    return names


def describe(client: ProtocolClient, *names: str, limit: int = 2000, cursor: Message | None = None) -> Message:
    body = {"topics": [{"name": name} for name in names], "response_partition_limit": limit, "cursor": cursor}
    return client.call(DESCRIBE_TOPIC_PARTITIONS, 0, body)


def shape(answer: Message) -> tuple[list[tuple[str, list[int]]], tuple[str, int] | None]:
    """Return the partitions by topic, and where the next answer begins."""
    found = [(topic["name"], [one["partition_index"] for one in topic["partitions"]]) for topic in answer["topics"]]
    cursor = answer["next_cursor"]
    return found, None if cursor is None else (cursor["topic_name"], cursor["partition_index"])


def test_topics_are_described_by_name(client: ProtocolClient, topics: list[str]) -> None:
    answer = describe(client, *reversed(topics))
    assert shape(answer) == ([(topics[0], [0, 1, 2]), (topics[1], [0, 1])], None)
    first = answer["topics"][0]
    partition = first["partitions"][0]
    assert (first["error_code"], first["is_internal"]) == (ErrorCode.none, False)
    assert partition["leader_id"] == 1
    assert (partition["replica_nodes"], partition["isr_nodes"], partition["offline_replicas"]) == ([1], [1], [])
    assert (partition["eligible_leader_replicas"], partition["last_known_elr"]) == ([], [])


def test_a_limited_answer_ends_with_the_cursor_of_the_next(client: ProtocolClient, topics: list[str]) -> None:
    one, two = topics
    first = describe(client, one, two, limit=2)
    assert shape(first) == ([(one, [0, 1])], (one, 2))
    second = describe(client, one, two, limit=2, cursor=first["next_cursor"])
    assert shape(second) == ([(one, [2]), (two, [0])], (two, 1))
    third = describe(client, one, two, limit=2, cursor=second["next_cursor"])
    assert shape(third) == ([(two, [1])], None)
    assert shape(describe(client, one, two, limit=3)) == ([(one, [0, 1, 2])], (two, 0))
    assert shape(describe(client, one, limit=0)) == ([(one, [0])], (one, 1))


def test_topics_that_are_missing_or_have_no_name_are_answered_each(client: ProtocolClient, topics: list[str]) -> None:
    codes = {
        one["name"]: one["error_code"] for one in describe(client, topics[0], "no-such-topic", "no/name")["topics"]
    }
    assert codes == {
        topics[0]: ErrorCode.none,
        "no-such-topic": ErrorCode.unknown_topic_or_partition,
        "no/name": ErrorCode.invalid_topic_exception,
    }


def test_no_names_stand_for_all_topics(client: ProtocolClient, topics: list[str]) -> None:
    found = dict(shape(describe(client))[0])
    assert [found[name] for name in topics] == [[0, 1, 2], [0, 1]]


def test_a_cursor_of_no_partition_is_refused(client: ProtocolClient, topics: list[str]) -> None:
    [refused] = describe(client, topics[0], cursor={"topic_name": topics[0], "partition_index": -1})["topics"]
    assert (refused["name"], refused["error_code"]) == (topics[0], ErrorCode.invalid_request)
