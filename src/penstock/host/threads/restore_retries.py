"""The retries of restores that brokers do not serve. Part of the core."""

from __future__ import annotations

from penstock.config import StreamsConfig
from penstock.errors import RetriableError
from penstock.host.supervision.restarts import TaskTimeout
from penstock.plan.subtopology import TaskId


class RestoreRetries:
    """When the restores of single tasks are tried again, for `task.timeout.ms` at most."""

    def __init__(self, config: StreamsConfig) -> None:
        self._timeout_ms: int = config["task.timeout.ms"]
        self._backoff_ms: int = config["penstock.restart.backoff.ms"]
        self._timeouts: dict[TaskId, TaskTimeout] = {}
        self.due_ms: dict[TaskId, int] = {}
        """When (ms) each task is opened again."""
        self.have_timed_out = False
        """Whether a task has had no success for `task.timeout.ms`."""

    def allow(self, id: TaskId, error: BaseException, now: int) -> bool:
        """Return whether the restore of a task is tried again after `error`."""
        if not isinstance(error, RetriableError):
            return False
        if self._timeouts.setdefault(id, TaskTimeout(self._timeout_ms)).allows(error, now):
            self.due_ms[id] = now + self._backoff_ms
            return True
        self.have_timed_out = True
        return False

    def is_due(self, id: TaskId, now: int) -> bool:
        """Return whether a task may be opened now; then it is due no more."""
        if self.due_ms.get(id, now) > now:
            return False
        self.due_ms.pop(id, None)
        return True

    def forget(self, id: TaskId) -> None:
        """Forget a task, which is restored or given up."""
        self.due_ms.pop(id, None)
        self._timeouts.pop(id, None)

    def begin_again(self) -> None:
        """Forget when tasks are due, for all of them are opened again."""
        self.due_ms.clear()
        self.have_timed_out = False
