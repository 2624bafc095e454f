"""A consumer group: the subscriptions of its members, and their partitions.

Not here: the target assignment (target.py), and what consumer groups and streams groups have in common (modern).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock_broker.errors import ApiError
from penstock_broker.groups.assignment import Assignment, as_messages
from penstock_broker.groups.consumer.heartbeat import HeartbeatRequest
from penstock_broker.groups.consumer.member import ConsumerGroupMember
from penstock_broker.groups.consumer.records import ConsumerGroupRecords
from penstock_broker.groups.consumer.state import NEXT_STATES, ConsumerGroupState, state_of
from penstock_broker.groups.consumer.target import ConsumerTargetAssignment, SubscribedTopics, preferred_assignor
from penstock_broker.groups.context import GroupContext
from penstock_broker.groups.modern.group import ModernGroup
from penstock_broker.groups.schemas import GroupRecord
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode


class ConsumerGroup(ModernGroup[ConsumerGroupMember, ConsumerTargetAssignment, HeartbeatRequest]):
    """A consumer group.

    Args:
        group_id: its name.
        context: its environment.
    """

    group_type = "consumer"

    def __init__(self, group_id: str, context: GroupContext) -> None:
        session_timeout_ms = context.config.group_consumer_session_timeout_ms
        super().__init__(
            group_id, context, session_timeout_ms, ConsumerGroupRecords(group_id), ConsumerTargetAssignment()
        )
        self._state = ConsumerGroupState.EMPTY

    def load(self, records: Iterable[GroupRecord]) -> None:
        """Load the group from its records, and start the sessions of its members.

        Args:
            records: the last record of each key.
        """
        target, members = self._records.read(records, self._new_target)
        self._load(target, members)
        self._state = state_of(members, target)

    @property
    def protocol_type(self) -> str:
        """Purpose of the group."""
        return "consumer"

    @property
    def state(self) -> ConsumerGroupState:
        """State of the group, after its last change."""
        return self._state

    def _update_state(self) -> None:
        state = state_of(self.members.values(), self._target)
        assert state in (self._state, *NEXT_STATES[self._state]), f"a group that is {self._state} cannot become {state}"
        self._state = state

    # Heartbeats

    def _new_member(self, member_id: str) -> ConsumerGroupMember:
        return ConsumerGroupMember(member_id)

    def _updated(self, member: ConsumerGroupMember, request: HeartbeatRequest) -> ConsumerGroupMember:
        return member.updated(request)

    def _check_size(self, member: ConsumerGroupMember) -> None:
        others = (each for each in self.members.values() if each.member_id != member.member_id)
        size = sum(len(name) for each in (member, *others) for name in each.topic_names)
        if size > self._context.config.group_max_bytes:
            raise ApiError(ErrorCode.group_max_size_reached, "the subscriptions are larger than group_max_bytes")

    def _next_target(
        self,
        target: ConsumerTargetAssignment,
        before: ConsumerGroupMember,
        member: ConsumerGroupMember,
        replaced: ConsumerGroupMember | None,
    ) -> ConsumerTargetAssignment:
        has_changed = not member.has_subscription_of(before)
        if not (has_changed or target.is_outdated or self._seen_topics != self._context.topics.revision):
            return target
        members = self.members.after(member, replaced)
        topics = SubscribedTopics(members, self._context.topics)
        if has_changed or topics.metadata_hash != target.metadata_hash:
            target = target.next_epoch(topics)
        return target.assigned(members, topics) if target.is_outdated else target

    def _response(self, request: HeartbeatRequest, before: ConsumerGroupMember, member: ConsumerGroupMember) -> Message:
        has_news = request.is_full or member.assigned != before.assigned
        return {
            "error_code": ErrorCode.none,
            "member_id": member.member_id,
            "member_epoch": member.epoch,
            "heartbeat_interval": self._context.config.group_consumer_heartbeat_interval_ms,
            "assignment": {"topic_partitions": as_messages(member.assigned)} if has_news else None,
        }

    # The end of a member

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

    def _target_without(self, member_id: str) -> ConsumerTargetAssignment:
        left = [member for member in self.members.values() if member.member_id != member_id]
        return self._target.without(member_id).next_epoch(SubscribedTopics(left, self._context.topics))

    # Offsets

    def _assigned_since(self, member: ConsumerGroupMember, topic: str, number: int) -> int | None:
        return member.since.get((self._context.topics.by_name(topic).topic_id, number))

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members subscribe to a topic."""
        return any(member.subscribed({topic}) for member in self.members.values())

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
