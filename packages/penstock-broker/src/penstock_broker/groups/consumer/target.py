"""The target assignment of a consumer group: the intended partitions of each member.

It covers the existing topics that members subscribe to.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from crc32c import crc32c

from penstock_broker.groups.assignment import NO_PARTITIONS, Assignment
from penstock_broker.groups.assignors import ASSIGNORS, Subscriber
from penstock_broker.groups.consumer.member import ConsumerGroupMember
from penstock_broker.topics import TopicRegistry


def preferred_assignor(members: Iterable[ConsumerGroupMember]) -> str:
    """Return the assignor preferred by most members, or the default."""
    wanted = Counter(member.assignor for member in members if member.assignor is not None)
    return wanted.most_common(1)[0][0] if wanted else next(iter(ASSIGNORS))


class SubscribedTopics:
    """The subscriptions of members, resolved to the existing topics.

    Args:
        members: the members.
        topics: the broker's topics.

    Attributes:
        by_member: ids of topics by member id.
        partitions: number of partitions by topic id.
    """

    def __init__(self, members: Iterable[ConsumerGroupMember], topics: TopicRegistry) -> None:
        ids = {topic.name: topic.topic_id for topic in topics.all()}
        self.by_member = {each.member_id: {ids[name] for name in each.subscribed(ids)} for each in members}
        found: list[uuid.UUID] = sorted(set().union(*self.by_member.values()))
        self.partitions = {topic_id: len(topics.by_id(topic_id).partitions) for topic_id in found}

    @property
    def metadata_hash(self) -> int:
        """A hash of these topics and their partition counts."""
        return crc32c("".join(f"{topic.hex}:{count};" for topic, count in self.partitions.items()).encode())


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """The assignment that the members move towards.

    Args:
        epoch: the group epoch, which counts changes of members and topics.
        metadata_hash: the hash of the topics in this epoch.
        assignment_epoch: the epoch of the assignment.
        assignments: by member id.
    """

    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    assignments: Mapping[str, Assignment] = field(default_factory=dict)

    @property
    def is_outdated(self) -> bool:
        """Whether the assignment belongs to an earlier epoch."""
        return self.epoch > self.assignment_epoch

    def of(self, member_id: str) -> Assignment:
        """Return the target partitions of a member."""
        return self.assignments.get(member_id, NO_PARTITIONS)

    def next_epoch(self, topics: SubscribedTopics) -> TargetAssignment:
        """Return the target in the next epoch, with the assignment unchanged."""
        return replace(self, epoch=self.epoch + 1, metadata_hash=topics.metadata_hash)

    def assigned(self, members: Collection[ConsumerGroupMember], topics: SubscribedTopics) -> TargetAssignment:
        """Return the target with an assignment for its epoch."""
        subscribers = {
            each.member_id: Subscriber(topics.by_member[each.member_id], each.instance_id, self.of(each.member_id))
            for each in members
        }
        assignments = ASSIGNORS[preferred_assignor(members)](subscribers, topics.partitions)
        return replace(self, assignment_epoch=self.epoch, assignments=assignments)

    def renamed(self, old: str, new: str) -> TargetAssignment:
        """Return the target with a changed member id."""
        assignments = {new if member_id == old else member_id: each for member_id, each in self.assignments.items()}
        return replace(self, assignments=assignments)

    def without(self, member_id: str) -> TargetAssignment:
        """Return the target without a member."""
        return replace(self, assignments={each: self.of(each) for each in self.assignments if each != member_id})
