"""A consumer group: heartbeats, the end of members, and commits.

Not here: the target assignment (target.py) and the steps of members towards it (reconciliation.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from penstock_broker.errors import ApiError
from penstock_broker.groups.assignment import NO_PARTITIONS, Assignment, as_messages
from penstock_broker.groups.consumer.heartbeat import LEAVE_FOR_A_WHILE, HeartbeatRequest
from penstock_broker.groups.consumer.member import ConsumerGroupMember
from penstock_broker.groups.consumer.members import ConsumerMembers
from penstock_broker.groups.consumer.reconciliation import reconcile
from penstock_broker.groups.consumer.records import ConsumerGroupRecords, read_records
from penstock_broker.groups.consumer.state import NEXT_STATES, ConsumerGroupState, state_of
from penstock_broker.groups.consumer.target import SubscribedTopics, TargetAssignment, preferred_assignor
from penstock_broker.groups.context import GroupContext
from penstock_broker.groups.group import Group, MemberIdentity
from penstock_broker.groups.offsets import CommittedOffset, TopicPartition
from penstock_broker.groups.schemas import GroupRecord
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

FIRST_COMMIT_WITH_EPOCHS: Final = 9
"""First version of OffsetCommit for members of consumer groups."""

_log = logging.getLogger(__name__)


class ConsumerGroup(Group):
    """A consumer group.

    Args:
        group_id: its name.
        context: its environment.

    Attributes:
        members: its members by id.
    """

    group_type = "consumer"

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self.group_id = group_id
        self.members = ConsumerMembers(group_id, context, self._expire)
        self._context = context
        self._records = ConsumerGroupRecords(group_id)
        self._target = TargetAssignment()
        self._seen_topics = -1
        self._state = ConsumerGroupState.EMPTY

    def load(self, records: Iterable[GroupRecord]) -> None:
        """Load the group from its records, and start the sessions of its members.

        Args:
            records: the last record of each key.
        """
        self._target, members = read_records(records)
        for member in members:
            self.members.put(member)
            self.members.extend_session(member)
            self.members.watch_revocation(member)
        self._state = state_of(members, self._target)

    @property
    def protocol_type(self) -> str:
        """Purpose of the group."""
        return "consumer"

    @property
    def state(self) -> ConsumerGroupState:
        """State of the group, after its last change."""
        return self._state

    def _update_state(self) -> None:
        """Enter the state that follows from a change of members or of the target."""
        state = state_of(self.members.values(), self._target)
        assert state in (self._state, *NEXT_STATES[self._state]), f"a group that is {self._state} cannot become {state}"
        self._state = state

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    # Heartbeats

    def heartbeat(self, request: HeartbeatRequest) -> Message:
        """Handle ConsumerGroupHeartbeat and return the response.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID,
                GROUP_MAX_SIZE_REACHED, INVALID_REGULAR_EXPRESSION or COORDINATOR_NOT_AVAILABLE.
        """
        if request.member_epoch < 0:
            return self._leave(request)
        if len(self.members) >= self._context.config.group_max_size and request.member_id not in self.members:
            raise ApiError(ErrorCode.group_max_size_reached, f"the group has {len(self.members)} members")
        replaced = self._released_member(request)
        records: list[GroupRecord] = []
        target = self._target
        if replaced is None:
            before = self._member_before(request)
        else:
            before = replace(replaced, member_id=request.member_id, epoch=0, previous_epoch=0)
            target = target.renamed(replaced.member_id, before.member_id)
            # The removals come first: the client may come back with its old id.
            records += self._records.member_removals(replaced.member_id)
            records.append(self._records.member_target(before.member_id, target.of(before.member_id)))
        member = before.updated(request)
        if member != before or replaced is not None or member.member_id not in self.members:
            self._check_size(member)
            records.append(self._records.member(member))
        next_target = self._next_target(target, before, member, replaced)
        records += self._records.target_changes(target, next_target)
        reconciled = reconcile(member, next_target, request.owned, self.members.owners)
        if reconciled != member or replaced is not None:
            records.append(self._records.current(reconciled))
        if records:
            self._context.log.append(records)
        if replaced is not None:
            self.members.remove(replaced.member_id)
        self._target = next_target
        self._seen_topics = self._context.topics.revision
        self.members.put(reconciled)
        self.members.extend_session(reconciled)
        if reconciled != member:
            self.members.watch_revocation(reconciled)
        if records:  # else neither members nor the target have changed
            self._update_state()
        has_news = request.is_full or reconciled.assigned != before.assigned
        return {
            "error_code": ErrorCode.none,
            "member_id": reconciled.member_id,
            "member_epoch": reconciled.epoch,
            "heartbeat_interval": self._context.config.group_consumer_heartbeat_interval_ms,
            "assignment": {"topic_partitions": as_messages(reconciled.assigned)} if has_news else None,
        }

    def _released_member(self, request: HeartbeatRequest) -> ConsumerGroupMember | None:
        """Return the static member that a returning client replaces, or None.

        Raises:
            ApiError: UNRELEASED_INSTANCE_ID, because the member has not left.
        """
        known_id = self.members.static_id(request.instance_id)
        if request.member_epoch != 0 or known_id is None:
            return None
        known = self.members[known_id]
        if known.epoch != LEAVE_FOR_A_WHILE:
            raise ApiError(
                ErrorCode.unreleased_instance_id,
                f"the instance id {request.instance_id} is that of member {known_id}, which has not left",
            )
        return known

    def _member_before(self, request: HeartbeatRequest) -> ConsumerGroupMember:
        if request.member_epoch == 0 and request.member_id not in self.members:
            return ConsumerGroupMember(request.member_id)
        member = self.members.identified(request.member_id, request.instance_id)
        member.check_epoch(request)
        return member

    def _check_size(self, member: ConsumerGroupMember) -> None:
        others = (each for each in self.members.values() if each.member_id != member.member_id)
        size = sum(len(name) for each in (member, *others) for name in each.topic_names)
        if size > self._context.config.group_max_bytes:
            raise ApiError(ErrorCode.group_max_size_reached, "the subscriptions are larger than group_max_bytes")

    def _next_target(
        self,
        target: TargetAssignment,
        before: ConsumerGroupMember,
        member: ConsumerGroupMember,
        replaced: ConsumerGroupMember | None,
    ) -> TargetAssignment:
        """Return the target after a change of a member or of topics."""
        has_changed = not member.has_subscription_of(before)
        if not (has_changed or target.is_outdated or self._seen_topics != self._context.topics.revision):
            return target
        present = {**self.members, member.member_id: member}.values()
        members = [each for each in present if each is not replaced]
        topics = SubscribedTopics(members, self._context.topics)
        if has_changed or topics.metadata_hash != target.metadata_hash:
            target = target.next_epoch(topics)
        return target.assigned(members, topics) if target.is_outdated else target

    # The end of a member

    def _leave(self, request: HeartbeatRequest) -> Message:
        member = self.members.identified(request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_FOR_A_WHILE:
            away = replace(member, epoch=LEAVE_FOR_A_WHILE, revoking=NO_PARTITIONS)
            self._context.log.append([self._records.current(away)])
            self.members.put(away)
            self._update_state()
        else:
            self._remove(member.member_id)
        return {
            "error_code": ErrorCode.none,
            "member_id": member.member_id,
            "member_epoch": request.member_epoch,
        }

    def leave(self, members: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Remove static members by instance id, as an administrator does; return their error codes.

        Args:
            members: member id, which must be empty, and instance id.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE.
        """
        codes: list[ErrorCode] = []
        for member_id, instance_id in members:
            known_id = self.members.static_id(instance_id)
            if member_id or known_id is None:
                codes.append(ErrorCode.unknown_member_id)
            else:
                self._remove(known_id)
                codes.append(ErrorCode.none)
        return codes

    def _remove(self, member_id: str) -> None:
        left = [member for member in self.members.values() if member.member_id != member_id]
        target = self._target.without(member_id).next_epoch(SubscribedTopics(left, self._context.topics))
        changes = self._records.target_changes(self._target, target)
        self._context.log.append([*self._records.member_removals(member_id), *changes])
        self._target = target
        self.members.remove(member_id)
        self._update_state()

    def _expire(self, member_id: str, reason: str) -> None:
        _log.info("group %s: member %s %s and is removed", self.group_id, member_id, reason)
        try:
            self._remove(member_id)
        except ApiError as error:
            _log.warning("group %s: member %s cannot be removed now: %s", self.group_id, member_id, error)
            self.members.extend_session(self.members[member_id])

    def close(self) -> None:
        """Cancel timers, because the group is deleted."""
        for member_id in tuple(self.members):
            self.members.remove(member_id)

    # Offsets

    def check_commit(self, identity: MemberIdentity, version: int, partitions: Iterable[TopicPartition]) -> None:
        """Check that a member may commit offsets.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, or UNSUPPORTED_VERSION for a version without epochs.
        """
        member = self.members.identified(identity.member_id, None)
        if version < FIRST_COMMIT_WITH_EPOCHS:
            raise ApiError(ErrorCode.unsupported_version)
        self._check_commit_epoch(member, identity.generation, partitions, ErrorCode.stale_member_epoch)

    def check_transactional_commit(self, identity: MemberIdentity, partitions: Iterable[TopicPartition]) -> None:
        """Check that a member may commit offsets in a transaction.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION.
        """
        member = self.members.identified(identity.member_id, None)
        self._check_commit_epoch(member, identity.generation, partitions, ErrorCode.illegal_generation)

    def _check_commit_epoch(
        self, member: ConsumerGroupMember, epoch: int, partitions: Iterable[TopicPartition], code: ErrorCode
    ) -> None:
        """Check that a member owned the partitions in the epoch of its commit (KIP-1251)."""
        if epoch > member.epoch:
            raise ApiError(code, f"member {member.member_id} has epoch {member.epoch}, not {epoch}")
        if epoch == member.epoch:
            return
        for topic, number in partitions:
            since = member.since.get((self._context.topics.by_name(topic).topic_id, number))
            if since is None or epoch < since:
                raise ApiError(code, f"member {member.member_id} did not have {topic}-{number} in epoch {epoch}")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check that a client may fetch offsets.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH.
        """
        if member_id is None and member_epoch < 0:
            return
        expected = self.members.identified(member_id or "", None).epoch
        if member_epoch != expected:
            raise ApiError(ErrorCode.stale_member_epoch, f"member {member_id} has epoch {expected}, not {member_epoch}")

    def check_offsets_can_be_deleted(self) -> None:
        """Accept the removal of offsets: the broker knows the topics in use."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members subscribe to a topic."""
        return any(member.subscribed({topic}) for member in self.members.values())

    def retained_from(self, offset: CommittedOffset) -> int | None:
        """Return the start of an offset's retention time, in ms since the epoch."""
        return offset.committed_ms

    # Description

    def description(self) -> Message:
        """Return the group in the form of ConsumerGroupDescribe."""
        return {
            "group_id": self.group_id,
            "group_state": str(self.state),
            "group_epoch": self._target.epoch,
            "assignment_epoch": self._target.assignment_epoch,
            "assignor_name": preferred_assignor(self.members.values()),
            "members": [self._member_description(member) for member in self.members.values()],
        }

    def _member_description(self, member: ConsumerGroupMember) -> Message:
        return {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "member_epoch": member.epoch,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": list(member.topic_names),
            "subscribed_topic_regex": member.topic_regex,
            "assignment": self._named(member.assigned),
            "target_assignment": self._named(self._target.of(member.member_id)),
            "member_type": 1,
        }

    def _named(self, assignment: Assignment) -> Message:
        names = {topic.topic_id: topic.name for topic in self._context.topics.all()}
        # A deleted topic has no name any more.
        found = [each for each in as_messages(assignment) if each["topic_id"] in names]
        return {"topic_partitions": [each | {"topic_name": names[each["topic_id"]]} for each in found]}

    def removals(self) -> list[GroupRecord]:
        """Return the records that remove the group."""
        return [] if self._target.epoch == 0 else self._records.removals(self.members)
