"""The generation of a classic group: the outcome of its last rebalance, and its record."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from penstock_broker.errors import ApiError
from penstock_broker.groups.classic.member import ClassicGroupMember
from penstock_broker.groups.classic.members import ClassicMembers
from penstock_broker.groups.classic.state import NEXT_STATES, ClassicGroupState
from penstock_broker.groups.context import GroupContext
from penstock_broker.groups.schemas import GroupRecord, RecordKind
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

_log = logging.getLogger(__name__)


class ClassicGeneration:
    """A generation, its state, and its answers to members.

    Args:
        group_id: name of the group.
        context: its environment.
        members: its members.

    Attributes:
        number: the generation id, incremented by each rebalance.
        state: phase of the rebalance.
        protocol_type: purpose of the group; None if it never had members.
        protocol: the assignor of this generation.
        changed_ms: time of the last change of state, in ms since the epoch.
    """

    def __init__(self, group_id: str, context: GroupContext, members: ClassicMembers) -> None:
        self.number = 0
        self.state = ClassicGroupState.EMPTY
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.changed_ms = -1
        self._group_id = group_id
        self._context = context
        self._members = members

    def move_to(self, state: ClassicGroupState) -> None:
        """Enter a valid next state."""
        assert state in NEXT_STATES[self.state], f"a group that is {self.state} cannot become {state}"
        self.state = state
        self.changed_ms = self._context.clock.milliseconds()

    def joined(self, member: ClassicGroupMember) -> Message:
        """Return the answer to JoinGroup; the leader gets the subscriptions of all members."""
        subscribers = self._members.values() if member.member_id == self._members.leader else ()
        return {
            "error_code": ErrorCode.none,
            "generation_id": self.number,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "leader": self._members.leader or "",
            "member_id": member.member_id,
            "members": [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.instance_id,
                    "metadata": each.subscription(self.protocol),
                }
                for each in subscribers
            ],
        }

    def assigned(self, member: ClassicGroupMember) -> Message:
        """Return the answer to SyncGroup."""
        return {
            "error_code": ErrorCode.none,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "assignment": member.assignment,
        }

    def load(self, value: Message) -> None:
        """Load generation and members from the group's record, and start their sessions."""
        self.number = value["generation"]
        self.protocol_type = value["protocol_type"] or None
        self.protocol = value["protocol"]
        self.changed_ms = value["current_state_timestamp"]
        for stored in value["members"]:
            member = ClassicGroupMember(
                stored["member_id"],
                stored["group_instance_id"],
                stored["client_id"],
                stored["client_host"],
                stored["session_timeout"],
                stored["rebalance_timeout"],
                {self.protocol or "": bytes(stored["subscription"])},
                bytes(stored["assignment"]),
            )
            self._members.put(member)
            self._members.extend_session(member)
        self._members.leader = value["leader"]
        self.state = ClassicGroupState.STABLE if self._members else ClassicGroupState.EMPTY

    def try_save(self, change: str) -> None:
        """Write generation and members with their current assignments; a failure is only logged."""
        try:
            self.save({member_id: member.assignment for member_id, member in self._members.items()})
        except ApiError as error:
            _log.warning("group %s: %s, which is not kept: %s", self._group_id, change, error)

    def save(self, assignments: Mapping[str, bytes]) -> None:
        """Write generation and members, with assignments by member id.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE.
        """
        members = [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout": member.rebalance_timeout_ms,
                "session_timeout": member.session_timeout_ms,
                "subscription": member.subscription(self.protocol),
                "assignment": assignments[member.member_id],
            }
            for member in self._members.values()
        ]
        value: Message = {
            "protocol_type": self.protocol_type or "",
            "generation": self.number,
            "protocol": self.protocol,
            "leader": self._members.leader,
            "current_state_timestamp": self.changed_ms,
            "members": members,
        }
        self._context.log.append([GroupRecord(RecordKind.GROUP, {"group": self._group_id}, value)])
