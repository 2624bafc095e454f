"""Joining a classic group as a new, a known or a returning static member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock_broker.errors import ApiError
from penstock_broker.groups.classic.joining import JoinRequest
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.groups.classic.support import (
    REBALANCE_MS,
    SESSION_MS,
    Client,
    assign,
    code_of,
    stable_group,
    state_of,
)
from tests.broker.groups.support import GroupBroker


def test_a_new_member_is_given_its_id_first(broker: GroupBroker) -> None:
    client = Client(broker, "name", needs_member_id=True)
    answer = client.join()
    assert answer is not None
    assert answer["error_code"] == ErrorCode.member_id_required
    assert answer["member_id"].startswith("name-")
    client.member_id = answer["member_id"]
    assert client.join() is not None
    assert client.generation == 1


def test_a_member_that_prefers_another_protocol_makes_the_group_choose_again(broker: GroupBroker) -> None:
    first = Client(broker, "a", protocols={"range": b"1", "y": b"2"})
    second = Client(broker, "b", protocols={"range": b"1", "y": b"2"})
    stable_group(broker, first, second)
    assert second.join() is not None
    assert first.beat() == ErrorCode.none
    assert second.join(protocols={"y": b"2", "range": b"1"}) is None
    assert first.beat() == ErrorCode.rebalance_in_progress


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
