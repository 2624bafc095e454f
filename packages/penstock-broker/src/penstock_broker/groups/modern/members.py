"""The members of a group with assignment by the broker, the owners in it, and their timers."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from penstock_broker.groups.members import GroupMembers
from penstock_broker.groups.modern.member import MemberState, MemberT
from penstock_broker.groups.timers import Timers


class ModernGroupMembers(GroupMembers[MemberT]):
    """The members of a group.

    Args:
        group_id: name of the group.
        timers: schedules the ends of sessions and revocations.
        session_timeout_ms: time (ms) without a heartbeat after which a member is removed.
        expire: called with the id of a member whose time is over, and the reason.

    Attributes:
        owners: ids of the members that hold partitions or tasks, by these, including those that must revoke them.
    """

    def __init__(
        self, group_id: str, timers: Timers, session_timeout_ms: int, expire: Callable[[str, str], None]
    ) -> None:
        super().__init__(group_id, timers, lambda each: expire(each, "sent no heartbeat in its session"))
        self.owners: dict[Hashable, str] = {}
        self._session_timeout_ms = session_timeout_ms
        self._key = ("revocation", group_id)
        self._expire_member = expire

    def put(self, member: MemberT) -> None:
        """Add a member or replace its previous version."""
        self._release(self.get(member.member_id))
        super().put(member)
        self.owners.update(dict.fromkeys(member.held, member.member_id))

    def remove(self, member_id: str) -> MemberT | None:
        """Remove a member with its assignment and timers, and return it."""
        member = super().remove(member_id)
        self._release(member)
        self._timers.cancel((*self._key, member_id))
        return member

    def after(self, member: MemberT, replaced: MemberT | None) -> list[MemberT]:
        """Return the members after a change of one of them, which may replace another one."""
        return [each for each in {**self, member.member_id: member}.values() if each is not replaced]

    def _release(self, member: MemberT | None) -> None:
        if member is not None:
            for unit in member.held:
                if self.owners.get(unit) == member.member_id:
                    del self.owners[unit]

    def extend_session(self, member: MemberT) -> None:
        """Restart a member's session."""
        self.start_session(member.member_id, self._session_timeout_ms)

    def watch_revocation(self, member: MemberT) -> None:
        """Start or cancel the time-out of a member's revocation."""
        key = (*self._key, member.member_id)
        if member.state == MemberState.UNREVOKED_PARTITIONS:
            self._timers.schedule(key, member.rebalance_timeout_ms, lambda: self._expire_revocation(member))
        else:
            self._timers.cancel(key)

    def _expire_revocation(self, member: MemberT) -> None:
        # A static member that is away has another epoch: its session decides.
        present = self.get(member.member_id)
        if present is not None and present.epoch == member.epoch:
            self._expire_member(member.member_id, "did not give up its partitions in time")
