"""Watches for unanswered actions on tasks, because a user's function may not return. Part of the core."""

from __future__ import annotations

from penstock.config import StreamsConfig
from penstock.errors import TaskMigratedError
from penstock.host.threads import vocabulary as v
from penstock.host.threads.settings import Settings
from penstock.host.threads.task_manager import TaskManager
from penstock.plan.subtopology import TaskId


class TaskProgress:
    """The time since the last request or answer of an action on a task.

    Args:
        config: of the application.
        settings: of the instance.
        tasks: the active tasks.
        do: receives the actions.
        now: the time of the core (ms).
    """

    def __init__(self, config: StreamsConfig, settings: Settings, tasks: TaskManager, do: v.Do, now: int) -> None:
        self._limit_ms = settings.max_poll_interval_ms
        self._stuck_ms: int = config["penstock.task.stuck.ms"]
        self._tasks, self._do = tasks, do
        self._got_on_at = now
        self._has_stepped_back = False

    def ask(self, action: v.TaskAction, now: int) -> None:
        """Request an action on a task, which is busy until it answers."""
        self._tasks[action.task].busy = True
        self._got_on_at = now
        self._do(action)

    def answered(self, id: TaskId, now: int) -> None:
        """Continue with a task that has answered."""
        self._tasks.take_back(id)
        self._tasks[id].busy = False
        self._got_on_at = now

    def watch(self, now: int) -> None:
        """Leave the tasks to other instances if a function hangs too long, and end it.

        The end is requested at each tick, because `now` may have jumped, and workers measure the limit by another
        clock.
        """
        busy = [str(task.id) for task in self._tasks if task.busy]
        if not busy:
            self._has_stepped_back = False
        elif now - self._got_on_at < self._limit_ms:
            if now - self._got_on_at >= self._stuck_ms:
                self._do(v.LookForHung(self._stuck_ms))
        else:
            if not self._has_stepped_back:
                self._has_stepped_back = True
                error = TaskMigratedError(
                    f"Processing has made no progress for max.poll.interval.ms={self._limit_ms} (tasks "
                    f"{', '.join(busy)}): this instance leaves its tasks to others, and joins the group again when "
                    "processing continues. Let processors return sooner, or set a larger max.poll.interval.ms."
                )
                self._do(v.StepBack(error))
            self._do(v.EndHung(self._limit_ms))
