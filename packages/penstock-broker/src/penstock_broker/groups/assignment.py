"""The assignment of a consumer group member: its partitions, in memory and in messages."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from penstock_broker.wire.codec import Message

PartitionId = tuple[uuid.UUID, int]
"""Topic id and partition number."""

Assignment = frozenset[PartitionId]
"""The partitions of one member."""

NO_PARTITIONS: Final[Assignment] = frozenset()


def as_assignment(topics: Iterable[Message]) -> Assignment:
    """Return the partitions in a message, which lists them by topic id."""
    return frozenset((topic["topic_id"], number) for topic in topics for number in topic["partitions"])


def as_messages(assignment: Assignment) -> list[Message]:
    """Return partitions as a list of messages, by topic id."""
    numbers: dict[uuid.UUID, list[int]] = {}
    for topic_id, number in sorted(assignment):
        numbers.setdefault(topic_id, []).append(number)
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in numbers.items()]
