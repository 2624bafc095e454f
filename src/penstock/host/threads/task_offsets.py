"""The offsets of tasks before they open: committed offsets and ends of their partitions.

They are requested once for all tasks that wait to be opened. Each request for committed offsets takes a client of its
own. With one request per task, the start of many tasks would take minutes while others already run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from penstock.client.api import Admin, OffsetAndMetadata
from penstock.errors import StreamsError
from penstock.host.deployment.layout import Layout
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition


class TaskOffsets(NamedTuple):
    """Offsets of one task.

    Args:
        committed: of its input, without partitions that have no offset.
        begins: of its input.
        ends: of its input.
        changelog_ends: requested after the committed offsets, which are stable: so all records of the previous owner of
            the task are before them.
    """

    committed: Mapping[TopicPartition, OffsetAndMetadata]
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    changelog_ends: Mapping[TopicPartition, int]

    def of(self, partitions: Collection[TopicPartition], changelogs: Iterable[TopicPartition]) -> TaskOffsets:
        """Return the offsets of a task with these input partitions and changelogs."""
        return TaskOffsets(
            {p: self.committed[p] for p in partitions if p in self.committed},
            {p: self.begins[p] for p in partitions},
            {p: self.ends[p] for p in partitions},
            {p: self.changelog_ends[p] for p in changelogs},
        )


class OffsetsOfTasks:
    """Requests the offsets of tasks from brokers, for many tasks at one time."""

    def __init__(self, layout: Layout, admin: Admin) -> None:
        self._layout = layout
        self._admin = admin
        self._group = str(layout.config.required("application.id"))
        self._wanted: dict[TaskId, None] = {}
        self._known: dict[TaskId, TaskOffsets] = {}

    def want(self, task: TaskId) -> None:
        """Include `task` in the next request for offsets, and discard earlier answers as outdated."""
        self.forget(task)
        self._wanted[task] = None

    def take(self, task: TaskId) -> TaskOffsets:
        """Return the offsets of `task`, once. Raises the errors of the requests to the brokers."""
        if task not in self._known:
            together, self._wanted = [*{task: None, **self._wanted}], {}
            try:
                self._known.update(self._ask(together))
            except StreamsError:  # it may concern one of them, while the others can be opened
                if len(together) == 1:
                    raise
                self._known.update(self._ask([task]))
        return self._known.pop(task)

    def forget(self, task: TaskId) -> None:
        """Discard the request for `task`, which is no longer to be opened."""
        self._wanted.pop(task, None)
        self._known.pop(task, None)

    def _ask(self, tasks: Collection[TaskId]) -> dict[TaskId, TaskOffsets]:
        inputs = {task: self._layout.read_by(task) for task in tasks}
        changelogs = {task: self._layout.changelogs(task).values() for task in tasks}
        partitions = sorted({p for each in inputs.values() for p in each})
        found = TaskOffsets(
            self._admin.committed_offsets(self._group, partitions),
            self._admin.beginning_offsets(partitions),
            self._admin.end_offsets(partitions, read_committed=True),
            self._admin.end_offsets(sorted({p for each in changelogs.values() for p in each})),
        )
        return {task: found.of(inputs[task], changelogs[task]) for task in tasks}
