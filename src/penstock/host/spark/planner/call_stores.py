"""The waiting records of calls, as the planner reads them from the segments of a checkpoint.

The planner sees each manifest and reads only the segments that follow the one before, of tasks whose commits have
changed the waiting records. At its start, or if the one before is unknown, it reads all live segments of a task. It
decodes only the stores of waiting records, and reads several tasks at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.checkpoints.task_segments import read_segment
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.plan.subtopology import TaskId
from penstock.processor.waiting_records import Waiting, WaitingRecord, unpack_waiting
from penstock.record import TopicPartition
from penstock.serdes.sequenced_key import split_sequenced_key
from penstock.state.segment_log import log_from_json, path

_READ_AT_ONCE: Final = 8
"""Most tasks that are read at the same time."""


class TaskInbox(NamedTuple):
    """The store of one operator with calls in one task.

    Args:
        task: the task.
        node: the name of the operator.
        store: the name of the store.
        answers: the partition with the answers.
    """

    task: TaskId
    node: str
    store: str
    answers: TopicPartition


@dataclass
class _TaskInboxes:
    """The waiting records of a task at a head of its log, by inbox and key of the entry.

    calls_head: as in TaskEntry.
    """

    records: dict[TaskInbox, dict[bytes, WaitingRecord]]
    head: str = ""
    calls_head: str = ""

    def is_at(self, entry: TaskEntry) -> bool:
        """Return whether the records are those of `entry`; then this is at its head."""
        if self.head and self.calls_head == entry.calls_head:
            self.head = entry.head
        return self.head == entry.head


def task_inboxes(description: ApplicationDescription) -> list[TaskInbox]:
    """Return the inboxes of all tasks of an application."""
    return [
        TaskInbox(task, calls.node, calls.store, TopicPartition(topic, task.partition))
        for task in description.placement.tasks
        for topic, calls in description.subtopologies[task.subtopology].answers_topics.items()
    ]


class CallStores:
    """Follows the waiting records of calls from manifest to manifest.

    Args:
        inboxes: the stores to follow.
        checkpoint: of the application.
    """

    def __init__(self, inboxes: list[TaskInbox], checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        by_task: dict[TaskId, list[TaskInbox]] = {}
        for inbox in inboxes:
            by_task.setdefault(inbox.task, []).append(inbox)
        self._tasks = {task: _TaskInboxes({inbox: {} for inbox in own}) for task, own in by_task.items()}

    def follow(self, manifest: Manifest) -> dict[TaskInbox, list[Waiting]]:
        """Advance to `manifest`; return the records that have been added since the manifest before.

        Raises TaskCorruptedError if a segment is missing or damaged, ProcessorStateError if a record cannot be read.
        """
        entries = {task: manifest.entry(str(task)) for task in self._tasks}
        changed = [task for task, entry in entries.items() if not self._tasks[task].is_at(entry)]
        if not changed:
            return {}
        with ThreadPoolExecutor(min(_READ_AT_ONCE, len(changed))) as pool:
            all_found = list(pool.map(lambda task: self._advance(task, entries[task]), changed))
        return {inbox: _in_order(records) for found in all_found for inbox, records in found.items() if records}

    def waiting(self, inbox: TaskInbox) -> list[Waiting]:
        """Return all records that wait in `inbox`, in order of their numbers."""
        return _in_order(self._tasks[inbox.task].records[inbox])

    def __len__(self) -> int:
        return sum(len(records) for inboxes in self._tasks.values() for records in inboxes.records.values())

    def _advance(self, task: TaskId, entry: TaskEntry) -> dict[TaskInbox, dict[bytes, WaitingRecord]]:
        """Advance the inboxes of a task to the head of `entry`; return the added records by key."""
        inboxes = self._tasks[task]
        route = path(log_from_json(dict(entry.segments)), bytes.fromhex(inboxes.head) or None)
        changed: dict[TaskInbox, dict[bytes, bytes | None]] = {inbox: {} for inbox in inboxes.records}
        stores = {inbox.store for inbox in changed}
        for info in route.segments:
            changes = read_segment(self._checkpoint, str(task), info, stores).changes
            for inbox, last in changed.items():
                last.update(changes.get(inbox.store, {}))
        before = inboxes.records
        if route.rebuild:
            inboxes.records = {inbox: {} for inbox in before}
        inboxes.head, inboxes.calls_head = entry.head, entry.calls_head
        return {inbox: _apply(inbox, last, before[inbox], inboxes.records[inbox]) for inbox, last in changed.items()}


def _apply(
    inbox: TaskInbox,
    changes: Mapping[bytes, bytes | None],
    before: Mapping[bytes, WaitingRecord],
    records: dict[bytes, WaitingRecord],
) -> dict[bytes, WaitingRecord]:
    """Apply `changes` to `records`; return those that are not in `before`, which may be the same object."""
    added: dict[bytes, WaitingRecord] = {}
    for key, data in changes.items():
        if data is None:
            records.pop(key, None)
            continue
        record = unpack_waiting(data, inbox.store)
        if before.get(key) != record:
            added[key] = record
        records[key] = record
    return added


def _in_order(records: Mapping[bytes, WaitingRecord]) -> list[Waiting]:
    return [(split_sequenced_key(key)[0], records[key]) for key in sorted(records)]
