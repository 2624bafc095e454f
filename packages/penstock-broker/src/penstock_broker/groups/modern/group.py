"""A group with assignment by the broker: heartbeats, the end of members, and commits (Kafka class: ModernGroup).

Not here: the target assignment (consumer/target.py, streams/target.py) and the steps of members towards it
(reconciliation.py).
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from penstock_broker.errors import ApiError
from penstock_broker.groups.context import GroupContext
from penstock_broker.groups.group import Group, MemberIdentity
from penstock_broker.groups.modern.heartbeat import LEAVE_FOR_A_WHILE, ModernHeartbeat
from penstock_broker.groups.modern.member import MemberT
from penstock_broker.groups.modern.members import ModernGroupMembers
from penstock_broker.groups.modern.reconciliation import reconcile
from penstock_broker.groups.modern.records import ModernGroupRecords, TargetT
from penstock_broker.groups.offsets import CommittedOffset, TopicPartition
from penstock_broker.groups.schemas import GroupRecord
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

FIRST_COMMIT_WITH_EPOCHS: Final = 9
"""First version of OffsetCommit for members of groups with epochs."""

RequestT = TypeVar("RequestT", bound=ModernHeartbeat[Any])
"""The heartbeat of one type of groups."""

_log = logging.getLogger(__name__)


class ModernGroup(Group, Generic[MemberT, TargetT, RequestT]):
    """A group with assignment by the broker.

    Args:
        group_id: its name.
        context: its environment.
        session_timeout_ms: time (ms) without a heartbeat after which a member is removed.
        records: builds its records.
        target: the target assignment of a new group.

    Attributes:
        members: its members by id.
    """

    def __init__(
        self,
        group_id: str,
        context: GroupContext,
        session_timeout_ms: int,
        records: ModernGroupRecords[MemberT, TargetT],
        target: TargetT,
    ) -> None:
        self.group_id = group_id
        self.members = ModernGroupMembers[MemberT](group_id, context.timers, session_timeout_ms, self._expire)
        self._context = context
        self._records = records
        self._new_target = target
        self._target = target
        self._seen_topics = -1

    def _load(self, target: TargetT, members: Iterable[MemberT]) -> None:
        """Take over stored members, and start their sessions."""
        self._target = target
        for member in members:
            self.members.put(member)
            self.members.extend_session(member)
            self.members.watch_revocation(member)

    @abstractmethod
    def _update_state(self) -> None:
        """Enter the state that follows from a change of members or of the target."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    # Heartbeats

    def heartbeat(self, request: RequestT) -> Message:
        """Handle a heartbeat and return the response.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID,
                GROUP_MAX_SIZE_REACHED, COORDINATOR_NOT_AVAILABLE, and the errors of one type of groups.
        """
        # One function because all is computed first, then written, then applied: a failed write changes nothing.
        if request.member_epoch < 0:
            return self._leave(request)
        if len(self.members) >= self._context.config.group_max_size and request.member_id not in self.members:
            raise ApiError(ErrorCode.group_max_size_reached, f"the group has {len(self.members)} members")
        replaced = self._released_member(request)
        records = self._added_records(request)
        target = self._target
        if replaced is None:
            before = self._member_before(request)
        else:
            before = replace(replaced, member_id=request.member_id, epoch=0, previous_epoch=0)
            target = target.renamed(replaced.member_id, before.member_id)
            # The removals come first: the client may come back with its old id.
            records += self._records.member_removals(replaced.member_id)
            records.append(self._records.member_target(before.member_id, target.of(before.member_id)))
        member = self._updated(before, request)
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
        return self._response(request, before, reconciled)

    def _added_records(self, request: RequestT) -> list[GroupRecord]:
        """Return the records of the group that a heartbeat adds, beyond members and target."""
        return []

    @abstractmethod
    def _new_member(self, member_id: str) -> MemberT: ...

    @abstractmethod
    def _updated(self, member: MemberT, request: RequestT) -> MemberT:
        """Return a member with the metadata of a heartbeat."""

    def _check_size(self, member: MemberT) -> None:
        """Check that the group has room for the metadata of a member."""

    @abstractmethod
    def _next_target(self, target: TargetT, before: MemberT, member: MemberT, replaced: MemberT | None) -> TargetT:
        """Return the target after a change of a member or of topics."""

    @abstractmethod
    def _response(self, request: RequestT, before: MemberT, member: MemberT) -> Message:
        """Return the response to a heartbeat."""

    def _released_member(self, request: RequestT) -> MemberT | None:
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

    def _member_before(self, request: RequestT) -> MemberT:
        if request.member_epoch == 0 and request.member_id not in self.members:
            return self._new_member(request.member_id)
        member = self.members.identified(request.member_id, request.instance_id)
        member.check_epoch(request)
        return member

    # The end of a member

    def _leave(self, request: RequestT) -> Message:
        member = self.members.identified(request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_FOR_A_WHILE:
            away = replace(member, epoch=LEAVE_FOR_A_WHILE, revoking=frozenset())
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

    def _remove(self, member_id: str) -> None:
        target = self._target_without(member_id)
        changes = self._records.target_changes(self._target, target)
        self._context.log.append([*self._records.member_removals(member_id), *changes])
        self._target = target
        self.members.remove(member_id)
        self._update_state()

    @abstractmethod
    def _target_without(self, member_id: str) -> TargetT:
        """Return the target in the next epoch, without a member."""

    def _expire(self, member_id: str, reason: str) -> None:
        _log.info("group %s: member %s %s and is removed", self.group_id, member_id, reason)
        try:
            self._remove(member_id)
        except ApiError as error:
            _log.warning("group %s: member %s cannot be removed now: %s", self.group_id, member_id, error)
            self.members.extend_session(self.members[member_id])

    def removals(self) -> list[GroupRecord]:
        """Return the records that remove the group."""
        return [] if self._target.epoch == self._new_target.epoch else self._records.removals(self.members)

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
        self, member: MemberT, epoch: int, partitions: Iterable[TopicPartition], code: ErrorCode
    ) -> None:
        """Check that a member owned the partitions in the epoch of its commit (KIP-1251)."""
        if epoch > member.epoch:
            raise ApiError(code, f"member {member.member_id} has epoch {member.epoch}, not {epoch}")
        if epoch == member.epoch:
            return
        for topic, number in partitions:
            since = self._assigned_since(member, topic, number)
            if since is None or epoch < since:
                raise ApiError(code, f"member {member.member_id} did not have {topic}-{number} in epoch {epoch}")

    @abstractmethod
    def _assigned_since(self, member: MemberT, topic: str, number: int) -> int | None:
        """Return the epoch since which a member has a partition, None if it does not."""

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

    def retained_from(self, offset: CommittedOffset) -> int | None:
        """Return the start of an offset's retention time, in ms since the epoch."""
        return offset.committed_ms
