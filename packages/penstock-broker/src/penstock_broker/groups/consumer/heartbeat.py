"""ConsumerGroupHeartbeat: the request, and the checks that need no group."""

from __future__ import annotations

from typing import NamedTuple

from penstock_broker.errors import ApiError
from penstock_broker.groups.assignment import Assignment
from penstock_broker.groups.assignors import ASSIGNORS
from penstock_broker.groups.modern.heartbeat import LEAVE_FOR_A_WHILE
from penstock_broker.groups.patterns import check_pattern
from penstock_broker.wire.error_codes import ErrorCode


class HeartbeatRequest(NamedTuple):
    """A heartbeat; None means unchanged since the last one.

    Args:
        member_id: the member.
        member_epoch: the last epoch that it received; 0 to join, LEAVE or LEAVE_FOR_A_WHILE.
        instance_id: name of a static member; None for others.
        rack_id: rack of the client.
        rebalance_timeout_ms: time (ms) that it may take to revoke partitions.
        client_id: name of the client, chosen by itself.
        client_host: its address.
        topic_names: names of the topics that it subscribes to.
        topic_regex: pattern of the topics that it subscribes to; empty to remove the pattern.
        assignor: the assignor that it prefers.
        owned: the partitions that it owns.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...] | None
    topic_regex: str | None
    assignor: str | None
    owned: Assignment | None

    @property
    def is_full(self) -> bool:
        """Whether all fields are set.

        A client sets all of them when it joins or has met an error.
        """
        has_all = not (self.rebalance_timeout_ms is None or self.topic_names is None or self.owned is None)
        return self.member_epoch == 0 or has_all


def check_request(request: HeartbeatRequest, version: int) -> None:
    """Check the fields of a heartbeat.

    Raises:
        ApiError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR or INVALID_REGULAR_EXPRESSION.
    """
    for name, value in (("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise ApiError(ErrorCode.invalid_request, f"{name} can't be empty.")
    if not request.member_id and (version >= 1 or request.member_epoch != 0):
        raise ApiError(ErrorCode.invalid_request, "MemberId can't be empty.")
    if request.member_epoch < LEAVE_FOR_A_WHILE:
        raise ApiError(ErrorCode.invalid_request, f"MemberEpoch is {request.member_epoch}.")
    if request.member_epoch == LEAVE_FOR_A_WHILE and request.instance_id is None:
        raise ApiError(ErrorCode.invalid_request, "InstanceId can't be null.")
    if request.member_epoch == 0:
        if request.rebalance_timeout_ms is None:
            raise ApiError(ErrorCode.invalid_request, "RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise ApiError(ErrorCode.invalid_request, "TopicPartitions must be empty when (re-)joining.")
        if request.topic_names is None and request.topic_regex is None:
            raise ApiError(ErrorCode.invalid_request, "A subscription must be set in first request.")
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise ApiError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
        )
    if request.topic_regex:
        check_pattern(request.topic_regex)
