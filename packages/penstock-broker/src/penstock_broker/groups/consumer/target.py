"""The target assignment of a consumer group: the intended partitions of each member.

It covers the existing topics that members subscribe to.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from crc32c import crc32c

from penstock_broker.groups.assignment import PartitionId
from penstock_broker.groups.assignors import ASSIGNORS, Subscriber
from penstock_broker.groups.consumer.member import ConsumerGroupMember
from penstock_broker.groups.modern.target import TargetAssignment
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
class ConsumerTargetAssignment(TargetAssignment[PartitionId]):
    """The partitions that the members move towards."""

    def next_epoch(self, topics: SubscribedTopics) -> ConsumerTargetAssignment:
        """Return the target in the next epoch, with the assignment unchanged."""
        return replace(self, epoch=self.epoch + 1, metadata_hash=topics.metadata_hash)

    def assigned(self, members: Collection[ConsumerGroupMember], topics: SubscribedTopics) -> ConsumerTargetAssignment:
        """Return the target with an assignment for its epoch."""
        subscribers = {
            each.member_id: Subscriber(topics.by_member[each.member_id], each.instance_id, self.of(each.member_id))
            for each in members
        }
        assignments = ASSIGNORS[preferred_assignor(members)](subscribers, topics.partitions)
        return replace(self, assignment_epoch=self.epoch, assignments=assignments)
