"""Plans the epochs of the query and makes their input partitions, in the one long-lived process of the source.

Its clients and caches live as long as the query. What a task may depend on goes into the offset of the epoch, or comes
from the manifest of the epoch before; so a replay of an epoch gets the same input partitions. The offset is logged in
the checkpoint, durably, before the partitions are handed out: nothing of an epoch can reach a topic unless every later
driver knows how far the epoch reads. How far that is is decided in `input_plan`; here are the brokers, the clock and
the files that it is asked with.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.datasource import InputPartition

from penstock.client.api import OffsetAndMetadata
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.errors import BrokerNotFoundError, KafkaError, UnknownTopicOrPartitionError
from penstock.host.spark.checkpoints.carried import carried_ranges
from penstock.host.spark.checkpoints.checkpoint import Manifest
from penstock.host.spark.checkpoints.cleaner import Cleaner
from penstock.host.spark.checkpoints.documents import damaged
from penstock.host.spark.checkpoints.manifests import check_follows
from penstock.host.spark.clients import open_checkpoint
from penstock.host.spark.crashpoints import crash_point
from penstock.host.spark.epoch_offset import EpochOffset
from penstock.host.spark.epochs.input_plan import InputPlanner
from penstock.host.spark.epochs.purging import RecordPurge
from penstock.host.spark.epochs.topic_ends import TopicEnds
from penstock.host.spark.epochs.waiting import held_bytes, lagging_inputs
from penstock.host.spark.protocol import GlobalControl, SinkControl, TaskControl
from penstock.host.spark.recipe import Recipe
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition

_log = logging.getLogger(__name__)

STOP_FILE, STOPPED_FILE = "stop", "stopped"
"""Files of the control directory: the driver asks for no more epochs; the source process has seen it, between two
epochs."""

PAUSE_FILE, PAUSED_FILE = "pause", "paused"
"""Files of the control directory: the driver asks for no epochs while the first is there; the source process has
planned none for that."""

_OFFSETS_EVERY_MS = 1_000


@dataclass(frozen=True)
class Range:
    """Records to fetch for a task: offsets from start to before end."""

    task: TaskId
    partition: TopicPartition
    start: int
    end: int


class EpochPartition(InputPartition):
    """One input partition of an epoch: tasks with their controls, ranges to fetch, what the global stores must know,
    and what the sink must know (in the first partition)."""

    def __init__(
        self,
        controls: list[tuple[TaskId, TaskControl]],
        ranges: list[Range],
        global_control: GlobalControl,
        sink: SinkControl | None,
    ) -> None:
        super().__init__(None)
        self.controls = controls
        self.global_control = global_control
        self.ranges = ranges
        self.sink = sink


class Planning:
    """The side of the reader that lives in the source process."""

    def __init__(self, recipe: Recipe) -> None:
        """Take the recipe and open the clients."""
        self._recipe = recipe
        self._checkpoint = open_checkpoint(recipe.checkpoint)
        self._admin = ConfluentAdmin(recipe.config)
        self._clock = recipe.clock
        self._cleaner = Cleaner(recipe, self._checkpoint)
        self._planner = InputPlanner(recipe, self._admin.offsets_for_time)
        self._manifest: Manifest | None = None
        self._ends = TopicEnds(recipe, self._admin, self._clock)
        self._planned_here = 0
        self._offsets_at = 0
        self._purge = RecordPurge(recipe.config["repartition.purge.interval.ms"], self._clock.milliseconds)
        self._control = Path(recipe.control_directory)

    def close(self) -> None:
        """Release the clients."""
        self._admin.close()

    def fix_ends(self) -> None:
        """Take the ends of the topics now as the last to be read."""
        self._ends.fix()

    def next_epoch(self, start: EpochOffset) -> EpochOffset:
        """Return the end of the epoch after `start`, or `start` when nothing is due or the driver wants no more; first
        of all that of an epoch which an earlier run has planned and not committed."""
        planned_before = self._recipe.planned
        if planned_before is not None and planned_before.epoch == start.epoch + 1:
            return planned_before
        if (self._control / STOP_FILE).exists():
            (self._control / STOPPED_FILE).touch()
            return start
        if (self._control / PAUSE_FILE).exists():
            (self._control / PAUSED_FILE).touch()
            return start
        manifest = self._manifest_of(start)
        now = max(self._clock.milliseconds(), start.planned_ms)
        ends = self._ends.now()
        positions = self._ends.without_deleted({tp: start.position(tp) for tp in self._recipe.inputs})
        self._ends.check(positions, ends)
        if self._recipe.global_inputs and not ends:
            return start  # what the global stores are to hold is not known while no broker answers
        readable = self._ends.readable(positions, ends, now)
        try:
            planned = self._planner.plan(readable, ends, manifest, start.read_to_ms, self._ends.are_fixed)
        except (BrokerNotFoundError, UnknownTopicOrPartitionError):
            return start  # whoever asks for the ends next knows for how long
        global_positions = self._global_positions(start, ends)
        nothing_new = planned.positions == positions and global_positions == start.global_positions
        if nothing_new and start.epoch > self._recipe.start_epoch and not self._is_due(manifest, now, planned.waits):
            return start
        self._planned_here = start.epoch + 1
        crash_point("source.planned", self._planned_here)
        return EpochOffset(
            start.query_id,
            self._planned_here,
            now,
            _by_topic(planned.positions, start),
            start.partitions,
            start.sink_partitions,
            global_positions,
            _partitions_by_topic(planned.lagging),
            planned.idle_ms,
            planned.read_to_ms,
        )

    def partitions(self, start: EpochOffset, end: EpochOffset) -> list[EpochPartition]:
        """Return the input partitions of the epoch from `start` to `end`: task n of a level in partition n modulo their
        number."""
        recipe, placement = self._recipe, self._recipe.placement
        assert (end.query_id, end.partitions, end.sink_partitions) == (
            recipe.query_id,
            list(placement.partitions),
            placement.sink_partitions,
        ), "an offset of another life, which `planned_offset` leaves out"
        manifest = self._manifest_of(start)
        self._checkpoint.check_generation(recipe.generation)
        self._checkpoint.write_offset(end.epoch, recipe.generation, end.to_json())
        crash_point("source.partitions", end.epoch)
        carried = carried_ranges(manifest, placement)
        lagging = {TopicPartition(topic, each) for topic, numbers in end.lagging.items() for each in numbers}
        held = held_bytes(manifest)
        count = placement.partitions[0]
        parts: list[EpochPartition] = [EpochPartition([], [], GlobalControl.of(end), None) for _ in range(count)]
        for task, place in placement.places.items():
            part = parts[place.number % count]
            entry = manifest.entry(str(task))
            control = TaskControl(
                end.epoch,
                end.planned_ms,
                entry,
                carried.get(task, ()),
                end.global_positions,
                lagging_inputs(placement, task, lagging, held, self._planner.held_bound),
                end.idle_ms,
            )
            part.controls.append((task, control))
            for tp in placement.inputs_of(task, recipe.topology.repartition_topics):
                if end.position(tp) > start.position(tp):
                    part.ranges.append(Range(task, tp, start.position(tp), end.position(tp)))
        parts[0].sink = SinkControl(end)
        return parts

    def committed(self, end: EpochOffset) -> None:
        """Clear away what the epoch made superfluous, and tell the brokers the positions, for tools that show the
        lag."""
        self._cleaner.clean(end.epoch)
        own = self._recipe.topology.data_frame_topics
        self._purge.purge(self._admin, {tp: end.position(tp) for tp in self._recipe.inputs if tp.topic in own})
        now = self._clock.milliseconds()
        if now - self._offsets_at < _OFFSETS_EVERY_MS and not self._ends.are_fixed:
            return
        self._offsets_at = now
        offsets = {tp: OffsetAndMetadata(end.position(tp)) for tp in self._recipe.inputs}
        try:
            self._admin.commit_offsets(self._recipe.application_id, offsets)
        except KafkaError:
            return  # only for tools: the next epoch tells them again

    def _manifest_of(self, offset: EpochOffset) -> Manifest:
        """Return the manifest of the epoch that ended at `offset`, and learn from its figures when it is new."""
        if self._manifest is not None and self._manifest.epoch == offset.epoch:
            return self._manifest
        manifest = self._checkpoint.read_manifest(offset.epoch, self._recipe.query_id)
        name = self._checkpoint.manifest_name(offset.epoch)
        if manifest is None or manifest.query_id != self._recipe.query_id:
            raise damaged(name, "it was deleted or replaced while the application ran")
        check_follows(manifest, offset, name)
        self._manifest = manifest
        planned_here = manifest.epoch == self._planned_here
        self._planner.learn(manifest, self._clock.milliseconds() - manifest.planned_ms if planned_here else None)
        return manifest

    def _global_positions(self, start: EpochOffset, ends: dict[TopicPartition, int]) -> dict[str, list[int]]:
        """Return how far the global topics are read with the next epoch: to their ends. One that ends before its
        position was made anew, and so are the global stores on each machine."""
        positions: dict[str, list[int]] = {}
        for tp in self._recipe.global_inputs:
            before = start.global_positions.get(tp.topic, [])
            reached = before[tp.partition] if tp.partition < len(before) else 0
            if ends[tp] < reached:
                _log.warning("Topic %s was made anew: the global stores are read again from their topics.", tp.topic)
            positions.setdefault(tp.topic, []).append(ends[tp])
        return positions

    def _is_due(self, manifest: Manifest, now: int, waits: bool) -> bool:
        """Return whether there is something to do without new records; `waits`: tasks that hold records may go on
        waiting."""
        carried = [entry.carried for entry in manifest.tasks.values() if entry.carried is not None]
        if any(each["sends"] or not waits for each in carried):
            return True
        due = manifest.due_ms()
        return due is not None and due <= now and not self._ends.are_fixed


def _partitions_by_topic(partitions: Set[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def _by_topic(planned: Mapping[TopicPartition, int], start: EpochOffset) -> dict[str, list[int]]:
    return {
        topic: [planned.get(TopicPartition(topic, partition), offset) for partition, offset in enumerate(offsets)]
        for topic, offsets in start.positions.items()
    }
