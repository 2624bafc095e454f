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
    SYNC_GROUP,
)
from tests.support.brokers import RunningBroker
from tests.support.group_requests import SUBSCRIPTION, beat_body, enter, join, sync_body
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
