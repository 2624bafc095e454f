"""The messages between planner, tasks, sink and driver in one epoch: control rows and reports.

Plain values without behaviour. All data that a task may know of its epoch is in the offset, which the checkpoint logs
before the epoch runs, or in the manifest of the previous epoch; so a replay of an epoch sees the same data.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.protocol.rows import decode_message, encode_message
from penstock.host.spark.protocol.task_entry import CarriedRange, TaskEntry
from penstock.record import TopicPartition


class GlobalControl(NamedTuple):
    """The data of an epoch that the global stores of a machine need.

    Args:
        epoch: number of the epoch.
        planned_ms: clock of the epoch.
        positions: the next offset of each partition, by global topic.
    """

    epoch: int
    planned_ms: int
    positions: Mapping[str, list[int]]

    @staticmethod
    def of(offset: EpochOffset) -> GlobalControl:
        """Return the control of the epoch that ends at `offset`."""
        return GlobalControl(offset.epoch, offset.planned_ms, offset.global_positions)


class TaskControl(NamedTuple):
    """The data of an epoch that a task needs.

    Args:
        epoch: number of the epoch.
        planned_ms: clock of the epoch.
        entry: the task's entry in the manifest of the previous epoch.
        carried: ranges of the rows that were carried to the task.
        global_positions: positions of the global stores that it reads.
        lagging: the inputs that lag.
        idle_ms: how long the task waits for other inputs.
        clock_went_back: whether the clock is before that of the previous epoch.
        taps: number of last records to keep for inspection, by node.
        call_again_before: the offsets before which failed answers are ignored, by partition of an answers topic.
        offset_digest: the digest of the epoch's offset, which is the same if the epoch runs again.
    """

    epoch: int
    planned_ms: int
    entry: TaskEntry
    carried: tuple[CarriedRange, ...] = ()
    global_positions: Mapping[str, list[int]] = MappingProxyType({})
    lagging: tuple[TopicPartition, ...] = ()
    idle_ms: int = 0
    clock_went_back: bool = False
    taps: Mapping[str, int] = MappingProxyType({})
    call_again_before: Mapping[TopicPartition, int] = MappingProxyType({})
    offset_digest: str = ""

    def encode(self) -> bytes:
        """Return the control as a blob."""
        carried = tuple(map(tuple, self.carried))
        positions, lagging = dict(self.global_positions), tuple(map(tuple, self.lagging))
        again = tuple((*partition, before) for partition, before in self.call_again_before.items())
        rest = self.idle_ms, self.clock_went_back, dict(self.taps), again, self.offset_digest
        return encode_message((self.epoch, self.planned_ms, self.entry.fields(), carried, positions, lagging, *rest))

    @staticmethod
    def decode(blob: bytes) -> TaskControl:
        """Return the control of a blob."""
        epoch, planned_ms, entry, carried, global_positions, lagging, *rest, again, digest = decode_message(blob)
        ranges = tuple(map(CarriedRange._make, carried))
        inputs = tuple(map(TopicPartition._make, lagging))
        calls = {TopicPartition(topic, partition): before for topic, partition, before in again}
        fields = TaskEntry.of_fields(entry), ranges, global_positions, inputs, *rest, calls, digest
        return TaskControl(epoch, planned_ms, *fields)

    def global_control(self) -> GlobalControl:
        """Return the control for the global stores."""
        return GlobalControl(self.epoch, self.planned_ms, self.global_positions)

    def is_idle(self) -> bool:
        """Return whether a task without input has nothing to do.

        It has nothing to do if it has been initialised before, no punctuation is due, and no punctuation must be
        rescheduled because the clock went back.
        """
        due = self.entry.due_ms
        return self.entry.head != "" and (due is None or (due > self.planned_ms and not self.clock_went_back))


AT_END: Final = -1
"""A placeholder for an offset: no record of the partition waits, so the next one is at the end of the epoch."""


class TaskPhases(NamedTuple):
    """The time of a task's run, and the durations of its phases.

    Args:
        began_ms: start of the run, in ms since the Unix epoch.
        ended_ms: end of the run, likewise.
        fetch_ms: duration of fetching.
        process_ms: duration of processing.
        state_ms: duration of opening and writing the state.
    """

    began_ms: float
    ended_ms: float
    fetch_ms: float
    process_ms: float
    state_ms: float


class TaskReport(NamedTuple):
    """The results of a task in an epoch. Other fields are another version of a result in the result log.

    Args:
        task: id of the task.
        epoch: number of the epoch.
        generation: of the driver.
        parent: the head from which the task started.
        entry: its new entry in the manifest.
        input: the records read, as (topic, records, bytes).
        printed: text that its functions printed.
        dropped: number of records dropped.
        sent: bytes sent on.
        processed: number of records processed.
        measured: measurements by operation, from `measuring`.
        sensors: measurements of its processors' sensors, from `measuring`.
        committed: commits for the group if changelog topics are written, as (topic, partition, offset of the first
            waiting record or AT_END, text).
        phases: None of a task that had nothing to do.
        tapped: the last records that reached the nodes of `TaskControl.taps`, as bytes.
        worker: machine and process in which the task ran, empty if it had nothing to do.
        awaited: the partitions for which its waiting records wait.
    """

    task: str
    epoch: int
    generation: int
    parent: str
    entry: TaskEntry
    input: tuple[tuple[str, int, int], ...] = ()
    printed: str = ""
    dropped: int = 0
    sent: int = 0
    processed: int = 0
    measured: Mapping[str, tuple[float, ...]] = MappingProxyType({})
    sensors: tuple[Any, ...] = ()
    committed: tuple[tuple[str, int, int, str], ...] = ()
    phases: TaskPhases | None = None
    tapped: Mapping[str, list[bytes]] = MappingProxyType({})
    worker: str = ""
    awaited: tuple[TopicPartition, ...] = ()

    def encode(self) -> bytes:
        """Return the report as a blob."""
        plain = self._replace(measured=dict(self.measured), tapped=dict(self.tapped))
        return encode_message((*plain[:4], self.entry.fields(), *plain[5:-1], tuple(map(tuple, self.awaited))))

    @staticmethod
    def decode(blob: bytes) -> TaskReport:
        """Return the report of a blob."""
        task, epoch, generation, parent, entry, taken, *figures, sensors, committed, phases, tapped, worker, awaited = (
            decode_message(blob)
        )
        fields = (TaskEntry.of_fields(entry), tuple(map(tuple, taken)), *figures, tuple(sensors))
        fields = (*fields, tuple(map(tuple, committed)), None if phases is None else TaskPhases(*phases), tapped)
        fields = (*fields, worker, tuple(map(TopicPartition._make, awaited)))
        return TaskReport(task, epoch, generation, parent, *fields)


class SinkControl(NamedTuple):
    """The data of an epoch that a sink partition needs.

    Args:
        offset: the end of the epoch.
        plan_ms: duration of planning.
    """

    offset: EpochOffset
    plan_ms: int = 0

    def encode(self) -> bytes:
        """Return the control as a blob."""
        return encode_message((self.offset.to_json(), self.plan_ms))

    @staticmethod
    def decode(blob: bytes) -> SinkControl:
        """Return the control of a blob."""
        offset, plan_ms = decode_message(blob)
        return SinkControl(EpochOffset.from_json(offset), plan_ms)
