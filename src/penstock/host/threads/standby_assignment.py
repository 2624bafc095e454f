"""The standby tasks of an instance: the assigned ones and the open ones. Part of the core."""

from __future__ import annotations

from penstock.host.threads import vocabulary as v
from penstock.host.threads.task_manager import TaskManager
from penstock.plan.subtopology import TaskId


class StandbyAssignment:
    """Opens and closes standby copies of other instances' tasks.

    Args:
        tasks: the active tasks.
        do: receives the actions.
    """

    def __init__(self, tasks: TaskManager, do: v.Do) -> None:
        self.assigned: frozenset[TaskId] = frozenset()
        self._kept: set[TaskId] = set()
        self._tasks, self._do = tasks, do

    def open(self) -> None:
        """Open the assigned copies and close the others.

        The restore of an active task takes over its copy.
        """
        for id in sorted(self.assigned - self._kept):
            if id not in self._tasks:
                self._kept.add(id)
                self._do(v.StandBy(id))
        for id in sorted(self._kept - self.assigned):
            self._kept.remove(id)
            if id not in self._tasks:
                self._do(v.StandDown(id))

    def close(self) -> None:
        """Close all copies; `open` opens the assigned ones again."""
        for id in sorted(self._kept):
            self._do(v.StandDown(id))
        self._kept.clear()
