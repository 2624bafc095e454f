"""Restores a task by reading its changelogs to their ends (Kafka class: StoreChangelogReader). Called by the restore
thread."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from functools import partial

from penstock.client.api import Admin, Fetcher
from penstock.errors import OffsetOutOfRangeError, StreamsError
from penstock.host.crashpoints import crash_point
from penstock.host.threads.standbys import Fill, empty_if_outside, no_snapshots
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock.state.restore_listener import StateRestoreListener
from penstock.task.changelog_copy import ChangelogCopy

_log = logging.getLogger(__name__)

_MOST_BEGINNINGS = 5
"""The most attempts at a restore that meanwhile loses changelog records. Retention deletes some every few minutes."""

Steps = Generator[None, None, None]
"""A long operation in steps; other tasks can be opened between them."""


class RestoreStoppedError(StreamsError):
    """The instance ends during a restore, or the task moves to another member."""


class ChangelogReader:
    """Restores copies of the state of tasks, several in turns, and tracks their progress.

    Args:
        admin: admin client of the calling thread.
        fetcher: reads changelogs.
        listener: receives the progress.
        is_stopped: whether to give up restores.
        fill: fills an empty copy, for example from a snapshot.
        restored: receives a task, the number of records applied to it, and the remaining offsets of its changelogs.
    """

    def __init__(
        self,
        admin: Admin,
        fetcher: Fetcher,
        listener: StateRestoreListener | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
        fill: Fill = no_snapshots,
        restored: Callable[[TaskId, int, int], None] = lambda task, records, remaining: None,
    ) -> None:
        self._admin = admin
        self._fetcher = fetcher
        self._listener = listener
        self._is_stopped = is_stopped
        self._fill = fill
        self._restored = restored
        self._progress: Mapping[TaskId, tuple[int, int]] = {}
        self._cancelled: set[TaskId] = set()

    def progress(self) -> Mapping[TaskId, tuple[int, int]]:
        """Return the done and total changelog offsets of each task being restored; from any thread."""
        return self._progress

    def remaining(self, task: TaskId) -> int:
        """Return the remaining changelog offsets of a task being restored. The number is unknown while a snapshot is
        loaded first, and then counts as more than any other."""
        done, total = self._progress.get(task, (0, sys.maxsize))
        return total - done

    def cancel(self, task: TaskId) -> None:
        """Give up the current restore of `task`, or else its next one; from any thread."""
        self._cancelled.add(task)

    def forget(self, task: TaskId) -> None:
        """Forget the restore of `task`, which has ended."""
        self._hide(task)
        self._cancelled.discard(task)

    def restore(
        self,
        task: TaskId,
        changelogs: Mapping[str, TopicPartition],
        copy: ChangelogCopy,
        ends: Mapping[TopicPartition, int],
    ) -> Steps:
        """Bring a copy to the ends of its changelogs, in steps. Start over if retention deletes records before they are
        read. Raises RestoreStoppedError if the restore is given up, KafkaError if the brokers do not answer."""
        for left in reversed(range(_MOST_BEGINNINGS)):
            try:
                yield from self._restore_once(task, changelogs, copy, ends)
            except OffsetOutOfRangeError as error:
                if not left:
                    raise
                _log.warning("The restore of task %s begins again, because records were deleted: %s", task, error)
                self._hide(task)
            else:
                return

    def _restore_once(
        self,
        task: TaskId,
        changelogs: Mapping[str, TopicPartition],
        copy: ChangelogCopy,
        ends: Mapping[TopicPartition, int],
    ) -> Steps:
        begins = self._admin.beginning_offsets(list(ends))
        empty_if_outside(copy, changelogs, begins, ends)
        with closing(self._fill(task, copy, begins, ends)) as parts:
            for _ in parts:
                if self._is_given_up(task):
                    copy.clear()
                    raise RestoreStoppedError(f"The restore of task {task} from a snapshot was given up.")
                yield
        starts = {store: max(copy.position(store), begins[partition]) for store, partition in changelogs.items()}
        total = sum(max(ends[partition] - starts[store], 0) for store, partition in changelogs.items())
        self._show(task, 0, total)
        if total:
            yield
        for store, partition in changelogs.items():
            yield from self._restore_store(task, store, partition, copy, starts[store], ends[partition])
        if changelogs:
            self._restored(task, 0, 0)  # there may be no record at the ends

    def _is_given_up(self, task: TaskId) -> bool:
        return self._is_stopped() or task in self._cancelled

    def _hide(self, task: TaskId) -> None:
        self._progress = {id: each for id, each in self._progress.items() if id != task}

    def _show(self, task: TaskId, done: int, total: int = 0, records: int = 0) -> None:
        """Add offsets and records to the progress of a task. total: its offsets, at the beginning."""
        before, known = self._progress.get(task, (0, total))
        self._progress = {**self._progress, task: (before + done, known)}
        if known:
            self._restored(task, records, max(known - before - done, 0))

    def _restore_store(
        self, task: TaskId, store: str, partition: TopicPartition, copy: ChangelogCopy, start: int, end: int
    ) -> Steps:
        restored = 0
        self._tell(lambda listener: listener.on_restore_start(partition, store, start, end))
        try:
            for batch in self._fetcher.fetch(partition, start, end, read_committed=True) if start < end else ():
                if self._is_given_up(task):
                    raise RestoreStoppedError(f"The restore of store {store} from {partition} was given up.")
                last = int(batch.offsets[-1])
                done = last + 1 - max(copy.position(store), start)
                copy.apply(store, batch, last + 1)
                self._show(task, done, records=len(batch))
                crash_point("state.read", 0)
                restored += len(batch)
                self._tell(partial(_progressed, partition, store, last, len(batch)))
                yield
        except (RestoreStoppedError, OffsetOutOfRangeError):
            self._tell(partial(_suspended, partition, store, restored))
            raise
        copy.reached(store, end)
        self._tell(lambda listener: listener.on_restore_end(partition, store, restored))

    def _tell(self, call: Callable[[StateRestoreListener], None]) -> None:
        if self._listener is not None:
            try:
                call(self._listener)
            except BaseException:  # including sys.exit(), which would end only this thread
                _log.exception("The restore listener failed; it will receive the next call.")


def _progressed(partition: TopicPartition, store: str, last: int, records: int, listener: StateRestoreListener) -> None:
    listener.on_batch_restored(partition, store, last, records)


def _suspended(partition: TopicPartition, store: str, records: int, listener: StateRestoreListener) -> None:
    listener.on_restore_suspended(partition, store, records)
