"""The source partitions of a batch's rows: one for all rows, or, in a run of several sources, one for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple, Self

import numpy as np

from penstock.record import Int64Array, TopicPartition, take_from


class RowPartitions(NamedTuple):
    """The source partition of each row.

    Args:
        partitions: the partitions.
        numbers: for each row, the index of its partition; None if all rows are of the only one.
    """

    partitions: Sequence[TopicPartition]
    numbers: Int64Array | None = None

    @classmethod
    def of(cls, each: Sequence[TopicPartition]) -> Self:
        """Return the partitions of rows, given that of each."""
        known = {partition: number for number, partition in enumerate(dict.fromkeys(each))}
        if len(known) == 1:
            return cls(tuple(known))
        return cls(tuple(known), np.fromiter(map(known.__getitem__, each), np.int64, len(each)))

    def at(self, row: int) -> TopicPartition:
        """Return the partition of one row."""
        return self.partitions[0 if self.numbers is None else self.numbers[row]]

    def take(self, rows: Int64Array | slice) -> RowPartitions:
        """Return the partitions of `rows`."""
        return self if self.numbers is None else RowPartitions(self.partitions, self.numbers[rows])

    def columns(self, rows: Int64Array) -> tuple[Iterable[str], Iterable[int]]:
        """Return the topics and the partition numbers of `rows`; without end if all are the same."""
        if self.numbers is None:
            topic, partition = self.partitions[0]
            return repeat(topic), repeat(partition)
        topics, partitions = zip(*self.partitions, strict=True)
        numbers = self.numbers[rows]
        return take_from(topics, numbers), take_from(partitions, numbers)

    def each(self) -> Iterable[TopicPartition]:
        """Return the partition of each row; without end if all are the same."""
        return repeat(self.partitions[0]) if self.numbers is None else take_from(self.partitions, self.numbers)
