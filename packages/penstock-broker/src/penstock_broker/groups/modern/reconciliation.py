"""The steps of a member towards its target assignment (Kafka class: CurrentAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from penstock_broker.groups.modern.heartbeat import UnitT
from penstock_broker.groups.modern.member import MemberState, MemberT
from penstock_broker.groups.modern.target import TargetAssignment


def reconcile(
    member: MemberT, target: TargetAssignment[UnitT], reported: frozenset[UnitT] | None, held: Container[UnitT]
) -> MemberT:
    """Return a member after its next step towards its target assignment.

    Args:
        member: the member.
        target: the target of its group.
        reported: what it reports as owned; None if not reported.
        held: what some member has not released.
    """
    if member.is_at(target.assignment_epoch):
        return member
    epoch = member.epoch
    if member.state == MemberState.UNREVOKED_PARTITIONS:
        if reported is None or reported & member.revoking:
            return member
        epoch += 1
    wanted = target.of(member.member_id)
    kept = member.assigned & wanted
    revoking = member.assigned - wanted
    if revoking and (reported is None or reported & revoking):
        # It keeps its epoch until it has revoked all of them, so it can commit their offsets.
        state = MemberState.UNREVOKED_PARTITIONS
        since = {unit: member.since[unit] for unit in member.assigned}
        return replace(member.with_epoch(epoch), state=state, assigned=kept, revoking=revoking, since=since)
    missing = wanted - kept
    unreleased = {unit for unit in missing if unit in held}
    added = missing - unreleased
    return replace(
        member.with_epoch(target.assignment_epoch),
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        assigned=kept | added,
        revoking=frozenset(),
        since={
            **{unit: member.since[unit] for unit in kept},
            **dict.fromkeys(added, target.assignment_epoch),
        },
    )
