"""The members of a classic group: their leader, the protocol they agree on, and pending joins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.common.clock import MockClock
from penstock_broker.groups.classic.member import ClassicGroupMember
from penstock_broker.groups.classic.members import ClassicMembers
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.support import classic_member
from tests.support.manual_timers import ManualTimers


@pytest.fixture
def expired() -> list[str]:
    return []


@pytest.fixture
def timers() -> ManualTimers:
    return ManualTimers(MockClock())


@pytest.fixture
def members(timers: ManualTimers, expired: list[str]) -> ClassicMembers:
    return ClassicMembers("g", timers, expired.append)


def add(members: ClassicMembers, *names: str, **fields: object) -> list[ClassicGroupMember]:
    added = [classic_member(name, **fields) for name in names]
    for member in added:
        members.put(member)
    return added


def test_the_first_member_leads_and_the_next_one_after_it(members: ClassicMembers) -> None:
    add(members, "a", "b", "c")
    leaders = [members.leader]
    for name in ("b", "a", "c"):
        members.remove(name)
        leaders.append(members.leader)
    assert leaders == ["a", "a", "c", None]


def test_a_member_that_is_removed_is_answered(members: ClassicMembers) -> None:
    [member] = add(members, "a")
    joins, syncs = list[Message](), list[Message]()
    member.join, member.sync = joins.append, syncs.append
    members.remove("a")
    assert joins == [{"error_code": ErrorCode.unknown_member_id, "member_id": ""}]
    assert syncs == [{"error_code": ErrorCode.unknown_member_id}]


def test_only_a_member_that_has_joined_is_elected(members: ClassicMembers) -> None:
    assert not members.elect_leader()
    away, joined, other = add(members, "a", "b", "c")
    assert not members.elect_leader()
    joined.join = other.join = lambda response: None
    assert members.elect_leader()
    assert members.leader == "b"
    away.join = joined.join
    assert members.elect_leader()
    assert members.leader == "b"  # a leader that has joined stays


def test_a_pending_join_holds_up_a_rebalance_until_its_session_ends(
    members: ClassicMembers, timers: ManualTimers, expired: list[str]
) -> None:
    [member] = add(members, "a")
    assert not members.have_all_joined
    member.join = lambda response: None
    assert members.have_all_joined
    members.add_pending_join("b", 10)
    assert not members.have_all_joined
    timers.advance(10)
    assert expired == ["b"]
    add(members, "b")
    assert members.pending_joins == set()


def test_a_returning_static_member_keeps_its_place_and_fences_the_old_one(members: ClassicMembers) -> None:
    [old] = add(members, "old", instance_id="one", assignment=b"part", is_new=True, is_pending_sync=True)
    add(members, "other")
    answers = list[Message]()
    old.join = answers.append
    new = members.replace_static(old, "new")
    assert answers == [{"error_code": ErrorCode.fenced_instance_id, "member_id": "old"}]
    assert (members.leader, members.static_id("one"), sorted(members)) == ("new", "new", ["new", "other"])
    assert (new.assignment, new.is_waiting, new.is_new, new.is_pending_sync) == (b"part", False, False, False)


PROTOCOLS = st.permutations(["x", "y", "z"]).flatmap(lambda names: st.integers(1, 3).map(lambda most: names[:most]))


@given(st.lists(PROTOCOLS, min_size=1, max_size=5))
def test_the_selected_protocol_is_one_of_all_and_preferred_by_most(preferences: list[list[str]]) -> None:
    members = ClassicMembers("g", ManualTimers(MockClock()), lambda member_id: None)
    for number, names in enumerate(preferences):
        add(members, str(number), protocols=dict.fromkeys(names, b""))
    common = [name for name in "xyz" if all(name in names for names in preferences)]
    assert members.support(["x", "y", "z"]) == bool(common)
    assert [name for name in "xyz" if members.support([name])] == common
    if common:
        votes = [min(common, key=names.index) for names in preferences]
        assert votes.count(members.selected_protocol()) == max(map(votes.count, votes))


def test_a_rebalance_waits_for_the_slowest_member(members: ClassicMembers) -> None:
    assert members.rebalance_timeout_ms == 0
    add(members, "a", rebalance_timeout_ms=5)
    add(members, "b", rebalance_timeout_ms=9)
    assert members.rebalance_timeout_ms == 9
