"""A task's persistent values besides its stores: times, schedules and lane counters.

A host stores them with the changes of each commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from penstock.processor.api import PunctuationType
from penstock.record import NO_TIMESTAMP, TopicPartition


class ScheduleState(NamedTuple):
    """The state of a schedule created in a node's `init`.

    It consists of the number of the call, the clock, and the next time (ms; None: cancelled).
    """

    node: str
    call: int
    type: PunctuationType
    next_time: int | None


@dataclass(frozen=True)
class TaskCheckpoint:
    """Times, schedules and counters of a task at a commit.

    Args:
        stream_time, partition_times: in ms.
        lane_offsets: for each partition of a repartition topic that the task wrote to, the offset of its next record.
        processor_metadata: persistent values of processors and stores besides entries, such as clocks (Kafka class:
            ProcessorMetadata).
        idle_deadlines: the time (ms) until which the task waits for each partition that it found empty.
        sweep_cursors: the key at which the next sweep of a store with a time to live starts.
    """

    stream_time: int = NO_TIMESTAMP
    partition_times: Mapping[TopicPartition, int] = field(default_factory=dict)
    schedules: tuple[ScheduleState, ...] = ()
    lane_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    processor_metadata: Mapping[str, int] = field(default_factory=dict)
    idle_deadlines: Mapping[TopicPartition, int] = field(default_factory=dict)
    sweep_cursors: Mapping[str, bytes] = field(default_factory=dict)

    def next_wall_clock_ms(self) -> int | None:
        """Return the time of the next wall-clock punctuation (ms), or None."""
        times = [
            s.next_time for s in self.schedules if s.type is PunctuationType.WALL_CLOCK_TIME and s.next_time is not None
        ]
        return min(times, default=None)

    def encode(self) -> bytes:
        """Serialise the checkpoint; equal content gives equal bytes."""
        cursors = [sorted((store, key.hex()) for store, key in self.sweep_cursors.items())]
        return orjson.dumps(
            [
                self.stream_time,
                sorted([*tp, time] for tp, time in self.partition_times.items()),
                [[s.node, s.call, s.type.value, s.next_time] for s in self.schedules],
                sorted([*tp, offset] for tp, offset in self.lane_offsets.items()),
                sorted(self.processor_metadata.items()),
                sorted([*tp, deadline] for tp, deadline in self.idle_deadlines.items()),
                *(cursors if self.sweep_cursors else ()),  # without one, the bytes stay those of earlier versions
            ]
        )

    @staticmethod
    def decode(data: bytes) -> TaskCheckpoint:
        """Deserialise a checkpoint."""
        content: list[Any] = orjson.loads(data)
        content += [(), ()]  # earlier versions have no deadlines, and few tasks have cursors
        stream_time, partition_times, schedules, lane_offsets, processor_metadata, idle_deadlines, cursors = content[:7]
        return TaskCheckpoint(
            stream_time,
            {TopicPartition(topic, partition): time for topic, partition, time in partition_times},
            tuple(
                ScheduleState(node, call, PunctuationType(kind), next_time) for node, call, kind, next_time in schedules
            ),
            {TopicPartition(topic, partition): offset for topic, partition, offset in lane_offsets},
            dict(processor_metadata),
            {TopicPartition(topic, partition): deadline for topic, partition, deadline in idle_deadlines},
            {store: bytes.fromhex(key) for store, key in cursors},
        )
