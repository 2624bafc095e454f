"""ConsumerGroupHeartbeat: which requests are refused without a group, and which have all fields."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from penstock_broker.groups.consumer.heartbeat import HeartbeatRequest, check_request
from penstock_broker.groups.modern.heartbeat import LEAVE, LEAVE_FOR_A_WHILE
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.test_group import code_of

JOIN = HeartbeatRequest("m", 0, None, None, 1_000, "c", "/h", ("t",), None, None, frozenset())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ErrorCode.none),
        ({"member_id": ""}, ErrorCode.invalid_request),
        ({"instance_id": ""}, ErrorCode.invalid_request),
        ({"rack_id": " "}, ErrorCode.invalid_request),
        ({"member_epoch": -3}, ErrorCode.invalid_request),
        ({"member_epoch": LEAVE_FOR_A_WHILE}, ErrorCode.invalid_request),
        ({"rebalance_timeout_ms": None}, ErrorCode.invalid_request),
        ({"owned": None}, ErrorCode.invalid_request),
        ({"owned": frozenset({(uuid.UUID(int=1), 0)})}, ErrorCode.invalid_request),
        ({"topic_names": None}, ErrorCode.invalid_request),
        ({"topic_names": None, "topic_regex": "a.*"}, ErrorCode.none),
        ({"topic_regex": "(a"}, ErrorCode.invalid_regular_expression),
        ({"topic_regex": "a)|(b"}, ErrorCode.invalid_regular_expression),
        ({"topic_regex": r"(a)\1"}, ErrorCode.invalid_regular_expression),
        ({"assignor": "sticky"}, ErrorCode.unsupported_assignor),
    ],
)
def test_a_heartbeat_is_checked(changes: dict[str, Any], code: ErrorCode) -> None:
    assert code_of(lambda: check_request(JOIN._replace(**changes), 1)) == code


@pytest.mark.parametrize(
    ("changes", "version", "code"),
    [
        ({"member_id": ""}, 0, ErrorCode.none),  # the broker chooses the id
        ({"member_id": "", "member_epoch": 1}, 0, ErrorCode.invalid_request),
        ({"member_epoch": 1, "rebalance_timeout_ms": None, "topic_names": None, "owned": None}, 1, ErrorCode.none),
        ({"member_epoch": LEAVE, "owned": None}, 1, ErrorCode.none),
        ({"member_epoch": LEAVE_FOR_A_WHILE, "instance_id": "one"}, 1, ErrorCode.none),
        ({"assignor": "range"}, 1, ErrorCode.none),
    ],
)
def test_only_a_join_needs_all_fields(changes: dict[str, Any], version: int, code: ErrorCode) -> None:
    assert code_of(lambda: check_request(JOIN._replace(**changes), version)) == code


@pytest.mark.parametrize("missing", ["rebalance_timeout_ms", "topic_names", "owned"])
def test_a_request_of_a_member_is_full_with_all_fields(missing: str) -> None:
    request = JOIN._replace(member_epoch=3)
    assert request.is_full
    assert not request._replace(**{missing: None}).is_full
    assert JOIN._replace(**{missing: None}).is_full  # as any join
