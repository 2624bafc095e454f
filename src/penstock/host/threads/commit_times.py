"""When the commits of an instance are made, and how long their phases take."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from penstock.host.api import RECENT_COMMITS, CommitFigures


class InstanceCommit(NamedTuple):
    """A commit of the instance: its number since the start, when it was made, and when it began (ms)."""

    number: int
    time_ms: int
    began_ms: int = 0


class CommitDuration(NamedTuple):
    """How long a commit took (ms). is_made: whether it was made. waited_ms: for the brokers, if it was made."""

    took_ms: int
    is_made: bool
    waited_ms: int


class CommitTimes:
    """Measures one commit after the other; the polling thread adds, any thread may look.

    Args:
        elapsed_ms: by which commits are measured.
    """

    def __init__(self, elapsed_ms: Callable[[], int]) -> None:
        self._elapsed_ms = elapsed_ms
        self._began: int | None = None
        self._began_ms = 0
        self._is_made = False
        self._prepared_at = self._durable_at = 0
        self._records = self._nanoseconds = 0
        """What tasks have done since the last commit: records that they processed, and the time of their runs."""
        self._recent: deque[CommitFigures] = deque(maxlen=RECENT_COMMITS)
        self.last = InstanceCommit(0, 0)
        """The last commit."""

    def ran(self, records: int, nanoseconds: int) -> None:
        """Add a run of a task."""
        self._records += records
        self._nanoseconds += nanoseconds

    def began(self, now_ms: int) -> None:
        """Measure a commit from now on, if none is being measured. now_ms: of the clock of the machine."""
        if self._began is None:
            self._began, self._began_ms = self._elapsed_ms(), now_ms

    def prepared(self) -> None:
        """Take that a task has flushed its caches."""
        self._prepared_at = self._durable_at = self._elapsed_ms()

    def durable(self) -> None:
        """Take that the brokers have written a part of the commit."""
        self._durable_at = self._elapsed_ms()

    def made(self) -> None:
        """Take that the bases have the changes of the commit."""
        self._is_made = True

    def ended(self, now: int, now_ms: int) -> CommitDuration | None:
        """Return how long the commit took, None if none is being measured. now: of the clock of durations. now_ms: of
        that of the machine."""
        if self._began is None:
            return None
        began, self._began = self._began, None
        is_made, self._is_made = self._is_made, False
        waited = self._durable_at - self._prepared_at
        if is_made:
            self.last = InstanceCommit(self.last.number + 1, now_ms, self._began_ms)
            phases = {
                "process": self._nanoseconds / 1e6,
                "state": float(self._prepared_at - began + now - self._durable_at),
                "transaction": float(waited),
            }
            self._recent.append(CommitFigures(self.last.number, now_ms, self._records, phases))
            self._records = self._nanoseconds = 0
        return CommitDuration(now - began, is_made, waited)

    def recent(self) -> list[CommitFigures]:
        """Return the last commits, the newest last. Tasks process between commits, and several at a time in worker
        processes; clients fetch meanwhile."""
        return list(self._recent)
