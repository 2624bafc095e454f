"""The APIs of groups on the wire, in every version, on the embedded broker and on a real Kafka alike."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from penstock_broker.records import read_records
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import (
    CONSUMER_GROUP_HEARTBEAT,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    SYNC_GROUP,
)
from tests.support.brokers import EMBEDDED_ONLY, RunningBroker
from tests.support.group_requests import SUBSCRIPTION, beat_body, enter, join, join_body, member_body, sync_body
from tests.support.protocol_client import ProtocolClient, versions_of
from tests.support.topic_requests import create, topic_id
from tests.support.waiting import until


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[ProtocolClient]:
    with ProtocolClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def topic(client: ProtocolClient) -> str:
    """A topic of three partitions, which two members cannot share evenly."""
    name = f"topic-{uuid.uuid4()}"
    create(client, name, 3)
    wanted = {"topics": [{"name": name}]}
    assert until(lambda: client.call(METADATA, 12, wanted)["topics"][0]["error_code"] == ErrorCode.none)
    return name


@pytest.fixture
def other(broker: RunningBroker) -> Iterator[ProtocolClient]:
    with ProtocolClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.mark.parametrize("version", versions_of(JOIN_GROUP))
def test_every_version_of_join_group(client: ProtocolClient, other: ProtocolClient, group: str, version: int) -> None:
    first = join(client, version, group)
    assert (first["generation_id"], first["leader"], first["protocol_name"]) == (1, first["member_id"], "range")
    assert [one["metadata"] for one in first["members"]] == [SUBSCRIPTION]
    if version >= 4:
        new = other.call(JOIN_GROUP, version, join_body(group))["member_id"]
        other.send(JOIN_GROUP, version, join_body(group, new))
    else:
        other.send(JOIN_GROUP, version, join_body(group))
    assert wait_for_rebalance(client, group, first) == ErrorCode.rebalance_in_progress
    again = client.call(JOIN_GROUP, version, join_body(group, first["member_id"]))
    second = other.receive(JOIN_GROUP, version)
    assert again["generation_id"] == second["generation_id"] == 2
    assert (len(again["members"]), len(second["members"])) == (2, 0)
    for wrong, code in (
        (join_body(group, "unknown"), ErrorCode.unknown_member_id),
        (join_body(""), ErrorCode.invalid_group_id),
        (join_body(group, session_timeout=1), ErrorCode.invalid_session_timeout),
        (join_body(group, protocol_type="connect"), ErrorCode.inconsistent_group_protocol),
    ):
        assert client.call(JOIN_GROUP, version, wrong)["error_code"] == code


def wait_for_rebalance(client: ProtocolClient, group: str, joined: Message) -> int:
    for _ in range(10_000):
        code: int = client.call(HEARTBEAT, 4, member_body(group, joined))["error_code"]
        if code != ErrorCode.none:
            break
    return code


@pytest.mark.parametrize("version", versions_of(SYNC_GROUP))
def test_every_version_of_sync_group(client: ProtocolClient, group: str, version: int) -> None:
    joined = join(client, 9, group)
    answer = client.call(SYNC_GROUP, version, sync_body(group, joined))
    assert (answer["error_code"], answer["assignment"]) == (ErrorCode.none, b"all")
    if version >= 5:
        assert (answer["protocol_type"], answer["protocol_name"]) == ("consumer", "range")
        for wrong in ({"protocol_name": "other"}, {"protocol_type": "other"}, {"protocol_name": None}):
            answer = client.call(SYNC_GROUP, version, sync_body(group, joined, **wrong))
            assert answer["error_code"] == ErrorCode.inconsistent_group_protocol
    for settings, code in (
        ({"generation_id": 7}, ErrorCode.illegal_generation),
        ({"member_id": "unknown"}, ErrorCode.unknown_member_id),
        ({"group_id": "unknown"}, ErrorCode.unknown_member_id),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
    ):
        assert client.call(SYNC_GROUP, version, sync_body(group, joined, **settings))["error_code"] == code


@pytest.mark.parametrize("version", versions_of(HEARTBEAT))
def test_every_version_of_heartbeat(client: ProtocolClient, group: str, version: int) -> None:
    joined = join(client, 9, group)
    for settings, code in (
        ({}, ErrorCode.none),
        ({"generation_id": 7}, ErrorCode.illegal_generation),
        ({"member_id": "unknown"}, ErrorCode.unknown_member_id),
        ({"group_id": "unknown"}, ErrorCode.unknown_member_id),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
    ):
        answer = client.call(HEARTBEAT, version, member_body(group, joined) | settings)
        assert answer["error_code"] == code


@pytest.mark.parametrize("version", versions_of(LEAVE_GROUP))
def test_every_version_of_leave_group(client: ProtocolClient, group: str, version: int) -> None:
    joined = join(client, 9, group)

    def leave(group: str, member_id: str) -> list[int]:
        member = {"member_id": member_id, "group_instance_id": None, "reason": "test"}
        body = {"group_id": group, "members": [member], "member_id": member_id}
        answer = client.call(LEAVE_GROUP, version, body)
        return [answer["error_code"], *(one["error_code"] for one in answer.get("members", []))]

    whole, of_member = ([], [ErrorCode.none]) if version >= 3 else ([ErrorCode.none], [])
    unknown = [ErrorCode.none, ErrorCode.unknown_member_id] if version >= 3 else [ErrorCode.unknown_member_id]
    assert leave(group, joined["member_id"]) == (whole or [ErrorCode.none]) + of_member
    assert leave(group, joined["member_id"]) == unknown
    assert leave("unknown", "m") == unknown
    assert leave("", "m")[0] == ErrorCode.invalid_group_id


@pytest.mark.parametrize("version", versions_of(OFFSET_COMMIT))
def test_commits_to_a_missing_group_and_of_a_client_without_a_membership(
    client: ProtocolClient, group: str, topic: str, version: int
) -> None:
    def commit(group: str, **settings: object) -> int:
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": None}
        named = {"name": topic, "topic_id": topic_id(client, topic), "partitions": [partition]}
        answer = client.call(OFFSET_COMMIT, version, {"group_id": group, "topics": [named]} | settings)
        code: int = answer["topics"][0]["partitions"][0]["error_code"]
        return code

    missing = ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
    assert commit("unknown", member_id="m", generation_id_or_member_epoch=1) == missing
    assert commit(group) == ErrorCode.none
    joined = join(client, 9, group)
    assert commit(group) == ErrorCode.unknown_member_id
    identity = {"member_id": joined["member_id"], "generation_id_or_member_epoch": joined["generation_id"]}
    assert commit(group, **identity) == ErrorCode.rebalance_in_progress
    client.call(SYNC_GROUP, 5, sync_body(group, joined))
    assert commit(group, **identity) == ErrorCode.none


def ends_of_offsets_topic(client: ProtocolClient) -> list[int]:
    name = "__consumer_offsets"
    count = len(client.call(METADATA, 9, {"topics": [{"name": name}]})["topics"][0]["partitions"])
    wanted = [{"partition_index": index, "timestamp": -1} for index in range(count)]
    answer = client.call(LIST_OFFSETS, 5, {"replica_id": -1, "topics": [{"name": name, "partitions": wanted}]})
    found = {one["partition_index"]: one["offset"] for one in answer["topics"][0]["partitions"]}
    return [found[index] for index in range(count)]


@pytest.mark.parametrize(("version", "retention_ms"), [(2, 1_000_000), (4, 5_000_000), (4, -1), (5, 1_000_000)])
def test_the_retention_time_of_a_commit_is_kept_with_the_offset(
    client: ProtocolClient, group: str, topic: str, version: int, retention_ms: int
) -> None:
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": None}
    commit = {"group_id": group, "topics": [{"name": topic, "partitions": [partition]}]}
    client.call(OFFSET_COMMIT, 9, commit)  # makes the topic
    before = ends_of_offsets_topic(client)
    client.call(OFFSET_COMMIT, version, commit | {"retention_time": retention_ms})
    wanted = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        for index, offset in enumerate(before)
    ]
    body = {"max_wait": 1000, "min_bytes": 1, "max_bytes": 1 << 20}
    answer = client.call(FETCH, 12, body | {"topics": [{"topic": "__consumer_offsets", "partitions": wanted}]})
    found = [one["records"] for one in answer["responses"][0]["partitions"] if one["records"]]
    [value] = [
        record.value
        for records in found
        for record in read_records(memoryview(records))
        if record.key and group.encode() in record.key and topic.encode() in record.key
    ]
    assert value is not None
    has_own_time = version < 5 and retention_ms >= 0
    assert (value[1] == 1) == has_own_time  # only this version of the record has a time
    if has_own_time:
        committed_ms, expires_ms = (
            int.from_bytes(value[at : at + 8], "big") for at in (len(value) - 16, len(value) - 8)
        )
        assert expires_ms - committed_ms == retention_ms


def test_a_client_that_was_given_an_id_and_leaves_makes_the_others_join_again(
    client: ProtocolClient, other: ProtocolClient, group: str
) -> None:
    joined = join(client, 9, group)
    client.call(SYNC_GROUP, 5, sync_body(group, joined))
    given = other.call(JOIN_GROUP, 9, join_body(group))["member_id"]
    left = other.call(LEAVE_GROUP, 5, {"group_id": group, "members": [{"member_id": given, "reason": None}]})
    assert [one["error_code"] for one in left["members"]] == [ErrorCode.none]
    assert client.call(HEARTBEAT, 4, member_body(group, joined))["error_code"] == ErrorCode.rebalance_in_progress


def test_a_member_that_prefers_another_protocol_makes_the_group_choose_again(
    client: ProtocolClient, other: ProtocolClient, group: str
) -> None:
    protocols = [{"name": name, "metadata": SUBSCRIPTION} for name in ("range", "roundrobin")]
    leader = client.call(JOIN_GROUP, 3, join_body(group, protocols=protocols))
    other.send(JOIN_GROUP, 3, join_body(group, protocols=protocols))
    assert wait_for_rebalance(client, group, leader) == ErrorCode.rebalance_in_progress
    leader = client.call(JOIN_GROUP, 3, join_body(group, leader["member_id"], protocols=protocols))
    follower = other.receive(JOIN_GROUP, 3)
    client.call(SYNC_GROUP, 3, sync_body(group, leader))
    assert other.call(SYNC_GROUP, 3, sync_body(group, follower))["error_code"] == ErrorCode.none
    again = other.call(JOIN_GROUP, 3, join_body(group, follower["member_id"], protocols=protocols))
    assert again["generation_id"] == 2
    other.send(JOIN_GROUP, 3, join_body(group, follower["member_id"], protocols=protocols[::-1]))
    assert wait_for_rebalance(client, group, leader) == ErrorCode.rebalance_in_progress


def test_a_member_commits_in_an_earlier_epoch_what_it_had_then(
    client: ProtocolClient, other: ProtocolClient, group: str, topic: str
) -> None:
    def commit(member_id: str, epoch: int, index: int) -> int:
        partition = {"partition_index": index, "committed_offset": 5, "committed_metadata": None}
        identity = {"member_id": member_id, "generation_id_or_member_epoch": epoch}
        topics = [{"name": topic, "partitions": [partition]}]
        answer = client.call(OFFSET_COMMIT, 9, {"group_id": group, "topics": topics} | identity)
        code: int = answer["topics"][0]["partitions"][0]["error_code"]
        return code

    def beat(connection: ProtocolClient, member_id: str, epoch: int, owned: list[Message]) -> Message:
        body = beat_body(group, member_id, epoch, topic_partitions=owned)
        return connection.call(CONSUMER_GROUP_HEARTBEAT, 1, body)

    joined = enter(client, 1, group, "first", topic)
    earlier, owned = joined["member_epoch"], joined["assignment"]["topic_partitions"]
    other.call(CONSUMER_GROUP_HEARTBEAT, 1, beat_body(group, "second", 0, subscribed_topic_names=[topic]))

    def kept() -> list[Message] | None:
        answer = beat(client, "first", earlier, owned)
        assigned = answer["assignment"]
        return None if assigned is None else assigned["topic_partitions"]

    found: list[list[Message]] = []
    assert until(lambda: (partitions := kept()) is not None and (found.append(partitions) or True))
    # It must give up one or two partitions, and does.
    epoch = beat(client, "first", earlier, found[0])["member_epoch"]
    assert epoch > earlier
    left = found[0][0]["partitions"]
    for index in range(3):
        expected = ErrorCode.none if index in left else ErrorCode.stale_member_epoch
        assert commit("first", earlier, index) == expected
    assert commit("first", epoch + 1, left[0]) == ErrorCode.stale_member_epoch


def test_requests_behind_one_that_waits_are_answered_after_it(
    client: ProtocolClient, other: ProtocolClient, group: str
) -> None:
    first = join(client, 0, group)
    other.send(JOIN_GROUP, 0, join_body(group))
    other.send(METADATA, 12, {"topics": []})
    wait_for_rebalance(client, group, first)
    client.call(JOIN_GROUP, 0, join_body(group, first["member_id"]))
    frames = [other.receive_frame(), other.receive_frame()]
    assert [int.from_bytes(frame[:4], "big") for frame in frames] == [1, 2]


def test_a_member_whose_connection_is_lost_while_it_waits_stays_a_member(
    broker: RunningBroker, client: ProtocolClient, group: str
) -> None:
    first = join(client, 0, group)
    with ProtocolClient(broker.bootstrap_servers) as crashed:
        crashed.send(JOIN_GROUP, 0, join_body(group))
        wait_for_rebalance(client, group, first)
    again = client.call(JOIN_GROUP, 0, join_body(group, first["member_id"]))
    assert len(again["members"]) == 2


@pytest.mark.parametrize("version", versions_of(CONSUMER_GROUP_HEARTBEAT))
def test_every_version_of_consumer_group_heartbeat(
    broker: RunningBroker, client: ProtocolClient, group: str, topic: str, version: int
) -> None:
    def beat(member_id: str, epoch: int, **settings: object) -> Message:
        return client.call(CONSUMER_GROUP_HEARTBEAT, version, beat_body(group, member_id, epoch, **settings))

    # From version 1 the client chooses its id.
    joined = enter(client, version, group, "" if version == 0 else "me", topic)
    epoch = joined["member_epoch"]
    assert [each["partitions"] for each in joined["assignment"]["topic_partitions"]] == [[0, 1, 2]]
    again = beat(joined["member_id"], epoch)
    interval_ms = 1_000 if broker.kind == "embedded" else 5_000
    assert (again["error_code"], again["assignment"], again["heartbeat_interval"]) == (0, None, interval_ms)
    assert beat(joined["member_id"], 7)["error_code"] == ErrorCode.fenced_member_epoch
    repeated = beat(joined["member_id"], 0, subscribed_topic_names=[topic])
    assert (repeated["error_code"], repeated["member_epoch"]) == (ErrorCode.none, epoch)
    assert repeated["assignment"] == joined["assignment"]
    assert beat("unknown", 7)["error_code"] == ErrorCode.unknown_member_id
    assert beat("m", 0)["error_code"] == ErrorCode.invalid_request
    assert beat("m", 0, group_id="")["error_code"] == ErrorCode.invalid_request
    if version >= 1:
        assert beat("", 0, subscribed_topic_names=[topic])["error_code"] == ErrorCode.invalid_request
        wrong = beat("m", 0, subscribed_topic_regex="(")
        assert wrong["error_code"] == ErrorCode.invalid_regular_expression
        assert beat("m", 0, subscribed_topic_regex=topic)["error_code"] == ErrorCode.none
    left = beat(joined["member_id"], -1)
    assert (left["error_code"], left["member_epoch"]) == (ErrorCode.none, -1)


@EMBEDDED_ONLY
@pytest.mark.parametrize("version", versions_of(FIND_COORDINATOR))
def test_every_version_of_find_coordinator(client: ProtocolClient, version: int) -> None:
    groups = client.call(FIND_COORDINATOR, version, {"key": "g", "key_type": 0, "coordinator_keys": ["g"]})
    found = groups["coordinators"][0] if version >= 4 else groups
    assert (found["error_code"], found["node_id"], found["host"]) == (ErrorCode.none, 1, "127.0.0.1")
    for key_type, code in ((1, ErrorCode.none), (2, ErrorCode.invalid_request)) if version >= 1 else ():
        body = {"key": "t", "key_type": key_type, "coordinator_keys": ["t"]}
        answer = client.call(FIND_COORDINATOR, version, body)
        found = answer["coordinators"][0] if version >= 4 else answer
        assert (found["error_code"], found["node_id"]) == (code, 1 if code == ErrorCode.none else -1)
