"""The APIs for committed offsets: OffsetCommit, OffsetFetch and OffsetDelete.

Not here: the checks of commits by groups (groups/coordinator.py), and offsets in transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock_broker.errors import ApiError
from penstock_broker.groups.offsets import MAX_OFFSET_METADATA, CommittedOffset, TopicPartition
from penstock_broker.state import BrokerState, Request
from penstock_broker.topics import Topic, partition_of
from penstock_broker.wire.codec import LazyArray, Message
from penstock_broker.wire.error_codes import ErrorCode

_DEFAULT_RETENTION: Final = -1


def offset_commit(state: BrokerState, request: Request) -> Message:
    """Answer OffsetCommit; up to version 4 the client may set the retention time."""
    body = request.body
    retention_ms: int = body.get("retention_time", _DEFAULT_RETENTION)

    def store(offsets: dict[TopicPartition, CommittedOffset]) -> None:
        if retention_ms != _DEFAULT_RETENTION:
            offsets = {
                partition: offset._replace(expires_ms=offset.committed_ms + retention_ms)
                for partition, offset in offsets.items()
            }
        state.groups.check_commit(
            body["group_id"],
            body["member_id"],
            body.get("group_instance_id"),
            body["generation_id_or_member_epoch"],
            request.version,
            offsets,
        )
        state.groups.offsets.commit(body["group_id"], offsets)

    return {"topics": commit_offsets(state, body["topics"], store)}


def commit_offsets(
    state: BrokerState, topics: Sequence[Message], store: Callable[[dict[TopicPartition, CommittedOffset]], None]
) -> list[Message]:
    """Store the offsets of a request, and return the topics of the response.

    Args:
        state: the broker.
        topics: the topics of OffsetCommit or TxnOffsetCommit, by name or by id.
        store: stores all valid offsets; an ApiError is the answer for each of them.
    """
    accepted: dict[TopicPartition, CommittedOffset] = {}
    answers: list[Message] = []
    stored: list[Message] = []
    for wanted in topics:
        answer: Message = {key: wanted[key] for key in ("name", "topic_id") if key in wanted} | {"partitions": []}
        answers.append(answer)
        for partition in wanted["partitions"]:
            result: Message = {"partition_index": partition["partition_index"], "error_code": ErrorCode.none}
            answer["partitions"].append(result)
            try:
                topic = _topic(state, wanted)
                accepted[topic.name, partition["partition_index"]] = _checked_offset(state, topic, partition)
                stored.append(result)
            except ApiError as error:
                result["error_code"] = error.code
    try:
        store(accepted)
    except ApiError as error:
        for result in stored:
            result["error_code"] = error.code
    return answers


def _topic(state: BrokerState, wanted: Message) -> Topic:
    return state.topics.by_id(wanted["topic_id"]) if "topic_id" in wanted else state.topics.by_name(wanted["name"])


def _checked_offset(state: BrokerState, topic: Topic, partition: Message) -> CommittedOffset:
    text: str = partition["committed_metadata"] or ""
    if len(text) > MAX_OFFSET_METADATA:
        raise ApiError(ErrorCode.offset_metadata_too_large)
    partition_of(topic, partition["partition_index"])
    return CommittedOffset(
        partition["committed_offset"],
        partition.get("committed_leader_epoch", -1),
        text,
        state.groups.clock.milliseconds(),
    )


def offset_fetch(state: BrokerState, request: Request) -> Message:
    """Answer OffsetFetch for one group up to version 7, then for several."""
    groups: list[Message] | None = request.body.get("groups")
    if groups is None:
        return _fetch_group(state, request, request.body)
    return {"groups": LazyArray(groups, partial(_fetch_named_group, state, request))}


def _fetch_named_group(state: BrokerState, request: Request, wanted: Message) -> Message:
    return {"group_id": wanted["group_id"]} | _fetch_group(state, request, wanted)


def _fetch_group(state: BrokerState, request: Request, wanted: Message) -> Message:
    group: str = wanted["group_id"]
    needs_stable: bool = request.body.get("require_stable", False)
    try:
        state.groups.check_fetch(group, wanted.get("member_id"), wanted.get("member_epoch", -1))
    except ApiError as error:
        return {"error_code": error.code, "topics": []}
    committed = state.groups.offsets.of_group(group)
    topics: list[Message] | None = wanted["topics"]
    if topics is None:
        indexes: dict[str, list[int]] = {}
        for name, index in sorted(committed):
            indexes.setdefault(name, []).append(index)
        topics = [{"name": name, "partition_indexes": numbers} for name, numbers in indexes.items()]
    return {"topics": [_fetch_topic(state, group, topic, needs_stable, request.version) for topic in topics]}


def _fetch_topic(state: BrokerState, group: str, wanted: Message, needs_stable: bool, version: int) -> Message:
    try:
        topic = _topic(state, wanted) if version >= 10 else None
    except ApiError as error:
        missing = [_position(None, index) | {"error_code": error.code} for index in wanted["partition_indexes"]]
        return {"topic_id": wanted["topic_id"], "partitions": missing}
    name: str = wanted["name"] if topic is None else topic.name
    committed = state.groups.offsets.of_group(group)
    partitions = []
    for index in wanted["partition_indexes"]:
        if needs_stable and state.groups.offsets.has_pending(group, name, index):
            partitions.append(_position(None, index) | {"error_code": ErrorCode.unstable_offset_commit})
        else:
            partitions.append(_position(committed.get((name, index)), index))
    found: Message = {"name": name, "partitions": partitions}
    return found if topic is None else found | {"topic_id": topic.topic_id}


def _position(committed: CommittedOffset | None, index: int) -> Message:
    if committed is None:
        return {"partition_index": index, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
    }


def offset_delete(state: BrokerState, request: Request) -> Message:
    """Answer OffsetDelete."""
    wanted = {
        topic["name"]: [partition["partition_index"] for partition in topic["partitions"]]
        for topic in request.body["topics"]
    }
    try:
        codes = state.groups.delete_offsets(request.body["group_id"], wanted)
    except ApiError as error:
        return {"error_code": error.code, "topics": []}
    return {
        "topics": [
            {
                "name": name,
                "partitions": [{"partition_index": index, "error_code": codes[name, index]} for index in indexes],
            }
            for name, indexes in wanted.items()
        ]
    }
