"""The order in which a task took its records, by commit: written by a host on request, replayed by the test driver.

With the same records, the same order and the same commit points a task gives byte-equal output, changes and stores.
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
    """What a task did between two commits: the wall-clock time (ms) that the host set, then the ranges that it took, in
    order."""

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
        """Return the commit that `line` was made from."""
        wall_clock, ranges = orjson.loads(line)
        return TracedCommit(
            wall_clock,
            tuple(TracedRange(TopicPartition(t, p), lane, first, count) for t, p, lane, first, count in ranges),
        )


class OrderTrace:
    """Collects the ranges of the commit that is under way."""

    def __init__(self) -> None:
        self._ranges: list[TracedRange] = []

    def take(self, partition: TopicPartition, lanes: Int64Array, offsets: Int64Array) -> None:
        """Note records of one partition in the order in which they are processed."""
        breaks = np.flatnonzero((lanes[1:] != lanes[:-1]) | (offsets[1:] != offsets[:-1] + 1)) + 1
        for rows in np.split(np.arange(len(offsets)), breaks):
            if len(rows):
                self._ranges.append(TracedRange(partition, int(lanes[rows[0]]), int(offsets[rows[0]]), len(rows)))

    def commit(self, wall_clock: int) -> TracedCommit:
        """Return the commit that ends now (wall clock in ms) and begin the next."""
        ranges, self._ranges = tuple(self._ranges), []
        return TracedCommit(wall_clock, ranges)
