"""A member of a consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from penstock_broker.errors import ApiError
from penstock_broker.groups.assignment import NO_PARTITIONS, Assignment, PartitionId
from penstock_broker.groups.consumer.heartbeat import HeartbeatRequest
from penstock_broker.groups.patterns import matching
from penstock_broker.wire.error_codes import ErrorCode


class MemberState(IntEnum):
    """Progress of a member towards its target, with the numbers used in its records.

    Each state may follow each other one, because `reconcile` always goes towards the latest target.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """A member: its subscription and its partitions.

    Args:
        rebalance_timeout_ms: time (ms) that it may take to revoke partitions.
        assigned: the partitions that it may own.
        revoking: the partitions that it must revoke and may still own.
        since: by partition, the epoch in which it was assigned.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NO_PARTITIONS
    revoking: Assignment = NO_PARTITIONS
    since: Mapping[PartitionId, int] = field(default_factory=dict)

    @property
    def held(self) -> Assignment:
        """The partitions that it may still own."""
        return self.assigned | self.revoking

    def is_at(self, assignment_epoch: int) -> bool:
        """Return whether it has reached the target assignment of an epoch."""
        return self.state == MemberState.STABLE and self.epoch == assignment_epoch

    def has_subscription_of(self, other: ConsumerGroupMember) -> bool:
        """Return whether it has the subscription of another member: same names and pattern."""
        return (self.topic_names, self.topic_regex) == (other.topic_names, other.topic_regex)

    def subscribed(self, topics: Iterable[str]) -> set[str]:
        """Return those of the topics that it subscribes to."""
        found = set(self.topic_names).intersection(topics)
        return found if self.topic_regex is None else found | matching(self.topic_regex, topics)

    def check_epoch(self, request: HeartbeatRequest) -> None:
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

    def updated(self, request: HeartbeatRequest) -> ConsumerGroupMember:
        """Return the member with the subscription of a heartbeat."""

        def new(value: str | None, old: str | None) -> str | None:
            return old if value is None else value

        timeout_ms = request.rebalance_timeout_ms
        names = request.topic_names
        return replace(
            self,
            instance_id=new(request.instance_id, self.instance_id),
            rack_id=new(request.rack_id, self.rack_id),
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=self.topic_names if names is None else tuple(sorted(set(names))),
            topic_regex=new(request.topic_regex, self.topic_regex) or None,
            rebalance_timeout_ms=self.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
            assignor=new(request.assignor, self.assignor),
        )

    def with_epoch(self, epoch: int) -> ConsumerGroupMember:
        """Return the member in an epoch."""
        return self if epoch == self.epoch else replace(self, epoch=epoch, previous_epoch=self.epoch)
