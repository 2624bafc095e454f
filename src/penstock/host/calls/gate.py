"""The gate before the calls of a task that has been opened."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.record import TopicPartition


class CallGate:
    """Holds back calls until the task has committed all answers that existed when it was opened.

    An earlier run of the task may have received them, and no record is called again whose answer is in the topic.

    Args:
        ends: the end offsets of the task's answers partitions when it was opened.
    """

    def __init__(self, ends: Mapping[TopicPartition, int]) -> None:
        self._ends = dict(ends)

    @property
    def was_closed(self) -> bool:
        """Whether it was closed at the last look."""
        return bool(self._ends)

    def is_open(self, committed: Mapping[TopicPartition, int]) -> bool:
        """Return whether the task, with these committed positions, has used the answers; then this holds for good."""
        if self._ends and all(committed.get(partition, 0) >= end for partition, end in self._ends.items()):
            self._ends = {}
        return not self._ends
