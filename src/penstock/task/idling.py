"""How long a task waits for records of a partition that has none while others have some, so that records are taken by
their timestamps across topics (Kafka: `max.task.idle.ms`, KIP-353 and KIP-695).

A host tells which partitions lag: their topics have more than was read. A task takes no record past the last one of a
lagging partition. Of a partition that has no more it waits for the idle time, by the task's wall clock; the time runs
from when the task first found it empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from penstock.record import TopicPartition


class InputWait(NamedTuple):
    """What a task waits for in one round: `partitions`, those of its inputs that are worth waiting for; of these the
    `lagging` ones; and how long for one that has no more (`idle_ms`)."""

    partitions: tuple[TopicPartition, ...] = ()
    lagging: frozenset[TopicPartition] = frozenset()
    idle_ms: int = 0


NO_WAIT = InputWait()
"""Take everything."""


class Idling:
    """The deadlines of the partitions that were found empty, by wall clock (ms)."""

    def __init__(self, deadlines: Mapping[TopicPartition, int]) -> None:
        """Go on with `deadlines`, those of the last commit."""
        self.deadlines = dict(deadlines)

    def awaited(self, wait: InputWait, buffered: Set[TopicPartition], now: int) -> Set[TopicPartition]:
        """Return the partitions past whose last record nothing is to be taken at `now` (ms); buffered: those that have
        records."""
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
                # a later one is of a wall clock that went back since
                self.deadlines[partition] = deadline = min(self.deadlines.get(partition, latest), latest)
                if now < deadline:
                    waited_for.add(partition)
        return waited_for

    def must_wait(self, wait: InputWait, buffered: Set[TopicPartition], now: int) -> bool:
        """Return whether a task that takes one record at a time has to wait at `now` (ms). As in Kafka, it looks at one
        partition after the other, up to the first that it waits for: only then the time of the next one begins."""
        each = (wait._replace(partitions=(partition,)) for partition in wait.partitions)
        return any(not self.awaited(one, buffered, now) <= buffered for one in each)

    def found_empty(self, partitions: Set[TopicPartition], deadline: int) -> None:
        """Wait for `partitions`, which have no records left, until `deadline` (ms) where they have none yet."""
        for partition in partitions:
            self.deadlines.setdefault(partition, deadline)

    def next_deadline(self, now: int) -> int | None:
        """Return the first deadline after `now` (ms), None for none."""
        return min((deadline for deadline in self.deadlines.values() if deadline > now), default=None)
