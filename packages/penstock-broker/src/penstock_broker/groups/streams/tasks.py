"""The tasks of a streams group member, in memory and in messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock_broker.wire.codec import Message

TaskId = tuple[str, int]
"""Id of the sub-topology and partition number."""

Tasks = frozenset[TaskId]
"""The tasks of one member."""

NO_TASKS: Final[Tasks] = frozenset()


def as_tasks(subtopologies: Iterable[Message]) -> Tasks:
    """Return the tasks in a message, which lists them by sub-topology."""
    return frozenset((each["subtopology_id"], number) for each in subtopologies for number in each["partitions"])


def as_messages(tasks: Iterable[TaskId]) -> list[Message]:
    """Return tasks as a list of messages, by sub-topology."""
    numbers: dict[str, list[int]] = {}
    for subtopology_id, number in sorted(tasks):
        numbers.setdefault(subtopology_id, []).append(number)
    return [{"subtopology_id": each, "partitions": partitions} for each, partitions in numbers.items()]
