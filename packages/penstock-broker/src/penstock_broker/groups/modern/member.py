"""A member of a group with assignment by the broker (Kafka class: ModernGroupMember)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Generic, Self, TypeVar

from penstock_broker.errors import ApiError
from penstock_broker.groups.modern.heartbeat import ModernHeartbeat, UnitT
from penstock_broker.wire.error_codes import ErrorCode


class MemberState(IntEnum):
    """Progress of a member towards its target, with the numbers used in the records of consumer groups.

    Each state may follow each other one, because `reconcile` always goes towards the latest target.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class ModernGroupMember(Generic[UnitT]):
    """A member and its assignment.

    Args:
        rebalance_timeout_ms: time (ms) that it may take to revoke a part of its assignment.
        assigned: what it may own.
        revoking: what it must revoke and may still own.
        since: the epoch in which each part of its assignment was assigned.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    epoch: int = field(default=0, kw_only=True)
    previous_epoch: int = field(default=0, kw_only=True)
    state: MemberState = field(default=MemberState.STABLE, kw_only=True)
    assigned: frozenset[UnitT] = field(default=frozenset(), kw_only=True)
    revoking: frozenset[UnitT] = field(default=frozenset(), kw_only=True)
    since: Mapping[UnitT, int] = field(default_factory=dict, kw_only=True)

    @property
    def held(self) -> frozenset[UnitT]:
        """What it may still own."""
        return self.assigned | self.revoking

    def is_at(self, assignment_epoch: int) -> bool:
        """Return whether it has reached the target assignment of an epoch."""
        return self.state == MemberState.STABLE and self.epoch == assignment_epoch

    def check_epoch(self, request: ModernHeartbeat[UnitT]) -> None:
        """Check the epoch of a heartbeat.

        Raises:
            ApiError: FENCED_MEMBER_EPOCH.
        """
        # A member joins again with epoch 0 if it was removed or did not get the answer to its first request.
        if request.member_epoch in (0, self.epoch):
            return
        # The answer with its new epoch may have been lost.
        is_behind = request.member_epoch == self.previous_epoch and request.member_epoch < self.epoch
        if not is_behind or request.owned is None or not request.owned <= self.assigned:
            raise ApiError(
                ErrorCode.fenced_member_epoch,
                f"member {self.member_id} has epoch {self.epoch}, not {request.member_epoch}; it must give up its "
                "partitions and join again",
            )

    def with_epoch(self, epoch: int) -> Self:
        """Return the member in an epoch."""
        return self if epoch == self.epoch else replace(self, epoch=epoch, previous_epoch=self.epoch)


MemberT = TypeVar("MemberT", bound=ModernGroupMember[Any])
"""A member of one type of groups."""
