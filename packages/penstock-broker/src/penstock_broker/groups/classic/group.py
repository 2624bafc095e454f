"""A classic group: the requests of its members, their sessions, and commits.

Not here: joining (joining.py) and the phases of a rebalance (rebalance.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock_broker.errors import ApiError
from penstock_broker.groups.classic.generation import ClassicGeneration
from penstock_broker.groups.classic.joining import ClassicJoining, JoinRequest
from penstock_broker.groups.classic.member import ClassicGroupMember
from penstock_broker.groups.classic.members import ClassicMembers
from penstock_broker.groups.classic.rebalance import ClassicRebalance
from penstock_broker.groups.classic.state import ClassicGroupState
from penstock_broker.groups.context import Answer, GroupContext
from penstock_broker.groups.group import Group, MemberIdentity
from penstock_broker.groups.offsets import CommittedOffset, TopicPartition
from penstock_broker.groups.schemas import GroupRecord, RecordKind
from penstock_broker.wire.codec import Message, structure_codec
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.primitives import INT16, Cursor, MalformedMessageError
from penstock_broker.wire.schemas import consumer_protocol_subscription

CONSUMER_PROTOCOL: Final = "consumer"
"""Protocol type of Kafka's consumers."""

_subscription = structure_codec(consumer_protocol_subscription.DATA.at(0))


