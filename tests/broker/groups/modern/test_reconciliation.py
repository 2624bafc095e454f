"""The steps of a member towards its target: it revokes first, and gets only partitions without an owner."""

from __future__ import annotations

import pytest

from penstock_broker.groups.assignment import NO_PARTITIONS, Assignment
from penstock_broker.groups.consumer.member import ConsumerGroupMember
from penstock_broker.groups.consumer.target import ConsumerTargetAssignment
from penstock_broker.groups.modern.member import MemberState
from penstock_broker.groups.modern.reconciliation import reconcile
from tests.broker.groups.consumer.test_member import TOPIC, partitions

STABLE = ConsumerGroupMember(
    "m", epoch=1, assigned=partitions(0, 1), since={(TOPIC, 0): 1, (TOPIC, 1): 1}, rebalance_timeout_ms=1_000
)


def target(epoch: int, *numbers: int) -> ConsumerTargetAssignment:
    return ConsumerTargetAssignment(epoch, assignment_epoch=epoch, assignments={"m": partitions(*numbers)})


def test_a_member_at_its_target_stays() -> None:
    assert reconcile(STABLE, target(1, 0), None, ()) is STABLE


def test_free_partitions_are_assigned_at_once() -> None:
    after = reconcile(STABLE, target(2, 0, 1, 2), None, partitions(0, 1))
    assert (after.state, after.epoch, after.previous_epoch) == (MemberState.STABLE, 2, 1)
    assert after.assigned == partitions(0, 1, 2)
    assert after.since == {(TOPIC, 0): 1, (TOPIC, 1): 1, (TOPIC, 2): 2}


def test_partitions_of_other_owners_are_waited_for() -> None:
    waiting = reconcile(STABLE, target(2, 0, 1, 2, 3), None, partitions(0, 1, 2))
    assert (waiting.state, waiting.epoch) == (MemberState.UNRELEASED_PARTITIONS, 2)
    assert waiting.assigned == partitions(0, 1, 3)
    assert reconcile(waiting, target(2, 0, 1, 2, 3), None, partitions(0, 1, 2, 3)) == waiting
    after = reconcile(waiting, target(2, 0, 1, 2, 3), None, partitions(0, 1, 3))
    assert (after.state, after.epoch, after.assigned) == (MemberState.STABLE, 2, partitions(0, 1, 2, 3))


@pytest.mark.parametrize("reported", [None, partitions(0, 1), partitions(1)])
def test_a_member_keeps_its_epoch_until_it_has_revoked_all(reported: Assignment | None) -> None:
    revoking = reconcile(STABLE, target(3, 0, 2), reported, partitions(0, 1))
    assert (revoking.state, revoking.epoch) == (MemberState.UNREVOKED_PARTITIONS, 1)
    assert (revoking.assigned, revoking.revoking) == (partitions(0), partitions(1))
    assert revoking.since == STABLE.since  # it may still commit their offsets
    assert reconcile(revoking, target(3, 0, 2), reported, partitions(0, 1)) is revoking


def test_a_member_that_has_revoked_gets_the_others() -> None:
    revoking = reconcile(STABLE, target(3, 0, 2), None, partitions(0, 1))
    after = reconcile(revoking, target(3, 0, 2), partitions(0), partitions(0, 1))
    assert (after.state, after.epoch) == (MemberState.STABLE, 3)
    assert (after.assigned, after.revoking) == (partitions(0, 2), NO_PARTITIONS)
    assert after.since == {(TOPIC, 0): 1, (TOPIC, 2): 3}


def test_a_member_that_has_revoked_may_have_to_revoke_more() -> None:
    revoking = reconcile(STABLE, target(2, 0), None, partitions(0, 1))
    again = reconcile(revoking, target(3), partitions(0), partitions(0, 1))
    assert (again.state, again.epoch) == (MemberState.UNREVOKED_PARTITIONS, 2)
    assert (again.assigned, again.revoking) == (NO_PARTITIONS, partitions(0))


def test_partitions_that_the_client_has_given_up_already_need_no_revocation() -> None:
    after = reconcile(STABLE, target(2, 0), partitions(0), partitions(0, 1))
    assert (after.state, after.epoch, after.assigned) == (MemberState.STABLE, 2, partitions(0))


def test_a_member_waiting_for_partitions_follows_a_new_target() -> None:
    waiting = reconcile(STABLE, target(2, 0, 1, 2), None, partitions(0, 1, 2))
    after = reconcile(waiting, target(3, 0), None, partitions(0, 1, 2))
    assert (after.state, after.epoch, after.revoking) == (MemberState.UNREVOKED_PARTITIONS, 2, partitions(1))
