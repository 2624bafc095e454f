"""A group whose assignment the broker makes: the consumer protocol (KIP-848; Kafka class: ConsumerGroup).

Members send heartbeats that say what they subscribe to and own; the answers say what to own from now on. The group's
epoch counts changes of members and subscriptions. With each one a target assignment is made, and the members move
towards it one by one: a member first gives up what is no longer its own, and then gets what others have given up. So no
partition is ever owned twice, and members that keep their partitions never stop.

Rules: what a heartbeat changes is written as one batch before it is made. Topics that appear, grow or go are noticed at
the next heartbeat. Times are in ms.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from crc32c import crc32c
from kio.schema.errors import ErrorCode

from penstock.broker.errors import ApiError
from penstock.broker.groups.assignors import ASSIGNORS, Assignment, PartitionId, Subscriber
from penstock.broker.groups.context import GroupContext
from penstock.broker.groups.group import Group, MemberIdentity
from penstock.broker.groups.offsets import CommittedOffset, TopicPartition
from penstock.broker.groups.patterns import check_pattern, matching
from penstock.broker.groups.schemas import GroupRecord, RecordKind
from penstock.wire.codec import Message

LEAVE: Final = -1
"""The epoch with which a member leaves."""
LEAVE_FOR_A_WHILE: Final = -2
"""The epoch with which a static member leaves that will come back."""

FIRST_COMMIT_WITH_EPOCHS: Final = 9
"""The version of OffsetCommit from which members of consumer groups may use it."""

_NOTHING: Final[Assignment] = frozenset()

_log = logging.getLogger(__name__)


class ConsumerState(StrEnum):
    """The states of a group, by the names that tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(IntEnum):
    """How far a member is on its way to the target, by the numbers in its records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class HeartbeatRequest(NamedTuple):
    """A heartbeat; None stands for what did not change since the last one.

    Args:
        member_id: the member.
        member_epoch: the epoch that it knows; 0 to join, LEAVE or LEAVE_FOR_A_WHILE.
        instance_id: name of a static member; None for others.
        rack_id: where it is.
        rebalance_timeout_ms: how long it may take to give partitions up.
        client_id: the name that the client gives itself.
        client_host: its address.
        topic_names: what it reads.
        topic_regex: a pattern of what it reads; empty for none any more.
        assignor: the assignor that it wants.
        owned: the partitions that it owns.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...] | None
    topic_regex: str | None
    assignor: str | None
    owned: Assignment | None

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as a client does that joins or has met an error."""
        has_all = not (self.rebalance_timeout_ms is None or self.topic_names is None or self.owned is None)
        return self.member_epoch == 0 or has_all


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member: what it wants, and what it has.

    Args:
        assigned: the partitions that it may own.
        revoking: the partitions that it must give up and may still own.
        since: the epoch from which on it has had each of these partitions.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = _NOTHING
    revoking: Assignment = _NOTHING
    since: Mapping[PartitionId, int] = field(default_factory=dict)

    def with_epoch(self, epoch: int) -> ConsumerMember:
        """Return the member in an epoch."""
        return self if epoch == self.epoch else replace(self, epoch=epoch, previous_epoch=self.epoch)


@dataclass(frozen=True, slots=True)
class _Target:
    """What the group is on its way to: the epoch of its members and topics, and the assignment made for one of them."""

    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    assignments: Mapping[str, Assignment] = field(default_factory=dict)


class ConsumerGroup(Group):
    """A consumer group.

    Args:
        group_id: its name.
        context: its surroundings.

    Attributes:
        members: its members by id.
    """

    group_type = "consumer"

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self.group_id = group_id
        self.protocol_type = "consumer"
        self.members: dict[str, ConsumerMember] = {}
        self._context = context
        self._target = _Target()
        self._static_ids: dict[str, str] = {}
        self._owners: dict[PartitionId, str] = {}
        self._seen_topics = -1

    def load(self, records: Iterable[GroupRecord]) -> None:
        """Take what the topic has of the group; the sessions of its members begin now.

        Args:
            records: the last record of each key.
        """
        members: dict[str, ConsumerMember] = {}
        assignments: dict[str, Assignment] = {}
        for kind, key, value in sorted(records, key=lambda record: record.kind):
            assert value is not None  # the log gives the last value of each key that has one
            member_id = key.get("member_id", "")
            match kind:
                case RecordKind.CONSUMER_GROUP:
                    self._target = replace(
                        self._target, epoch=value["epoch"], metadata_hash=value.get("metadata_hash", 0)
                    )
                case RecordKind.CONSUMER_GROUP_MEMBER:
                    members[member_id] = ConsumerMember(
                        member_id,
                        value["instance_id"],
                        value["rack_id"],
                        value["client_id"],
                        value["client_host"],
                        tuple(value["subscribed_topic_names"]),
                        value["subscribed_topic_regex"],
                        value["rebalance_timeout"],
                        value["server_assignor"],
                    )
                case RecordKind.CONSUMER_GROUP_TARGET:
                    self._target = replace(self._target, assignment_epoch=value["assignment_epoch"])
                case RecordKind.CONSUMER_GROUP_TARGET_MEMBER:
                    assignments[member_id] = as_assignment(value["topic_partitions"])
                case RecordKind.CONSUMER_GROUP_CURRENT_MEMBER if member_id in members:
                    listed = [*value["assigned_partitions"], *value["partitions_pending_revocation"]]
                    members[member_id] = replace(
                        members[member_id],
                        epoch=value["member_epoch"],
                        previous_epoch=value["previous_member_epoch"],
                        state=MemberState(value["state"]),
                        assigned=as_assignment(value["assigned_partitions"]),
                        revoking=as_assignment(value["partitions_pending_revocation"]),
                        since=_since(listed, value["member_epoch"]),
                    )
        self._target = replace(self._target, assignments=assignments)
        for member in members.values():
            self._set_member(member)
            self._extend_session(member)
            self._watch_revocation(member)

    @property
    def state(self) -> ConsumerState:
        """Whether the members have reached their target assignment."""
        target = self._target
        if not self.members:
            return ConsumerState.EMPTY
        if target.epoch > target.assignment_epoch:
            return ConsumerState.ASSIGNING
        if all(_is_at(member, target.assignment_epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    @property
    def state_name(self) -> str:
        """The name of its state, as tools show it."""
        return str(self.state)

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
        before = self._member_before(request) if replaced is None else _under_new_id(replaced, request.member_id)
        member = _updated(before, request)
        is_new_topic_list = self._seen_topics != self._context.topics.revision
        target = self._target
        records: list[GroupRecord] = []
        if replaced is not None:
            records += self._member_removals(replaced.member_id)
            target = replace(target, assignments=_renamed(target.assignments, replaced.member_id, member.member_id))
            records.append(self._target_record(member.member_id, target.assignments.get(member.member_id, _NOTHING)))
        if member != before or replaced is not None or member.member_id not in self.members:
            self._check_size(member)
            records.append(self._member_record(member))
        has_changed = (member.topic_names, member.topic_regex) != (before.topic_names, before.topic_regex)
        if has_changed or is_new_topic_list or target.epoch > target.assignment_epoch:
            target = self._next_target(target, member, replaced, has_changed, records)
        reconciled = self._reconciled(member, target, request.owned)
        if reconciled != member or replaced is not None:
            records.append(self._current_record(reconciled))
        if records:
            self._context.log.append(records)
        if replaced is not None:
            self._drop_member(replaced.member_id)
        self._target = target
        self._seen_topics = self._context.topics.revision
        self._set_member(reconciled)
        self._extend_session(reconciled)
        if reconciled != member:
            self._watch_revocation(reconciled)
        response: Message = {
            "error_code": ErrorCode.none,
            "member_id": reconciled.member_id,
            "member_epoch": reconciled.epoch,
            "heartbeat_interval": self._context.config.group_consumer_heartbeat_interval_ms,
            "assignment": None,
        }
        if request.is_full or reconciled.assigned != before.assigned:
            response["assignment"] = {"topic_partitions": as_messages(reconciled.assigned)}
        return response

    def _released_member(self, request: HeartbeatRequest) -> ConsumerMember | None:
        """Return the static member in whose place a client comes back; None if it does not.

        Raises:
            ApiError: UNRELEASED_INSTANCE_ID, because the member has not left.
        """
        if request.instance_id is None or request.member_epoch != 0 or request.instance_id not in self._static_ids:
            return None
        known = self.members[self._static_ids[request.instance_id]]
        if known.epoch != LEAVE_FOR_A_WHILE:
            raise ApiError(
                ErrorCode.unreleased_instance_id,
                f"the instance id {request.instance_id} is that of member {known.member_id}, which has not left",
            )
        return known

    def _member_before(self, request: HeartbeatRequest) -> ConsumerMember:
        member = self.members.get(request.member_id)
        if request.member_epoch == 0 and member is None:
            return ConsumerMember(request.member_id)
        if request.instance_id is not None:
            member = self._static_member(request.member_id, request.instance_id)
        if member is None:
            raise ApiError(ErrorCode.unknown_member_id, f"the group has no member {request.member_id}")
        _check_epoch(member, request)
        return member

    def _static_member(self, member_id: str, instance_id: str) -> ConsumerMember:
        known = self._static_ids.get(instance_id)
        if known is None:
            raise ApiError(ErrorCode.unknown_member_id, f"the group has no static member {instance_id}")
        if known != member_id:
            raise ApiError(
                ErrorCode.fenced_instance_id, f"static member {instance_id} is member {known}, not {member_id}"
            )
        return self.members[known]

    def _check_size(self, member: ConsumerMember) -> None:
        others = (each for each in self.members.values() if each.member_id != member.member_id)
        size = sum(len(name) for each in (member, *others) for name in each.topic_names)
        if size > self._context.config.group_max_bytes:
            raise ApiError(ErrorCode.group_max_size_reached, "the subscriptions are larger than group_max_bytes")

    # The target

    def _next_target(
        self,
        target: _Target,
        member: ConsumerMember,
        replaced: ConsumerMember | None,
        has_changed: bool,
        records: list[GroupRecord],
    ) -> _Target:
        """Return the target after a change of a member or of topics, and add its records."""
        members = {**self.members, member.member_id: member}
        if replaced is not None and replaced.member_id != member.member_id:
            del members[replaced.member_id]
        topics = self._subscribed_topics(members.values())
        partitions = self._partitions(topics.values())
        metadata_hash = _hash(partitions)
        if has_changed or metadata_hash != target.metadata_hash:
            target = replace(target, epoch=target.epoch + 1, metadata_hash=metadata_hash)
            records.append(self._group_record(target))
        if target.epoch == target.assignment_epoch:
            return target
        subscribers = {
            member_id: Subscriber(topics[member_id], each.instance_id, target.assignments.get(member_id, _NOTHING))
            for member_id, each in members.items()
        }
        assignments = ASSIGNORS[_preferred_assignor(members.values())](subscribers, partitions)
        for member_id, assignment in assignments.items():
            if target.assignments.get(member_id) != assignment:
                records.append(self._target_record(member_id, assignment))
        key = {"group": self.group_id}
        value = {"assignment_epoch": target.epoch}
        records.append(GroupRecord(RecordKind.CONSUMER_GROUP_TARGET, key, value))
        return replace(target, assignment_epoch=target.epoch, assignments=assignments)

    def _subscribed_topics(self, members: Iterable[ConsumerMember]) -> dict[str, set[uuid.UUID]]:
        """Return the ids of the topics that each member reads, by member id."""
        ids = {topic.name: topic.topic_id for topic in self._context.topics.all()}
        return {member.member_id: {ids[name] for name in _topic_names(member, ids)} for member in members}

    def _partitions(self, topics: Iterable[set[uuid.UUID]]) -> dict[uuid.UUID, int]:
        return {each: len(self._context.topics.by_id(each).partitions) for each in sorted(set().union(*topics))}

    # The way of a member to its target

    def _reconciled(self, member: ConsumerMember, target: _Target, owned: Assignment | None) -> ConsumerMember:
        """Return a member after its next step towards its target assignment."""
        if _is_at(member, target.assignment_epoch):
            return member
        epoch = member.epoch
        if member.state == MemberState.UNREVOKED_PARTITIONS:
            if owned is None or owned & member.revoking:
                return member
            epoch += 1
        wanted = target.assignments.get(member.member_id, _NOTHING)
        kept = member.assigned & wanted
        revoking = member.assigned - wanted
        if revoking and (owned is None or owned & revoking):
            state = MemberState.UNREVOKED_PARTITIONS
            since = {partition: member.since[partition] for partition in member.assigned}
            return replace(member.with_epoch(epoch), state=state, assigned=kept, revoking=revoking, since=since)
        missing = wanted - kept
        unreleased = {partition for partition in missing if partition in self._owners}
        added = missing - unreleased
        return replace(
            member.with_epoch(target.assignment_epoch),
            state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
            assigned=kept | added,
            revoking=_NOTHING,
            since={
                **{partition: member.since[partition] for partition in kept},
                **dict.fromkeys(added, target.assignment_epoch),
            },
        )

    def _watch_revocation(self, member: ConsumerMember) -> None:
        key = ("revocation", self.group_id, member.member_id)
        if member.state == MemberState.UNREVOKED_PARTITIONS:
            self._context.timers.schedule(
                key, member.rebalance_timeout_ms, lambda: self._expire_revocation(member.member_id, member.epoch)
            )
        else:
            self._context.timers.cancel(key)

    def _expire_revocation(self, member_id: str, epoch: int) -> None:
        member = self.members.get(member_id)
        if member is not None and member.epoch == epoch:
            self._expire(member_id, "did not give up its partitions in time")

    # The end of a member

    def _leave(self, request: HeartbeatRequest) -> Message:
        if request.instance_id is not None:
            member = self._static_member(request.member_id, request.instance_id)
        elif request.member_id in self.members:
            member = self.members[request.member_id]
        else:
            raise ApiError(ErrorCode.unknown_member_id, f"the group has no member {request.member_id}")
        if request.member_epoch == LEAVE_FOR_A_WHILE:
            away = replace(member, epoch=LEAVE_FOR_A_WHILE, revoking=_NOTHING)
            self._context.log.append([self._current_record(away)])
            self._set_member(away)
        else:
            self._remove(member.member_id)
        return {
            "error_code": ErrorCode.none,
            "member_id": member.member_id,
            "member_epoch": request.member_epoch,
        }

    def leave(self, members: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Remove static members by their instance ids, as an administrator does; return a code for each.

        Args:
            members: member id, which must be empty, and instance id.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE.
        """
        codes: list[ErrorCode] = []
        for member_id, instance_id in members:
            if member_id or instance_id not in self._static_ids:
                codes.append(ErrorCode.unknown_member_id)
            else:
                self._remove(self._static_ids[instance_id])
                codes.append(ErrorCode.none)
        return codes

    def _remove(self, member_id: str) -> None:
        left = [member for member in self.members.values() if member.member_id != member_id]
        target = replace(
            self._target,
            epoch=self._target.epoch + 1,
            metadata_hash=_hash(self._partitions(self._subscribed_topics(left).values())),
            assignments={name: given for name, given in self._target.assignments.items() if name != member_id},
        )
        self._context.log.append([*self._member_removals(member_id), self._group_record(target)])
        self._target = target
        self._drop_member(member_id)

    def _extend_session(self, member: ConsumerMember) -> None:
        self._context.timers.schedule(
            ("session", self.group_id, member.member_id),
            self._context.config.group_consumer_session_timeout_ms,
            lambda: self._expire(member.member_id, "sent no heartbeat in its session"),
        )

    def _expire(self, member_id: str, reason: str) -> None:
        member = self.members[member_id]
        _log.info("group %s: member %s %s and is removed", self.group_id, member_id, reason)
        try:
            self._remove(member_id)
        except ApiError as error:
            _log.warning("group %s: member %s cannot be removed now: %s", self.group_id, member_id, error)
            self._extend_session(member)

    def _set_member(self, member: ConsumerMember) -> None:
        self._forget_ownership(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id
        self._owners.update(dict.fromkeys(member.assigned | member.revoking, member.member_id))

    def _forget_ownership(self, member_id: str) -> None:
        known = self.members.get(member_id)
        if known is not None:
            for partition in known.assigned | known.revoking:
                if self._owners.get(partition) == member_id:
                    del self._owners[partition]

    def _drop_member(self, member_id: str) -> None:
        self._forget_ownership(member_id)
        member = self.members.pop(member_id)
        if member.instance_id is not None:
            del self._static_ids[member.instance_id]
        for kind in ("session", "revocation"):
            self._context.timers.cancel((kind, self.group_id, member_id))

    def close(self) -> None:
        """Drop what is due, because the group is deleted."""
        for member_id in tuple(self.members):
            self._drop_member(member_id)

    # Offsets

    def check_commit(self, identity: MemberIdentity, version: int, partitions: Iterable[TopicPartition]) -> None:
        """Check that a client may commit offsets.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, or UNSUPPORTED_VERSION for a version without epochs.
        """
        if identity.generation < 0 and not self.members:
            return
        self._check_known(identity.member_id)
        if version < FIRST_COMMIT_WITH_EPOCHS:
            raise ApiError(ErrorCode.unsupported_version)
        self._check_commit_epoch(identity, partitions, ErrorCode.stale_member_epoch)

    def check_transactional_commit(self, identity: MemberIdentity, partitions: Iterable[TopicPartition]) -> None:
        """Check that a client may commit offsets in a transaction; older ones do not say who they are.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION.
        """
        if not identity.is_given or (identity.generation < 0 and not self.members):
            return
        self._check_known(identity.member_id)
        self._check_commit_epoch(identity, partitions, ErrorCode.illegal_generation)

    def _check_commit_epoch(
        self, identity: MemberIdentity, partitions: Iterable[TopicPartition], code: ErrorCode
    ) -> None:
        """Check that a commit is of the member's epoch, or of an earlier one in which it had the partitions already
        (KIP-1251)."""
        member, epoch = self.members[identity.member_id], identity.generation
        if epoch > member.epoch:
            raise ApiError(code, f"member {member.member_id} has epoch {member.epoch}, not {epoch}")
        if epoch == member.epoch:
            return
        for topic, number in partitions:
            since = member.since.get((self._context.topics.by_name(topic).topic_id, number))
            if since is None or epoch < since:
                raise ApiError(code, f"member {member.member_id} did not have {topic}-{number} in epoch {epoch}")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check that a client may read offsets.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH.
        """
        if member_id is None and member_epoch < 0:
            return
        self._check_known(member_id or "")
        expected = self.members[member_id or ""].epoch
        if member_epoch != expected:
            raise ApiError(ErrorCode.stale_member_epoch, f"member {member_id} has epoch {expected}, not {member_epoch}")

    def _check_known(self, member_id: str) -> None:
        if member_id not in self.members:
            raise ApiError(ErrorCode.unknown_member_id, f"the group has no member {member_id!r}")

    def check_offsets_can_be_deleted(self) -> None:
        """Accept the removal of offsets: the broker knows which topics are in use."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members read a topic."""
        return any(_topic_names(member, {topic: None}) for member in self.members.values())

    def retained_from(self, offset: CommittedOffset) -> int | None:
        """Return from when on the retention time of an offset counts, in ms since the epoch."""
        return offset.committed_ms

    # Description

    def description(self) -> Message:
        """Return the group as ConsumerGroupDescribe shows it."""
        return {
            "group_id": self.group_id,
            "group_state": self.state_name,
            "group_epoch": self._target.epoch,
            "assignment_epoch": self._target.assignment_epoch,
            "assignor_name": _preferred_assignor(self.members.values()),
            "members": [self._member_description(member) for member in self.members.values()],
        }

    def _member_description(self, member: ConsumerMember) -> Message:
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
            "target_assignment": self._named(self._target.assignments.get(member.member_id, _NOTHING)),
            "member_type": 1,
        }

    def _named(self, assignment: Assignment) -> Message:
        names = {topic.topic_id: topic.name for topic in self._context.topics.all()}
        # A topic that was deleted has no name any more.
        found = [each for each in as_messages(assignment) if each["topic_id"] in names]
        return {"topic_partitions": [each | {"topic_name": names[each["topic_id"]]} for each in found]}

    # Records

    def removals(self) -> list[GroupRecord]:
        """Return the records that remove the group."""
        if self._target.epoch == 0:
            return []
        key = {"group": self.group_id}
        of_members = [record for member_id in self.members for record in self._member_removals(member_id)]
        kinds = (RecordKind.CONSUMER_GROUP_TARGET, RecordKind.CONSUMER_GROUP)
        return [*of_members, *(GroupRecord(kind, key, None) for kind in kinds)]

    def _member_removals(self, member_id: str) -> list[GroupRecord]:
        kinds = (
            RecordKind.CONSUMER_GROUP_CURRENT_MEMBER,
            RecordKind.CONSUMER_GROUP_TARGET_MEMBER,
            RecordKind.CONSUMER_GROUP_MEMBER,
        )
        return [GroupRecord(kind, self._member_key(member_id), None) for kind in kinds]

    def _member_key(self, member_id: str) -> Message:
        return {"group": self.group_id, "member_id": member_id}

    def _group_record(self, target: _Target) -> GroupRecord:
        value = {"epoch": target.epoch, "metadata_hash": target.metadata_hash}
        return GroupRecord(RecordKind.CONSUMER_GROUP, {"group": self.group_id}, value)

    def _member_record(self, member: ConsumerMember) -> GroupRecord:
        value: Message = {
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": list(member.topic_names),
            "subscribed_topic_regex": member.topic_regex,
            "rebalance_timeout": member.rebalance_timeout_ms,
            "server_assignor": member.assignor,
        }
        return GroupRecord(RecordKind.CONSUMER_GROUP_MEMBER, self._member_key(member.member_id), value)

    def _target_record(self, member_id: str, assignment: Assignment) -> GroupRecord:
        value = {"topic_partitions": as_messages(assignment)}
        return GroupRecord(RecordKind.CONSUMER_GROUP_TARGET_MEMBER, self._member_key(member_id), value)

    def _current_record(self, member: ConsumerMember) -> GroupRecord:
        value = {
            "member_epoch": member.epoch,
            "previous_member_epoch": member.previous_epoch,
            "state": member.state,
            "assigned_partitions": _with_since(member.assigned, member.since),
            "partitions_pending_revocation": _with_since(member.revoking, member.since),
        }
        return GroupRecord(RecordKind.CONSUMER_GROUP_CURRENT_MEMBER, self._member_key(member.member_id), value)


