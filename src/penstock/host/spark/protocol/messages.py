"""What travels between planner, tasks, sink and driver in one epoch: control rows and reports. Plain values, no
behaviour.

Whatever a task may know of its epoch is in the offset, which the checkpoint logs before the epoch runs, or in the
manifest of the epoch before; so a replay of an epoch sees the same.
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
    """What the global stores of a machine know of an epoch: number, clock (ms), and of each of their topics the next
    offset of each partition."""

    epoch: int
    planned_ms: int
    positions: Mapping[str, list[int]]

    @staticmethod
    def of(offset: EpochOffset) -> GlobalControl:
        """Return what they know of the epoch that ends at `offset`."""
        return GlobalControl(offset.epoch, offset.planned_ms, offset.global_positions)


class TaskControl(NamedTuple):
    """What a task knows of its epoch: number, clock (ms), its entry in the manifest of the epoch before, where the rows
    are that were carried to it, the positions of the global stores that it reads, the inputs that lag, how long (ms) it
    waits for others, whether the clock is before that of the epoch before, and of which nodes it keeps so many of the
    last records, for a look at them."""

    epoch: int
    planned_ms: int
    entry: TaskEntry
    carried: tuple[CarriedRange, ...] = ()
    global_positions: Mapping[str, list[int]] = MappingProxyType({})
    lagging: tuple[TopicPartition, ...] = ()
    idle_ms: int = 0
    clock_went_back: bool = False
    taps: Mapping[str, int] = MappingProxyType({})

    def encode(self) -> bytes:
        """Return the control as a blob."""
        carried = tuple(map(tuple, self.carried))
        positions, lagging = dict(self.global_positions), tuple(map(tuple, self.lagging))
        rest = self.idle_ms, self.clock_went_back, dict(self.taps)
        return encode_message((self.epoch, self.planned_ms, self.entry.fields(), carried, positions, lagging, *rest))

    @staticmethod
    def decode(blob: bytes) -> TaskControl:
        """Return the control of a blob."""
        epoch, planned_ms, entry, carried, global_positions, lagging, *rest = decode_message(blob)
        ranges = tuple(map(CarriedRange._make, carried))
        inputs = tuple(map(TopicPartition._make, lagging))
        return TaskControl(epoch, planned_ms, TaskEntry.of_fields(entry), ranges, global_positions, inputs, *rest)

    def global_control(self) -> GlobalControl:
        """Return what the global stores know of the epoch."""
        return GlobalControl(self.epoch, self.planned_ms, self.global_positions)

    def is_idle(self) -> bool:
        """Return whether a task without input has nothing to do: it has been initialised before, no punctuation is due,
        and none must become due earlier because the clock went back."""
        due = self.entry.due_ms
        return self.entry.head != "" and (due is None or (due > self.planned_ms and not self.clock_went_back))


AT_END: Final = -1
"""In place of an offset: no record of the partition waits, so the next one is that at which the epoch ends."""


class TaskPhases(NamedTuple):
    """When a task ran (ms since the epoch), and how long (ms) it took to fetch, to process, and to open and write its
    state."""

    began_ms: float
    ended_ms: float
    fetch_ms: float
    process_ms: float
    state_ms: float


class TaskReport(NamedTuple):
    """What a task did in an epoch: the head that it began from and its new entry in the manifest; what it took, as
    (topic, records, bytes); what its functions printed; how many records it dropped; the bytes
    that it sent on; how many records it processed; what was measured of it, as measurements by operation, and what
    sensors of its processors recorded, both as `measuring` gives them; and where changelog topics are written, what its
    group is to commit, as (topic, partition, offset of the first record that waits or AT_END, text). phases: None of a
    task that had nothing to do. tapped: the last records that reached the nodes of `TaskControl.taps`, as bytes.
    worker: the machine and the process in which it ran, empty if it had nothing to do. awaited: the partitions that its
    waiting records wait for."""

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
    """What a sink partition must know of its epoch: the offset at which it ends, and how long (ms) planning took."""

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
