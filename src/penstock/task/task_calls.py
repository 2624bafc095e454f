"""The calls of a task: which waiting records are committed, and whether the task waits for answers.

Records of answers topics are no input of the user: they do not advance stream time, and the task does not wait for
them. A task whose inbox is full takes only them. The same is true of requests about parked records.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.subtopology import SubtopologySpec
from penstock.processor.call_inbox import CallInbox
from penstock.processor.waiting_records import Waiting
from penstock.task.idling import InputWait

_UNKNOWN = 1 << 30
"""Number of records that may be taken if none of them waits for a call."""

_FIRST_PIECE = 100
"""Number of records that are taken together before it is known how many of them wait for calls."""


class _Growth:
    """How much an inbox grows with each input record: by records and bytes."""

    def __init__(self) -> None:
        self._rates = 1.0, 0.0

    def measure(self, records: int, before: tuple[int, int], after: tuple[int, int]) -> None:
        """Note what the inbox had received before and after a number of input records."""
        self._rates = (after[0] - before[0]) / records, (after[1] - before[1]) / records

    def records_for(self, room: tuple[int, int]) -> int:
        """Return the number of input records that fill this room of records and bytes, at least 1."""
        needed = [left / rate for left, rate in zip(room, self._rates, strict=True) if rate > 0]
        return max(1, int(min(needed, default=_UNKNOWN)))


class TaskCalls:
    """The inboxes of one task.

    Args:
        spec: the nodes of the task.
        inboxes: the inboxes by operator, which appear when the processors are initialised.
    """

    def __init__(self, spec: SubtopologySpec, inboxes: Mapping[str, CallInbox]) -> None:
        self._inboxes = inboxes
        self._answers = frozenset(spec.task_topics)
        self._taken = 0
        self._growth: dict[str, _Growth] = {}
        self._before: dict[str, tuple[int, int]] = {}

    @property
    def has_inboxes(self) -> bool:
        """Whether operators of the task have calls."""
        return bool(self._inboxes)

    @property
    def reads_answers(self) -> bool:
        """Whether the task reads answers, or requests about parked records."""
        return bool(self._answers)

    def room(self) -> int:
        """Return how many input records to take together, so that no inbox exceeds its limits by much."""
        room = max(self._taken, _FIRST_PIECE)
        for node, inbox in self._inboxes.items():
            room = min(room, self._growth.setdefault(node, _Growth()).records_for(inbox.room))
            self._before[node] = inbox.added
        return room

    def took(self, records: int) -> None:
        """Note that input records have been taken since `room`."""
        if not records:
            return
        self._taken += records
        for node, inbox in self._inboxes.items():
            self._growth[node].measure(records, self._before[node], inbox.added)

    @property
    def waits_for_answers(self) -> bool:
        """Whether an inbox is full, so that the task takes only answers."""
        return bool(self._inboxes) and any(inbox.is_full for inbox in self._inboxes.values())

    @property
    def has_uncommitted(self) -> bool:
        """Whether records wait for a commit before their calls."""
        return bool(self._inboxes) and any(inbox.has_uncommitted for inbox in self._inboxes.values())

    @property
    def waiting(self) -> int:
        """The number of records that wait for answers."""
        return sum(map(len, self._inboxes.values()))

    def committed(self) -> None:
        """Note that all records added so far are committed."""
        for inbox in self._inboxes.values():
            inbox.commit()

    def take(self) -> dict[str, list[Waiting]]:
        """Remove and return the records whose calls may be made, by operator."""
        taken = {node: inbox.take_committed() for node, inbox in self._inboxes.items()}
        return {node: records for node, records in taken.items() if records}

    def without_answers(self, wait: InputWait) -> InputWait:
        """Return a wait without the partitions of answers and of requests."""
        if not self._answers:
            return wait
        return wait._replace(
            partitions=tuple(each for each in wait.partitions if each.topic not in self._answers),
            lagging=frozenset(each for each in wait.lagging if each.topic not in self._answers),
        )
