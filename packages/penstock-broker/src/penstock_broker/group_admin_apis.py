"""The APIs for listing, describing and deleting groups.

These are DescribeGroups, ConsumerGroupDescribe, StreamsGroupDescribe, ListGroups and DeleteGroups.
"""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import Final

from penstock_broker.authorized_operations import ON_GROUP
from penstock_broker.errors import ApiError
from penstock_broker.state import BrokerState, Request
from penstock_broker.wire.codec import LazyArray, Message
from penstock_broker.wire.error_codes import ErrorCode

_NO_SUCH_GROUP_VERSION: Final = 6
"""First version of DescribeGroups with an error for an unknown group, not a dead group."""


class _DescriptionStatus(IntEnum):
    NOT_REQUESTED = 0
    NOT_STORED = 1
    AVAILABLE = 3


def describe_groups(state: BrokerState, request: Request) -> Message:
    """Answer DescribeGroups."""
    return {"groups": LazyArray(request.body["groups"], partial(_describe_group, state, request))}


def _with_authorized_operations(group: Message, request: Request) -> Message:
    is_wanted = request.body.get("include_authorized_operations")
    return group | {"authorized_operations": ON_GROUP} if is_wanted else group


def _describe_group(state: BrokerState, request: Request, group_id: str) -> Message:
    try:
        return _with_authorized_operations(state.groups.describe(group_id), request)
    except ApiError as error:
        missing: Message = {"group_id": group_id, "group_state": "Dead"}
        if request.version < _NO_SUCH_GROUP_VERSION:
            return missing | {"error_code": ErrorCode.none}
        return missing | {"error_code": error.code, "error_message": error.message}


def consumer_group_describe(state: BrokerState, request: Request) -> Message:
    """Answer ConsumerGroupDescribe."""
    return {"groups": LazyArray(request.body["group_ids"], partial(_describe_consumers, state, request))}


def _describe_consumers(state: BrokerState, request: Request, group_id: str) -> Message:
    try:
        return _with_authorized_operations(state.groups.describe_consumers(group_id), request)
    except ApiError as error:
        return {"group_id": group_id, "error_code": error.code, "error_message": error.message}


def streams_group_describe(state: BrokerState, request: Request) -> Message:
    """Answer StreamsGroupDescribe."""
    return {"groups": LazyArray(request.body["group_ids"], partial(_describe_streams, state, request))}


def _describe_streams(state: BrokerState, request: Request, group_id: str) -> Message:
    try:
        described = state.groups.streams_group(group_id).description()
    except ApiError as error:
        return {"group_id": group_id, "error_code": error.code, "error_message": error.message}
    status = _DescriptionStatus.AVAILABLE
    if described["topology_description"] is None:
        status = _DescriptionStatus.NOT_STORED
    if not request.body.get("include_topology_description"):
        status = _DescriptionStatus.NOT_REQUESTED
        described["topology_description"] = None
    return _with_authorized_operations(described | {"topology_description_status": status}, request)


def list_groups(state: BrokerState, request: Request) -> Message:
    """Answer ListGroups."""
    states = {name.lower() for name in request.body.get("states_filter", [])}
    types = {name.lower() for name in request.body.get("types_filter", [])}
    return {
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": str(group.state),
                "group_type": group.group_type,
            }
            for group in state.groups.groups()
            if (not states or group.state.lower() in states) and (not types or group.group_type in types)
        ]
    }


def delete_groups(state: BrokerState, request: Request) -> Message:
    """Answer DeleteGroups."""
    return {"results": [_delete_group(state, group_id) for group_id in request.body["groups_names"]]}


def _delete_group(state: BrokerState, group_id: str) -> Message:
    try:
        state.groups.delete_group(group_id)
    except ApiError as error:
        return {"group_id": group_id, "error_code": error.code}
    return {"group_id": group_id, "error_code": ErrorCode.none}
