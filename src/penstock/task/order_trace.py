"""The order of a task's records, by commit: written by a host on request, replayed by the test driver.

With the same records, the same order and the same commit points, a task's output, changes and stores are byte-equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import orjson

from penstock.record import Int64Array, TopicPartition


class TracedRange(NamedTuple):
    """Consecutive offsets of one lane: first offset and number of records."""

    partition: TopicPartition
    lane: int
    first_offset: int
    records: int


@dataclass(frozen=True)
class TracedCommit:
    """A task's actions between two commits.

    They are the host's wall-clock time (ms), and the processed ranges, in order.
    """

    wall_clock: int
    ranges: tuple[TracedRange, ...]

    def encode(self) -> bytes:
        """Return the commit as one line of JSON."""
        return (
            orjson.dumps([self.wall_clock, [[*r.partition, r.lane, r.first_offset, r.records] for r in self.ranges]])
            + b"\n"
        )

    @staticmethod
    def decode(line: bytes) -> TracedCommit:
        """Return the commit from its line of JSON."""
        wall_clock, ranges = orjson.loads(line)
        return TracedCommit(
            wall_clock,
            tuple(TracedRange(TopicPartition(t, p), lane, first, count) for t, p, lane, first, count in ranges),
        )


class OrderTrace:
    """Collects the ranges of the current commit."""

    def __init__(self) -> None:
        self._ranges: list[TracedRange] = []

    def take(self, partition: TopicPartition, lanes: Int64Array, offsets: Int64Array) -> None:
        """Record the order in which records of one partition are processed."""
        breaks = np.flatnonzero((lanes[1:] != lanes[:-1]) | (offsets[1:] != offsets[:-1] + 1)) + 1
        for rows in np.split(np.arange(len(offsets)), breaks):
            if len(rows):
                self._ranges.append(TracedRange(partition, int(lanes[rows[0]]), int(offsets[rows[0]]), len(rows)))

    def commit(self, wall_clock: int) -> TracedCommit:
        """Return the commit that ends now (wall clock in ms) and start the next."""
        ranges, self._ranges = tuple(self._ranges), []
        return TracedCommit(wall_clock, ranges)
