"""A member of a group with assignment by the broker: its epochs, and what it may own."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_broker.groups.consumer.member import ConsumerGroupMember
from penstock_broker.groups.modern.member import MemberState
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.test_group import code_of
from tests.broker.groups.consumer.test_member import UNCHANGED, partitions


def test_a_member_holds_its_partitions_until_they_are_revoked() -> None:
    member = ConsumerGroupMember("m", assigned=partitions(0, 1), revoking=partitions(2))
    assert member.held == partitions(0, 1, 2)


@pytest.mark.parametrize("state", MemberState)
def test_only_a_stable_member_is_at_the_target_of_its_epoch(state: MemberState) -> None:
    member = ConsumerGroupMember("m", epoch=5, state=state)
    assert member.is_at(5) == (state is MemberState.STABLE)
    assert not member.is_at(6)


def test_a_new_epoch_keeps_the_previous_one() -> None:
    member = ConsumerGroupMember("m").with_epoch(3).with_epoch(5)
    assert (member.epoch, member.previous_epoch) == (5, 3)
    assert member.with_epoch(5) is member


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ErrorCode.none),
        ({"member_epoch": 0}, ErrorCode.none),  # joins again
        ({"member_epoch": 3, "owned": partitions(0)}, ErrorCode.none),  # the answer with its epoch was lost
        ({"member_epoch": 3, "owned": None}, ErrorCode.fenced_member_epoch),
        ({"member_epoch": 3, "owned": partitions(0, 2)}, ErrorCode.fenced_member_epoch),
        ({"member_epoch": 4, "owned": partitions(0)}, ErrorCode.fenced_member_epoch),
        ({"member_epoch": 6}, ErrorCode.fenced_member_epoch),
    ],
)
def test_a_heartbeat_has_the_epoch_of_the_member(changes: dict[str, Any], code: ErrorCode) -> None:
    member = ConsumerGroupMember("m", epoch=5, previous_epoch=3, assigned=partitions(0, 1))
    assert code_of(lambda: member.check_epoch(UNCHANGED._replace(**changes))) == code


def test_an_away_member_accepts_no_epoch_of_before() -> None:
    member = ConsumerGroupMember("m", epoch=-2, previous_epoch=3, assigned=partitions(0))
    request = UNCHANGED._replace(member_epoch=3, owned=partitions(0))
    assert code_of(lambda: member.check_epoch(request)) == ErrorCode.fenced_member_epoch
