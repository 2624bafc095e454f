"""The APIs about positions and producers: FindCoordinator, OffsetCommit, OffsetFetch and InitProducerId.

Groups without members only: a consumer that assigns its own partitions may commit and read offsets under a group id.
Members and rebalances (JoinGroup and the like) and transactions are not served, so a commit that claims a membership,
and a transactional id, are refused.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from penstock.broker.codec import Message
from penstock.broker.errors import NO_TRANSACTIONS, ApiError
from penstock.broker.metadata_store import CommittedOffset
from penstock.broker.state import NODE_ID, BrokerState, Request

MAX_OFFSET_METADATA: Final = 4096
"""Bytes of text that may be committed beside an offset, as in Kafka."""

_GROUP_KEY: Final = 0


def find_coordinator(state: BrokerState, request: Request) -> Message:
    """Answer FindCoordinator: this broker, for groups."""
    body = request.body
    key_type: int = body.get("key_type", _GROUP_KEY)
    coordinator: Message = {"node_id": NODE_ID, "host": state.host, "port": state.port}
    if key_type != _GROUP_KEY:
        coordinator = {
            "node_id": -1,
            "port": -1,
            # A client repeats its request on most errors; on this one it fails immediately.
            "error_code": ErrorCode.transactional_id_authorization_failed,
            "error_message": NO_TRANSACTIONS,
        }
    return coordinator | {"coordinators": [coordinator | {"key": key} for key in body.get("coordinator_keys", [])]}


def init_producer_id(state: BrokerState, request: Request) -> Message:
    """Answer InitProducerId for idempotent producers; one with a transactional id is refused."""
    if request.body["transactional_id"] is not None:
        return {"error_code": ErrorCode.transactional_id_authorization_failed, "producer_epoch": -1}
    try:
        return {"producer_id": state.store.next_producer_id(), "producer_epoch": 0}
    except ApiError as error:
        return {"error_code": error.code, "producer_epoch": -1}


def offset_commit(state: BrokerState, request: Request) -> Message:
    """Answer OffsetCommit of a consumer that is no member of its group."""
    accepted: list[CommittedOffset] = []
    codes: dict[tuple[str, int], ErrorCode] = {}
    for topic in request.body["topics"]:
        for partition in topic["partitions"]:
            try:
                accepted.append(_checked_offset(state, request, topic["name"], partition))
            except ApiError as error:
                codes[topic["name"], partition["partition_index"]] = error.code
    try:
        state.store.commit_offsets(request.body["group_id"], accepted)
    except ApiError as error:
        codes |= {(one.topic, one.partition): error.code for one in accepted}
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": partition["partition_index"],
                        "error_code": codes.get((topic["name"], partition["partition_index"]), ErrorCode.none),
                    }
                    for partition in topic["partitions"]
                ],
            }
            for topic in request.body["topics"]
        ]
    }


def _checked_offset(state: BrokerState, request: Request, topic: str, partition: Message) -> CommittedOffset:
    if not request.body["group_id"]:
        raise ApiError(ErrorCode.invalid_group_id)
    if request.body["member_id"]:
        raise ApiError(ErrorCode.unknown_member_id)
    if request.body["generation_id_or_member_epoch"] >= 0:
        raise ApiError(ErrorCode.illegal_generation)
    text: str = partition["committed_metadata"] or ""
    if len(text.encode()) > MAX_OFFSET_METADATA:
        raise ApiError(ErrorCode.offset_metadata_too_large)
    state.topics.partition(topic, partition["partition_index"])
    return CommittedOffset(
        topic,
        partition["partition_index"],
        partition["committed_offset"],
        partition.get("committed_leader_epoch", -1),
        text,
    )


def offset_fetch(state: BrokerState, request: Request) -> Message:
    """Answer OffsetFetch; up to version 7 for one group, then for several."""
    groups: list[Message] = request.body.get("groups", [request.body])
    answers = [
        {"group_id": group["group_id"], "topics": _fetch_group(state, group["group_id"], group["topics"])}
        for group in groups
        if "group_id" in group
    ]
    return {"topics": answers[0]["topics"] if answers else [], "groups": answers}


def _fetch_group(state: BrokerState, group_id: str, wanted: list[Message] | None) -> list[Message]:
    committed = state.store.committed_offsets(group_id)
    if wanted is None:
        names = dict.fromkeys(topic for topic, _ in committed)
        wanted = [{"name": name, "partition_indexes": [p for t, p in committed if t == name]} for name in names]
    return [
        {
            "name": topic["name"],
            "partitions": [
                _position(committed.get((topic["name"], index)), index) for index in topic["partition_indexes"]
            ],
        }
        for topic in wanted
    ]


def _position(committed: CommittedOffset | None, index: int) -> Message:
    if committed is None:
        return {"partition_index": index, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
    }
