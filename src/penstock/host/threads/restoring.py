"""Opens the state of tasks: brings a base to the end of its changelogs, and finds out from where the task reads (Kafka
classes: StoreChangelogReader, StateManagerUtil). The restore thread calls it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from functools import partial

from penstock.client.api import Admin, Fetcher
from penstock.config.offset_reset import EARLIEST
from penstock.errors import OffsetOutOfRangeError, RetriableError, StreamsError
from penstock.host.commits.committing import check_has_state, check_task, checkpoint_of
from penstock.host.commits.purging import RecordPurge
from penstock.host.crashpoints import crash_point
from penstock.host.deployment.layout import Layout
from penstock.host.deployment.offset_resets import after_truncation, offset_resets, reset_offsets
from penstock.host.threads.standbys import Fill, Standbys, empty_if_outside, no_snapshots
from penstock.host.threads.task_offsets import OffsetsOfTasks, TaskOffsets
from penstock.host.threads.unread import unread
from penstock.host.threads.vocabulary import (
    GLOBAL_TASK,
    OpenedState,
    UnreadFound,
)
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock.state.api import Base
from penstock.state.restore_listener import StateRestoreListener
from penstock.task.changelog_copy import ChangelogCopy
from penstock.task.task_checkpoint import TaskCheckpoint
from penstock_broker.common.clock import Clock

_log = logging.getLogger(__name__)

_MOST_BEGINNINGS = 5
"""How often a restore begins whose changelogs lose records meanwhile: retention deletes some every few minutes."""

Steps = Generator[None, None, None]
"""What takes long, in steps between which other tasks can be opened."""


class RestoreStoppedError(StreamsError):
    """The instance ends while a task is being restored, or others are to have the task."""


class StateOpener:
    """Opens the state of tasks: several in turns, for one with little to restore must not wait for one with much."""

    def __init__(
        self,
        layout: Layout,
        admin: Admin,
        fetcher: Fetcher,
        open_base: Callable[[TaskId], Base],
        clock: Clock,
        listener: StateRestoreListener | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
        standbys: Standbys | None = None,
        fill: Fill = no_snapshots,
        restored: Callable[[TaskId, int, int], None] = lambda task, records, remaining: None,
    ) -> None:
        """Open nothing yet. open_base: returns the base of a task. listener: receives the progress. is_stopped: whether
        a restore is to be given up. standbys: the copies of which a restore takes over that of its task. fill: with
        what an empty base begins. restored: receives the records that were applied to a task, and how many offsets of
        its changelogs remain."""
        self._layout = layout
        self._admin = admin
        self._fetcher = fetcher
        self._open_base = open_base
        self._clock = clock
        self._listener = listener
        self._is_stopped = is_stopped
        self._standbys = standbys
        self._fill = fill
        self._restored = restored
        self._progress: Mapping[TaskId, tuple[int, int]] = {}
        self._opening: TaskId | None = None
        self._cancelled: set[TaskId] = set()
        self._offsets = OffsetsOfTasks(layout, admin)
        self._resets = offset_resets(layout.topology, layout.config)

    def progress(self) -> Mapping[TaskId, tuple[int, int]]:
        """Return of each task that is being restored how many offsets of its changelogs are done, and how many there
        are; from any thread."""
        return self._progress

    def open(self, task: TaskId) -> OpenedState:
        """Return the state of `task` as of the end of its changelogs.

        Raises RestoreStoppedError if it was given up; StreamsError if it cannot be opened or restored, or there is no
        position and the offset reset is none.
        """
        steps = self.opening(task)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                opened: OpenedState = end.value
                return opened

    def opening(self, task: TaskId) -> Generator[None, None, OpenedState]:
        """As `open`, in steps; the state is closed if not all of them are made. A step reads a part of a changelog; one
        before shows how much there is. The first step asks the brokers for all tasks that are to be opened by then."""
        if task != GLOBAL_TASK:
            self._offsets.want(task)
        return self._steps(task)

    def _steps(self, task: TaskId) -> Generator[None, None, OpenedState]:
        steps = self._open(task)
        try:
            while True:
                self._opening = task
                try:
                    next(steps)
                except StopIteration as end:
                    opened: OpenedState = end.value
                    return opened
                yield
        finally:
            self._opening = task
            steps.close()
            self._opening, self._progress = None, {id: each for id, each in self._progress.items() if id != task}
            self._cancelled.discard(task)
            self._offsets.forget(task)

    def remaining(self, task: TaskId) -> int:
        """Return how many offsets of the changelogs of a task that is being restored remain; of one that begins with a
        snapshot that is not known yet, and counts as more than others have."""
        done, total = self._progress.get(task, (0, sys.maxsize))
        return total - done

    def cancel(self, task: TaskId) -> None:
        """Do not go on with the restore of `task`, or with the next one if none goes on; from any thread."""
        self._cancelled.add(task)

    def _open(self, task: TaskId) -> Generator[None, None, OpenedState]:
        standby = None if self._standbys is None else self._standbys.take(task)
        base = self._open_base(task) if standby is None else standby.base
        crash_point("state.opened", 0)
        try:
            if task == GLOBAL_TASK:
                return self._open_global(base)
            return (yield from self._open_task(task, base, standby))
        except BaseException:
            base.close()
            raise

    def reset(self, partition: TopicPartition) -> int:
        """Return from where `partition` is read that does not have the records at its position; raises StreamsError if
        its offset reset is none."""
        asked = [partition]
        begins, ends = self._admin.beginning_offsets(asked), self._admin.end_offsets(asked, read_committed=True)
        return self._positions(TaskOffsets({}, begins, ends, {}))[partition]

    def find_unread(self, ends: Mapping[TopicPartition, int]) -> UnreadFound:
        """Return what the group has not committed yet: this thread has a client that knows."""
        try:
            return UnreadFound(unread(self._layout, self._admin, ends, self._clock.milliseconds()))
        except RetriableError:  # it is asked for again
            return UnreadFound(None)

    def purge(self, purge: RecordPurge, positions: Mapping[TopicPartition, int]) -> None:
        """Delete the records before `positions` if it is time to: this thread has a client for it."""
        purge.purge(self._admin, positions)

    def _open_task(self, task: TaskId, base: Base, standby: ChangelogCopy | None) -> Generator[None, None, OpenedState]:
        spec, changelogs = self._layout.spec(task), self._layout.changelogs(task)
        copy = standby or ChangelogCopy(spec.stores, changelogs, self._layout.config, base)
        copy.continue_with(self._admin.topic_ids({partition.topic for partition in changelogs.values()}))
        offsets = self._offsets.take(task)
        committed = offsets.committed
        if changelogs:
            check_task(task, committed)
        if self._layout.stateful:
            check_has_state(committed)
        positions = self._positions(offsets)
        ends = {p: positions.get(p, end) for p, end in offsets.changelog_ends.items()}
        yield from self._restore(task, changelogs, copy, ends)
        if changelogs:
            copy.restored_to({partition: each.offset for partition, each in committed.items()})
        checkpoint = checkpoint_of(committed, copy.stamp.processor_metadata, copy.restored_metadata)
        return OpenedState(base, copy.stamp, positions, checkpoint)

    def _positions(self, offsets: TaskOffsets) -> dict[TopicPartition, int]:
        """Return where the input is read from: a topic of the application itself from its beginning, another one
        without a position, or whose records there are gone, by its offset reset."""
        committed = offsets.committed
        kept = {p: each.offset for p, each in committed.items()} | after_truncation(
            self._admin, committed, self._resets
        )
        known = {p: offset for p, offset in kept.items() if offset is not None and offsets.begins[p] <= offset}
        resets = {partition: self._resets[partition.topic] for partition in offsets.begins if partition not in known}
        own = self._layout.topology.repartition_topics
        first = {p: offsets.begins[p] for p, reset in resets.items() if reset == EARLIEST or p.topic in own}
        others = {p: reset for p, reset in resets.items() if p not in first}
        found = reset_offsets(self._admin, others, offsets.ends, self._clock.milliseconds()) if others else {}
        return {**known, **first, **found}

    def _restore(
        self,
        task: TaskId,
        changelogs: Mapping[str, TopicPartition],
        copy: ChangelogCopy,
        ends: Mapping[TopicPartition, int],
    ) -> Steps:
        """Bring a copy to the ends of its changelogs; again where retention deletes records that were to be read."""
        for left in reversed(range(_MOST_BEGINNINGS)):
            try:
                yield from self._restore_once(task, changelogs, copy, ends)
            except OffsetOutOfRangeError as error:
                if not left:
                    raise
                _log.warning("The restore of task %s begins again, because records were deleted: %s", task, error)
                self._progress = {id: each for id, each in self._progress.items() if id != task}
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
                if self._is_given_up():
                    copy.clear()
                    raise RestoreStoppedError(f"The restore of task {task} from a snapshot was given up.")
                yield
        starts = {store: max(copy.position(store), begins[partition]) for store, partition in changelogs.items()}
        total = sum(max(ends[partition] - starts[store], 0) for store, partition in changelogs.items())
        self._show(0, total)
        if total:
            yield
        for store, partition in changelogs.items():
            yield from self._restore_store(store, partition, copy, starts[store], ends[partition])
        if changelogs:
            self._restored(task, 0, 0)  # there may be no record at an end

    def _is_given_up(self) -> bool:
        return self._is_stopped() or self._opening in self._cancelled

    def _show(self, done: int, total: int = 0, records: int = 0) -> None:
        """Show that so many more offsets are done, with so many records; total: of the task, if it begins."""
        if self._opening is not None:
            before, known = self._progress.get(self._opening, (0, total))
            self._progress = {**self._progress, self._opening: (before + done, known)}
            if known:
                self._restored(self._opening, records, max(known - before - done, 0))

    def _restore_store(self, store: str, partition: TopicPartition, copy: ChangelogCopy, start: int, end: int) -> Steps:
        restored = 0
        self._tell(lambda listener: listener.on_restore_start(partition, store, start, end))
        try:
            for batch in self._fetcher.fetch(partition, start, end, read_committed=True) if start < end else ():
                if self._is_given_up():
                    raise RestoreStoppedError(f"The restore of store {store} from {partition} was given up.")
                last = int(batch.offsets[-1])
                done = last + 1 - max(copy.position(store), start)
                copy.apply(store, batch, last + 1)
                self._show(done, records=len(batch))
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
            except BaseException:  # sys.exit() too, which would end this thread alone
                _log.exception("The restore listener failed; it will receive the next call.")

    def _open_global(self, base: Base) -> OpenedState:
        spec = self._layout.topology.global_topology
        assert spec is not None
        copy = ChangelogCopy(spec.stores, {}, self._layout.config, base)
        partitions = self._layout.global_partitions
        begins = self._admin.beginning_offsets(partitions)
        ends = self._admin.end_offsets(partitions, read_committed=True)
        copy.continue_with(self._admin.topic_ids({partition.topic for partition in partitions}))
        known = copy.stamp.offsets
        if any(not begins[p] <= offset <= ends[p] for p, offset in known.items() if p in ends):
            copy.clear()
            known = {}
        return OpenedState(base, copy.stamp, {**begins, **known}, TaskCheckpoint(), ends)


def _progressed(partition: TopicPartition, store: str, last: int, records: int, listener: StateRestoreListener) -> None:
    listener.on_batch_restored(partition, store, last, records)


def _suspended(partition: TopicPartition, store: str, records: int, listener: StateRestoreListener) -> None:
    listener.on_restore_suspended(partition, store, records)
