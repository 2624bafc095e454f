"""The assignment of a consumer group's member: its partitions, in memory and in messages."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from penstock_broker.wire.codec import Message

PartitionId = tuple[uuid.UUID, int]
"""Id of a topic and number of a partition."""

Assignment = frozenset[PartitionId]
"""The partitions of one member."""

NO_PARTITIONS: Final[Assignment] = frozenset()


def as_assignment(topics: Iterable[Message]) -> Assignment:
    """Return the partitions that a message lists by topic id."""
    return frozenset((topic["topic_id"], number) for topic in topics for number in topic["partitions"])


def as_messages(assignment: Assignment) -> list[Message]:
    """Return partitions as messages list them, by topic id."""
    numbers: dict[uuid.UUID, list[int]] = {}
    for topic_id, number in sorted(assignment):
        numbers.setdefault(topic_id, []).append(number)
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in numbers.items()]
