"""StreamsGroupHeartbeat: the request, and the checks that need no group."""

from __future__ import annotations

from typing import NamedTuple

from penstock_broker.errors import ApiError
from penstock_broker.groups.modern.heartbeat import LEAVE_FOR_A_WHILE
from penstock_broker.groups.streams.task_offsets import TaskOffsetReport, read_report
from penstock_broker.groups.streams.tasks import Tasks, as_tasks
from penstock_broker.groups.streams.topology import StreamsTopology
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

Endpoint = tuple[str, int]
"""Host and port at which a process answers queries."""

ClientTags = tuple[tuple[str, str], ...]
"""Keys and values, sorted by key."""


class StreamsHeartbeatRequest(NamedTuple):
    """A heartbeat; None means unchanged since the last one.

    Args:
        member_id: the member.
        member_epoch: the last epoch that it received; 0 to join, LEAVE or LEAVE_FOR_A_WHILE.
        instance_id: name of a static member; None for others.
        rack_id: rack of the client.
        rebalance_timeout_ms: time (ms) that it may take to revoke tasks.
        client_id: name of the client, chosen by itself.
        client_host: its address.
        topology: the topology of its program; only to join.
        process_id: id of its process.
        endpoint: where its process answers queries.
        client_tags: tags of its process.
        owned: the tasks that it owns.
        offsets: how far its state of tasks is.
        endpoints_epoch: the last epoch of the endpoints that it received.
        shuts_down: whether all members should end.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int | None
    client_id: str
    client_host: str
    topology: StreamsTopology | None
    process_id: str | None
    endpoint: Endpoint | None
    client_tags: ClientTags | None
    owned: Tasks | None
    offsets: TaskOffsetReport
    endpoints_epoch: int
    shuts_down: bool


def read_request(body: Message, client_id: str, client_host: str) -> StreamsHeartbeatRequest:
    """Return the checked request of a member.

    Args:
        body: the fields of StreamsGroupHeartbeat.
        client_id: name of the client.
        client_host: its address.

    Raises:
        ApiError: INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY.
    """
    _check_names(body)
    _check_tasks(body)
    topology, owned, endpoint, tags = (
        body[key] for key in ("topology", "active_tasks", "user_endpoint", "client_tags")
    )
    return StreamsHeartbeatRequest(
        member_id=body["member_id"],
        member_epoch=body["member_epoch"],
        instance_id=body["instance_id"],
        rack_id=body["rack_id"],
        rebalance_timeout_ms=None if body["rebalance_timeout"] == -1 else body["rebalance_timeout"],
        client_id=client_id,
        client_host=client_host,
        topology=None if topology is None else StreamsTopology(topology),
        process_id=body["process_id"],
        endpoint=None if endpoint is None else (endpoint["host"], endpoint["port"]),
        client_tags=None if tags is None else tuple(sorted((tag["key"], tag["value"]) for tag in tags)),
        owned=None if owned is None else as_tasks(owned),
        offsets=read_report(body),
        endpoints_epoch=body["endpoint_information_epoch"],
        shuts_down=body["shutdown_application"],
    )


def _check_names(body: Message) -> None:
    for name, key in (("MemberId", "member_id"), ("GroupId", "group_id")):
        if not body[key].strip():
            raise ApiError(ErrorCode.invalid_request, f"{name} can't be empty.")
    for name, key in (("InstanceId", "instance_id"), ("RackId", "rack_id")):
        if body[key] is not None and not body[key].strip():
            raise ApiError(ErrorCode.invalid_request, f"{name} can't be empty.")
    epoch: int = body["member_epoch"]
    if epoch < LEAVE_FOR_A_WHILE:
        text = f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
        raise ApiError(ErrorCode.invalid_request, text)
    if epoch == LEAVE_FOR_A_WHILE and body["instance_id"] is None:
        raise ApiError(ErrorCode.invalid_request, "InstanceId can't be null.")
    if epoch == 0 and body["rebalance_timeout"] == -1:
        raise ApiError(ErrorCode.invalid_request, "RebalanceTimeoutMs must be provided in first request.")
    if (body["topology"] is None) == (epoch == 0):
        text = "must be non-null" if epoch == 0 else "can only be provided"
        raise ApiError(ErrorCode.invalid_request, f"Topology {text} when (re-)joining.")


def _check_tasks(body: Message) -> None:
    by_type = {f"{name}Tasks": body[f"{name.lower()}_tasks"] for name in ("Active", "Standby", "Warmup")}
    if body["member_epoch"] == 0:
        for name, tasks in by_type.items():
            if tasks is None or tasks:
                raise ApiError(ErrorCode.invalid_request, f"{name} must be empty when (re-)joining.")
    if len({tasks is None for tasks in by_type.values()}) > 1:
        raise ApiError(ErrorCode.invalid_request, "If one task-type is non-null, all must be non-null.")
