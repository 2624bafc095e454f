"""The rebalance of a classic group: all members join, then the leader assigns.

Both phases have a time-out: members that have not joined by then, or not asked for their assignment, are removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from penstock_broker.errors import ApiError
from penstock_broker.groups.classic.generation import ClassicGeneration
from penstock_broker.groups.classic.member import ClassicGroupMember
from penstock_broker.groups.classic.members import ClassicMembers
from penstock_broker.groups.classic.state import ClassicGroupState
from penstock_broker.groups.context import Answer, GroupContext
from penstock_broker.wire.error_codes import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60_000
"""Time (ms) that a new member may wait for the others.

After that it has to ask again, which shows that it still exists.
"""

_log = logging.getLogger(__name__)


class ClassicRebalance:
    """The rebalances of a group.

    Args:
        group_id: name of the group.
        context: its environment.
        members: its members.
        generation: its generation.
    """

    def __init__(
        self, group_id: str, context: GroupContext, members: ClassicMembers, generation: ClassicGeneration
    ) -> None:
        self._group_id = group_id
        self._context = context
        self._members = members
        self._generation = generation
        self._is_first = False
        self._has_new_member = False

    def add(self, member: ClassicGroupMember) -> None:
        """Add a new member and include it in a rebalance."""
        self._has_new_member = True
        self._members.put(member)
        self._members.start_session(member.member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.begin_or_complete(f"member {member.member_id} joins")

    def begin_or_complete(self, reason: str) -> None:
        """Begin a rebalance, or complete the current one if nothing else is missing."""
        if self._generation.state == ClassicGroupState.PREPARING:
            self.complete_if_all_joined()
        else:
            self.begin(reason)

    # Joining

    def begin(self, reason: str) -> None:
        """Wait for all members to join again, and reject pending SyncGroups."""
        _log.info("group %s: a rebalance begins: %s", self._group_id, reason)
        if self._generation.state == ClassicGroupState.COMPLETING:
            for member in self._members.values():
                member.assignment = b""
            self._members.answer_syncs(lambda member: {"error_code": ErrorCode.rebalance_in_progress})
        # Without the timer, is_pending_sync has no effect until the next assignment phase sets it for all members.
        self._context.timers.cancel(("sync", self._group_id))
        self._is_first = self._generation.state == ClassicGroupState.EMPTY
        self._generation.move_to(ClassicGroupState.PREPARING)
        delay_ms = self._context.config.group_initial_rebalance_delay_ms
        if self._is_first and delay_ms > 0:
            self._has_new_member = False
            self._wait_for_first_members(delay_ms, max(self._members.rebalance_timeout_ms - delay_ms, 0))
        elif self._is_first or self._members.have_all_joined:
            self._complete_join()
        else:
            self._schedule_join(self._members.rebalance_timeout_ms, self._complete_join)

    def _wait_for_first_members(self, delay_ms: int, remaining_ms: int) -> None:
        """Wait for further members of a new group, as long as they arrive."""

        def look_again() -> None:
            if not self._has_new_member or remaining_ms == 0:
                self._complete_join()
                return
            self._has_new_member = False
            next_ms = min(self._context.config.group_initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_first_members(next_ms, max(remaining_ms - delay_ms, 0))

        self._schedule_join(delay_ms, look_again)

    def _schedule_join(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._context.timers.schedule(("join", self._group_id), delay_ms, action)

    def complete_if_all_joined(self) -> None:
        """Continue with the assignment if no member is missing."""
        # The first rebalance lasts for its whole delay, for members that are about to join.
        is_preparing = self._generation.state == ClassicGroupState.PREPARING
        if is_preparing and not self._is_first and self._members.have_all_joined:
            self._complete_join()

    def _complete_join(self) -> None:
        self._context.timers.cancel(("join", self._group_id))
        for member in tuple(self._members.values()):
            if member.join is None and member.instance_id is None:
                self._members.remove(member.member_id)
        if self._members and not self._members.elect_leader():
            # All remaining members are static and away: their sessions decide.
            self._schedule_join(self._members.rebalance_timeout_ms, self._complete_join)
            return
        self._generation.number += 1
        if not self._members:
            self._generation.protocol = None
            self._generation.move_to(ClassicGroupState.EMPTY)
            # Otherwise, its last members would be expected again after a crash, until their sessions end.
            self._generation.try_save("it is empty now")
            return
        self._generation.protocol = self._members.selected_protocol()
        self._generation.move_to(ClassicGroupState.COMPLETING)
        self._is_first = False
        for member in self._members.values():
            member.is_pending_sync = True
            member.answer_join(self._generation.joined(member))
            member.is_new = False
            self._members.extend_session(member)
        self._context.timers.schedule(("sync", self._group_id), self._members.rebalance_timeout_ms, self._expire_syncs)

    # Assignment

    def sync(self, member: ClassicGroupMember, assignments: Mapping[str, bytes], answer: Answer) -> None:
        """Give a member its assignment, possibly later; the leader sends all of them.

        Raises:
            ApiError: REBALANCE_IN_PROGRESS.
        """
        match self._generation.state:
            case ClassicGroupState.PREPARING:
                raise ApiError(ErrorCode.rebalance_in_progress)
            case ClassicGroupState.STABLE:
                self._note_sync(member)
                answer(self._generation.assigned(member))
                self._members.extend_session(member)
            case _:
                member.answer_sync({"error_code": ErrorCode.rebalance_in_progress})
                member.sync = answer
                self._note_sync(member)
                if member.member_id == self._members.leader:
                    self._assign(assignments)

    def _note_sync(self, member: ClassicGroupMember) -> None:
        member.is_pending_sync = False
        if not any(each.is_pending_sync for each in self._members.values()):
            self._context.timers.cancel(("sync", self._group_id))

    def _expire_syncs(self) -> None:
        missing = [member.member_id for member in self._members.values() if member.is_pending_sync]
        for member_id in missing:
            self._members.remove(member_id)
        if missing:
            self.begin(f"members {missing} did not ask for their assignment")

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        kept = {member_id: assignments.get(member_id, b"") for member_id in self._members}
        try:
            if sum(len(assignment) for assignment in kept.values()) > self._context.config.group_max_bytes:
                raise ApiError(ErrorCode.unknown_server_error, "the assignment is larger than group_max_bytes")
            self._generation.save(kept)
        except ApiError as error:
            _log.warning("group %s: the assignment cannot be kept: %s", self._group_id, error)
            code = error.code
            self._members.answer_syncs(lambda member: {"error_code": code})
            self.begin("the assignment cannot be kept")
            return
        self._generation.move_to(ClassicGroupState.STABLE)
        for member in self._members.values():
            member.assignment = kept[member.member_id]
        self._members.answer_syncs(self._generation.assigned)

    def close(self) -> None:
        """Cancel timers, because the group is deleted."""
        for kind in ("join", "sync"):
            self._context.timers.cancel((kind, self._group_id))
