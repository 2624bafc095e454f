"""The time that a task has had, and the size of its next run. Part of the core."""

from __future__ import annotations

from typing import Final

FIRST_RECORDS = 10
"""Records of a partition in the first run of a task, before its pace is known: a run of slow ones must not keep others
waiting."""

_MOST_SLICES: Final = 2
"""Of time that a run counts as: one that was too long does not cost a task several rounds."""
_LITTLE: Final = 10
"""A run that takes the tenth part of a slice of time goes before others."""


class RunTime:
    """How much time the runs of a task take.

    Args:
        slice_ms: how long a run should take.
        slices: of time, in a round.
    """

    def __init__(self, slice_ms: int, slices: int) -> None:
        self.used_ns = 0
        """How much time the task has had, as `TaskManager` compares it."""
        self.most_records = FIRST_RECORDS
        """How many records of a partition the next run takes at most."""
        self._slice_ns = slice_ms * 1_000_000
        self._slices = slices
        self._is_full = False
        """Whether the last run has taken so many."""

    def began(self, most_records: int) -> None:
        """Take that a run has begun. most_records: of one partition."""
        self._is_full = most_records == self.most_records

    def ended(self, records: int, nanoseconds: int) -> None:
        """Take how long a run with so many records took. The next ones take about a slice of time. One that was shorter
        lets them grow, and not beyond the double: so the first runs of a task, which are slow, do not keep later ones
        small."""
        self.used_ns += min(nanoseconds, _MOST_SLICES * self._slice_ns) // self._slices
        if not records:
            return
        in_a_slice = max(1, records * self._slice_ns // max(nanoseconds, 1))
        if nanoseconds > self._slice_ns:
            self.most_records = in_a_slice
        elif self._is_full:
            self.most_records = min(2 * self.most_records, max(self.most_records, in_a_slice))

    def is_little(self, records: int) -> bool:
        """Return whether so many records take a small part of a slice of time at most."""
        return _LITTLE * records <= self.most_records
