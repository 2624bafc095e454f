"""The members of a consumer group, the owners of its partitions, and their timers."""

from __future__ import annotations

from collections.abc import Callable

from penstock_broker.groups.assignment import PartitionId
from penstock_broker.groups.consumer.member import ConsumerGroupMember, MemberState
from penstock_broker.groups.context import GroupContext
from penstock_broker.groups.members import GroupMembers


class ConsumerMembers(GroupMembers[ConsumerGroupMember]):
    """The members of a consumer group.

    Args:
        group_id: name of the group.
        context: its environment.
        expire: called with the id of a member whose time is over, and the reason.

    Attributes:
        owners: ids of the members that hold partitions, by partition, including those that must revoke them.
    """

    def __init__(self, group_id: str, context: GroupContext, expire: Callable[[str, str], None]) -> None:
        super().__init__(group_id, context.timers, lambda each: expire(each, "sent no heartbeat in its session"))
        self.owners: dict[PartitionId, str] = {}
        self._context = context
        self._key = ("revocation", group_id)
        self._expire_member = expire

    def put(self, member: ConsumerGroupMember) -> None:
        """Add a member or replace its previous version."""
        self._release(self.get(member.member_id))
        super().put(member)
        self.owners.update(dict.fromkeys(member.held, member.member_id))

    def remove(self, member_id: str) -> ConsumerGroupMember | None:
        """Remove a member with its partitions and timers, and return it."""
        member = super().remove(member_id)
        self._release(member)
        self._context.timers.cancel((*self._key, member_id))
        return member

    def _release(self, member: ConsumerGroupMember | None) -> None:
        if member is not None:
            for partition in member.held:
                if self.owners.get(partition) == member.member_id:
                    del self.owners[partition]

    def extend_session(self, member: ConsumerGroupMember) -> None:
        """Restart a member's session."""
        self.start_session(member.member_id, self._context.config.group_consumer_session_timeout_ms)

    def watch_revocation(self, member: ConsumerGroupMember) -> None:
        """Start or cancel the time-out of a member's revocation."""
        key = (*self._key, member.member_id)
        if member.state == MemberState.UNREVOKED_PARTITIONS:
            self._context.timers.schedule(key, member.rebalance_timeout_ms, lambda: self._expire_revocation(member))
        else:
            self._context.timers.cancel(key)

    def _expire_revocation(self, member: ConsumerGroupMember) -> None:
        # A static member that is away has another epoch: its session decides.
        present = self.get(member.member_id)
        if present is not None and present.epoch == member.epoch:
            self._expire_member(member.member_id, "did not give up its partitions in time")
