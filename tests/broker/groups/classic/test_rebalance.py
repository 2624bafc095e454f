"""The two phases of a rebalance: for whom they wait, how long, and when they begin again."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_broker.groups.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
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


def test_a_rebalance_waits_for_a_client_that_was_given_an_id_until_its_session_ends(broker: GroupBroker) -> None:
    first, silent = Client(broker, "a"), Client(broker, "b", needs_member_id=True)
    stable_group(broker, first)
    silent.join()
    assert first.join() is None
    broker.timers.advance(SESSION_MS)
    assert first.generation == 2


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


def test_those_who_wait_for_an_assignment_learn_of_a_new_rebalance(broker: GroupBroker) -> None:
    first, second, third = Client(broker, "a"), Client(broker, "b"), Client(broker, "c")
    stable_group(broker, first)
    second.join()
    first.join()
    second.sync()
    third.join()
    assert second.synced == {"error_code": ErrorCode.rebalance_in_progress}


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
