"""The waiting time of a task for empty partitions while others have records (Kafka: `max.task.idle.ms`).

It lets the task process records by timestamp across topics (KIP-353 and KIP-695).

A host reports the lagging partitions: their topics have unread records. A task processes no record after the last one
of a lagging partition. For a partition without unread records it waits for the idle time, by the task's wall clock,
from the moment when it first found the partition empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from penstock.record import TopicPartition


class InputWait(NamedTuple):
    """The waits of a task in one round.

    Args:
        partitions: the inputs that are worth waiting for.
        lagging: the lagging ones among them.
        idle_ms: the waiting time for a partition without unread records.
    """

    partitions: tuple[TopicPartition, ...] = ()
    lagging: frozenset[TopicPartition] = frozenset()
    idle_ms: int = 0


NO_WAIT = InputWait()
"""Process everything."""


class Idling:
    """The deadlines of the partitions that were found empty, by wall clock (ms).

    Args:
        deadlines: those of the last commit.
    """

    def __init__(self, deadlines: Mapping[TopicPartition, int]) -> None:
        self.deadlines = dict(deadlines)

    def awaited(self, wait: InputWait, buffered: Set[TopicPartition], now: int) -> Set[TopicPartition]:
        """Return the awaited partitions at `now` (ms); no record after their last one is processed.

        buffered: the partitions with records.
        """
        for partition in wait.lagging:
            self.deadlines.pop(partition, None)
        if wait.idle_ms <= 0:
            self.deadlines.clear()
            return wait.lagging
        waited_for = set(wait.lagging)
        for partition in wait.partitions:
            if partition in buffered:
                self.deadlines.pop(partition, None)
                waited_for.add(partition)
            elif partition not in wait.lagging:
                latest = now + wait.idle_ms
                # a later deadline comes from before the wall clock went back
                self.deadlines[partition] = deadline = min(self.deadlines.get(partition, latest), latest)
                if now < deadline:
                    waited_for.add(partition)
        return waited_for

    def must_wait(self, wait: InputWait, buffered: Set[TopicPartition], now: int) -> bool:
        """Return whether a task that processes single records has to wait at `now` (ms).

        As in Kafka, it checks one partition after another, up to the first that it waits for: only afterwards does the
        time of the next one start.
        """
        each = (wait._replace(partitions=(partition,)) for partition in wait.partitions)
        return any(not self.awaited(one, buffered, now) <= buffered for one in each)

    def found_empty(self, partitions: Set[TopicPartition], deadline: int) -> None:
        """Set `deadline` (ms) for `partitions`, now without records, unless they already have one."""
        for partition in partitions:
            self.deadlines.setdefault(partition, deadline)

    def next_deadline(self, now: int) -> int | None:
        """Return the first deadline after `now` (ms), or None."""
        return min((deadline for deadline in self.deadlines.values() if deadline > now), default=None)
