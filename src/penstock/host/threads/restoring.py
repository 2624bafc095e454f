"""Opens the state of tasks: restores bases from changelogs and finds input positions.

Kafka classes: StoreChangelogReader, StateManagerUtil. The restore thread calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from penstock.client.api import Admin
from penstock.config.offset_reset import EARLIEST
from penstock.errors import RetriableError
from penstock.host.commits.committing import check_has_state, check_task, checkpoint_of, commit_of
from penstock.host.commits.purging import RecordPurge
from penstock.host.crashpoints import crash_point
from penstock.host.deployment.layout import Layout
from penstock.host.deployment.offset_resets import after_truncation, offset_resets, reset_offsets
from penstock.host.threads.changelog_reader import ChangelogReader
from penstock.host.threads.standbys import Standbys
from penstock.host.threads.task_offsets import OffsetsOfTasks, TaskOffsets
from penstock.host.threads.unread import unread
from penstock.host.threads.vocabulary import GLOBAL_TASK, OpenedState, UnreadFound
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock.state.api import Base
from penstock.task.changelog_copy import ChangelogCopy
from penstock.task.task_checkpoint import TaskCheckpoint
from penstock_broker.common.clock import Clock


class StateOpener:
    """Opens the state of tasks, several in turns: small restores must not await large ones.

    Args:
        layout: the tasks of the application.
        admin: the client of the calling thread.
        reader: reads the changelogs.
        open_base: returns the base of a task.
        clock: of the machine.
        standbys: the standby copies; a restore takes over the copy of its task.
    """

    def __init__(
        self,
        layout: Layout,
        admin: Admin,
        reader: ChangelogReader,
        open_base: Callable[[TaskId], Base],
        clock: Clock,
        standbys: Standbys | None = None,
    ) -> None:
        self._layout = layout
        self._admin = admin
        self._reader = reader
        self._open_base = open_base
        self._clock = clock
        self._standbys = standbys
        self._offsets = OffsetsOfTasks(layout, admin)
        self._resets = offset_resets(layout.topology, layout.config)

    def open(self, task: TaskId) -> OpenedState:
        """Return the state of `task` as of the end of its changelogs.

        Raises RestoreStoppedError if it was cancelled; StreamsError if it cannot be opened or restored, or a partition
        has no position and the offset reset is `none`.
        """
        steps = self.opening(task)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                opened: OpenedState = end.value
                return opened

    def opening(self, task: TaskId) -> Generator[None, None, OpenedState]:
        """Open the state of `task` as `open` does, in steps.

        The first step asks the brokers about all tasks requested by then. A step before the first read determines the
        remaining offsets; each later step reads a part of a changelog. Closing the generator early closes the state.
        """
        if task != GLOBAL_TASK:
            self._offsets.want(task)
        return self._steps(task)

    def _steps(self, task: TaskId) -> Generator[None, None, OpenedState]:
        try:
            return (yield from self._open(task))
        finally:
            self._reader.forget(task)
            self._offsets.forget(task)

    def remaining(self, task: TaskId) -> int:
        """Return the number of remaining changelog offsets of `task`, see `ChangelogReader.remaining`."""
        return self._reader.remaining(task)

    def cancel(self, task: TaskId) -> None:
        """Cancel the restore of `task`; from any thread."""
        self._reader.cancel(task)

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
        """Return the new position of `partition`, which lacks the records at its position.

        Raises StreamsError if its offset reset is `none`.
        """
        asked = [partition]
        begins, ends = self._admin.beginning_offsets(asked), self._admin.end_offsets(asked, read_committed=True)
        return self._positions(TaskOffsets({}, begins, ends, {}))[partition]

    def find_unread(self, ends: Mapping[TopicPartition, int]) -> UnreadFound:
        """Return the uncommitted input of the group.

        It runs here because this thread has an admin client.
        """
        try:
            return UnreadFound(unread(self._layout, self._admin, ends, self._clock.milliseconds()))
        except RetriableError:  # the core asks again
            return UnreadFound(None)

    def purge(self, purge: RecordPurge, positions: Mapping[TopicPartition, int]) -> None:
        """Delete the records before `positions` if a purge is due.

        It runs here because this thread has an admin client.
        """
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
        yield from self._reader.restore(task, changelogs, copy, ends)
        if changelogs:
            copy.restored_to({partition: each.offset for partition, each in committed.items()}, commit_of(committed))
        checkpoint = checkpoint_of(committed, copy.stamp.processor_metadata, copy.restored_metadata)
        answers = {partition: offsets.ends[partition] for partition in self._layout.answers(task).values()}
        return OpenedState(base, copy.stamp, positions, checkpoint, answers)

    def _positions(self, offsets: TaskOffsets) -> dict[TopicPartition, int]:
        """Return the input positions.

        A partition without a position, or whose records there are gone, starts at its beginning if the topic belongs to
        the application, otherwise by its offset reset.
        """
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

    def _open_global(self, base: Base) -> OpenedState:
        spec = self._layout.topology.global_topology
        assert spec is not None
        copy = ChangelogCopy(spec.stores, {}, self._layout.config, base)
        partitions = self._layout.global_partitions
        begins = self._admin.beginning_offsets(partitions)
        now, planned = self._admin.end_offsets(partitions, read_committed=True), self._layout.topology.planned_ends
        ends = {partition: min(end, planned.get(partition, end)) for partition, end in now.items()}
        copy.continue_with(self._admin.topic_ids({partition.topic for partition in partitions}))
        known = copy.stamp.offsets
        if any(not begins[p] <= offset <= ends[p] for p, offset in known.items() if p in ends):
            copy.clear()
            known = {}
        return OpenedState(base, copy.stamp, {**begins, **known}, TaskCheckpoint(), ends)
