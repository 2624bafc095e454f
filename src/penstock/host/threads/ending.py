"""The end of an instance: on request, after an error, or with the application. Part of the core."""

from __future__ import annotations

from penstock.host.threads import vocabulary as v
from penstock.host.threads.active_task import ActiveTaskState
from penstock.host.threads.phases import InstancePhase, Phase
from penstock.host.threads.task_life import TaskLife
from penstock.host.threads.task_manager import TaskManager

_MOST_TELLING_MS = 10_000
"""The longest time (ms) to inform other instances of the application's end. Then this instance ends alone."""


class Ending:
    """Closes all tasks for good, and leaves the group.

    Args:
        tasks: the active tasks.
        phase: the phase of the instance.
        life: opens and closes tasks.
        do: performs actions.
    """

    def __init__(self, tasks: TaskManager, phase: InstancePhase, life: TaskLife, do: v.Do) -> None:
        self.alone_at: int | None = None
        """The time (ms) to end alone, if the group does not learn of it before."""
        self._tasks, self._phase, self._life, self._do = tasks, phase, life, do
        self._request: v.CloseRequested | None = None
        self._shut_down: Exception | None = None
        """The error of the instance that shut down the application, if it is another one."""

    @property
    def is_requested(self) -> bool:
        """Whether the instance should end after a commit."""
        return self._request is not None

    def request(self, request: v.CloseRequested) -> None:
        """End the instance after a commit."""
        self._request = request

    def tell_group(self, now: int) -> None:
        """Make all instances of the application end."""
        self._phase.change(Phase.TELLING)
        self.alone_at = now + _MOST_TELLING_MS
        self._do(v.ShutDownApplication())

    def wait_for_group(self, now: int) -> None:
        """End alone if the group has not learned of the shutdown in time."""
        if self.alone_at is not None and now >= self.alone_at:
            self.begin()

    def application_shut_down(self, error: Exception | None) -> None:
        """End the instance: immediately if it requested the shutdown, else after a commit."""
        if self._phase.current is Phase.TELLING:
            self.begin()
        self._shut_down = self._shut_down or error
        self._request = self._request or v.CloseRequested()

    def begin(self) -> None:
        """Begin to close tasks, and cancel restores."""
        self._phase.change(Phase.ENDING)
        self.alone_at = None
        self._life.cancel_restores()

    def go_on(self, error: BaseException | None, now: int) -> None:
        """Close tasks, and end the instance once all are closed. error: reported instead of the application's."""
        self._life.close_running(now)
        if all(task.state is ActiveTaskState.CREATED or task.is_aside for task in self._tasks):
            self._phase.change(Phase.ENDED)
            self._do(v.Leave() if self._request is None else v.Leave(self._request.operation))
            self._do(v.End(error or self._shut_down))
