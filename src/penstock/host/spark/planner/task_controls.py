"""The controls of an epoch's tasks, from its offset and the previous manifest.

They depend on nothing else, so that a replay gives tasks the same controls. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.host.spark.checkpoints.carried import carried_ranges
from penstock.host.spark.checkpoints.checkpoint import Manifest
from penstock.host.spark.planner.lagging import held_bytes, lagging_inputs
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.protocol.messages import TaskControl
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition


@dataclass(frozen=True)
class OffsetRange:
    """Records to fetch for a task: offsets from start to before end."""

    task: TaskId
    partition: TopicPartition
    start: int
    end: int


def task_controls(
    description: ApplicationDescription,
    before: Manifest,
    start: EpochOffset,
    end: EpochOffset,
    taps: Mapping[str, int],
) -> Iterator[tuple[TaskId, TaskControl]]:
    """Yield the control of each task for the epoch from `start` to `end`.

    Args:
        description: of the application.
        before: the manifest of the epoch that ended at `start`.
        start: the end of the previous epoch.
        end: the end of the epoch.
        taps: the number of records to keep, by node.
    """
    placement = description.placement
    carried = carried_ranges(before, placement)
    lagging = {TopicPartition(topic, each) for topic, numbers in end.lagging.items() for each in numbers}
    digest = end.digest()
    held, most_held = held_bytes(before), description.config["penstock.held.max.bytes"]
    for task in placement.places:
        call_again_before = {
            each: end.call_again_before[each.topic][each.partition]
            for each in placement.groups[task]
            if each.topic in end.call_again_before
        }
        yield (
            task,
            TaskControl(
                end.epoch,
                end.planned_ms,
                before.entry(str(task)),
                carried.get(task, ()),
                end.global_positions,
                lagging_inputs(placement, task, lagging, held, most_held),
                end.idle_ms,
                end.planned_ms < start.planned_ms,
                taps,
                call_again_before,
                digest,
            ),
        )


def task_ranges(
    description: ApplicationDescription, task: TaskId, start: EpochOffset, end: EpochOffset
) -> Iterator[OffsetRange]:
    """Yield a task's ranges of broker topics in the epoch from `start` to `end`."""
    for partition in description.placement.inputs_of(task, description.topology.repartition_topics):
        if end.position(partition) > start.position(partition):
            yield OffsetRange(task, partition, start.position(partition), end.position(partition))
