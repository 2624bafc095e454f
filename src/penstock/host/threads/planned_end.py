"""The planned end of an instance: how far it reads, and whether all that follows from that is done.

The topics of others end where they ended at the start (`bounded_consumer`). Repartition topics have no such end: what
is sent there follows from the input, and this instance or another one of the group processes it, level by level. So the
end is reached when nothing is left to do here, all of it is committed, and then brokers say that the group has
committed everything: each input up to its planned end, and each repartition topic up to its last record (`unread`).

Part of the core: no I/O, no clock, no thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.host.threads.task_manager import TaskManager
from penstock.host.threads.vocabulary import FindUnread, UnreadFound
from penstock.record import TopicPartition

LOOK_MS = 50
"""Between two looks at what the group has committed, while others are at work."""


class PlannedEnd:
    """Whether an instance is at its planned end."""

    def __init__(self, ends: Mapping[TopicPartition, int] | None) -> None:
        """Take the end of each partition of the topics of others; None for no planned end."""
        self._ends = ends
        self._at_end_ms: int | None = None
        self._look_at_ms = 0
        self._is_looking = False
        self.is_reached = False
        """Whether the group has committed everything."""

    def note(self, tasks: TaskManager, is_assigned: bool, now: int) -> None:
        """Keep since when everything before the planned ends has arrived, of what this instance reads."""
        if not is_assigned or not self._has_arrived(tasks):
            self._at_end_ms = None
        elif self._at_end_ms is None:
            self._at_end_ms = now

    def is_at_rest(self, tasks: TaskManager) -> bool:
        """Return whether all that has arrived is processed, and what was due when the last of it arrived: other
        punctuations may be due again and again."""
        return self._at_end_ms is not None and tasks.is_idle(self._at_end_ms)

    def look(self, tasks: TaskManager, now: int) -> FindUnread | None:
        """Return the action that looks at what the group has committed, None if it is not time to; the answer goes to
        `looked`."""
        if self._ends is None or self._is_looking or now < self._look_at_ms or not self.is_at_rest(tasks):
            return None
        self._is_looking = True
        return FindUnread(self._ends)

    def next_look_ms(self, tasks: TaskManager) -> int | None:
        """Return when the next look is due (ms), None if it depends on what happens before."""
        return None if self._is_looking or not self.is_at_rest(tasks) else self._look_at_ms

    def committed(self) -> None:
        """Take that this instance has committed: a look may find something else at once."""
        self._look_at_ms = 0

    def looked(self, event: UnreadFound, now: int) -> None:
        """Take what the group has not committed yet."""
        self._is_looking, self._look_at_ms = False, now + LOOK_MS
        self.is_reached = event.unread is not None and not event.unread

    def _has_arrived(self, tasks: TaskManager) -> bool:
        if self._ends is None:
            return False
        return all(offset >= self._ends.get(p, 0) for task in tasks for p, offset in task.positions.items())
