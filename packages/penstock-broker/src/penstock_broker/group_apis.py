"""The APIs for group members.

These are FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat,
StreamsGroupHeartbeat and StreamsGroupTopologyDescriptionUpdate. Not here: their semantics (groups/classic,
groups/consumer, groups/streams). JoinGroup and SyncGroup may answer later.
"""

from __future__ import annotations

import uuid
from typing import Final

from penstock_broker.answers import LaterAnswer, PromisedAnswer
from penstock_broker.errors import ApiError
from penstock_broker.groups.assignment import as_assignment
from penstock_broker.groups.classic.joining import JoinRequest
from penstock_broker.groups.consumer.heartbeat import HeartbeatRequest, check_request
from penstock_broker.groups.group import MemberIdentity
from penstock_broker.groups.streams.heartbeat import read_request
from penstock_broker.state import NODE_ID, BrokerState, Request
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1


def find_coordinator(state: BrokerState, request: Request) -> Message:
    """Answer FindCoordinator: always this broker, for groups and transactional ids."""
    body = request.body
    key_type: int = body.get("key_type", _GROUP_KEY)
    coordinator: Message = {"node_id": NODE_ID, "host": state.host, "port": state.port}
    if key_type not in (_GROUP_KEY, _TRANSACTION_KEY):
        coordinator = {
            "node_id": -1,
            "port": -1,
            "error_code": ErrorCode.invalid_request,
            "error_message": f"there is no coordinator of type {key_type}",
        }
    return coordinator | {"coordinators": [coordinator | {"key": key} for key in body.get("coordinator_keys", [])]}


def join_group(state: BrokerState, request: Request) -> Message | LaterAnswer:
    """Answer JoinGroup when the members of the group have joined."""
    body, version = request.body, request.version
    wanted = JoinRequest(
        member_id=body["member_id"],
        instance_id=body.get("group_instance_id"),
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=body["session_timeout"],
        rebalance_timeout_ms=body["rebalance_timeout"] if version >= 1 else body["session_timeout"],
        protocol_type=body["protocol_type"],
        protocols={protocol["name"]: bytes(protocol["metadata"]) for protocol in body["protocols"]},
        needs_member_id=version >= 4,
        may_skip_assignment=version >= 9,
    )
    answer = PromisedAnswer()
    try:
        state.groups.join(body["group_id"], wanted, lambda response: answer.give(_join_response(version, response)))
    except ApiError as error:
        return _join_response(version, {"error_code": error.code, "member_id": body["member_id"]})
    return answer


def _join_response(version: int, response: Message) -> Message:
    # Versions before 7 have no null here.
    response.setdefault("protocol_name", "" if version < 7 else None)
    return response


def sync_group(state: BrokerState, request: Request) -> Message | LaterAnswer:
    """Answer SyncGroup when the leader of the group has sent the assignment."""
    body = request.body
    protocol_type, protocol = body.get("protocol_type"), body.get("protocol_name")
    answer = PromisedAnswer()
    try:
        if request.version >= 5 and (protocol_type is None or protocol is None):
            raise ApiError(ErrorCode.inconsistent_group_protocol)
        state.groups.classic_group(body["group_id"]).sync(
            _identity(body),
            protocol_type,
            protocol,
            {one["member_id"]: bytes(one["assignment"]) for one in body["assignments"]},
            answer.give,
        )
    except ApiError as error:
        return {"error_code": error.code}
    return answer


def heartbeat(state: BrokerState, request: Request) -> Message:
    """Answer Heartbeat."""
    try:
        state.groups.classic_group(request.body["group_id"]).heartbeat(_identity(request.body))
    except ApiError as error:
        return {"error_code": error.code}
    return {"error_code": ErrorCode.none}


def _identity(body: Message) -> MemberIdentity:
    return MemberIdentity(body["member_id"], body.get("group_instance_id"), body["generation_id"])


def leave_group(state: BrokerState, request: Request) -> Message:
    """Answer LeaveGroup for one member up to version 2, then for several."""
    body = request.body
    members: list[Message] = body.get("members", [body])
    identities: list[tuple[str, str | None]] = [(one["member_id"], one.get("group_instance_id")) for one in members]
    try:
        codes = state.groups.leave(body["group_id"], identities)
    except ApiError as error:
        return {"error_code": error.code, "members": []}
    if "members" not in body:
        return {"error_code": codes[0]}
    return {
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": code}
            for (member_id, instance_id), code in zip(identities, codes, strict=True)
        ]
    }


def consumer_group_heartbeat(state: BrokerState, request: Request) -> Message:
    """Answer ConsumerGroupHeartbeat."""
    body = request.body
    names, owned = body["subscribed_topic_names"], body["topic_partitions"]
    wanted = HeartbeatRequest(
        member_id=body["member_id"],
        member_epoch=body["member_epoch"],
        instance_id=body["instance_id"],
        rack_id=body["rack_id"],
        rebalance_timeout_ms=None if body["rebalance_timeout"] == -1 else body["rebalance_timeout"],
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=None if names is None else tuple(names),
        topic_regex=body.get("subscribed_topic_regex"),
        assignor=body["server_assignor"],
        owned=None if owned is None else as_assignment(owned),
    )
    try:
        if not body["group_id"]:
            raise ApiError(ErrorCode.invalid_request, "GroupId can't be empty.")
        check_request(wanted, request.version)
        if not wanted.member_id:
            wanted = wanted._replace(member_id=str(uuid.uuid4()))
        return state.groups.consumer_heartbeat(body["group_id"], wanted)
    except ApiError as error:
        return {"error_code": error.code, "error_message": error.message}


def streams_group_heartbeat(state: BrokerState, request: Request) -> Message:
    """Answer StreamsGroupHeartbeat."""
    body = request.body
    try:
        wanted = read_request(body, request.client_id, request.client_host)
        return state.groups.streams_heartbeat(body["group_id"], wanted)
    except ApiError as error:
        return {"error_code": error.code, "error_message": error.message}


def streams_group_topology_description_update(state: BrokerState, request: Request) -> Message:
    """Answer StreamsGroupTopologyDescriptionUpdate."""
    body = request.body
    try:
        if not body["member_id"].strip():
            raise ApiError(ErrorCode.invalid_request, "MemberId can't be empty.")
        state.groups.streams_group(body["group_id"]).update_topology_description(
            body["member_id"], body["topology_epoch"], body["topology_description"]
        )
    except ApiError as error:
        return {"error_code": error.code, "error_message": error.message}
    return {"error_code": ErrorCode.none}
