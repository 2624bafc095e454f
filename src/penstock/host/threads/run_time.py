"""The processing time of a task, and the size of its next run. Part of the core."""

from __future__ import annotations

from typing import Final

FIRST_RECORDS = 10
"""Records of a partition in a task's first run, before its pace is known.

A run of slow records must not keep other tasks waiting.
"""

_MOST_SLICES: Final = 2
"""Most slices charged for one run, so that long runs do not cost many rounds."""
_LITTLE: Final = 10
"""A run of at most a tenth of a slice of time goes before others."""


class RunTime:
    """The processing time of a task's runs.

    Args:
        slice_ms: the target duration of a run.
        slices: the number of slices of time in a round.
    """

    def __init__(self, slice_ms: int, slices: int) -> None:
        self.used_ns = 0
        """The processing time charged to the task, which `TaskManager` compares."""
        self.most_records = FIRST_RECORDS
        """The most records of a partition in the next run."""
        self._slice_ns = slice_ms * 1_000_000
        self._slices = slices
        self._is_full = False
        """Whether the last run took that many records of a partition."""

    def began(self, most_records: int) -> None:
        """Note the start of a run. most_records: the most of one partition."""
        self._is_full = most_records == self.most_records

    def ended(self, records: int, nanoseconds: int) -> None:
        """Note the end and duration of a run, and size the next one.

        The next runs should take about one slice of time. A full run shorter than a slice lets the next runs grow, but
        at most to double the size. This way the first runs of a task, which are slow, do not keep later runs small.
        """
        self.used_ns += min(nanoseconds, _MOST_SLICES * self._slice_ns) // self._slices
        if not records:
            return
        in_a_slice = max(1, records * self._slice_ns // max(nanoseconds, 1))
        if nanoseconds > self._slice_ns:
            self.most_records = in_a_slice
        elif self._is_full:
            self.most_records = min(2 * self.most_records, max(self.most_records, in_a_slice))

    def is_little(self, records: int) -> bool:
        """Return whether a run of that many records takes little of a time slice."""
        return _LITTLE * records <= self.most_records
