"""The APIs of committed offsets on the wire, in every version."""

from __future__ import annotations

import uuid

import pytest

from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from tests.support.protocol_client import ProtocolClient, versions_of
from tests.support.topic_requests import topic_id


@pytest.mark.parametrize("version", versions_of(OFFSET_COMMIT))
def test_every_version_of_offset_commit(client: ProtocolClient, topic: str, version: int) -> None:
    group = f"group-{uuid.uuid4()}"

    def commit(offset: int, index: int = 1, metadata: str = "note", **settings: object) -> int:
        wanted = {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
        named = {"name": topic, "topic_id": topic_id(client, topic), "partitions": [wanted]}
        body = {"group_id": group, "topics": [named]} | settings
        code: int = client.call(OFFSET_COMMIT, version, body)["topics"][0]["partitions"][0]["error_code"]
        return code

    assert commit(4) == ErrorCode.none
    assert commit(5) == ErrorCode.none
    assert commit(6, index=9) == ErrorCode.unknown_topic_or_partition
    assert commit(6, member_id="someone", generation_id_or_member_epoch=3) == ErrorCode.unknown_member_id
    assert commit(6, generation_id_or_member_epoch=3) == ErrorCode.unknown_member_id
    missing = ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
    assert commit(6, generation_id_or_member_epoch=3, group_id=f"new-{group}") == missing
    assert commit(6, metadata="x" * 5000) == ErrorCode.offset_metadata_too_large
    assert commit(6, group_id="") == ErrorCode.none
    assert positions(client, 7, group, topic) == [(0, -1, ""), (1, 5, "note")]


def positions(client: ProtocolClient, version: int, group: str, topic: str | None) -> list[tuple[int, int, str]]:
    named = {"name": topic, "partition_indexes": [0, 1]}
    by_id = {"topic_id": topic_id(client, topic or "")} if version >= 8 else {}
    wanted = {"group_id": group, "topics": None if topic is None else [named | by_id]}
    answer = client.call(OFFSET_FETCH, version, wanted if version < 8 else {"groups": [wanted]})
    found = answer["groups"][0] if version >= 8 else answer
    partitions = [one for topic in found["topics"] for one in topic["partitions"]]
    assert all(one["error_code"] == ErrorCode.none for one in partitions)
    return [(one["partition_index"], one["committed_offset"], one["metadata"]) for one in partitions]


@pytest.mark.parametrize("version", versions_of(OFFSET_FETCH))
def test_every_version_of_offset_fetch(client: ProtocolClient, topic: str, version: int) -> None:
    group = f"group-{uuid.uuid4()}"
    wanted = {"partition_index": 1, "committed_offset": 8, "committed_metadata": None}
    client.call(OFFSET_COMMIT, 9, {"group_id": group, "topics": [{"name": topic, "partitions": [wanted]}]})
    assert positions(client, version, group, topic) == [(0, -1, ""), (1, 8, "")]
    if version >= 2:
        assert positions(client, version, group, None) == [(1, 8, "")]


def test_offsets_of_an_unknown_topic_id_are_refused(client: ProtocolClient) -> None:
    wanted = {"topic_id": uuid.uuid4(), "partition_indexes": [0]}
    answer = client.call(OFFSET_FETCH, 10, {"groups": [{"group_id": "any", "topics": [wanted]}]})
    [found] = answer["groups"][0]["topics"][0]["partitions"]
    assert (found["error_code"], found["committed_offset"]) == (ErrorCode.unknown_topic_id, -1)
    wanted = {"topic_id": uuid.uuid4(), "partitions": [{"partition_index": 0, "committed_offset": 1}]}
    answer = client.call(OFFSET_COMMIT, 10, {"group_id": "any", "topics": [wanted]})
    assert answer["topics"][0]["partitions"][0]["error_code"] == ErrorCode.unknown_topic_id


def test_offset_delete(client: ProtocolClient, topic: str) -> None:
    def delete(group: str) -> Message:
        wanted = {"name": topic, "partitions": [{"partition_index": index} for index in (0, 1)]}
        return client.call(OFFSET_DELETE, 0, {"group_id": group, "topics": [wanted]})

    group = f"group-{uuid.uuid4()}"
    assert delete(group)["error_code"] == ErrorCode.group_id_not_found
    assert delete("")["error_code"] == ErrorCode.invalid_group_id
    wanted = {"partition_index": 1, "committed_offset": 8, "committed_metadata": None}
    client.call(OFFSET_COMMIT, 9, {"group_id": group, "topics": [{"name": topic, "partitions": [wanted]}]})
    [answer] = delete(group)["topics"]
    assert [(one["partition_index"], one["error_code"]) for one in answer["partitions"]] == [(0, 0), (1, 0)]
    assert positions(client, 7, group, topic) == [(0, -1, ""), (1, -1, "")]
