"""An active task of an instance: its state, waiting records and next run. Part of the core."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from functools import cached_property

from penstock.client.api import OffsetAndMetadata
from penstock.host.threads.arrived_records import ArrivedRecords, WaitingTotal
from penstock.host.threads.run_time import RunTime
from penstock.host.threads.vocabulary import GLOBAL_TASK, Arrived, Ran, RunTask
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock.task.idling import NO_WAIT, InputWait
from penstock.task.partition_group import BufferSize


class ActiveTaskState(Enum):
    """The state of an active task. CREATED: nothing is open yet."""

    CREATED = "CREATED"
    RESTORING = "RESTORING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    CLOSING = "CLOSING"


class ActiveTask:
    """One task and its input.

    Args:
        id: the task id.
        inputs: the input partitions.
        idle_ms: `max.task.idle.ms`.
        time: measures the runs of the task.
        total: counts the waiting records of all tasks.
        answers: the partitions of answers and of requests, for which the task waits neither by time nor when it is
            idle.
        woken: receives the id of the task as soon as it may have work.
    """

    def __init__(
        self,
        id: TaskId,
        inputs: Collection[TopicPartition],
        idle_ms: int,
        time: RunTime,
        total: WaitingTotal,
        answers: Iterable[TopicPartition] = (),
        woken: set[TaskId] | None = None,
    ) -> None:
        self.id = id
        self._woken = set() if woken is None else woken
        self.answers = frozenset(answers)
        self.state = ActiveTaskState.CREATED
        self.busy = False
        """Whether an action about the task is unanswered."""
        self.is_out = False
        """Whether that action is a run."""
        self.is_aside = False
        """Whether a function holds up the task; the other tasks go on without it."""
        self.is_slow = False
        """Whether that has happened. Each run is then committed before the next one, which may take as long."""
        self.had_changed = False
        """Whether the task had changes since its last commit before the current run."""
        self.changed = False
        """Whether the task has changes since its last commit."""
        self.uncommitted_bytes = 0
        """The size of its uncommitted changes of state."""
        self.due_ms: int | None = None
        """The time of its next work without records (ms), None for never."""
        self.time = time
        self.waiting_calls = 0
        """The number of committed records that wait for the answers of their calls."""
        self.arrived = ArrivedRecords([*inputs, *self.answers], total)
        """Records that wait outside and inside the task."""
        self.positions: dict[TopicPartition, int] = {}
        """The next offset of each partition to arrive."""
        self.times: dict[TopicPartition, int] = {}
        """The timestamp (ms) of the last arrived record of each partition."""
        self._committable: dict[TopicPartition, int] = {}
        """The last committable offsets."""
        self._idle_ms = idle_ms
        self._looks_again = False

    @cached_property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that the task reads."""
        return frozenset(self.arrived.partitions)

    @cached_property
    def inputs(self) -> frozenset[TopicPartition]:
        """The input partitions, without those of answers and of requests."""
        return self.partitions - self.answers

    @cached_property
    def topics(self) -> frozenset[str]:
        """The input topics."""
        return frozenset(partition.topic for partition in self.inputs)

    @property
    def held(self) -> Mapping[TopicPartition, BufferSize]:
        """Records that wait inside the task, by partition; empty partitions are absent."""
        return self.arrived.held

    @property
    def is_open(self) -> bool:
        """Whether the task accepts records of its partitions."""
        return self.state is ActiveTaskState.RUNNING

    def reset(self) -> None:
        """Drop all records, positions and times, because the task is reopened."""
        self.arrived.clear()
        self.positions, self.times, self._committable = {}, {}, {}
        self.due_ms, self._looks_again = None, False
        self.is_out, self.waiting_calls = False, 0
        self.committed()

    def committed(self) -> None:
        """Note that the task has no changes since its last commit."""
        self.changed, self.uncommitted_bytes = False, 0

    def add(self, arrived: Arrived) -> None:
        """Add records that have arrived."""
        partition, batch = arrived.partition, arrived.batch
        if len(batch):
            self._woken.add(self.id)
            self.arrived.add(partition, batch, arrived.size)
            self.positions[partition] = int(batch.offsets[-1]) + 1
            self.times[partition] = int(batch.timestamps[-1])

    def wake_at(self, due_ms: int | None) -> None:
        """Set the time of the next work without records (ms), None for never."""
        self.due_ms = due_ms
        if due_ms is not None:
            self._woken.add(self.id)

    def look_again(self) -> None:
        """Make the task check, after its current action, whether waiting records can be processed."""
        self._looks_again = True

    def heads(self) -> dict[TopicPartition, int]:
        """Return the timestamp (ms) of the first arrived record of each input partition that has one."""
        heads = self.arrived.heads()
        return {p: time for p, time in heads.items() if p not in self.answers} if self.answers else heads

    def records(self, partition: TopicPartition) -> int:
        """Return the number of waiting records of `partition`, outside and inside the task."""
        held = self.held.get(partition)
        return self.arrived.records[partition] + (held.records if held else 0)

    def reach(self, partition: TopicPartition, end: int) -> None:
        """Note that a partition has been read up to `end`. Offsets after its last record, such as the end of a
        transaction, are committed too (KAFKA-6607)."""
        if end > self.positions[partition]:
            self.positions[partition] = end
            self.changed |= self.id != GLOBAL_TASK
        self.look_again()

    def committable(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that the task commits. A partition without waiting records is committed up to its read
        position, even beyond the records that the task has seen. This holds when more records arrive: no offset goes
        back."""
        read = {p: self._committable.get(p, 0) if self.records(p) else self.positions[p] for p in offsets}
        committed = {p: each._replace(offset=max(each.offset, read[p])) for p, each in offsets.items()}
        self._committable = {partition: each.offset for partition, each in committed.items()}
        return committed

    def reposition(self, partition: TopicPartition, position: int) -> None:
        """Move a partition to `position`, because the records at its old position are deleted."""
        self.positions[partition] = position
        self._committable.pop(partition, None)

    def bytes(self, partition: TopicPartition) -> int:
        """Return the approximate bytes of `partition`'s waiting keys and values, outside and inside the task."""
        held = self.held.get(partition)
        return self.arrived.bytes[partition] + (held.bytes if held else 0)

    def waiting_bytes(self) -> int:
        """Return the approximate bytes of waiting keys and values, outside and inside the task."""
        held = sum(held.bytes for held in self.held.values()) if self.held else 0
        return self.arrived.all_bytes + held

    def waiting(self) -> BufferSize:
        """Return the number and approximate bytes of waiting records, outside and inside the task."""
        return BufferSize(sum(map(self.records, self.partitions)), self.waiting_bytes())

    @property
    def is_committed(self) -> bool:
        """Whether commits include the task."""
        return self.state is ActiveTaskState.RUNNING and not self.is_aside

    def is_ready(self, now: int, most_held: int) -> bool:
        """Return whether the task has work at `now` (ms). most_held: see `next_run`."""
        if self.state is not ActiveTaskState.RUNNING or self.busy or self.is_aside:
            return False
        return self.has_more_than_records(now) or self.weight(most_held) > 0

    def has_more_than_records(self, now: int) -> bool:
        """Return whether the task has work without a new record."""
        is_due = self.due_ms is not None and self.due_ms <= now
        return is_due or (self._looks_again and bool(self.held))

    def weight(self, most_held: int) -> int:
        """Return the number of waiting records that can be given to the task. most_held: see `next_run`."""
        arrived = self.arrived
        if not arrived.held:
            return arrived.all_records
        kept = (arrived.records[partition] for partition in arrived.held if not self._may_take(partition, most_held))
        return arrived.all_records - sum(kept)

    def has_waiting(self) -> bool:
        """Return whether records wait, outside or inside the task."""
        return self.arrived.all_records > 0 or bool(self.arrived.held)

    def may_get_work(self) -> bool:
        """Return whether records wait or a time is due, now or later."""
        return self.due_ms is not None or self.has_waiting()

    def _may_take(self, partition: TopicPartition, most_held: int) -> bool:
        held = self.held.get(partition)
        return held is None or held.records <= most_held

    def next_run(
        self,
        ends: Mapping[TopicPartition, int],
        now: int,
        most_held: int,
        share: Mapping[TopicPartition, int] | None = None,
        behind: frozenset[str] = frozenset(),
    ) -> RunTask:
        """Return the next run of the task, and mark the task as busy.

        Args:
            ends: known ends of partitions.
            now: wall clock (ms).
            most_held: a partition with more records inside the task gets no new ones.
            share: the most records to take of each partition, None for no limit.
            behind: topics with more records to wait for.
        """
        arrived, most_records = self.arrived, self.time.most_records
        most = dict.fromkeys(arrived.partitions, most_records) if share is None else share
        records = [
            (partition, arrived.take(partition, min(most_records, most[partition])))
            for partition in arrived.partitions
            if arrived.records[partition] and most[partition] and self._may_take(partition, most_held)
        ]
        self.time.began(max((len(batch) for _, batch in records), default=0))
        self.had_changed = self.changed
        self.busy = self.is_out = self.changed = True
        self._looks_again = False
        return RunTask(self.id, records, self._wait(ends, behind), now)

    def ran(self, event: Ran) -> None:
        """Note the result of a run."""
        self.busy = self.is_out = False
        self.wake_at(event.next_wall_clock_ms)
        if event.waiting:
            self._woken.add(self.id)
        self.arrived.hold(event.waiting)
        self.time.ended(event.records, event.nanoseconds)

    def _wait(self, ends: Mapping[TopicPartition, int], behind: frozenset[str]) -> InputWait:
        """Return the wait of the run, for partitions that have, or may have, more records."""
        if len(self.inputs) < 2 or self._idle_ms < 0:
            return NO_WAIT
        inputs = tuple(p for p in self.arrived.partitions if p not in self.answers)
        lagging = {
            partition
            for partition in inputs
            if self.arrived.records[partition]
            or partition.topic in behind
            or partition not in ends
            or self.positions.get(partition, 0) < ends[partition]
        }
        return InputWait(inputs, frozenset(lagging), self._idle_ms)
