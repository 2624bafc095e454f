"""The classic protocol of groups: joining, assignment, sessions, static members, and what a restart keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock_broker.errors import ApiError
from penstock_broker.groups.classic.joining import JoinRequest
from penstock_broker.groups.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from penstock_broker.groups.group import MemberIdentity
from penstock_broker.topics import OFFSETS_TOPIC
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.support import GroupBroker

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Client:
    """A client of the group `g` that may become a member.

    Args:
        broker: the broker.
        name: its client id.
        instance_id: its name as a static member.
        settings: other fields of its JoinGroup.
    """

    def __init__(self, broker: GroupBroker, name: str = "c", instance_id: str | None = None, **settings: Any) -> None:
        self._broker = broker
        self._name = name
        self._settings = settings
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.joined: Message | None = None
        self.synced: Message | None = None

    def join(self, **changes: Any) -> Message | None:
        """Send JoinGroup and return the answer, if it came at once."""
        self.joined = None
        request = JoinRequest(
            self.member_id,
            self.instance_id,
            self._name,
            "/127.0.0.1",
            SESSION_MS,
            REBALANCE_MS,
            "consumer",
            {"range": b"topics"},
            needs_member_id=False,
            may_skip_assignment=True,
        )._replace(**(self._settings | changes))
        self._broker.groups.join("g", request, self._take_join)
        return self.joined

    def _take_join(self, response: Message) -> None:
        self.joined = response
        if response["error_code"] == ErrorCode.none:
            self.member_id, self.generation = response["member_id"], response["generation_id"]

    @property
    def is_leader(self) -> bool:
        """Whether the last JoinGroup made it the leader."""
        return self.joined is not None and self.joined.get("leader") == self.member_id

    @property
    def identity(self) -> MemberIdentity:
        """Who it is."""
        return MemberIdentity(self.member_id, self.instance_id, self.generation)

    def sync(self, assignments: dict[str, bytes] | None = None, protocol: str | None = "range") -> bytes | None:
        """Send SyncGroup and return the assignment, if it came at once."""
        self.synced = None

        def take(response: Message) -> None:
            self.synced = response

        self._broker.groups.classic_group("g").sync(self.identity, "consumer", protocol, assignments or {}, take)
        return self.assignment

    @property
    def assignment(self) -> bytes | None:
        """What the last SyncGroup brought."""
        return None if self.synced is None else self.synced.get("assignment")

    def beat(self) -> ErrorCode:
        """Send Heartbeat and return its code."""
        return code_of(lambda: self._broker.groups.classic_group("g").heartbeat(self.identity))

    def leave(self) -> ErrorCode:
        """Leave the group."""
        [code] = self._broker.groups.leave("g", [(self.member_id, self.instance_id)])
        return code


def code_of(call: Callable[[], object]) -> ErrorCode:
    try:
        call()
    except ApiError as error:
        return error.code
    return ErrorCode.none


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GroupBroker]:
    opened = GroupBroker(tmp_path)
    opened.create_topic("t")
    yield opened
    opened.close()


def stable_group(broker: GroupBroker, *members: Client) -> None:
    """Let clients join one after the other, and be assigned their own names."""
    for count in range(1, len(members) + 1):
        for member in members[:count]:
            if member.member_id:
                assert member.beat() in (ErrorCode.none, ErrorCode.rebalance_in_progress)
        for member in (members[count - 1], *members[: count - 1]):
            member.join()
    assign(*members)


def assign(*members: Client) -> None:
    [leader] = [member for member in members if member.is_leader]
    for member in members:
        if member is not leader:
            assert member.sync() is None
    leader.sync({member.member_id: member.member_id.encode() for member in members})
    assert [member.assignment for member in members] == [member.member_id.encode() for member in members]


def state_of(broker: GroupBroker) -> str:
    state: str = broker.groups.describe("g")["group_state"]
    return state


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


def test_a_member_that_joins_makes_the_others_join_again(broker: GroupBroker) -> None:
    first, second = Client(broker, "a"), Client(broker, "b")
    stable_group(broker, first)
    assert second.join() is None
    assert state_of(broker) == "PreparingRebalance"
    assert first.beat() == ErrorCode.rebalance_in_progress
    assert code_of(first.sync) == ErrorCode.rebalance_in_progress
    first.join()
    assert second.joined is not None
    assert second.generation == first.generation == 2
    assert code_of(lambda: first.sync(protocol="roundrobin")) == ErrorCode.inconsistent_group_protocol
    assign(first, second)


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


def test_a_new_member_is_given_its_id_first(broker: GroupBroker) -> None:
    client = Client(broker, "name", needs_member_id=True)
    answer = client.join()
    assert answer is not None
    assert answer["error_code"] == ErrorCode.member_id_required
    assert answer["member_id"].startswith("name-")
    client.member_id = answer["member_id"]
    assert client.join() is not None
    assert client.generation == 1


def test_a_rebalance_waits_for_a_client_that_was_given_an_id_until_its_session_ends(broker: GroupBroker) -> None:
    first, silent = Client(broker, "a"), Client(broker, "b", needs_member_id=True)
    stable_group(broker, first)
    silent.join()
    assert first.join() is None
    broker.timers.advance(SESSION_MS)
    assert first.generation == 2


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


def test_a_rebalance_does_not_wait_longer_than_its_timeout(broker: GroupBroker) -> None:
    first, slow, third = Client(broker, "a"), Client(broker, "b"), Client(broker, "c")
    stable_group(broker, first, slow)
    third.join()
    first.join()
    for _ in range(REBALANCE_MS // 5_000):
        assert third.joined is None
        slow.beat()
        broker.timers.advance(5_000)
    assert {member.generation for member in (first, third)} == {3}
    assert slow.beat() == ErrorCode.unknown_member_id
    assign(first, third)


def test_members_that_never_ask_for_their_assignment_are_removed(broker: GroupBroker) -> None:
    first, second = Client(broker, "a"), Client(broker, "b")
    stable_group(broker, first)
    second.join()
    first.join()
    first.sync({})
    for _ in range(REBALANCE_MS // 5_000):
        first.beat(), second.beat()
        broker.timers.advance(5_000)
    assert second.beat() == ErrorCode.unknown_member_id
    assert first.beat() == ErrorCode.rebalance_in_progress


def test_a_new_member_that_waits_too_long_has_to_ask_again(broker: GroupBroker) -> None:
    first = Client(broker, "a", rebalance_timeout_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    second = Client(broker, "b")
    stable_group(broker, first)
    second.join()
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):
        first.beat()
        broker.timers.advance(5_000)
    assert second.joined is not None
    assert second.joined["error_code"] == ErrorCode.unknown_member_id


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


def test_a_member_that_prefers_another_protocol_makes_the_group_choose_again(broker: GroupBroker) -> None:
    first = Client(broker, "a", protocols={"range": b"1", "y": b"2"})
    second = Client(broker, "b", protocols={"range": b"1", "y": b"2"})
    stable_group(broker, first, second)
    assert second.join() is not None
    assert first.beat() == ErrorCode.none
    assert second.join(protocols={"y": b"2", "range": b"1"}) is None
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


def test_those_who_wait_for_an_assignment_learn_of_a_new_rebalance(broker: GroupBroker) -> None:
    first, second, third = Client(broker, "a"), Client(broker, "b"), Client(broker, "c")
    stable_group(broker, first)
    second.join()
    first.join()
    second.sync()
    third.join()
    assert second.synced == {"error_code": ErrorCode.rebalance_in_progress}


def test_the_protocol_is_one_that_all_have_and_most_prefer(broker: GroupBroker) -> None:
    first = Client(broker, "a", protocols={"x": b"1", "y": b"2", "z": b"3"})
    second = Client(broker, "b", protocols={"z": b"4", "y": b"5"})
    third = Client(broker, "c", protocols={"z": b"6", "y": b"7"})
    first.join()
    second.join()
    third.join()
    first.join()
    assert first.joined is not None
    second.join() or third.join()
    first.join()
    assert first.joined["protocol_name"] == "z"
    other = Client(broker, "d", protocols={"x": b""})
    assert code_of(other.join) == ErrorCode.inconsistent_group_protocol
    other = Client(broker, "d", protocols={"z": b""}, protocol_type="connect")
    assert code_of(other.join) == ErrorCode.inconsistent_group_protocol
    for settings in ({"protocols": {}}, {"protocol_type": ""}):
        request = Client(broker, "d", **settings)
        assert code_of(request.join) == ErrorCode.inconsistent_group_protocol


def test_the_first_rebalance_waits_for_more_members_if_it_is_told_to(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, group_initial_rebalance_delay_ms=3_000)
    first, second = Client(broker, "a"), Client(broker, "b")
    assert first.join() is None
    broker.timers.advance(2_000)
    assert second.join() is None
    broker.timers.advance(1_000)
    assert first.joined is None  # someone came, so there may be more
    broker.timers.advance(3_000)
    assert first.generation == second.generation == 1
    assign(first, second)
    broker.close()


@pytest.mark.parametrize(("session_ms", "code"), [(5_999, 26), (6_000, 0), (1_800_000, 0), (1_800_001, 26)])
def test_sessions_have_bounds(broker: GroupBroker, session_ms: int, code: int) -> None:
    assert code_of(lambda: Client(broker, session_timeout_ms=session_ms).join()) == code


def test_a_group_has_a_size(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, group_max_size=2, group_max_bytes=100, max_groups=2)
    first, second, third = (Client(broker, name) for name in "abc")
    stable_group(broker, first, second)
    assert code_of(third.join) == ErrorCode.group_max_size_reached
    assert code_of(lambda: first.join(protocols={"range": b"x" * 90})) == ErrorCode.group_max_size_reached
    assert [member.beat() for member in (first, second)] == [ErrorCode.none] * 2
    for number in range(5):  # a group that nobody enters is not kept
        with pytest.raises(ApiError):
            broker.groups.join(f"new-{number}", join_request(protocols={}), lambda response: None)
    broker.groups.check_commit("second", "", None, -1, 9)
    with pytest.raises(ApiError, match="max_groups"):
        broker.groups.join("third", join_request(), lambda response: None)
    pending = [Client(broker, needs_member_id=True) for _ in range(3)]
    second.leave(), first.leave()
    assert [code_of(client.join) for client in pending] == [0, 0, ErrorCode.group_max_size_reached]
    broker.close()


def test_clients_that_were_given_an_id_are_limited_in_a_group_with_members(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, group_max_size=2)
    member = Client(broker)
    stable_group(broker, member)
    pending = [Client(broker, needs_member_id=True) for _ in range(3)]
    assert [code_of(client.join) for client in pending] == [0, 0, ErrorCode.group_max_size_reached]
    broker.timers.advance(SESSION_MS - 1)
    member.beat()
    broker.timers.advance(1)
    assert code_of(pending[2].join) == ErrorCode.none
    broker.close()


def join_request(**changes: Any) -> JoinRequest:
    return JoinRequest(
        "", None, "c", "/h", SESSION_MS, REBALANCE_MS, "consumer", {"range": b""}, False, False
    )._replace(**changes)


def test_a_static_member_that_comes_back_takes_its_place_without_a_rebalance(broker: GroupBroker) -> None:
    leader, static = Client(broker, "a", "one"), Client(broker, "b", "two")
    stable_group(broker, leader, static)
    again = Client(broker, "b", "two")
    answer = again.join()
    assert answer is not None
    assert (answer["generation_id"], answer["skip_assignment"], answer["members"]) == (2, False, [])
    assert again.sync() == static.member_id.encode()
    assert static.beat() == ErrorCode.fenced_instance_id
    assert leader.beat() == ErrorCode.none
    leads_again = Client(broker, "a", "one")
    answer = leads_again.join()
    assert answer is not None
    assert (answer["skip_assignment"], len(answer["members"])) == (True, 2)
    old_client = Client(broker, "a", "one", may_skip_assignment=False)
    answer = old_client.join()
    assert answer is not None
    assert (answer["leader"], answer["members"]) == (leads_again.member_id, [])
    broker.restart()
    assert [member.beat() for member in (old_client, again)] == [ErrorCode.none] * 2


def test_a_static_member_that_is_away_keeps_its_place_until_its_session_ends(broker: GroupBroker) -> None:
    leader, static = Client(broker, "a", "one"), Client(broker, "b", "two")
    stable_group(broker, leader, static)
    broker.timers.advance(SESSION_MS - 1)
    leader.beat()
    assert Client(broker, "b", "two").join() is not None
    broker.timers.advance(SESSION_MS - 1)
    assert state_of(broker) == "Stable"
    leader.beat()
    broker.timers.advance(1)
    assert state_of(broker) == "PreparingRebalance"


def test_a_static_member_that_comes_back_during_a_rebalance(broker: GroupBroker) -> None:
    leader, static, third = Client(broker, "a", "one"), Client(broker, "b", "two"), Client(broker, "c")
    stable_group(broker, leader, static)
    third.join()
    static.join()
    again = Client(broker, "b", "two")
    again.join()
    assert static.joined is not None
    assert static.joined["error_code"] == ErrorCode.fenced_instance_id
    leader.join()
    third.sync()
    later = Client(broker, "b", "two")
    assert later.join() is None  # the leader may have assigned to the old id
    assert third.synced == {"error_code": ErrorCode.rebalance_in_progress}
    leader.join(), third.join()
    assign(leader, later, third)


def test_static_members_are_removed_by_their_names(broker: GroupBroker) -> None:
    leader, static = Client(broker, "a", "one"), Client(broker, "b", "two")
    stable_group(broker, leader, static)
    codes = broker.groups.leave("g", [("", "two"), ("", "three"), ("other", "one")])
    assert codes == [ErrorCode.none, ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id]
    assert leader.beat() == ErrorCode.rebalance_in_progress


def test_members_go_on_after_a_kill_of_the_broker(broker: GroupBroker) -> None:
    first, static = Client(broker, "a"), Client(broker, "b", "two")
    stable_group(broker, first, static)
    before = broker.groups.describe("g")
    broker.restart()
    assert broker.groups.describe("g") == before
    assert [member.beat() for member in (first, static)] == [ErrorCode.none] * 2
    assert static.sync() == static.member_id.encode()
    broker.commit("other", "t", 0, 1)
    broker.timers.advance(SESSION_MS - 1)
    assert state_of(broker) == "Stable"
    broker.timers.advance(1)
    assert state_of(broker) == "Empty"
    broker.restart()
    assert state_of(broker) == "Empty"
    first.member_id = ""
    first.join()
    assert first.generation == 4  # generations go on, whatever happened


def test_an_assignment_that_cannot_be_kept_is_not_given(broker: GroupBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Client(broker, "a"), Client(broker, "b")
    stable_group(broker, first)
    second.join()
    first.join()
    second.sync()

    def fail(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", fail)
        first.sync({})
    failed = {"error_code": ErrorCode.coordinator_not_available}
    assert (first.synced, second.synced) == (failed, failed)
    first.join(), second.join()
    assign(first, second)


def test_an_empty_group_is_deleted_with_its_offsets(broker: GroupBroker) -> None:
    member = Client(broker)
    stable_group(broker, member)
    broker.groups.check_commit("g", member.member_id, None, 1, 9)
    broker.groups.offsets.commit("g", {("t", 0): broker.offset(5)})
    assert code_of(lambda: broker.groups.delete_group("g")) == ErrorCode.non_empty_group
    member.leave()
    broker.groups.delete_group("g")
    for _ in range(2):
        assert code_of(lambda: broker.groups.delete_group("g")) == ErrorCode.group_id_not_found
        assert broker.positions("g") == {}
        assert broker.groups.groups() == []
        broker.restart()
    assert broker.topics.partition(OFFSETS_TOPIC, 0).end_offset == 5


def subscription(*topics: str) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\3" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff" + b"\0\0\0\0more"


def test_offsets_of_topics_in_use_are_neither_deleted_nor_do_they_expire(broker: GroupBroker) -> None:
    broker.create_topic("unused")
    member = Client(broker, protocols={"range": subscription("t", "x")})
    stable_group(broker, member)
    offset = broker.offset(5)
    broker.groups.offsets.commit("g", {("t", 0): offset, ("unused", 0): offset, ("unused", 1): offset})
    codes = broker.groups.delete_offsets("g", {"t": [0], "unused": [1]})
    assert codes == {("t", 0): ErrorCode.group_subscribed_to_topic, ("unused", 1): ErrorCode.none}
    broker.clock.advance(8 * 24 * 60 * 60_000)
    broker.groups.expire_offsets()
    assert broker.positions("g") == {("t", 0): 5}
    member.leave()
    broker.groups.expire_offsets()
    assert broker.positions("g") == {("t", 0): 5}  # the time counts from when the group became empty
    broker.clock.advance(8 * 24 * 60 * 60_000)
    broker.groups.expire_offsets()
    assert broker.groups.groups() == []


def test_offsets_of_other_members_can_only_be_deleted_without_members(broker: GroupBroker) -> None:
    member = Client(broker, protocol_type="connect")
    stable_group_of_one(member)
    assert code_of(lambda: broker.groups.delete_offsets("g", {"t": [0]})) == ErrorCode.non_empty_group
    member.leave()
    assert broker.groups.delete_offsets("g", {"t": [0]}) == {("t", 0): ErrorCode.none}


def stable_group_of_one(member: Client) -> None:
    member.join()
    assert member.joined is not None


def test_no_timer_is_left_of_a_group_that_is_gone(broker: GroupBroker) -> None:
    before = len(broker.timers)
    first, second = Client(broker, "a"), Client(broker, "b", needs_member_id=True)
    stable_group(broker, first)
    second.join()
    first.leave()
    broker.timers.advance(0)
    broker.groups.delete_group("g")
    assert len(broker.timers) == before
