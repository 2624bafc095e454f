"""StreamsGroupHeartbeat: the fields that a request needs, and those that it may not have."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_broker.groups.modern.heartbeat import LEAVE, LEAVE_FOR_A_WHILE
from penstock_broker.groups.streams.heartbeat import read_request
from penstock_broker.groups.streams.task_offsets import TaskOffsetReport
from penstock_broker.groups.streams.topology import StreamsTopology
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.test_group import code_of
from tests.broker.groups.streams.test_group import READS_T

JOINING: Message = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "endpoint_information_epoch": -1,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": 1_000,
    "topology": READS_T,
    "active_tasks": [],
    "standby_tasks": [],
    "warmup_tasks": [],
    "process_id": "p",
    "user_endpoint": {"host": "h", "port": 1},
    "client_tags": [{"key": "z", "value": "1"}, {"key": "a", "value": "2"}],
    "task_offsets": [{"subtopology_id": "0", "partition": 1, "offset": 7}],
    "task_end_offsets": [],
    "shutdown_application": False,
}
TASKS = [{"subtopology_id": "0", "partitions": [1, 2]}]
LATER: Message = {
    **JOINING,
    **dict.fromkeys(("topology", "process_id", "user_endpoint", "client_tags", "task_offsets", "task_end_offsets")),
    "member_epoch": 3,
    "rebalance_timeout": -1,
    "active_tasks": TASKS,
}


def test_a_request_is_read() -> None:
    request = read_request(JOINING, "client", "/127.0.0.1")
    assert request.topology == StreamsTopology(READS_T)
    assert (request.endpoint, request.client_tags) == (("h", 1), (("a", "2"), ("z", "1")))
    assert (request.client_id, request.client_host, request.rebalance_timeout_ms) == ("client", "/127.0.0.1", 1_000)
    assert request.offsets == TaskOffsetReport({("0", 1): 7}, {})
    later = read_request(LATER, "client", "/127.0.0.1")
    assert (later.topology, later.endpoint, later.client_tags, later.rebalance_timeout_ms) == (None,) * 4
    assert later.offsets == TaskOffsetReport(None, None)
    assert later.owned == {("0", 1), ("0", 2)}


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        (JOINING, {"member_id": ""}),
        (JOINING, {"group_id": " "}),
        (JOINING, {"instance_id": ""}),
        (JOINING, {"rack_id": " "}),
        (JOINING, {"rebalance_timeout": -1}),
        (JOINING, {"topology": None}),
        (JOINING, {"active_tasks": TASKS}),
        (JOINING, {"active_tasks": None, "standby_tasks": None, "warmup_tasks": None}),
        (JOINING, {"standby_tasks": TASKS}),
        (JOINING, {"warmup_tasks": TASKS}),
        (LATER, {"topology": READS_T}),
        (LATER, {"standby_tasks": None}),
        (LATER, {"member_epoch": -3}),
        (LATER, {"member_epoch": LEAVE_FOR_A_WHILE}),
    ],
)
def test_a_wrong_request_is_refused(body: Message, changes: dict[str, Any]) -> None:
    assert code_of(lambda: read_request({**body, **changes}, "", "")) == ErrorCode.invalid_request


@pytest.mark.parametrize("changes", [{"member_epoch": LEAVE}, {"member_epoch": LEAVE_FOR_A_WHILE, "instance_id": "a"}])
def test_a_member_leaves_with_its_epoch(changes: dict[str, Any]) -> None:
    assert read_request({**LATER, **changes}, "", "").member_epoch == changes["member_epoch"]
