"""The members of a classic group, and its pending joins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock_broker.groups.classic.member import ClassicGroupMember
from penstock_broker.groups.members import GroupMembers
from penstock_broker.groups.timers import Timers
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode


class ClassicMembers(GroupMembers[ClassicGroupMember]):
    """The members of a classic group; removing a member answers its pending requests.

    Args:
        group_id: name of the group.
        timers: schedules the ends of sessions.
        expire: called with the id of a member, or of a pending join, when its session expires.

    Attributes:
        leader: id of the member that assigns; None without members.
        pending_joins: ids that were given to clients and not used to join yet.
    """

    def __init__(self, group_id: str, timers: Timers, expire: Callable[[str], None]) -> None:
        super().__init__(group_id, timers, expire)
        self.leader: str | None = None
        self.pending_joins: set[str] = set()

    def add_pending_join(self, member_id: str, session_timeout_ms: int) -> None:
        """Wait for a client to join with its new id."""
        self.pending_joins.add(member_id)
        self.start_session(member_id, session_timeout_ms)

    def put(self, member: ClassicGroupMember) -> None:
        """Add a member or replace its previous version; the first member becomes the leader."""
        super().put(member)
        self.pending_joins.discard(member.member_id)
        self.leader = self.leader or member.member_id

    def remove(self, member_id: str) -> ClassicGroupMember | None:
        """Remove a member or a pending join, and return the member, if any."""
        self.pending_joins.discard(member_id)
        member = super().remove(member_id)
        if member is not None:
            member.answer_join({"error_code": ErrorCode.unknown_member_id, "member_id": ""})
            member.answer_sync({"error_code": ErrorCode.unknown_member_id})
            if self.leader == member_id:
                self.leader = next(iter(self), None)
        return member

    def replace_static(self, old: ClassicGroupMember, member_id: str) -> ClassicGroupMember:
        """Move a returning static member to a new id, and fence the old one."""
        old.answer_join({"error_code": ErrorCode.fenced_instance_id, "member_id": old.member_id})
        old.answer_sync({"error_code": ErrorCode.fenced_instance_id})
        is_leader = self.leader == old.member_id
        self.remove(old.member_id)
        member = replace(old, member_id=member_id, is_new=False, is_pending_sync=False)
        self.put(member)
        if is_leader:
            self.leader = member_id
        return member

    def extend_session(self, member: ClassicGroupMember) -> None:
        """Restart a member's session."""
        self.start_session(member.member_id, member.session_timeout_ms)

    def answer_syncs(self, response: Callable[[ClassicGroupMember], Message]) -> None:
        """Answer all pending SyncGroups and restart the sessions of these members."""
        for member in self.values():
            if member.answer_sync(response(member)):
                self.extend_session(member)

    @property
    def have_all_joined(self) -> bool:
        """Whether a rebalance need not wait any longer."""
        return not self.pending_joins and all(member.join is not None for member in self.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """Maximum duration of a rebalance (ms): the time that the slowest member needs."""
        return max((member.rebalance_timeout_ms for member in self.values()), default=0)

    def elect_leader(self) -> bool:
        """Make a joined member the leader; return whether one exists."""
        leader = self.get(self.leader or "")
        if leader is None or leader.join is None:
            joined = next((member for member in self.values() if member.join is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def support(self, protocols: Iterable[str]) -> bool:
        """Return whether all members support one of the protocols."""
        return any(all(name in member.protocols for member in self.values()) for name in protocols)

    def selected_protocol(self) -> str:
        """Return the protocol preferred by most members, among those that all support."""
        common = set.intersection(*(set(member.protocols) for member in self.values()))
        votes = Counter(next(name for name in member.protocols if name in common) for member in self.values())
        return votes.most_common(1)[0][0]
