"""The steps of a member towards its target assignment (Kafka class: CurrentAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from penstock_broker.groups.assignment import NO_PARTITIONS, Assignment, PartitionId
from penstock_broker.groups.consumer.member import ConsumerGroupMember, MemberState
from penstock_broker.groups.consumer.target import TargetAssignment


def reconcile(
    member: ConsumerGroupMember, target: TargetAssignment, reported: Assignment | None, held: Container[PartitionId]
) -> ConsumerGroupMember:
    """Return a member after its next step towards its target assignment.

    Args:
        member: the member.
        target: the target of its group.
        reported: the partitions that it reports as owned; None if not reported.
        held: the partitions that some member has not released.
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
        since = {partition: member.since[partition] for partition in member.assigned}
        return replace(member.with_epoch(epoch), state=state, assigned=kept, revoking=revoking, since=since)
    missing = wanted - kept
    unreleased = {partition for partition in missing if partition in held}
    added = missing - unreleased
    return replace(
        member.with_epoch(target.assignment_epoch),
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        assigned=kept | added,
        revoking=NO_PARTITIONS,
        since={
            **{partition: member.since[partition] for partition in kept},
            **dict.fromkeys(added, target.assignment_epoch),
        },
    )
