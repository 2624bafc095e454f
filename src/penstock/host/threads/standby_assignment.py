"""The standby tasks of an instance: those that the group has assigned, and those that are kept. Part of the core."""

from __future__ import annotations

from penstock.host.threads import vocabulary as v
from penstock.host.threads.task_manager import TaskManager
from penstock.plan.subtopology import TaskId


class StandbyAssignment:
    """Has copies of the tasks of other instances kept. tasks: the active ones. do: takes actions."""

    def __init__(self, tasks: TaskManager, do: v.Do) -> None:
        self.assigned: frozenset[TaskId] = frozenset()
        self._kept: set[TaskId] = set()
        self._tasks, self._do = tasks, do

    def open(self) -> None:
        """Have the assigned copies kept; that of a task which is to run is taken over by its restore."""
        for id in sorted(self.assigned - self._kept):
            if id not in self._tasks:
                self._kept.add(id)
                self._do(v.StandBy(id))
        for id in sorted(self._kept - self.assigned):
            self._kept.remove(id)
            if id not in self._tasks:
                self._do(v.StandDown(id))

    def close(self) -> None:
        """Close all copies; `open` asks again for those that are still assigned."""
        for id in sorted(self._kept):
            self._do(v.StandDown(id))
        self._kept.clear()
