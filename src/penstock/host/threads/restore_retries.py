"""The retries of restores after retriable broker errors. Part of the core."""

from __future__ import annotations

from penstock.config import StreamsConfig
from penstock.errors import RetriableError
from penstock.host.supervision.restarts import TaskTimeout
from penstock.plan.subtopology import TaskId


class RestoreRetries:
    """The retries of the restores of single tasks, for up to `task.timeout.ms`."""

    def __init__(self, config: StreamsConfig) -> None:
        self._timeout_ms: int = config["task.timeout.ms"]
        self._backoff_ms: int = config["penstock.restart.backoff.ms"]
        self._timeouts: dict[TaskId, TaskTimeout] = {}
        self.due_ms: dict[TaskId, int] = {}
        """The time at which each task is opened again (ms)."""
        self.have_timed_out = False
        """Whether a task has made no progress for `task.timeout.ms`."""

    def allow(self, id: TaskId, error: BaseException, now: int) -> bool:
        """Return whether to retry the restore of a task after `error`."""
        if not isinstance(error, RetriableError):
            return False
        if self._timeouts.setdefault(id, TaskTimeout(self._timeout_ms)).allows(error, now):
            self.due_ms[id] = now + self._backoff_ms
            return True
        self.have_timed_out = True
        return False

    def is_due(self, id: TaskId, now: int) -> bool:
        """Return whether a task may be opened now, and clear its due time if so."""
        if self.due_ms.get(id, now) > now:
            return False
        self.due_ms.pop(id, None)
        return True

    def forget(self, id: TaskId) -> None:
        """Forget a task that is restored or given up."""
        self.due_ms.pop(id, None)
        self._timeouts.pop(id, None)

    def begin_again(self) -> None:
        """Clear all due times, because all tasks are opened again."""
        self.due_ms.clear()
        self.have_timed_out = False
