"""The offsets of tasks that a member of a streams group reports (Kafka class: MemberTaskOffsets)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock_broker.errors import ApiError
from penstock_broker.groups.streams.tasks import TaskId
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

TaskOffsets = Mapping[TaskId, int]
"""Sums of offsets in the changelogs of tasks, by task."""

NO_OFFSETS: Final[TaskOffsets] = MappingProxyType({})

_OFFSET_BYTES: Final = 250
"""Memory of one offset with its task."""


class MemberTaskOffsets(NamedTuple):
    """The last reported offsets of a member.

    Args:
        offsets: how far its state of each task is, in records.
        ends: the ends of the changelogs of these tasks, in records.
    """

    offsets: TaskOffsets = NO_OFFSETS
    ends: TaskOffsets = NO_OFFSETS

    @property
    def memory_bytes(self) -> int:
        """Estimate of the memory that they take."""
        return (len(self.offsets) + len(self.ends)) * _OFFSET_BYTES

    def updated(self, report: TaskOffsetReport, subtopology_ids: Container[str]) -> MemberTaskOffsets:
        """Return the offsets after a report.

        Args:
            report: the report of a heartbeat.
            subtopology_ids: ids of the sub-topologies of the group; tasks of others are left out.
        """

        def new(reported: TaskOffsets | None, known: TaskOffsets) -> TaskOffsets:
            if reported is None:
                return known
            return {task: offset for task, offset in reported.items() if task[0] in subtopology_ids}

        return MemberTaskOffsets(new(report.offsets, self.offsets), new(report.ends, self.ends))


class TaskOffsetReport(NamedTuple):
    """The offsets in a heartbeat; None means unchanged since the last report.

    Args:
        offsets: how far the state of each task is, in records.
        ends: the ends of the changelogs of these tasks, in records.
    """

    offsets: TaskOffsets | None = None
    ends: TaskOffsets | None = None

    @property
    def has_changes(self) -> bool:
        """Whether it has offsets."""
        return self.offsets is not None or self.ends is not None


def read_report(body: Message) -> TaskOffsetReport:
    """Return the report in a heartbeat.

    Args:
        body: the fields of StreamsGroupHeartbeat.

    Raises:
        ApiError: INVALID_REQUEST for a task that is listed twice.
    """
    return TaskOffsetReport(_read(body["task_offsets"]), _read(body["task_end_offsets"]))


def _read(listed: Iterable[Message] | None) -> TaskOffsets | None:
    if listed is None:
        return None
    offsets: dict[TaskId, int] = {}
    for each in listed:
        task = (each["subtopology_id"], each["partition"])
        if task in offsets:
            text = f"Task offsets contain a duplicate entry for subtopology {task[0]} and partition {task[1]}."
            raise ApiError(ErrorCode.invalid_request, text)
        offsets[task] = each["offset"]
    return offsets


def offsets_as_messages(offsets: TaskOffsets) -> list[Message]:
    """Return offsets as a list of messages, sorted by task."""
    return [
        {"subtopology_id": subtopology_id, "partition": number, "offset": offset}
        for (subtopology_id, number), offset in sorted(offsets.items())
    ]
