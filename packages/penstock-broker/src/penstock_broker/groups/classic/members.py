"""The members of a classic group, and the clients that it expects."""

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
    """The members of a classic group; removal answers the waiting requests of a member.

    Args:
        group_id: name of the group.
        timers: runs the ends of sessions.
        expire: called with the id of a member, or of an expected client, when its session is over.

    Attributes:
        leader: id of the member that assigns; None without members.
        pending_joins: ids that clients were given and have not joined with.
    """

    def __init__(self, group_id: str, timers: Timers, expire: Callable[[str], None]) -> None:
        super().__init__(group_id, timers, expire)
        self.leader: str | None = None
        self.pending_joins: set[str] = set()

    def add_pending_join(self, member_id: str, session_timeout_ms: int) -> None:
        """Wait for a client to join with the id that it was given."""
        self.pending_joins.add(member_id)
        self.start_session(member_id, session_timeout_ms)

    def put(self, member: ClassicGroupMember) -> None:
        """Add a member, or replace the one of its id; the first one leads."""
        super().put(member)
        self.pending_joins.discard(member.member_id)
        self.leader = self.leader or member.member_id

    def remove(self, member_id: str) -> ClassicGroupMember | None:
        """Forget a member or an expected client, and return the member, if there is one."""
        self.pending_joins.discard(member_id)
        member = super().remove(member_id)
        if member is not None:
            member.answer_join({"error_code": ErrorCode.unknown_member_id, "member_id": ""})
            member.answer_sync({"error_code": ErrorCode.unknown_member_id})
            if self.leader == member_id:
                self.leader = next(iter(self), None)
        return member

    def replace_static(self, old: ClassicGroupMember, member_id: str) -> ClassicGroupMember:
        """Give a static member that is back a new id; fence the client with the old one."""
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
        """Begin a session in place of the present one."""
        self.start_session(member.member_id, member.session_timeout_ms)

    def answer_syncs(self, response: Callable[[ClassicGroupMember], Message]) -> None:
        """Answer all members that wait for their assignments; their sessions begin again."""
        for member in self.values():
            if member.answer_sync(response(member)):
                self.extend_session(member)

    @property
    def have_all_joined(self) -> bool:
        """Whether no rebalance has to wait any longer."""
        return not self.pending_joins and all(member.join is not None for member in self.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may wait: as long as the slowest member needs."""
        return max((member.rebalance_timeout_ms for member in self.values()), default=0)

    def elect_leader(self) -> bool:
        """Make a member that has joined the leader; return whether there is one."""
        leader = self.get(self.leader or "")
        if leader is None or leader.join is None:
            joined = next((member for member in self.values() if member.join is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def support(self, protocols: Iterable[str]) -> bool:
        """Return whether all members have one of the protocols."""
        return any(all(name in member.protocols for member in self.values()) for name in protocols)

    def selected_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all have."""
        common = set.intersection(*(set(member.protocols) for member in self.values()))
        votes = Counter(next(name for name in member.protocols if name in common) for member in self.values())
        return votes.most_common(1)[0][0]
