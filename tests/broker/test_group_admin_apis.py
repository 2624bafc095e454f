"""The APIs that list, describe and delete groups, in every version, on both brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LEAVE_GROUP,
    LIST_GROUPS,
    STREAMS_GROUP_DESCRIBE,
    STREAMS_GROUP_HEARTBEAT,
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
    SYNC_GROUP,
)
from tests.support.brokers import EMBEDDED_ONLY, RunningBroker
from tests.support.group_requests import SUBSCRIPTION, beat_body, enter, enter_streams, join, streams_body, sync_body
from tests.support.kafka import KAFKA_VERSION
from tests.support.protocol_client import ProtocolClient, versions_of


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[ProtocolClient]:
    with ProtocolClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.mark.parametrize("version", versions_of(DESCRIBE_GROUPS))
def test_every_version_of_describe_groups(client: ProtocolClient, group: str, version: int) -> None:
    joined = join(client, 9, group)

    def describe(name: str) -> Message:
        [described] = client.call(DESCRIBE_GROUPS, version, {"groups": [name]})["groups"]
        found: Message = described
        return found

    found = describe(group)
    assert (found["group_state"], found["protocol_type"], found["protocol_data"]) == (
        "CompletingRebalance",
        "consumer",
        "",
    )
    client.call(SYNC_GROUP, 5, sync_body(group, joined))
    found = describe(group)
    [member] = found["members"]
    assert (found["group_state"], found["protocol_data"]) == ("Stable", "range")
    assert (member["client_id"], member["client_host"]) == ("test", "/127.0.0.1")
    assert (member["member_metadata"], member["member_assignment"]) == (SUBSCRIPTION, b"all")
    missing = describe("unknown")
    code = ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none
    assert (missing["error_code"], missing["group_state"]) == (code, "Dead")


@pytest.mark.parametrize("version", versions_of(LIST_GROUPS))
def test_every_version_of_list_groups(client: ProtocolClient, group: str, version: int) -> None:
    join(client, 9, group)

    def listed(**filters: list[str]) -> Message | None:
        answer = client.call(LIST_GROUPS, version, filters)
        found: list[Message] = [one for one in answer["groups"] if one["group_id"] == group]
        return found[0] if found else None

    found = listed()
    assert found is not None
    assert found["protocol_type"] == "consumer"
    if version >= 4:
        assert found["group_state"] == "CompletingRebalance"
        assert listed(states_filter=["Stable", "Empty"]) is None
        assert listed(states_filter=["completingrebalance"]) == found
    if version >= 5:
        assert found["group_type"] == "classic"
        assert listed(types_filter=["consumer"]) is None
        assert listed(types_filter=["Classic"]) == found


@pytest.mark.parametrize("version", versions_of(DELETE_GROUPS))
def test_every_version_of_delete_groups(client: ProtocolClient, group: str, version: int) -> None:
    joined = join(client, 9, group)

    def delete() -> list[int]:
        names = [group, "unknown", ""]
        results = client.call(DELETE_GROUPS, version, {"groups_names": names})["results"]
        codes = {one["group_id"]: one["error_code"] for one in results}  # Kafka answers in any order
        return [codes[name] for name in names]

    delete()  # other tests may have committed offsets for the empty group id
    others = [ErrorCode.group_id_not_found] * 2
    assert delete() == [ErrorCode.non_empty_group, *others]
    client.call(LEAVE_GROUP, 0, {"group_id": group, "member_id": joined["member_id"]})
    assert delete() == [ErrorCode.none, *others]
    assert delete() == [ErrorCode.group_id_not_found, *others]


@pytest.mark.parametrize("version", versions_of(CONSUMER_GROUP_DESCRIBE))
def test_every_version_of_consumer_group_describe(client: ProtocolClient, group: str, topic: str, version: int) -> None:
    epoch = enter(client, 1, group, "me", topic)["member_epoch"]
    answer = client.call(CONSUMER_GROUP_DESCRIBE, version, {"group_ids": [group, "unknown"]})
    found, missing = answer["groups"]
    assert (found["error_code"], found["group_state"], found["group_epoch"]) == (ErrorCode.none, "Stable", epoch)
    assert found["assignor_name"] == "uniform"
    [member] = found["members"]
    [assigned] = member["assignment"]["topic_partitions"]
    assert (assigned["topic_name"], assigned["partitions"]) == (topic, [0, 1])
    assert (member["member_id"], member["client_id"], member["subscribed_topic_names"]) == ("me", "test", [topic])
    assert missing["error_code"] == ErrorCode.group_id_not_found
    listed = client.call(LIST_GROUPS, 5, {"types_filter": ["consumer"], "states_filter": ["stable"]})["groups"]
    assert [one["group_type"] for one in listed if one["group_id"] == group] == ["consumer"]
    client.call(CONSUMER_GROUP_HEARTBEAT, 1, beat_body(group, "me", -1))


@pytest.fixture
def streams_client(broker: RunningBroker, client: ProtocolClient) -> ProtocolClient:
    """A connection to a broker with streams groups; the test is skipped on an older Kafka."""
    if broker.kind == "kafka" and tuple(map(int, KAFKA_VERSION.split("."))) < (4, 4):
        pytest.skip(f"Kafka {KAFKA_VERSION} does not have version 1 of the APIs of streams groups")
    return client


@pytest.mark.parametrize("version", versions_of(STREAMS_GROUP_HEARTBEAT))
def test_every_version_of_streams_group_heartbeat(
    streams_client: ProtocolClient, group: str, topic: str, version: int
) -> None:
    joined = enter_streams(streams_client, version, group, "me", topic)
    assert joined["active_tasks"] == [{"subtopology_id": "0", "partitions": [0, 1]}]
    assert (joined["partitions_by_user_endpoint"], joined["endpoint_information_epoch"]) == ([], 0)
    # Kafka 4.4.0 answers UNKNOWN_SERVER_ERROR to an endpoint while it does not know the topics yet.
    here = {"host": "here", "port": 1}
    reachable = streams_body(group, "me", joined["member_epoch"], user_endpoint=here)
    moved = streams_client.call(STREAMS_GROUP_HEARTBEAT, version, reachable)
    [endpoint] = moved["partitions_by_user_endpoint"]
    assert (endpoint["user_endpoint"], moved["endpoint_information_epoch"]) == (here, 1)
    assert endpoint["active_partitions"] == [{"topic": topic, "partitions": [0, 1]}]
    joined = streams_client.call(STREAMS_GROUP_HEARTBEAT, version, streams_body(group, "me", moved["member_epoch"]))
    assert (joined["status"], joined.get("acceptable_recovery_lag", 10_000)) == ([], 10_000)
    assert joined["task_offset_interval"] == 60_000
    unchanged = streams_client.call(STREAMS_GROUP_HEARTBEAT, version, streams_body(group, "me", joined["member_epoch"]))
    assert (unchanged["active_tasks"], unchanged["standby_tasks"], unchanged["warmup_tasks"]) == (None, None, None)
    fenced = streams_client.call(STREAMS_GROUP_HEARTBEAT, version, streams_body(group, "me", 99))
    assert fenced["error_code"] == ErrorCode.fenced_member_epoch
    unknown = streams_client.call(STREAMS_GROUP_HEARTBEAT, version, streams_body(group, "other", 2))
    assert unknown["error_code"] == ErrorCode.unknown_member_id
    left = streams_client.call(STREAMS_GROUP_HEARTBEAT, version, streams_body(group, "me", -1))
    assert (left["error_code"], left["member_epoch"], left["status"]) == (ErrorCode.none, -1, [])


@pytest.mark.parametrize("version", versions_of(STREAMS_GROUP_HEARTBEAT))
def test_a_streams_group_takes_no_patterns(streams_client: ProtocolClient, group: str, version: int) -> None:
    by_pattern = {"subtopology_id": "0", "source_topics": [], "source_topic_regex": ["in.*"]}
    topology = {"epoch": 0, "subtopologies": [by_pattern]}
    body = streams_body(group, "me", 0, topology=topology, process_id="p", client_tags=[])
    refused = streams_client.call(STREAMS_GROUP_HEARTBEAT, version, body)
    assert (refused["error_code"], refused["error_message"]) == (
        ErrorCode.invalid_request,
        "Regular expressions for source topics are not supported yet.",
    )


def test_task_offsets_of_a_streams_group_are_described(streams_client: ProtocolClient, group: str, topic: str) -> None:
    first, second, again = ({"subtopology_id": "0", "partition": n, "offset": at} for n, at in ((0, 5), (1, 7), (1, 8)))
    epoch = enter_streams(streams_client, 1, group, "me", topic)["member_epoch"]
    reports: list[Message] = [
        {"task_offsets": [second, first], "task_end_offsets": [again]},
        {"task_offsets": [again]},
        {},
    ]
    for report in reports:
        streams_client.call(STREAMS_GROUP_HEARTBEAT, 1, streams_body(group, "me", epoch, **report))
    wanted = {"group_ids": [group], "include_authorized_operations": False}
    [[member]] = (each["members"] for each in streams_client.call(STREAMS_GROUP_DESCRIBE, 1, wanted)["groups"])
    assert (member["task_offsets"], member["task_end_offsets"]) == ([again], [again])
    twice = streams_body(group, "me", epoch, task_offsets=[second, again])
    refused = streams_client.call(STREAMS_GROUP_HEARTBEAT, 1, twice)
    assert (refused["error_code"], refused["error_message"]) == (
        ErrorCode.invalid_request,
        "Task offsets contain a duplicate entry for subtopology 0 and partition 1.",
    )


@pytest.mark.parametrize("version", versions_of(STREAMS_GROUP_DESCRIBE))
def test_every_version_of_streams_group_describe(
    streams_client: ProtocolClient, group: str, topic: str, version: int
) -> None:
    epoch = enter_streams(streams_client, 1, group, "me", topic)["member_epoch"]
    wanted = {"group_ids": [group, "unknown"], "include_topology_description": True}
    found, missing = streams_client.call(STREAMS_GROUP_DESCRIBE, version, wanted)["groups"]
    assert (found["error_code"], found["group_state"], found["group_epoch"]) == (ErrorCode.none, "Stable", epoch)
    assert (found["assignment_epoch"], found["topology"]["epoch"]) == (epoch, 0)
    [subtopology] = found["topology"]["subtopologies"]
    assert (subtopology["subtopology_id"], subtopology["source_topics"]) == ("0", [topic])
    [member] = found["members"]
    assert (member["member_id"], member["client_id"], member["process_id"]) == ("me", "test", "p")
    assert member["assignment"]["active_tasks"] == [{"subtopology_id": "0", "partitions": [0, 1]}]
    assert (member["target_assignment"], member["is_classic"]) == (member["assignment"], False)
    if version >= 1:
        assert (found["assignor_name"], found["topology_description_status"]) == ("sticky", 1)
    assert missing["error_code"] == ErrorCode.group_id_not_found
    listed = streams_client.call(LIST_GROUPS, 5, {"types_filter": ["streams"], "states_filter": ["stable"]})["groups"]
    assert [(one["group_type"], one["protocol_type"]) for one in listed if one["group_id"] == group] == [
        ("streams", "streams")
    ]
    streams_client.call(STREAMS_GROUP_HEARTBEAT, 1, streams_body(group, "me", -1))
    assert (
        streams_client.call(DELETE_GROUPS, 2, {"groups_names": [group]})["results"][0]["error_code"] == ErrorCode.none
    )


@EMBEDDED_ONLY
def test_the_description_of_a_topology_is_kept(client: ProtocolClient, group: str, topic: str) -> None:
    joined = enter_streams(client, 1, group, "me", topic)
    assert joined["topology_description_required"]
    source = {
        "name": "in",
        "node_type": 1,
        "source_topics": [topic],
        "sink_topic": None,
        "stores": [],
        "successors": [],
    }
    description = {"subtopologies": [{"subtopology_id": "0", "nodes": [source]}], "global_stores": []}
    pushed = {"group_id": group, "member_id": "me", "topology_epoch": 0, "topology_description": description}
    for changes, code in (
        ({"member_id": ""}, ErrorCode.invalid_request),
        ({"group_id": "unknown"}, ErrorCode.group_id_not_found),
        ({"topology_epoch": 1}, ErrorCode.invalid_request),
        ({}, ErrorCode.none),
    ):
        answer = client.call(STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, 0, pushed | changes)
        assert answer["error_code"] == code
    beat = client.call(STREAMS_GROUP_HEARTBEAT, 1, streams_body(group, "me", joined["member_epoch"]))
    assert not beat["topology_description_required"]
    for is_wanted, shown in ((True, (3, description)), (False, (0, None))):
        wanted = {"group_ids": [group], "include_topology_description": is_wanted}
        [found] = client.call(STREAMS_GROUP_DESCRIBE, 1, wanted)["groups"]
        assert (found["topology_description_status"], found["topology_description"]) == shown
