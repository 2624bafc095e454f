"""Limits how far an epoch reads, and how long tasks wait for input (Spark: admission control).

Combines the quota of bytes (`quota`), topics that advance together in time (`time_alignment`) and partitions that tasks
wait for (`lagging`).

It learns from epoch to epoch: the sizes of records, and the quota that keeps epochs within their target time. Both only
determine how much is read: everything that tasks see is in the read limit, which is in the offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from penstock.host.spark.checkpoints.carried import carried_bytes
from penstock.host.spark.checkpoints.checkpoint import Manifest
from penstock.host.spark.planner.history_offsets import HistoryOffsets, OffsetsForTime
from penstock.host.spark.planner.lagging import (
    answers_of,
    held_bytes,
    lagging_partitions,
    unread_partitions,
    waited_partitions,
)
from penstock.host.spark.planner.quota import (
    QuotaLimits,
    first_quota,
    next_quota,
    positions_within,
    remaining_quota,
    wanted_bytes,
)
from penstock.host.spark.planner.time_alignment import aligned_topics, common_time
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition

Positions = Mapping[TopicPartition, int]


class ReadLimit(NamedTuple):
    """The limit of an epoch.

    Args:
        positions: the positions after the epoch.
        lagging: the partitions with more records that tasks may wait for.
        idle_ms: how long (ms) tasks wait for partitions without more records.
        read_to_ms: the time (ms) before which aligned topics are read.
    """

    positions: Positions
    lagging: Set[TopicPartition]
    idle_ms: int
    read_to_ms: int

    @property
    def waits(self) -> bool:
        """Whether waiting records may keep waiting."""
        return bool(self.lagging) or self.idle_ms > 0


class AdmissionControl:
    """Limits how far the epochs of one query read.

    Args:
        description: of the application.
        offsets_for_time: finds offsets by time.
    """

    def __init__(self, description: ApplicationDescription, offsets_for_time: OffsetsForTime) -> None:
        config, placement = description.config, description.placement
        self._placement = placement
        self._inputs = frozenset(description.inputs)
        self._answers = answers_of(placement, description.inputs)
        self._start_epoch = None if description.start is None else description.start.epoch
        self._offsets = HistoryOffsets(description, offsets_for_time)
        self._limits = QuotaLimits(config["penstock.batch.max.bytes"], config["penstock.batch.target.ms"])
        self._quota = first_quota(self._limits)
        self._record_bytes: dict[str, float] = {}
        self.held_bound: int = config["penstock.held.max.bytes"]
        # if no task has inputs to wait for, lagging partitions do not matter
        self._idle_ms: int = config["max.task.idle.ms"] if any(placement.awaitable.values()) else -1
        self._skew_ms: int = config["penstock.max.skew.ms"]
        self._aligned = aligned_topics(description.topology, placement, config, description.histories.keys())

    def learn(self, manifest: Manifest, duration_ms: int | None) -> None:
        """Learn from the figures of an epoch that took `duration_ms`, or None if unknown."""
        for topic, figures in manifest.input.items():
            if figures.records:
                self._record_bytes[topic] = max(figures.bytes / figures.records, 1.0)
        read = sum(figures.bytes for figures in manifest.input.values())
        if duration_ms is not None and read:
            self._quota = next_quota(self._quota, read, duration_ms, self._limits, manifest.bytes_sent)

    def tasks_that_wait(self, manifest: Manifest) -> Set[TaskId]:
        """Return the tasks that take only answers of calls, as of `manifest`.

        Those at the start of a run may take more: a changed program may let more records wait.
        """
        if manifest.epoch == self._start_epoch:
            return frozenset()
        return {task for task in self._placement.groups if manifest.entry(str(task)).waits_for_answers}

    def next_limit(
        self, positions: Positions, ends: Positions, manifest: Manifest, read_to_ms: int, final: bool
    ) -> ReadLimit:
        """Return the limit of the next epoch.

        Args:
            positions: its start.
            ends: the farthest positions that it may read to.
            manifest: of the previous epoch.
            read_to_ms: that of the previous limit.
            final: whether nothing after `ends` will be read.
        """
        # Carried records are input of the next epoch too, so they count against its quota.
        held = sum(held_bytes(manifest).values())
        quota = remaining_quota(self._quota, carried_bytes(manifest) - held, held)
        behind = lagging_partitions(positions, ends)
        full = self.tasks_that_wait(manifest)
        unread = unread_partitions(self._placement, self._inputs, manifest, behind, self.held_bound, full)
        wanted = wanted_bytes(positions, ends, self._record_bytes, unread)
        if wanted > quota and self._aligned:
            ends, read_to_ms = self._cut(positions, ends, unread, quota / wanted, read_to_ms)
        first = (self._answers, *waited_partitions(self._placement, self._inputs, manifest))
        reached = positions_within(positions, ends, self._record_bytes, quota, unread, first)
        lagging = lagging_partitions(reached, ends) - self._answers if self._idle_ms >= 0 else frozenset()
        return ReadLimit(reached, lagging, 0 if final else max(self._idle_ms, 0), read_to_ms)

    def _cut(
        self, positions: Positions, ends: Positions, unread: Set[TopicPartition], share: float, begin_ms: int
    ) -> tuple[Positions, int]:
        """Return the ends, cut at a common time for aligned topics, and that time.

        The cut makes aligned topics use their share of the quota.
        """
        aligned = {tp: at for tp, at in positions.items() if tp.topic in self._aligned and tp not in unread}
        behind = {tp: position for tp, position in aligned.items() if ends.get(tp, position) > position}
        wanted = wanted_bytes(aligned, ends, self._record_bytes)
        if not wanted:
            return ends, begin_ms

        def ends_before(time: int) -> dict[TopicPartition, int]:
            found = self._offsets.at(behind, time)
            # Timestamps need not ascend within a partition, so the first record that is not older may precede the
            # position. Without such a record, the partition is read to its end.
            return {tp: min(max(found.get(tp, ends[tp]), positions[tp]), ends[tp]) for tp in behind}

        def bytes_before(time: int) -> float:
            return wanted_bytes(aligned, ends_before(time), self._record_bytes)

        time = common_time(begin_ms, bytes_before, wanted * share, self._skew_ms)
        return {**ends, **ends_before(time)}, time