class ClassicGroup(Group):
    """A classic group; without members and a protocol type it only has committed offsets.

    Args:
        group_id: its name.
        context: its environment.

    Attributes:
        members: its members by id.
        generation: the result of its last rebalance.
    """

    group_type = "classic"

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self.group_id = group_id
        self.members = ClassicMembers(group_id, context.timers, self._expire_session)
        self.generation = ClassicGeneration(group_id, context, self.members)
        self._rebalance = ClassicRebalance(group_id, context, self.members, self.generation)
        self._joining = ClassicJoining(context.config, self.members, self.generation, self._rebalance)

    @property
    def protocol_type(self) -> str | None:
        """Purpose of the group; None if it never had members."""
        return self.generation.protocol_type

    @property
    def state(self) -> ClassicGroupState:
        """Phase of the rebalance."""
        return self.generation.state

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return self.state == ClassicGroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        """Whether it has neither members nor pending joins."""
        return self.is_empty and not self.members.pending_joins

    # Requests of members

    def join(self, request: JoinRequest, answer: Answer) -> None:
        """Handle JoinGroup; the answer may wait until all members have joined.

        Raises:
            ApiError: the errors of ClassicJoining.join.
        """
        self._joining.join(request, answer)

    def sync(
        self,
        identity: MemberIdentity,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
        answer: Answer,
    ) -> None:
        """Handle SyncGroup; the answer may wait until the leader has sent the assignment.

        Args:
            identity: the member and its generation.
            protocol_type: the protocol type expected by the member; None if not given.
            protocol: the assignor used by the member; None if not given.
            assignments: by member id; empty except from the leader.
            answer: gives the response.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL or
                REBALANCE_IN_PROGRESS.
        """
        member = self.check_member(identity)
        for claimed, actual in ((protocol_type, self.protocol_type), (protocol, self.generation.protocol)):
            if claimed is not None and actual is not None and claimed != actual:
                raise ApiError(ErrorCode.inconsistent_group_protocol)
        self._rebalance.sync(member, assignments, answer)

    def heartbeat(self, identity: MemberIdentity) -> None:
        """Handle Heartbeat.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION or REBALANCE_IN_PROGRESS.
        """
        self.members.extend_session(self.check_member(identity))
        if self.state == ClassicGroupState.PREPARING:
            raise ApiError(ErrorCode.rebalance_in_progress)

    def leave(self, members: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Handle LeaveGroup, and return an error code per member.

        Args:
            members: member id and instance id; a static member may be removed by its instance id alone.
        """
        codes = [self._leave(member_id, instance_id) for member_id, instance_id in members]
        if ErrorCode.none in codes and not self.is_empty:
            # As in Kafka, even if all of them were only pending joins.
            self._rebalance.begin_or_complete("members leave")
        return codes

    def _leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if not member_id:
            member_id = self.members.static_id(instance_id) or ""
        if member_id not in self.members.pending_joins:
            try:
                self.members.identified(member_id, instance_id)
            except ApiError as error:
                return error.code
        self.members.remove(member_id)
        return ErrorCode.none

    def _expire_session(self, member_id: str) -> None:
        member = self.members.get(member_id)
        # A member that waits for others cannot send heartbeats; a new one has to ask again.
        if member is not None and member.is_waiting and not member.is_new:
            return
        self.members.remove(member_id)
        if member is None:
            self._rebalance.complete_if_all_joined()
        else:
            self._rebalance.begin_or_complete(f"the session of member {member_id} is over")

    def close(self) -> None:
        """Cancel timers and pending requests, because the group is deleted."""
        for member_id in [*self.members, *self.members.pending_joins]:
            self.members.remove(member_id)
        self._rebalance.close()

    # Checks

    def check_member(self, identity: MemberIdentity) -> ClassicGroupMember:
        """Return a member after checking that it belongs to the current generation.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
        """
        member = self.members.identified(identity.member_id, identity.instance_id)
        if identity.generation != self.generation.number:
            raise ApiError(ErrorCode.illegal_generation)
        return member

    def check_transactional_commit(self, identity: MemberIdentity, partitions: Iterable[TopicPartition]) -> None:
        """Check that a member may commit offsets in a transaction.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
        """
        self.check_member(identity)

    def check_commit(self, identity: MemberIdentity, version: int, partitions: Iterable[TopicPartition]) -> None:
        """Check that a member may commit offsets, and extend its session.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION or REBALANCE_IN_PROGRESS.
        """
        member = self.check_member(identity)
        if self.state == ClassicGroupState.COMPLETING:
            raise ApiError(ErrorCode.rebalance_in_progress)
        self.members.extend_session(member)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Accept every client: only members of consumer groups identify themselves."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members subscribe to a topic, as far as the broker knows."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            return False
        try:
            protocol = self.generation.protocol or ""
            return any(topic in _subscribed(member.protocols[protocol]) for member in self.members.values())
        except (MalformedMessageError, KeyError):
            return True

    def retained_from(self, offset: CommittedOffset) -> int | None:
        """Return the start of an offset's retention time.

        It is in ms since the epoch; None if the offset is retained for now.
        """
        if self.protocol_type is None or self.generation.changed_ms < 0:
            return offset.committed_ms
        if self.is_empty:
            return self.generation.changed_ms
        # Members of other protocol types do not reveal their topics.
        is_stable_consumer = self.protocol_type == CONSUMER_PROTOCOL and self.state == ClassicGroupState.STABLE
        return offset.committed_ms if is_stable_consumer else None

    def check_offsets_can_be_deleted(self) -> None:
        """Check that offsets may be removed while the group has members.

        Raises:
            ApiError: NON_EMPTY_GROUP, because the broker does not know the topics of the members.
        """
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL:
            raise ApiError(ErrorCode.non_empty_group)

    # Description

    def description(self) -> Message:
        """Return the group in the form of DescribeGroups."""
        is_stable = self.state == ClassicGroupState.STABLE
        protocol = (self.generation.protocol or "") if is_stable else ""
        return {
            "group_id": self.group_id,
            "group_state": str(self.state),
            "protocol_type": self.protocol_type or "",
            "protocol_data": protocol,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host,
                    "member_metadata": member.subscription(protocol) if is_stable else b"",
                    "member_assignment": member.assignment if is_stable else b"",
                }
                for member in self.members.values()
            ],
        }

    def removals(self) -> list[GroupRecord]:
        """Return the records that remove the group; empty for a group with offsets only."""
        if self.protocol_type is None:
            return []
        return [GroupRecord(RecordKind.GROUP, {"group": self.group_id}, None)]


def _subscribed(metadata: bytes) -> list[str]:
    cursor = Cursor(memoryview(metadata))
    cursor.number(INT16)  # all later versions begin like the first
    topics: list[str] = _subscription.decode(cursor)["topics"]
    return topics
