"""The offsets that brokers have of tasks before they are opened: committed ones, and the ends of their partitions.

They are asked once for all tasks that wait to be opened. Each request for committed offsets takes a client of its own,
and with one for each task, the start of many tasks would take minutes beside those that run already.
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
    """Offsets of one task. committed: of its input, without partitions that have none. begins, ends: of its input.
    changelog_ends: asked for after the committed offsets, which are stable: so what the last owner of the task has
    written is before them."""

    committed: Mapping[TopicPartition, OffsetAndMetadata]
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    changelog_ends: Mapping[TopicPartition, int]

    def of(self, partitions: Collection[TopicPartition], changelogs: Iterable[TopicPartition]) -> TaskOffsets:
        """Return those of a task that reads `partitions`, and has these changelogs."""
        return TaskOffsets(
            {p: self.committed[p] for p in partitions if p in self.committed},
            {p: self.begins[p] for p in partitions},
            {p: self.ends[p] for p in partitions},
            {p: self.changelog_ends[p] for p in changelogs},
        )


class OffsetsOfTasks:
    """Asks brokers for the offsets of tasks, for many at one time."""

    def __init__(self, layout: Layout, admin: Admin) -> None:
        self._layout = layout
        self._admin = admin
        self._group = str(layout.config.required("application.id"))
        self._wanted: dict[TaskId, None] = {}
        self._known: dict[TaskId, TaskOffsets] = {}

    def want(self, task: TaskId) -> None:
        """Ask for the offsets of `task` too when the next ones are asked for; earlier answers are out of date."""
        self.forget(task)
        self._wanted[task] = None

    def take(self, task: TaskId) -> TaskOffsets:
        """Return the offsets of `task`, once. Raises what a request to the brokers raises."""
        if task not in self._known:
            together, self._wanted = [*{task: None, **self._wanted}], {}
            try:
                self._known.update(self._ask(together))
            except StreamsError:  # about one of them, while the others may be opened
                if len(together) == 1:
                    raise
                self._known.update(self._ask([task]))
        return self._known.pop(task)

    def forget(self, task: TaskId) -> None:
        """Take that `task` is not to be opened any more."""
        self._wanted.pop(task, None)
        self._known.pop(task, None)

    def _ask(self, tasks: Collection[TaskId]) -> dict[TaskId, TaskOffsets]:
        inputs = {task: self._layout.groups[task] for task in tasks}
        changelogs = {task: self._layout.changelogs(task).values() for task in tasks}
        partitions = sorted({p for each in inputs.values() for p in each})
        found = TaskOffsets(
            self._admin.committed_offsets(self._group, partitions),
            self._admin.beginning_offsets(partitions),
            self._admin.end_offsets(partitions, read_committed=True),
            self._admin.end_offsets(sorted({p for each in changelogs.values() for p in each})),
        )
        return {task: found.of(inputs[task], changelogs[task]) for task in tasks}
