"""The members of a group by id and by static name, and their sessions."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from penstock_broker.common.clock import MockClock
from penstock_broker.errors import ApiError
from penstock_broker.groups.members import GroupMembers
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.manual_timers import ManualTimers


class Member(NamedTuple):
    member_id: str
    instance_id: str | None = None


class Group:
    """Members, and the ids whose sessions have expired."""

    def __init__(self, *members: Member) -> None:
        self.timers = ManualTimers(MockClock())
        self.expired: list[str] = []
        self.members = GroupMembers[Member]("g", self.timers, self.expired.append)
        for member in members:
            self.members.put(member)

    def code_of(self, member_id: str, instance_id: str | None) -> ErrorCode:
        with pytest.raises(ApiError) as refused:
            self.members.identified(member_id, instance_id)
        return refused.value.code


def test_a_client_is_the_member_that_it_claims_to_be() -> None:
    static, other = Member("m1", "one"), Member("m2")
    group = Group(static, other)
    assert group.members.identified("m1", "one") == group.members.identified("m1", None) == static
    assert group.code_of("m3", None) == ErrorCode.unknown_member_id
    assert group.code_of("m1", "two") == ErrorCode.unknown_member_id
    assert group.code_of("m2", "one") == ErrorCode.fenced_instance_id


def test_members_keep_the_order_in_which_they_came() -> None:
    group = Group(Member("c"), Member("a"), Member("b"))
    group.members.put(Member("a", "static"))
    assert list(group.members) == ["c", "a", "b"]
    assert [member.instance_id for member in group.members.values()] == [None, "static", None]
    assert len(group.members) == 3


def test_the_end_of_a_replaced_member_keeps_the_name_of_its_successor() -> None:
    group = Group(Member("old", "one"))
    group.members.put(Member("new", "one"))
    assert group.members.remove("old") == Member("old", "one")
    assert group.members.static_id("one") == "new"
    group.members.remove("new")
    assert group.members.static_id("one") is None
    assert group.members.remove("new") is None
    assert group.members.static_id(None) is None


def test_a_session_ends_once_and_later_if_it_is_started_again() -> None:
    group = Group(Member("m"))
    group.members.start_session("m", 10)
    group.timers.advance(9)
    group.members.start_session("m", 10)
    group.timers.advance(9)
    assert group.expired == []
    group.timers.advance(1)
    group.timers.advance(100)
    assert group.expired == ["m"]


def test_a_member_that_was_removed_has_no_session() -> None:
    group = Group(Member("m"), Member("n"))
    group.members.start_session("m", 10)
    group.members.start_session("n", 10)
    group.members.remove("m")
    group.timers.advance(10)
    assert group.expired == ["n"]
