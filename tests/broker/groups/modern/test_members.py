"""The members of a group: the owners of partitions, and the ends of sessions and revocations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock_broker.groups.consumer.member import ConsumerGroupMember
from penstock_broker.groups.modern.heartbeat import LEAVE_FOR_A_WHILE
from penstock_broker.groups.modern.member import MemberState
from penstock_broker.groups.modern.members import ModernGroupMembers
from tests.broker.groups.consumer.test_member import TOPIC, partitions
from tests.broker.groups.support import GroupBroker

SESSION_MS = 45_000
REVOKING = ConsumerGroupMember(
    "m",
    epoch=1,
    rebalance_timeout_ms=20_000,
    state=MemberState.UNREVOKED_PARTITIONS,
    assigned=partitions(0),
    revoking=partitions(1),
)


class Watched:
    """The members of a group, and those whose time is over, with the reasons."""

    def __init__(self, broker: GroupBroker) -> None:
        self.timers = broker.timers
        self.expired: list[tuple[str, str]] = []
        self.members = ModernGroupMembers[ConsumerGroupMember](
            "g", broker.timers, SESSION_MS, lambda member_id, why: self.expired.append((member_id, why))
        )


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Watched]:
    broker = GroupBroker(tmp_path)
    yield Watched(broker)
    broker.close()


def test_a_partition_has_an_owner_until_it_is_released(group: Watched) -> None:
    group.members.put(REVOKING)
    assert group.members.owners == {(TOPIC, 0): "m", (TOPIC, 1): "m"}
    group.members.put(replace(REVOKING, revoking=frozenset()))
    assert group.members.owners == {(TOPIC, 0): "m"}
    assert group.members.remove("m") is not None
    assert group.members.owners == {}
    assert group.members.remove("m") is None


def test_a_partition_of_another_owner_is_not_released(group: Watched) -> None:
    """A static member that returns takes over the partitions before its former id is removed."""
    group.members.put(REVOKING)
    group.members.put(replace(REVOKING, member_id="n"))
    group.members.remove("m")
    assert group.members.owners == {(TOPIC, 0): "n", (TOPIC, 1): "n"}


def test_a_session_ends_without_a_heartbeat(group: Watched) -> None:
    group.members.put(REVOKING)
    group.members.extend_session(REVOKING)
    group.timers.advance(SESSION_MS - 1)
    group.members.extend_session(REVOKING)
    group.timers.advance(SESSION_MS - 1)
    assert group.expired == []
    group.timers.advance(1)
    assert group.expired == [("m", "sent no heartbeat in its session")]


def test_a_revocation_has_a_time_out(group: Watched) -> None:
    group.members.put(REVOKING)
    group.members.watch_revocation(REVOKING)
    group.timers.advance(REVOKING.rebalance_timeout_ms)
    assert group.expired == [("m", "did not give up its partitions in time")]


@pytest.mark.parametrize("state", [MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS])
def test_a_member_that_has_revoked_its_partitions_stays(group: Watched, state: MemberState) -> None:
    group.members.put(REVOKING)
    group.members.watch_revocation(REVOKING)
    group.members.watch_revocation(replace(REVOKING, state=state))
    assert len(group.timers) == 1  # the expiry of offsets
    group.timers.advance(REVOKING.rebalance_timeout_ms)
    assert group.expired == []


def test_a_static_member_that_is_away_has_its_session(group: Watched) -> None:
    group.members.put(REVOKING)
    group.members.watch_revocation(REVOKING)
    group.members.put(replace(REVOKING, epoch=LEAVE_FOR_A_WHILE))
    group.timers.advance(REVOKING.rebalance_timeout_ms)
    assert group.expired == []


def test_a_removed_member_has_no_timers(group: Watched) -> None:
    group.members.put(REVOKING)
    group.members.extend_session(REVOKING)
    group.members.watch_revocation(REVOKING)
    group.members.remove("m")
    assert len(group.timers) == 1  # the expiry of offsets
