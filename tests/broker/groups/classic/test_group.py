"""The classic protocol of groups: assignment, sessions, and members that leave."""

from __future__ import annotations

from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.support import SESSION_MS, Client, code_of, stable_group, state_of
from tests.broker.groups.support import GroupBroker


def test_members_get_the_assignment_of_their_leader(broker: GroupBroker) -> None:
    first, second, third = (Client(broker, name) for name in "abc")
    stable_group(broker, first, second, third)
    assert {member.generation for member in (first, second, third)} == {3}
    assert first.is_leader
    assert first.joined is not None
    assert [one["metadata"] for one in first.joined["members"]] == [b"topics"] * 3
    assert second.joined is not None
    assert second.joined["members"] == []
    assert state_of(broker) == "Stable"
    assert [member.beat() for member in (first, second, third)] == [ErrorCode.none] * 3


def test_a_member_of_an_older_generation_is_fenced(broker: GroupBroker) -> None:
    first, second = Client(broker, "a"), Client(broker, "b")
    stable_group(broker, first, second)
    first.generation = 1
    assert first.beat() == ErrorCode.illegal_generation
    assert code_of(first.sync) == ErrorCode.illegal_generation
    commit = broker.groups.check_commit
    assert code_of(lambda: commit("g", first.member_id, None, 1, 9)) == ErrorCode.illegal_generation
    assert code_of(lambda: commit("g", first.member_id, None, 2, 9)) == ErrorCode.none
    assert code_of(lambda: commit("g", "", None, -1, 9)) == ErrorCode.unknown_member_id
    assert code_of(lambda: broker.groups.check_member("g", "", None, -1)) == ErrorCode.none
    assert code_of(lambda: broker.groups.check_member("g", first.member_id, None, 1)) == ErrorCode.illegal_generation


def test_commits_wait_for_the_assignment(broker: GroupBroker) -> None:
    first = Client(broker)
    first.join()
    commit = broker.groups.check_commit
    assert code_of(lambda: commit("g", first.member_id, None, 1, 9)) == ErrorCode.rebalance_in_progress
    first.sync({})
    assert code_of(lambda: commit("g", first.member_id, None, 1, 9)) == ErrorCode.none


def test_a_member_whose_session_ends_is_removed(broker: GroupBroker) -> None:
    first, crashed = Client(broker, "a"), Client(broker, "b")
    stable_group(broker, first, crashed)
    broker.timers.advance(SESSION_MS - 1)
    first.beat()
    assert state_of(broker) == "Stable"
    broker.timers.advance(1)
    assert first.beat() == ErrorCode.rebalance_in_progress
    first.join()
    assert first.generation == 3
    assert crashed.beat() == ErrorCode.unknown_member_id
    assert code_of(crashed.join) == ErrorCode.unknown_member_id
    first.sync({})
    broker.timers.advance(SESSION_MS)
    assert state_of(broker) == "Empty"


def test_a_commit_extends_the_session(broker: GroupBroker) -> None:
    member = Client(broker)
    stable_group(broker, member)
    for _ in range(3):
        broker.timers.advance(SESSION_MS - 1)
        broker.groups.check_commit("g", member.member_id, None, member.generation, 9)
    assert state_of(broker) == "Stable"


def test_a_member_that_asks_for_its_assignment_again_extends_the_session(broker: GroupBroker) -> None:
    member = Client(broker)
    stable_group(broker, member)
    for _ in range(3):
        broker.timers.advance(SESSION_MS - 1)
        assert member.sync() is not None
    assert state_of(broker) == "Stable"


def test_members_leave(broker: GroupBroker) -> None:
    first, second = Client(broker, "a"), Client(broker, "b")
    stable_group(broker, first, second)
    assert first.leave() == ErrorCode.none
    assert first.leave() == ErrorCode.unknown_member_id
    assert second.beat() == ErrorCode.rebalance_in_progress
    second.join()
    assert second.is_leader
    second.sync({})
    assert second.leave() == ErrorCode.none
    assert state_of(broker) == "Empty"
    assert broker.groups.leave("missing", [("m", None)]) == [ErrorCode.unknown_member_id]


def test_a_client_that_was_given_an_id_and_leaves_makes_the_others_join_again(broker: GroupBroker) -> None:
    first, second = Client(broker, "a"), Client(broker, "b", needs_member_id=True)
    stable_group(broker, first)
    answer = second.join()
    assert answer is not None
    second.member_id = answer["member_id"]
    assert second.leave() == ErrorCode.none
    assert first.beat() == ErrorCode.rebalance_in_progress


def test_a_member_that_waits_is_answered_when_it_is_removed(broker: GroupBroker) -> None:
    first, second = Client(broker, "a"), Client(broker, "b")
    stable_group(broker, first, second)
    assert first.join() is None
    first.leave()
    assert first.joined is not None
    assert first.joined["error_code"] == ErrorCode.unknown_member_id
    second.join()
    assert second.generation == 3
    third = Client(broker, "c")
    third.join()
    second.join()
    third.sync()
    third.leave()
    assert third.synced == {"error_code": ErrorCode.unknown_member_id}


def test_static_members_are_removed_by_their_names(broker: GroupBroker) -> None:
    leader, static = Client(broker, "a", "one"), Client(broker, "b", "two")
    stable_group(broker, leader, static)
    codes = broker.groups.leave("g", [("", "two"), ("", "three"), ("other", "one")])
    assert codes == [ErrorCode.none, ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id]
    assert leader.beat() == ErrorCode.rebalance_in_progress