def check_request(request: HeartbeatRequest, version: int) -> None:
    """Check the fields of a heartbeat.

    Raises:
        ApiError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR or INVALID_REGULAR_EXPRESSION.
    """
    for name, value in (("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise ApiError(ErrorCode.invalid_request, f"{name} can't be empty.")
    if not request.member_id and (version >= 1 or request.member_epoch != 0):
        raise ApiError(ErrorCode.invalid_request, "MemberId can't be empty.")
    if request.member_epoch < LEAVE_FOR_A_WHILE:
        raise ApiError(ErrorCode.invalid_request, f"MemberEpoch is {request.member_epoch}.")
    if request.member_epoch == LEAVE_FOR_A_WHILE and request.instance_id is None:
        raise ApiError(ErrorCode.invalid_request, "InstanceId can't be null.")
    if request.member_epoch == 0:
        if request.rebalance_timeout_ms is None:
            raise ApiError(ErrorCode.invalid_request, "RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise ApiError(ErrorCode.invalid_request, "TopicPartitions must be empty when (re-)joining.")
        if request.topic_names is None and request.topic_regex is None:
            raise ApiError(ErrorCode.invalid_request, "A subscription must be set in first request.")
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise ApiError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
        )
    if request.topic_regex:
        check_pattern(request.topic_regex)


def as_assignment(topics: Iterable[Message]) -> Assignment:
    """Return the partitions that a message lists by topic id."""
    return frozenset((topic["topic_id"], number) for topic in topics for number in topic["partitions"])


def as_messages(assignment: Assignment) -> list[Message]:
    """Return partitions as messages list them, by topic id."""
    numbers: dict[uuid.UUID, list[int]] = {}
    for topic_id, number in sorted(assignment):
        numbers.setdefault(topic_id, []).append(number)
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in numbers.items()]


def _with_since(assignment: Assignment, since: Mapping[PartitionId, int]) -> list[Message]:
    return [
        topic | {"assignment_epochs": [since[topic["topic_id"], number] for number in topic["partitions"]]}
        for topic in as_messages(assignment)
    ]


def _since(topics: Iterable[Message], default: int) -> dict[PartitionId, int]:
    """Return the epochs of partitions in a record; records of older versions of the broker have none."""
    return {
        (topic["topic_id"], number): epoch
        for topic in topics
        for number, epoch in zip(
            topic["partitions"],
            topic.get("assignment_epochs", [default] * len(topic["partitions"])),
            strict=True,
        )
    }


def _preferred_assignor(members: Iterable[ConsumerMember]) -> str:
    """Return the assignor that most members want, or the default."""
    wanted = Counter(member.assignor for member in members if member.assignor is not None)
    return wanted.most_common(1)[0][0] if wanted else next(iter(ASSIGNORS))


def _is_at(member: ConsumerMember, assignment_epoch: int) -> bool:
    return member.state == MemberState.STABLE and member.epoch == assignment_epoch


def _check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
    # With epoch 0 it joins again, because it has lost its place or the answer to its first request.
    if request.member_epoch in (0, member.epoch):
        return
    # The answer that told the member of its new epoch may have been lost.
    is_behind = request.member_epoch == member.previous_epoch and request.member_epoch < member.epoch
    if not is_behind or request.owned is None or not request.owned <= member.assigned:
        raise ApiError(
            ErrorCode.fenced_member_epoch,
            f"member {member.member_id} has epoch {member.epoch}, not {request.member_epoch}; it must give up its "
            "partitions and join again",
        )


def _updated(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    def new(value: str | None, old: str | None) -> str | None:
        return old if value is None else value

    timeout_ms = request.rebalance_timeout_ms
    names = request.topic_names
    return replace(
        member,
        instance_id=new(request.instance_id, member.instance_id),
        rack_id=new(request.rack_id, member.rack_id),
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=member.topic_names if names is None else tuple(sorted(set(names))),
        topic_regex=new(request.topic_regex, member.topic_regex) or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
        assignor=new(request.assignor, member.assignor),
    )


def _under_new_id(member: ConsumerMember, member_id: str) -> ConsumerMember:
    return replace(member, member_id=member_id, epoch=0, previous_epoch=0)


def _renamed(assignments: Mapping[str, Assignment], old: str, new: str) -> dict[str, Assignment]:
    return {new if member_id == old else member_id: given for member_id, given in assignments.items()}


def _topic_names(member: ConsumerMember, names: Iterable[str]) -> set[str]:
    """Return those of the names that a member reads."""
    found = set(member.topic_names).intersection(names)
    return found if member.topic_regex is None else found | matching(member.topic_regex, names)


def _hash(partitions: Mapping[uuid.UUID, int]) -> int:
    return crc32c("".join(f"{topic.hex}:{count};" for topic, count in partitions.items()).encode())
