"""Plans the epochs of the query and creates their input partitions.

It runs in the one long-lived process of the source; its clients and caches live as long as the query. All input of a
task goes into the offset of the epoch, or comes from the manifest of the previous epoch; so a replay of an epoch gets
the same input partitions. The offset is logged durably in the checkpoint before the partitions are returned: no output
of an epoch can reach a topic unless every later driver knows how far the epoch reads. `admission_control` decides how
far that is; this module provides the brokers, the clock and the files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Set
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import orjson
from pyspark.sql.datasource import InputPartition

from penstock.client.api import EpochPosition
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.errors import KafkaError, RetriableError, UnknownTopicOrPartitionError
from penstock.host.commits.purging import RecordPurge
from penstock.host.crashpoints import crash_point
from penstock.host.spark.checkpoints.carried import first_held
from penstock.host.spark.checkpoints.checkpoint import Manifest
from penstock.host.spark.checkpoints.cleaner import Cleaner
from penstock.host.spark.checkpoints.documents import damaged
from penstock.host.spark.checkpoints.manifests import check_follows
from penstock.host.spark.clients import open_checkpoint
from penstock.host.spark.planner.admission_control import AdmissionControl
from penstock.host.spark.planner.calls import PlannerCalls
from penstock.host.spark.planner.group_offsets import GroupOffsets
from penstock.host.spark.planner.taps import read_taps
from penstock.host.spark.planner.task_controls import OffsetRange, task_controls, task_ranges
from penstock.host.spark.planner.topic_ends import TopicEnds
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.epoch_offset import EpochOffset
from penstock.host.spark.protocol.history_bounds import live_position
from penstock.host.spark.protocol.mailbox import Mailbox, Signal
from penstock.host.spark.protocol.messages import GlobalControl, SinkControl, TaskControl
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)

ENDS_FILE = "ends"
"""The message with the end of each input, last seen by the source process."""

_ENDS_EVERY_MS = 1_000
"""Minimum interval (ms) between two messages about the ends to the driver."""

_LOOK_SECONDS = 0.05
"""Interval (s) between two looks for answers before the end of a query."""

_FINISH_MS = 2_000
"""How long (ms) the end of a query waits until the positions are committed to the brokers."""


class EpochPartition(InputPartition):
    """One input partition of an epoch.

    Args:
        controls: its tasks with their controls.
        ranges: ranges to fetch.
        global_control: input of the global stores.
        sink: input of the sink, in the first partition only.
    """

    def __init__(
        self,
        controls: list[tuple[TaskId, TaskControl]],
        ranges: list[OffsetRange],
        global_control: GlobalControl,
        sink: SinkControl | None,
    ) -> None:
        super().__init__(None)
        self.controls = controls
        self.global_control = global_control
        self.ranges = ranges
        self.sink = sink


class EpochPlanner:
    """The planning half of the source, in the source process.

    It opens its clients when it is created.

    Args:
        description: of the application.
    """

    def __init__(self, description: ApplicationDescription) -> None:
        self._description = description
        self._checkpoint = open_checkpoint(description.checkpoint)
        self._admin = ConfluentAdmin(description.config)
        self._clock = description.clock
        self._cleaner = Cleaner(description, self._checkpoint)
        self._admission = AdmissionControl(description, self._admin.offsets_for_time)
        self._manifest: Manifest | None = None
        self._ends = TopicEnds(description, self._admin)
        self._max_hold_back_ms: int = description.config["penstock.clock.max.hold.back.ms"]
        self._planned_here = 0
        self._planned_at_ms = 0  # by elapsed_milliseconds
        self._plan_ms = 0
        self._group_offsets = GroupOffsets(description.application_id, partial(ConfluentAdmin, description.config))
        self._told_epoch = 0
        self._told_ends: dict[TopicPartition, int] = {}
        self._told_ends_at: int | None = None
        self._purge = RecordPurge(description.config["repartition.purge.interval.ms"], elapsed_milliseconds)
        self._mailbox = Mailbox(description.control_directory)
        self._calls = PlannerCalls(description, self._checkpoint, self._mailbox)

    def close(self) -> None:
        """Release the clients."""
        self._calls.close()
        self._group_offsets.finish(_FINISH_MS)
        self._admin.close()

    def fix_ends(self) -> None:
        """Fix the current ends of the topics as the last to read."""
        self._ends.fix()

    def next_epoch(self, start: EpochOffset) -> EpochOffset:
        """Return the end of the epoch after `start`.

        Return `start` if nothing is due or the driver wants no more epochs. If the driver wants the query to stop at
        the end, also report the end to it.
        """
        began = elapsed_milliseconds()
        end = self._end_after(start)
        self._plan_ms = elapsed_milliseconds() - began
        return end

    def _end_after(self, start: EpochOffset) -> EpochOffset:
        to_end = self._mailbox.has(Signal.TO_END)
        if to_end and not self._ends.are_fixed:
            self.fix_ends()
        end = self._epoch_after(start)
        while end == start and self._awaits_answers():
            time.sleep(_LOOK_SECONDS)
            end = self._epoch_after(start)
        if to_end and end == start:
            self._calls.tell_last()
            self._mailbox.send(Signal.AT_END)
        return end

    def _awaits_answers(self) -> bool:
        """Return whether a query with a planned end must wait for answers: without an epoch, Spark would end it."""
        if not self._ends.are_fixed or not self._calls.waiting:
            return False
        return not self._mailbox.has(Signal.STOP) and not self._mailbox.has(Signal.PAUSE)

    def _epoch_after(self, start: EpochOffset) -> EpochOffset:
        """Return the end of the epoch after `start`, or `start` as `next_epoch` does.

        An epoch that an earlier run planned and did not commit comes first.
        """
        # Some of its output may be in the topics, so its positions and time must stay, whatever the topics have now.
        planned_before = self._description.planned
        if planned_before is not None and planned_before.epoch == start.epoch + 1:
            return planned_before
        self._tell_positions(start)
        if self._mailbox.has(Signal.STOP):
            self._calls.close()
            self._group_offsets.finish(_FINISH_MS)
            self._mailbox.send(Signal.STOPPED)
            return start
        if self._is_paused():
            return start
        manifest = self._manifest_of(start)
        now = self._time_after(start.planned_ms)
        ends = self._ends_after(start, manifest)
        positions = self._ends.without_deleted({tp: start.position(tp) for tp in self._description.inputs})
        if self._description.global_inputs and not ends:
            return start  # without an answer, the content of the global stores is unknown
        try:
            self._ends.check({tp: EpochPosition(at, start.leader_epoch(tp)) for tp, at in positions.items()}, ends)
            readable = self._ends.readable(positions, ends, now)
            limit = self._admission.next_limit(readable, ends, manifest, start.read_to_ms, self._ends.are_fixed)
        except (RetriableError, UnknownTopicOrPartitionError):
            return start  # the next request for the ends measures the outage
        global_positions = self._global_positions(start, ends)
        nothing_new = limit.positions == positions and global_positions == start.global_positions
        went_back = now < start.planned_ms  # by more than the maximum hold-back: see _time_after
        if nothing_new and not (self._is_first(start) or self._is_due(manifest, now, went_back, limit.waits)):
            if self._ends.are_fixed:
                self._group_offsets.finish(_FINISH_MS)
            return start
        # The ends may belong to a topic that was created again, and the positions to the old one.
        if limit.positions != positions and not self._ends.are_of_before():
            return start
        # A pause may have begun during the request for the ends, so they may include records written after it began.
        if self._is_paused():
            return start
        if went_back:
            _warn_of_jump(now, start.planned_ms)
        self._planned_here, self._planned_at_ms = start.epoch + 1, elapsed_milliseconds()
        crash_point("source.planned", self._planned_here)
        return EpochOffset(
            start.query_id,
            self._planned_here,
            now,
            _by_topic(limit.positions, start),
            start.partitions,
            start.sink_partitions,
            global_positions,
            _partitions_by_topic(limit.lagging),
            limit.idle_ms,
            limit.read_to_ms,
            self._ends.leader_epochs(start),
            start.call_again_before,
        )

    def _ends_after(self, start: EpochOffset, manifest: Manifest) -> dict[TopicPartition, int]:
        """Return the current ends, after reporting them and starting the calls that `manifest` allows."""
        ends = self._ends.now()
        self._tell_ends(ends)
        self._calls.take(manifest, start, ends)
        return ends

    def _is_paused(self) -> bool:
        """Return whether the driver has paused the planning.

        If so, confirm to it that no epoch was planned for that reason.
        """
        if not self._mailbox.has(Signal.PAUSE):
            return False
        self._calls.pause()
        self._mailbox.send(Signal.PAUSED)
        return True

    def partitions(self, start: EpochOffset, end: EpochOffset) -> list[EpochPartition]:
        """Return the input partitions of the epoch from `start` to `end`.

        Task n of a level is in partition n modulo the number of partitions.
        """
        began = elapsed_milliseconds()
        description, placement = self._description, self._description.placement
        assert (end.query_id, end.partitions, end.sink_partitions) == (
            description.query_id,
            list(placement.partitions),
            placement.sink_partitions,
        ), "an offset of another topology version, which `planned_offset` leaves out"
        manifest = self._manifest_of(start)
        # A driver that was overtaken must not log an offset, because the newer driver plans this epoch itself.
        self._checkpoint.check_generation(description.generation)
        self._checkpoint.write_offset(end.epoch, description.generation, end.to_json())
        crash_point("source.partitions", end.epoch)
        count = placement.partitions[0]
        parts: list[EpochPartition] = [EpochPartition([], [], GlobalControl.of(end), None) for _ in range(count)]
        for task, control in task_controls(description, manifest, start, end, read_taps(self._mailbox)):
            part = parts[placement.places[task].number % count]
            part.controls.append((task, control))
            part.ranges.extend(task_ranges(description, task, start, end))
        parts[0].sink = SinkControl(end, self._plan_ms + elapsed_milliseconds() - began)
        return parts

    def committed(self, end: EpochOffset) -> None:
        """Delete data that the committed epoch made superfluous."""
        self._cleaner.clean(end.epoch)
        if not self._purge.is_due():
            return
        description = self._description
        own = {*description.topology.data_frame_topics, *description.placement.task_topics}
        read = {tp: end.position(tp) for tp in description.inputs if tp.topic in own}
        if description.writes_changelogs:
            read.update(self._committed_between_tasks())
        self._purge.purge(self._admin, read)

    def _committed_between_tasks(self) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition of the repartition topics."""
        description = self._description
        counts = description.placement.source_partitions
        between = [TopicPartition(t, n) for t in description.topology.repartition_topics for n in range(counts[t])]
        try:
            found = self._admin.committed_offsets(description.application_id, between)
        except KafkaError:
            return {}  # asked again after the next epoch
        return {partition: each.offset for partition, each in found.items()}

    def _tell_positions(self, committed: EpochOffset) -> None:
        """Report the positions of the tasks to the brokers, unless the sink does.

        Tools show the lag by them, and another host continues there if there is no state.
        """
        if committed.epoch > self._told_epoch and not self._description.writes_changelogs:
            self._told_epoch = committed.epoch
            positions = {tp: committed.position(tp) for tp in self._description.inputs}
            positions |= first_held(self._checkpoint, self._manifest_of(committed))
            histories = self._description.histories
            live = {tp: live_position(histories, tp, at) for tp, at in positions.items()}
            self._group_offsets.tell(self._ends.without_deleted(live))

    def _tell_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Report new ends of the inputs to the driver at intervals, for its metrics."""
        inputs = {tp: ends[tp] for tp in self._description.inputs if tp in ends}
        now = elapsed_milliseconds()
        is_due = self._told_ends_at is None or now - self._told_ends_at >= _ENDS_EVERY_MS
        if inputs and inputs != self._told_ends and is_due:
            self._told_ends_at = now
            with suppress(OSError):  # the next message includes them
                write_ends(self._mailbox, inputs)
                self._told_ends = inputs

    def _manifest_of(self, offset: EpochOffset) -> Manifest:
        """Return the manifest of the epoch that ended at `offset`.

        Admission control learns from the figures of a new one.
        """
        if self._manifest is not None and self._manifest.epoch == offset.epoch:
            return self._manifest
        manifest = self._checkpoint.read_manifest(offset.epoch, self._description.query_id)
        name = self._checkpoint.manifest_name(offset.epoch)
        if manifest is None or manifest.query_id != self._description.query_id:
            raise damaged(name, "it was deleted or replaced while the application ran")
        check_follows(manifest, offset, name)
        self._manifest = manifest
        planned_here = manifest.epoch == self._planned_here
        self._admission.learn(manifest, elapsed_milliseconds() - self._planned_at_ms if planned_here else None)
        return manifest

    def _global_positions(self, start: EpochOffset, ends: dict[TopicPartition, int]) -> dict[str, list[int]]:
        """Return the positions of the global topics after the next epoch: their ends.

        A topic that ends before its position was created again, so each machine rebuilds its global stores.
        """
        positions: dict[str, list[int]] = {}
        for tp in self._description.global_inputs:
            before = start.global_positions.get(tp.topic, [])
            reached = before[tp.partition] if tp.partition < len(before) else 0
            if ends[tp] < reached:
                _log.warning(
                    "Topic %s was deleted and created again: the global stores are rebuilt from their topics.", tp.topic
                )
            positions.setdefault(tp.topic, []).append(ends[tp])
        return positions

    def _time_after(self, planned_ms: int) -> int:
        """Return the time (ms) of the epoch after one of `planned_ms`.

        It does not go back, so that punctuations and intervals see ascending times. But after a jump back of more than
        `penstock.clock.max.hold.back.ms` it follows the clock, because otherwise nothing that depends on it would
        happen until the clock has caught up.
        """
        now = self._clock.milliseconds()
        return now if planned_ms - now > self._max_hold_back_ms else max(now, planned_ms)

    def _is_first(self, start: EpochOffset) -> bool:
        """Return whether the epoch after `start` is the first of its topology version.

        The first one initialises the tasks.
        """
        return start.epoch <= self._description.start_epoch

    def _is_due(self, manifest: Manifest, now: int, went_back: bool, waits: bool) -> bool:
        """Return whether an epoch without new records has work to do.

        Args:
            manifest: of the previous epoch.
            now: the time (ms).
            went_back: whether the clock did, so that intervals start over.
            waits: whether tasks with waiting records may keep waiting.
        """
        full = {str(task) for task in self._admission.tasks_that_wait(manifest)}
        for task, entry in manifest.tasks.items():
            if entry.carried is not None and (entry.carried["sends"] or not (waits or task in full)):
                return True
        due = manifest.due_ms()
        return due is not None and (due <= now or went_back) and not self._ends.are_fixed


def write_ends(mailbox: Mailbox, ends: Mapping[TopicPartition, int]) -> None:
    """Write the ends of inputs; raises OSError as `Mailbox.write`."""
    mailbox.write(ENDS_FILE, orjson.dumps([[*tp, end] for tp, end in ends.items()]))


def decoded_ends(message: bytes | None) -> dict[TopicPartition, int]:
    """Return the ends of inputs in the message ENDS_FILE, or nothing if it is not written yet."""
    found = [] if message is None else orjson.loads(message)
    return {TopicPartition(topic, partition): end for topic, partition, end in found}


def _warn_of_jump(now_ms: int, planned_ms: int) -> None:
    _log.warning(
        "The clock of this machine is at %s, and the time of the last epoch is %s: it has jumped. The application "
        "continues with the time of the machine, and wall-clock intervals start over.",
        _moment(now_ms),
        _moment(planned_ms),
    )


def _moment(milliseconds: int) -> str:
    """Return a time as UTC text, or in ms if its year exceeds a datetime."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"


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
