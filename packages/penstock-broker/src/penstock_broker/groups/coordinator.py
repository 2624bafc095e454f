"""The coordinator of all groups: routing of requests to groups, and expiry of offsets.

Not here: the semantics of requests within a group (classic, consumer, streams) and the storage of offsets (offsets.py).

Rule: the next member of a group without members determines its type; a group with members keeps its type, as in Kafka
with `group.consumer.migration.policy=disabled`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from penstock_broker.common.clock import Clock
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.groups.classic.group import ClassicGroup
from penstock_broker.groups.classic.joining import JoinRequest
from penstock_broker.groups.consumer.group import ConsumerGroup
from penstock_broker.groups.consumer.heartbeat import HeartbeatRequest
from penstock_broker.groups.context import Answer, GroupContext
from penstock_broker.groups.group import Group, MemberIdentity
from penstock_broker.groups.group_log import GroupLog, StoredGroupRecord
from penstock_broker.groups.modern.group import FIRST_COMMIT_WITH_EPOCHS
from penstock_broker.groups.offsets import CommittedOffset, OffsetStore, TopicPartition
from penstock_broker.groups.schemas import GroupRecord, RecordKind
from penstock_broker.groups.streams.group import StreamsGroup
from penstock_broker.groups.streams.heartbeat import StreamsHeartbeatRequest
from penstock_broker.groups.timers import Timers
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.topics import OFFSETS_TOPIC, TopicRegistry
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

_EXPIRY: Final = "expiry of offsets"
_GROUPS_IN_A_STEP: Final = 20

_AnyGroup = TypeVar("_AnyGroup", ClassicGroup, ConsumerGroup, StreamsGroup)
_AnyModernGroup = TypeVar("_AnyModernGroup", ConsumerGroup, StreamsGroup)

_MODERN_GROUPS: Final[Mapping[RecordKind, type[ConsumerGroup | StreamsGroup]]] = {
    RecordKind.CONSUMER_GROUP: ConsumerGroup,
    RecordKind.STREAMS_GROUP: StreamsGroup,
}
"""The types of groups with epochs, by the first kind of their records."""
_KINDS_OF_A_GROUP: Final = 7
"""Kinds of records that one type of groups may have, from its first one."""

_log = logging.getLogger(__name__)


class GroupCoordinator:
    """All groups of the broker.

    Args:
        config: the broker's settings.
        topics: its topics.
        timers: delayed actions.
        clock: the time of commits.

    Attributes:
        offsets: the committed offsets.
        clock: the time of commits.

    Raises:
        BrokerError: the stored groups cannot be read.
    """

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, timers: Timers, clock: Clock) -> None:
        log = GroupLog(topics, clock)
        self.offsets = OffsetStore(log)
        self.clock = clock
        self._context = GroupContext(config, topics, log, timers, clock)
        self._groups: dict[str, Group] = {}
        self._load()
        self._schedule_expiry()

    def _load(self) -> None:
        stored = self._context.log.read()
        by_kind: dict[RecordKind, list[StoredGroupRecord]] = {kind: [] for kind in RecordKind}
        for each in stored.records:
            by_kind[each.record.kind].append(each)
        self.offsets.load(by_kind[RecordKind.OFFSET_COMMIT], stored.pending)
        self._drop_offsets_of_lost_topics()
        for _, record in by_kind[RecordKind.GROUP]:
            group = self._groups[record.key["group"]] = ClassicGroup(record.key["group"], self._context)
            group.generation.load(record.value or {})
        for first_kind, group_type in _MODERN_GROUPS.items():
            records_of: dict[str, list[GroupRecord]] = {}
            for kind in RecordKind:
                if first_kind <= kind < first_kind + _KINDS_OF_A_GROUP:
                    for _, record in by_kind[kind]:
                        records_of.setdefault(record.key["group"], []).append(record)
            for group_id, records in records_of.items():
                modern = self._groups[group_id] = group_type(group_id, self._context)
                modern.load(records)
        for group_id in self.offsets.groups():
            self._groups.setdefault(group_id, ClassicGroup(group_id, self._context))

    def take_over(self, store: MetadataStore) -> None:
        """Migrate the committed offsets from the data directory of an older version.

        Raises:
            BrokerError: they cannot be written; the next start tries again.
        """
        groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for old in store.old_offsets():
            offset = CommittedOffset(old.offset, old.leader_epoch, old.metadata or "", self.clock.milliseconds())
            groups.setdefault(old.group, {})[old.topic, old.partition] = offset
        try:
            for group, offsets in groups.items():
                self._groups.setdefault(group, ClassicGroup(group, self._context))
                self.offsets.commit(group, offsets)
            store.drop_old_offsets()
        except ApiError as error:
            raise BrokerError(f"cannot move committed offsets to {OFFSETS_TOPIC}: {error}") from error

    def _drop_offsets_of_lost_topics(self) -> None:
        # A crash may have happened between the deletion of a topic and of its offsets.
        existing = {topic.name for topic in self._context.topics.all()}
        for topic in self.offsets.topics() - existing:
            self.on_topic_deleted(topic)

    def on_topic_deleted(self, topic: str) -> None:
        """Remove the offsets of all groups for a deleted topic."""
        try:
            self.offsets.delete_topic(topic)
        except ApiError as error:
            # The topic is already deleted; the next start removes them.
            _log.error("the offsets for the deleted topic %r are left: %s", topic, error)

    def _group(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        return group

    def _entered(self, group_id: str, group_type: type[_AnyGroup]) -> _AnyGroup:
        """Return the group of the given type, creating it if necessary.

        It may replace a group of the other type without members.

        Raises:
            ApiError: INCONSISTENT_GROUP_PROTOCOL if the group of the other type has members, POLICY_VIOLATION if there
                are too many groups, COORDINATOR_NOT_AVAILABLE.
        """
        group = self._groups.get(group_id)
        if isinstance(group, group_type):
            return group
        most = self._context.config.max_groups
        if group is None and len(self._groups) >= most:
            raise ApiError(ErrorCode.policy_violation, f"there are {most} groups already (max_groups)")
        if group is not None:
            if not group.is_unused:
                raise ApiError(ErrorCode.inconsistent_group_protocol, f"group {group_id} is a {group.group_type} group")
            removals = group.removals()
            if removals:
                self._context.log.append(removals)
            group.close()
        entered = self._groups[group_id] = group_type(group_id, self._context)
        return entered

    # Members of classic groups

    def join(self, group_id: str, request: JoinRequest, answer: Answer) -> None:
        """Handle a client's request to join a group; the answer may come later.

        Raises:
            ApiError: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, POLICY_VIOLATION if there are too many groups, and the
                errors of ClassicGroup.join.
        """
        _check_group_id(group_id)
        config = self._context.config
        longest = config.group_max_session_timeout_ms
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= longest:
            raise ApiError(ErrorCode.invalid_session_timeout)
        if group_id not in self._groups and request.member_id:
            raise ApiError(ErrorCode.unknown_member_id)
        group = self._entered(group_id, ClassicGroup)
        try:
            group.join(request, answer)
        except ApiError:
            self._drop_unused(group)
            raise

    def _drop_unused(self, group: Group) -> None:
        if group.is_unused and not group.removals() and not self.offsets.has_group(group.group_id):
            del self._groups[group.group_id]

    def leave(self, group_id: str, members: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Remove members by member id and instance id, and return their error codes.

        Raises:
            ApiError: INVALID_GROUP_ID.
        """
        try:
            group = self._groups.get(group_id)
            return (group if isinstance(group, ConsumerGroup) else self.classic_group(group_id)).leave(members)
        except ApiError as error:
            if error.code != ErrorCode.unknown_member_id:
                raise
            return [error.code] * len(members)

    def classic_group(self, group_id: str) -> ClassicGroup:
        """Return the group of a client that claims to be a member.

        Raises:
            ApiError: INVALID_GROUP_ID, or UNKNOWN_MEMBER_ID if the group is missing or a consumer group.
        """
        _check_group_id(group_id)
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise ApiError(ErrorCode.unknown_member_id)
        return group

    # Members of consumer groups and streams groups

    def consumer_heartbeat(self, group_id: str, request: HeartbeatRequest) -> Message:
        """Handle the heartbeat of a member of a consumer group, and return the response.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND if the group is missing or has members of another type, POLICY_VIOLATION if
                there are too many groups, and the errors of ConsumerGroup.heartbeat.
        """
        group = self._modern_group(group_id, ConsumerGroup, request.member_epoch)
        try:
            return group.heartbeat(request)
        except ApiError:
            self._drop_unused(group)
            raise

    def streams_heartbeat(self, group_id: str, request: StreamsHeartbeatRequest) -> Message:
        """Handle the heartbeat of a member of a streams group, and return the response.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND if the group is missing or has members of another type, POLICY_VIOLATION if
                there are too many groups, and the errors of StreamsGroup.heartbeat.
        """
        group = self._modern_group(group_id, StreamsGroup, request.member_epoch)
        try:
            return group.heartbeat(request)
        except ApiError:
            self._drop_unused(group)
            raise

    def _modern_group(self, group_id: str, group_type: type[_AnyModernGroup], member_epoch: int) -> _AnyModernGroup:
        group = self._groups.get(group_id)
        if isinstance(group, group_type):
            return group
        if member_epoch != 0 or (group is not None and not group.is_unused):
            text = f"Group {group_id} is not a {group_type.group_type} group."
            raise ApiError(ErrorCode.group_id_not_found, text)
        return self._entered(group_id, group_type)

    # Offsets

    def check_member(
        self,
        group: str,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        partitions: Iterable[TopicPartition] = (),
    ) -> None:
        """Check that a current member or a non-member sent a transaction's offsets.

        Args:
            group: the group.
            member_id: the member; empty if not given.
            group_instance_id: the static member; None if not given.
            generation: the member's generation or epoch; negative if not given.
            partitions: the partitions of the offsets, which exist.

        Raises:
            ApiError: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or POLICY_VIOLATION
                if there are too many groups.
        """
        _check_group_id(group)
        identity = MemberIdentity(member_id, group_instance_id, generation)
        found = self._group_for_commit(group, generation, ErrorCode.illegal_generation)
        # Older clients do not identify themselves.
        if identity.is_given and not found.is_open_to(identity):
            found.check_transactional_commit(identity, partitions)

    def check_commit(
        self,
        group: str,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        version: int,
        partitions: Iterable[TopicPartition] = (),
    ) -> None:
        """Check that a member or a non-member may commit offsets of a group now.

        Args:
            group: the group.
            member_id: the member; empty if not given.
            group_instance_id: the static member; None if not given.
            generation: the member's generation or epoch; negative if not given.
            version: the version of OffsetCommit.
            partitions: the partitions of the offsets, which exist.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH,
                REBALANCE_IN_PROGRESS, GROUP_ID_NOT_FOUND (ILLEGAL_GENERATION in older versions), or POLICY_VIOLATION if
                there are too many groups.
        """
        identity = MemberIdentity(member_id, group_instance_id, generation)
        knows_missing = version >= FIRST_COMMIT_WITH_EPOCHS
        missing = ErrorCode.group_id_not_found if knows_missing else ErrorCode.illegal_generation
        found = self._group_for_commit(group, generation, missing)
        if not found.is_open_to(identity):
            found.check_commit(identity, version, partitions)

    def _group_for_commit(self, group_id: str, generation: int, missing: ErrorCode) -> Group:
        group = self._groups.get(group_id)
        if group is not None:
            return group
        if generation >= 0:
            raise ApiError(missing, f"group {group_id!r} has no members")
        return self._entered(group_id, ClassicGroup)

    def check_fetch(self, group: str, member_id: str | None, member_epoch: int) -> None:
        """Check that a client may fetch the offsets of a group.

        Args:
            group: the group.
            member_id: the member of a consumer group (KIP-848); None if not given.
            member_epoch: its epoch; negative if not given.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH.
        """
        known = self._groups.get(group)
        if known is not None:
            known.check_fetch(member_id, member_epoch)

    def delete_offsets(self, group_id: str, partitions: Mapping[str, list[int]]) -> dict[TopicPartition, ErrorCode]:
        """Remove offsets of a group, and return the error code of each partition.

        Args:
            group_id: the group.
            partitions: partition numbers by topic.

        Raises:
            ApiError: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP or COORDINATOR_NOT_AVAILABLE.
        """
        _check_group_id(group_id)
        group = self._group(group_id)
        group.check_offsets_can_be_deleted()
        used = {topic for topic in partitions if group.is_subscribed_to(topic)}
        wanted = [(topic, index) for topic, indexes in partitions.items() for index in indexes]
        self.offsets.delete(group_id, [each for each in wanted if each[0] not in used])
        return {each: ErrorCode.group_subscribed_to_topic if each[0] in used else ErrorCode.none for each in wanted}

    def expire_offsets(self) -> None:
        """Remove offsets past their retention time, and unused groups without further offsets.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE; some are left.
        """
        for group in self.groups():
            self._expire_offsets_of(group)

    def _expire_offsets_of(self, group: Group) -> None:
        now = self.clock.milliseconds()
        retention_ms = self._context.config.offsets_retention_minutes * 60_000
        expired: list[TopicPartition] = []
        offsets = self.offsets.of_group(group.group_id)
        for partition, offset in offsets.items():
            retained_from = group.retained_from(offset)
            if retained_from is None:
                continue
            if (
                now >= (retained_from + retention_ms if offset.expires_ms is None else offset.expires_ms)
                and not group.is_subscribed_to(partition[0])
                and not self.offsets.has_pending(group.group_id, *partition)
            ):
                expired.append(partition)
        is_bare = len(expired) == len(offsets) and not self.offsets.has_open_transaction(group.group_id)
        if group.is_unused and is_bare:
            self._delete(group)
        else:
            self.offsets.delete(group.group_id, expired)

    def _schedule_expiry(self) -> None:
        interval_ms = self._context.config.offsets_retention_check_interval_ms
        self._context.timers.schedule(_EXPIRY, interval_ms, lambda: self._expire_step_by_step(self.groups()))

    def _expire_step_by_step(self, groups: list[Group]) -> None:
        """Expire the offsets of some groups; other requests are handled before the next ones."""
        try:
            for group in groups[:_GROUPS_IN_A_STEP]:
                if self._groups.get(group.group_id) is group:
                    self._expire_offsets_of(group)
        except ApiError as error:
            _log.error("expired offsets are left: %s", error)
        rest = groups[_GROUPS_IN_A_STEP:]
        if rest:
            self._context.timers.schedule(_EXPIRY, 0, lambda: self._expire_step_by_step(rest))
        else:
            self._schedule_expiry()

    # Administration

    def groups(self) -> list[Group]:
        """Return all groups."""
        return list(self._groups.values())

    def describe(self, group_id: str) -> Message:
        """Return a group in the form of DescribeGroups.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND.
        """
        group = self._group(group_id)
        if not isinstance(group, ClassicGroup):
            raise ApiError(ErrorCode.group_id_not_found, f"Group {group_id} is not a classic group.")
        return group.description()

    def describe_consumers(self, group_id: str) -> Message:
        """Return a group in the form of ConsumerGroupDescribe.

        Raises:
            ApiError: INVALID_GROUP_ID or GROUP_ID_NOT_FOUND.
        """
        _check_group_id(group_id)
        group = self._group(group_id)
        if not isinstance(group, ConsumerGroup):
            raise ApiError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        return group.description()

    def streams_group(self, group_id: str) -> StreamsGroup:
        """Return a streams group.

        Raises:
            ApiError: INVALID_GROUP_ID or GROUP_ID_NOT_FOUND.
        """
        _check_group_id(group_id)
        group = self._group(group_id)
        if not isinstance(group, StreamsGroup):
            raise ApiError(ErrorCode.group_id_not_found, f"Group {group_id} is not a streams group.")
        return group

    def delete_group(self, group_id: str) -> None:
        """Delete a group without members, and its offsets.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP or COORDINATOR_NOT_AVAILABLE.
        """
        group = self._group(group_id)
        if not group.is_empty:
            raise ApiError(ErrorCode.non_empty_group)
        self._delete(group)

    def _delete(self, group: Group) -> None:
        records = [*self.offsets.removals(group.group_id), *group.removals()]
        if records:
            self._context.log.append(records)
        group.close()
        self.offsets.forget_group(group.group_id)
        del self._groups[group.group_id]


def _check_group_id(group_id: str) -> None:
    # Kafka accepts an empty id only for requests of old clients: to commit, and to describe and delete such groups.
    if not group_id:
        raise ApiError(ErrorCode.invalid_group_id)
