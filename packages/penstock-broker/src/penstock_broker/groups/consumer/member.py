"""A member of a consumer group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock_broker.groups.assignment import PartitionId
from penstock_broker.groups.consumer.heartbeat import HeartbeatRequest
from penstock_broker.groups.modern.member import ModernGroupMember
from penstock_broker.groups.patterns import matching


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember(ModernGroupMember[PartitionId]):
    """A member: its subscription and its partitions.

    Args:
        topic_names: names of the topics that it subscribes to.
        topic_regex: pattern of the topics that it subscribes to.
        assignor: the assignor that it prefers.
    """

    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    assignor: str | None = None

    def has_subscription_of(self, other: ConsumerGroupMember) -> bool:
        """Return whether it has the subscription of another member: same names and pattern."""
        return (self.topic_names, self.topic_regex) == (other.topic_names, other.topic_regex)

    def subscribed(self, topics: Iterable[str]) -> set[str]:
        """Return those of the topics that it subscribes to."""
        found = set(self.topic_names).intersection(topics)
        return found if self.topic_regex is None else found | matching(self.topic_regex, topics)

    def updated(self, request: HeartbeatRequest) -> ConsumerGroupMember:
        """Return the member with the subscription of a heartbeat."""

        def new(value: str | None, old: str | None) -> str | None:
            return old if value is None else value

        timeout_ms = request.rebalance_timeout_ms
        names = request.topic_names
        return replace(
            self,
            instance_id=new(request.instance_id, self.instance_id),
            rack_id=new(request.rack_id, self.rack_id),
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=self.topic_names if names is None else tuple(sorted(set(names))),
            topic_regex=new(request.topic_regex, self.topic_regex) or None,
            rebalance_timeout_ms=self.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
            assignor=new(request.assignor, self.assignor),
        )
