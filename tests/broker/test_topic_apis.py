"""The APIs of topics and of the cluster on the wire, in every version."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
)
from tests.support.brokers import EMBEDDED_ONLY, RunningBroker
from tests.support.protocol_client import ProtocolClient, versions_of
from tests.support.topic_requests import RECORDS, create, produce, topic_id
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


def test_a_list_of_all_topics_follows_each_change(client: ProtocolClient, topics: list[str]) -> None:
    one, other = topics

    def is_listed(name: str, partitions: int, **wanted: object) -> bool:
        answer = client.call(METADATA, 12, {"topics": None, **wanted})
        found = {each["name"]: each for each in answer["topics"]}
        return (
            name in found
            and len(found[name]["partitions"]) == partitions
            and found[name]["topic_id"] == topic_id(client, name)
            and (found[name]["topic_authorized_operations"] >= 0) == bool(wanted)
        )

    assert is_listed(one, 3)
    assert is_listed(one, 3, include_topic_authorized_operations=True)
    more = {"topics": [{"name": one, "count": 5, "assignments": None}], "timeout": 30_000}
    assert client.call(CREATE_PARTITIONS, 3, more)["results"][0]["error_code"] == ErrorCode.none
    assert until(lambda: is_listed(one, 5))
    assert is_listed(other, 2)
    client.call(DELETE_TOPICS, 5, {"topic_names": [other], "timeout": 30_000})
    assert until(lambda: create(client, other, 2)["error_code"] == ErrorCode.none)
    assert until(lambda: is_listed(other, 2))


def test_a_cursor_of_no_partition_is_refused(client: ProtocolClient, topics: list[str]) -> None:
    [refused] = describe(client, topics[0], cursor={"topic_name": topics[0], "partition_index": -1})["topics"]
    assert (refused["name"], refused["error_code"]) == (topics[0], ErrorCode.invalid_request)


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", versions_of(METADATA))
def test_every_version_of_metadata(client: ProtocolClient, topic: str, version: int) -> None:
    answer = client.call(METADATA, version, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
    assert [broker["host"] for broker in answer["brokers"]] == ["127.0.0.1"]
    [found] = answer["topics"]
    assert (found["name"], [one["partition_index"] for one in found["partitions"]]) == (topic, [0, 1])
    everything = client.call(METADATA, version, {"topics": [] if version == 0 else None})
    assert found in everything["topics"]
    illegal = client.call(METADATA, version, {"topics": [{"name": "a b"}]})["topics"][0]
    assert illegal["error_code"] == ErrorCode.invalid_topic_exception
    if version >= 4:
        missing = {"topics": [{"name": "no-such-topic"}], "allow_auto_topic_creation": False}
        assert (
            client.call(METADATA, version, missing)["topics"][0]["error_code"] == ErrorCode.unknown_topic_or_partition
        )


@EMBEDDED_ONLY
def test_a_missing_topic_is_created_where_the_request_allows_it(client: ProtocolClient) -> None:
    name = f"auto-{uuid.uuid4()}"
    answer = client.call(METADATA, 12, {"topics": [{"name": name}], "allow_auto_topic_creation": True})
    assert [len(one["partitions"]) for one in answer["topics"]] == [1]


@EMBEDDED_ONLY
def test_a_topic_is_found_by_its_id(client: ProtocolClient, topic: str) -> None:
    wanted = topic_id(client, topic)
    assert client.call(METADATA, 12, {"topics": [{"topic_id": wanted, "name": None}]})["topics"][0]["name"] == topic
    unknown = client.call(METADATA, 12, {"topics": [{"topic_id": uuid.uuid4(), "name": None}]})["topics"][0]
    assert unknown["error_code"] == ErrorCode.unknown_topic_id


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", versions_of(CREATE_TOPICS))
def test_every_version_of_create_topics(client: ProtocolClient, version: int) -> None:
    name = f"made-{uuid.uuid4()}"
    assert create(client, name, 2, version, configs=[{"name": "retention.ms", "value": "5"}])["error_code"] == 0
    assert create(client, name, 2, version)["error_code"] == ErrorCode.topic_already_exists
    assert create(client, name.replace("-", "."), 2, version)["error_code"] == ErrorCode.none
    assert create(client, name.replace("-", "_"), 2, version)["error_code"] == ErrorCode.invalid_topic_exception
    assigned = [{"partition_index": 0, "broker_ids": [1]}, {"partition_index": 1, "broker_ids": [1]}]
    by_hand = create(client, f"{name}-a", -1, version, replication_factor=-1, assignments=assigned)
    assert by_hand["error_code"] == ErrorCode.none
    assigned[0]["broker_ids"] = [1, 2]
    by_hand = create(client, f"{name}-b", -1, version, replication_factor=-1, assignments=assigned)
    assert by_hand["error_code"] == ErrorCode.invalid_replica_assignment
    body = {"topics": [{"name": f"{name}-c", "num_partitions": 1, "replication_factor": 1}], "validate_only": True}
    for _ in range(2):
        [checked] = client.call(CREATE_TOPICS, version, body)["topics"]
        assert checked["error_code"] == ErrorCode.none
        if version >= 5:
            assert (checked["num_partitions"], checked["replication_factor"]) == (1, 1)
            assert "retention.ms" in [entry["name"] for entry in checked["configs"]]
    twice = client.call(CREATE_TOPICS, version, {"topics": body["topics"] * 2})["topics"]
    assert [one["error_code"] for one in twice] == [ErrorCode.invalid_request] * 2
    assert create(client, f"{name}-d", 1_000_000, version)["error_code"] == ErrorCode.policy_violation


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", versions_of(DELETE_TOPICS))
def test_every_version_of_delete_topics(client: ProtocolClient, topic: str, version: int) -> None:
    body = {"topic_names": [topic], "topics": [{"name": topic}], "timeout": 1000}
    codes = [client.call(DELETE_TOPICS, version, body)["responses"][0]["error_code"] for _ in range(2)]
    assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", versions_of(CREATE_PARTITIONS))
def test_every_version_of_create_partitions(client: ProtocolClient, topic: str, version: int) -> None:
    def grow(count: int, assignments: list[Message] | None = None, validate_only: bool = False) -> int:
        wanted = {"name": topic, "count": count, "assignments": assignments}
        body = {"topics": [wanted], "timeout": 1, "validate_only": validate_only}
        answer = client.call(CREATE_PARTITIONS, version, body)
        code: int = answer["results"][0]["error_code"]
        return code

    assert grow(4, validate_only=True) == ErrorCode.none
    assert grow(4) == ErrorCode.none
    assert grow(4) == ErrorCode.invalid_partitions
    assert grow(5, assignments=[{"broker_ids": [7]}]) == ErrorCode.invalid_replica_assignment
    assert produce(client, topic, partition=3)["error_code"] == ErrorCode.none


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", versions_of(DESCRIBE_CLUSTER))
def test_every_version_of_describe_cluster(client: ProtocolClient, version: int) -> None:
    answer = client.call(DESCRIBE_CLUSTER, version, {})
    assert [one["broker_id"] for one in answer["brokers"]] == [1]
    assert answer["cluster_id"] == client.call(METADATA, 12, {"topics": []})["cluster_id"]


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_log_directories_have_the_size_of_each_log(client: ProtocolClient, topic: str, version: int) -> None:
    produce(client, topic)
    for wanted in (None, [{"topic": topic, "partitions": [0]}]):
        [found] = client.call(DESCRIBE_LOG_DIRS, version, {"topics": wanted})["results"]
        sizes = {one["name"]: [each["partition_size"] for each in one["partitions"]] for one in found["topics"]}
        assert sizes[topic][0] == len(RECORDS)
    assert list(sizes) == [topic]
    assert found["error_code"] == ErrorCode.none
    assert version < 4 or 0 < found["usable_bytes"] < found["total_bytes"]
