"""What travels between planner, tasks, sink and driver in one epoch: the offset of the source, control rows and
reports. Plain values, no behaviour.

Whatever a task may know of its epoch stands in the offset, which Spark logs before the epoch runs, or in the manifest
of the epoch before; so a replay of an epoch sees the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from penstock.host.spark.checkpoints.carried import CarriedRange
from penstock.host.spark.checkpoints.checkpoint import TaskEntry
from penstock.host.spark.rows import decode_message, encode_message
from penstock.record import TopicPartition


@dataclass(frozen=True)
class EpochOffset:
    """The offset of the source: an epoch, and how far it has read.

    planned_ms: the clock of the epoch. positions: of each source topic, the next offset of each partition. partitions,
    sink_partitions: see Placement; here so that a replay by a driver with another idea of them is noticed.
    global_positions: of each topic of a global store, the next offset of each partition; what lies before is in the
    global stores that the tasks of the epoch read.
    lagging: by topic, the partitions that had more to read; kept where tasks may wait for them. idle_ms: how long tasks
    wait for partitions that had no more. read_to_ms: the time before which aligned topics are read (see `alignment`).
    """

    query_id: str
    epoch: int
    planned_ms: int
    positions: Mapping[str, list[int]]
    partitions: list[int]
    sink_partitions: int
    global_positions: Mapping[str, list[int]] = field(default_factory=dict)
    lagging: Mapping[str, list[int]] = field(default_factory=dict)
    idle_ms: int = 0
    read_to_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark logs it."""
        return asdict(self)

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> EpochOffset:
        """Return the offset that Spark gives back."""
        return EpochOffset(**fields)

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record of `partition`."""
        return self.positions[partition.topic][partition.partition]

    def global_control(self) -> GlobalControl:
        """Return what the global stores know of the epoch that ends here."""
        return GlobalControl(self.epoch, self.planned_ms, self.global_positions)


class GlobalControl(NamedTuple):
    """What the global stores of a machine know of an epoch: number, clock (ms), and of each of their topics the next
    offset of each partition."""

    epoch: int
    planned_ms: int
    positions: Mapping[str, list[int]]


class TaskControl(NamedTuple):
    """What a task knows of its epoch: number, clock (ms), its entry in the manifest of the epoch before, where the rows
    are that were carried to it, the positions of the global stores that it reads, the inputs that lag, and how long
    (ms) it waits for others."""

    epoch: int
    planned_ms: int
    entry: TaskEntry
    carried: tuple[CarriedRange, ...] = ()
    global_positions: Mapping[str, list[int]] = MappingProxyType({})
    lagging: tuple[TopicPartition, ...] = ()
    idle_ms: int = 0

    def encode(self) -> bytes:
        """Return the control as a blob."""
        carried = tuple(map(tuple, self.carried))
        entry, lagging = self.entry.fields(), tuple(map(tuple, self.lagging))
        fields = (self.epoch, self.planned_ms, entry, carried, dict(self.global_positions), lagging, self.idle_ms)
        return encode_message(fields)

    @staticmethod
    def decode(blob: bytes) -> TaskControl:
        """Return the control of a blob."""
        epoch, planned_ms, entry, carried, global_positions, lagging, idle_ms = decode_message(blob)
        ranges = tuple(map(CarriedRange._make, carried))
        inputs = tuple(map(TopicPartition._make, lagging))
        return TaskControl(epoch, planned_ms, TaskEntry.of_fields(entry), ranges, global_positions, inputs, idle_ms)

    def global_control(self) -> GlobalControl:
        """Return what the global stores know of the epoch."""
        return GlobalControl(self.epoch, self.planned_ms, self.global_positions)

    def is_idle(self) -> bool:
        """Return whether a task without input has nothing to do: it has been initialised before and no punctuation is
        due."""
        due = self.entry.due_ms
        return self.entry.head != "" and (due is None or due > self.planned_ms)


class TaskReport(NamedTuple):
    """What a task did in an epoch: the head that it began from and its new entry in the manifest; what it took, as
    (topic, records, bytes); what its functions printed; how many records it dropped; the bytes
    that it sent on; how many records it processed; what was measured of it, as measurements by operation, and what
    sensors of its processors recorded, both as `measuring` gives them."""

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

    def encode(self) -> bytes:
        """Return the report as a blob."""
        plain = self._replace(measured=dict(self.measured))
        return encode_message((*plain[:4], self.entry.fields(), *plain[5:]))

    @staticmethod
    def decode(blob: bytes) -> TaskReport:
        """Return the report of a blob."""
        task, epoch, generation, parent, entry, *others = decode_message(blob)
        return TaskReport(task, epoch, generation, parent, TaskEntry.of_fields(entry), *others)


class SinkControl(NamedTuple):
    """What a sink partition knows of its epoch."""

    epoch: int
    planned_ms: int
    positions: Mapping[str, list[int]]

    def encode(self) -> bytes:
        """Return the control as a blob."""
        return encode_message((self.epoch, self.planned_ms, dict(self.positions)))

    @staticmethod
    def decode(blob: bytes) -> SinkControl:
        """Return the control of a blob."""
        return SinkControl(*decode_message(blob))
