"""The placement of tasks on workers.

The tasks of a sub-topology are spread over the workers, and so are those of one partition: the records of a partition
go through its sub-topologies at about the same time. A task that returns gets its previous worker, unless another one
has less to do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.plan.subtopology import TaskId


def place(task: TaskId, running: Mapping[TaskId, int], before: int | None, workers: Collection[int]) -> int:
    """Return the worker for `task`.

    Args:
        task: the task to place.
        running: the worker of each open task.
        before: the previous worker of the task, or None.
        workers: all workers.
    """

    def load(worker: int) -> tuple[int, int, int]:
        tasks = [each for each, at in running.items() if at == worker]
        same_subtopology = sum(each.subtopology == task.subtopology for each in tasks)
        same_partition = sum(each.partition == task.partition for each in tasks)
        return same_subtopology, len(tasks), same_partition

    return min(sorted(workers), key=lambda worker: (*load(worker)[:2], worker != before, load(worker)[2], worker))
