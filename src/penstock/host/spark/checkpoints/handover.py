"""The hand-over of an application to another program, which has the state of another checkpoint.

That checkpoint belongs to a shadow of the application, which has processed exactly the same input. Its state becomes
the first manifest of the next topology version of the application. The order of the steps keeps the replaced program
the owner until the last one:

1. No other driver can commit any more, because of the generation.
2. Segments of the shadow are copied, then the first manifest of the next version is written.
3. `metadata` is replaced: from then on the other program is the owner, and the replaced one is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from penstock.errors import IncompatibleCheckpointError, StreamsError, TaskCorruptedError
from penstock.host.crashpoints import crash_point
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest, Metadata
from penstock.host.spark.checkpoints.internal_names import new_names, renamed_entry, renamed_shape
from penstock.host.spark.checkpoints.manifests import existing_metadata, last_manifest, planned_offset
from penstock.host.spark.checkpoints.replaced_program import ReplacedProgram
from penstock.host.spark.checkpoints.savepoint import copy_files
from penstock.host.spark.checkpoints.stored_description import digest_of_description
from penstock.host.spark.checkpoints.task_segments import read_states
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.processor.api import PunctuationType
from penstock.task.store_expiry import is_sweep
from penstock.task.task_checkpoint import ScheduleState


class _Committed(NamedTuple):
    """The topology version of a checkpoint, and its last manifest."""

    metadata: Metadata
    last: Manifest

    @property
    def positions(self) -> dict[str, list[int]]:
        return {**self.metadata.begin, **self.last.offsets, **self.last.global_offsets}


def positions_of(checkpoint: Checkpoint) -> dict[str, list[int]]:
    """Return the positions of the last commit in all topics, those of global stores included.

    Raises StreamsError if there is no commit yet.
    """
    found = _committed(checkpoint)
    if found.last.epoch == 0:
        raise StreamsError(
            f"{found.metadata.application_id} has committed nothing yet at {checkpoint.uri}, so there is nothing to "
            "take over. Start the changed program in place of the present one."
        )
    return found.positions


def wall_clock_nodes(checkpoint: Checkpoint) -> list[str]:
    """Return the processors that punctuate by the wall clock, as of the last commit. The application may run."""
    while True:
        last = _committed(checkpoint).last
        try:
            states = read_states(checkpoint, last, last.tasks)
        except TaskCorruptedError:
            if _committed(checkpoint).last.epoch == last.epoch:
                raise
            continue  # the application has deleted old segments meanwhile
        schedules = (each for state in states.values() for each in state.clocks.schedules)
        return sorted({each.node for each in schedules if _is_by_wall_clock(each)})


def _is_by_wall_clock(schedule: ScheduleState) -> bool:
    is_due_ever = schedule.type is PunctuationType.WALL_CLOCK_TIME and schedule.next_time is not None
    return is_due_ever and not is_sweep(schedule.node)


def _committed(checkpoint: Checkpoint) -> _Committed:
    metadata = existing_metadata(checkpoint, StreamsError)
    return _Committed(metadata, last_manifest(checkpoint, metadata))


def check_not_replaced(checkpoint: Checkpoint, metadata: Metadata | None, description: ApplicationDescription) -> None:
    """Raise IncompatibleCheckpointError if a switch has replaced the program of `description`.

    metadata: of the checkpoint; None if it is new.
    """
    if metadata is None or (replaced := metadata.replaced) is None:
        return
    placement = replace(description.placement, partitions=replaced.partitions, sink_partitions=replaced.sink_partitions)
    if digest_of_description(replace(description, placement=placement)) == replaced.plan:
        raise IncompatibleCheckpointError(
            f"`penstock shadow switch` has replaced this program of {metadata.application_id}: the state in "
            f"{checkpoint.uri} belongs to another program now. Start that one. To go back, switch from it to this "
            "program."
        )


def hand_over(shadow: Checkpoint, checkpoint: Checkpoint, successor: str) -> Manifest:
    """Make the state of a shadow that of the application; return the first manifest of its new topology version.

    Neither may run.

    Args:
        shadow: the checkpoint of the shadow.
        checkpoint: that of the application.
        successor: the digest of the program that continues.

    Raises:
        StreamsError: the states are not of the same input, or an epoch is not finished; nothing is changed.
        TaskMigratedError: another program has started meanwhile; nothing is changed.
    """
    generation = checkpoint.take_generation(_committed(checkpoint).last.generation)
    (before, last), (metadata, reached) = owned, done = _committed(checkpoint), _committed(shadow)
    _check(checkpoint, owned, shadow, done)
    epoch = last.epoch + 1
    crash_point("switch.before", epoch)
    copy_files(shadow, reached.segments(), checkpoint)
    crash_point("switch.segments", epoch)
    names = new_names(metadata, before.application_id)
    entered = replace(
        reached,
        query_id=uuid.uuid4().hex,
        epoch=epoch,
        generation=generation,
        planned_ms=max(last.planned_ms, reached.planned_ms),
        tasks={task: renamed_entry(checkpoint, task, each, names, epoch) for task, each in reached.tasks.items()},
        offsets={**before.begin, **last.offsets},
        input={},
        printed="",
        leader_epochs=last.leader_epochs,
    )
    checkpoint.check_generation(generation)
    checkpoint.write_manifest(entered, partial(crash_point, "switch.torn_manifest", epoch))
    crash_point("switch.manifest", epoch)
    stored = shadow.read_description(metadata)
    if stored is not None:
        checkpoint.write_description(metadata.plan, stored)
    crash_point("switch.description", epoch)
    checkpoint.check_generation(generation)
    checkpoint.write_metadata(_successor(metadata, before, entered, names, successor))
    crash_point("switch.after", epoch)
    return entered


def _successor(
    metadata: Metadata, before: Metadata, entered: Manifest, names: Mapping[str, str], successor: str
) -> Metadata:
    """Return the metadata of the next topology version: the shape of the shadow, the identity of the application."""
    return replace(
        metadata,
        checkpoint_id=before.checkpoint_id,
        query_id=entered.query_id,
        application_id=before.application_id,
        begin=entered.offsets,
        shape=renamed_shape(metadata.shape, names),
        start_epoch=entered.epoch,
        start_ms=entered.planned_ms,
        topic_ids={**before.topic_ids, **metadata.topic_ids},
        former_owners=before.former_owners,
        replaced=ReplacedProgram(before.plan, before.partitions, before.sink_partitions, successor),
    )


def _check(checkpoint: Checkpoint, owned: _Committed, shadow: Checkpoint, done: _Committed) -> None:
    """Raise StreamsError if the application and its shadow have not processed the same input."""
    obstacles = [
        *_unfinished(checkpoint, owned),
        *_unfinished(shadow, done),
        *_other_positions(owned.positions, done.positions),
    ]
    if obstacles:
        lines = "\n".join(f"  - {line}" for line in obstacles)
        raise StreamsError(
            f"The state of {owned.metadata.application_id} was not handed over:\n{lines}\nIts present program still "
            f"owns {checkpoint.uri}: start that one again."
        )


def _unfinished(checkpoint: Checkpoint, found: _Committed) -> Iterator[str]:
    """Yield the reasons why a state is not that of all records up to its positions."""
    planned, name = planned_offset(checkpoint, *found), found.metadata.application_id
    if planned is not None:
        yield f"epoch {planned.epoch} of {name} is not finished. Start its program again and switch while it runs"
    for task in sorted(task for task, entry in found.last.tasks.items() if entry.carried is not None):
        yield (
            f"task {task} of {name} has records that are read and not processed. Start its program again and switch "
            "while it runs"
        )


def _other_positions(positions: Mapping[str, list[int]], reached: Mapping[str, list[int]]) -> Iterator[str]:
    for topic in sorted(reached):
        if positions.get(topic) != reached[topic]:
            yield (
                f"the application has processed {topic} up to {positions.get(topic)} by partition, and the changed "
                f"program up to {reached[topic]}"
            )
