"""The times of an instance's commits, and the durations of their phases."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from penstock.host.api import RECENT_COMMITS, CommitFigures


class InstanceCommit(NamedTuple):
    """A commit of the instance: its number since the start, time (ms) and beginning (ms)."""

    number: int
    time_ms: int
    began_ms: int = 0


class CommitDuration(NamedTuple):
    """The duration of a commit (ms). is_made: whether it succeeded. waited_ms: the wait for brokers, if it
    succeeded."""

    took_ms: int
    is_made: bool
    waited_ms: int


class CommitTimes:
    """Measures one commit after another. The polling thread writes, any thread may read.

    Args:
        elapsed_ms: clock for durations (ms).
    """

    def __init__(self, elapsed_ms: Callable[[], int]) -> None:
        self._elapsed_ms = elapsed_ms
        self._began: int | None = None
        self._began_ms = 0
        self._is_made = False
        self._prepared_at = self._durable_at = 0
        self._records = self._nanoseconds = 0
        """Records processed since the last commit, and the time of their runs."""
        self._recent: deque[CommitFigures] = deque(maxlen=RECENT_COMMITS)
        self.last = InstanceCommit(0, 0)
        """The last commit."""

    def ran(self, records: int, nanoseconds: int) -> None:
        """Add a run of a task."""
        self._records += records
        self._nanoseconds += nanoseconds

    @property
    def is_measured(self) -> bool:
        """Whether a commit is being measured."""
        return self._began is not None

    def began(self, now_ms: int) -> None:
        """Start measuring a commit, unless one is being measured. now_ms: wall clock."""
        if self._began is None:
            self._began, self._began_ms = self._elapsed_ms(), now_ms

    def prepared(self) -> None:
        """Note that a task has flushed its caches."""
        self._prepared_at = self._durable_at = self._elapsed_ms()

    def durable(self) -> None:
        """Note that the brokers have written a part of the commit."""
        self._durable_at = self._elapsed_ms()

    def made(self) -> None:
        """Note that the bases have the changes of the commit."""
        self._is_made = True

    def ended(self, now: int, now_ms: int) -> CommitDuration | None:
        """Return the duration of the commit, None if no commit is being measured. now: clock for durations (ms).
        now_ms: wall clock."""
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
        """Return the last commits, newest last. Tasks process records between commits, several at a time in worker
        processes; clients fetch meanwhile."""
        return list(self._recent)
