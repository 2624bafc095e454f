"""The planned end of an instance: its end offsets, and the completion of all work.

The topics of others end at the offsets they had at the start (`bounded_consumer`). Repartition topics have no such end:
their records follow from the input, and this instance or another member of the group processes them, level by level. So
the end is reached when this instance has processed and committed everything, and the brokers then confirm that the
group has committed everything: each input up to its planned end, and each repartition topic up to its last record
(`unread`).

Part of the core: no I/O, no clock, no thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.host.threads.task_manager import TaskManager
from penstock.host.threads.vocabulary import FindUnread, UnreadFound
from penstock.record import TopicPartition

LOOK_MS = 50
"""Time between two looks at the group's committed offsets while other members work (ms)."""


class PlannedEnd:
    """Tracks whether an instance has reached its planned end.

    Args:
        ends: the end offset of each partition of the topics of others; None for no planned end.
    """

    def __init__(self, ends: Mapping[TopicPartition, int] | None) -> None:
        self._ends = ends
        self.is_given = ends is not None
        """Whether the instance has a planned end."""
        self._at_end_ms: int | None = None
        self._look_at_ms = 0
        self._is_looking = False
        self.is_reached = False
        """Whether the group has committed everything."""

    def note(self, tasks: TaskManager, is_assigned: bool, now: int) -> None:
        """Record when all input of this instance up to the planned ends has arrived."""
        if not self.is_given:
            return
        if not is_assigned or not self._has_arrived(tasks):
            self._at_end_ms = None
        elif self._at_end_ms is None:
            self._at_end_ms = now

    def is_at_rest(self, tasks: TaskManager) -> bool:
        """Return whether all arrived records, and the punctuations due at the last arrival, are processed.

        Later punctuations do not count, because they may be due again and again.
        """
        return self._at_end_ms is not None and tasks.is_idle(self._at_end_ms)

    def look(self, tasks: TaskManager, now: int) -> FindUnread | None:
        """Return the action that looks at the group's committed offsets, or None if not due.

        Its answer goes to `looked`.
        """
        if self._ends is None or self._is_looking or now < self._look_at_ms or not self.is_at_rest(tasks):
            return None
        self._is_looking = True
        return FindUnread(self._ends)

    def next_look_ms(self, tasks: TaskManager) -> int | None:
        """Return the time of the next look (ms), None if it follows another event."""
        return None if self._is_looking or not self.is_at_rest(tasks) else self._look_at_ms

    def committed(self) -> None:
        """Allow the next look at once, because this instance has committed."""
        self._look_at_ms = 0

    def looked(self, event: UnreadFound, now: int) -> None:
        """Record the result of a look."""
        self._is_looking, self._look_at_ms = False, now + LOOK_MS
        self.is_reached = event.unread is not None and not event.unread

    def _has_arrived(self, tasks: TaskManager) -> bool:
        assert self._ends is not None
        return all(offset >= self._ends.get(p, 0) for task in tasks for p, offset in task.positions.items())
