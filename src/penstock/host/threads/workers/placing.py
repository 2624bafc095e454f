"""Which worker runs which task.

The tasks of a sub-topology are spread over the workers, and those of one partition too: the records of a partition go
through its sub-topologies at about the same time. A task that comes back has the worker that it had, unless that has
more to do than another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.plan.subtopology import TaskId


def place(task: TaskId, running: Mapping[TaskId, int], before: int | None, workers: Collection[int]) -> int:
    """Return the worker that `task` runs in.

    Args:
        task: which one.
        running: the worker of each task that is open.
        before: the worker that had it, None for none.
        workers: all of them.
    """

    def load(worker: int) -> tuple[int, int, int]:
        tasks = [each for each, at in running.items() if at == worker]
        same_subtopology = sum(each.subtopology == task.subtopology for each in tasks)
        same_partition = sum(each.partition == task.partition for each in tasks)
        return same_subtopology, len(tasks), same_partition

    return min(sorted(workers), key=lambda worker: (*load(worker)[:2], worker != before, load(worker)[2], worker))
