"""The task offsets that a member of a Kafka Streams group reports with its heartbeats (Kafka class:
StreamsGroupHeartbeatRequestManager.HeartbeatState).

The offset of a task is the sum of the next offsets of its changelogs here; its end offset is the sum of their ends. The
assignor of the brokers prefers members with the state of a task.

Rules:
- A member that joins reports all offsets.
- Later it reports changed offsets with a changed assignment, after each interval of the coordinator, and at once while
  a warm-up has caught up.
- A task that runs here has no offset.
- A report counts once the coordinator has answered.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import KafkaError
from penstock.host.threads.member_messages import StreamsTasks
from penstock.host.threads.membership import ChangelogPositions
from penstock.plan.subtopology import TaskId
from penstock_broker.wire.codec import Message

_log = logging.getLogger(__name__)

Offsets = Mapping[TaskId, int]


@dataclass(frozen=True)
class TaskOffsetReport:
    """The task offsets of one heartbeat. offsets, ends: None if they are not sent."""

    owned: StreamsTasks
    offsets: Offsets | None = None
    ends: Offsets | None = None

    def encode(self) -> Message:
        """Return the fields of StreamsGroupHeartbeat."""
        return {"task_offsets": _encode(self.offsets), "task_end_offsets": _encode(self.ends)}


class TaskOffsetReports:
    """Decides which task offsets a heartbeat reports; see the module.

    Args:
        state: known positions of the state of tasks, or None.
    """

    def __init__(self, state: ChangelogPositions | None) -> None:
        self._state = state
        self._interval_ms = 0
        self._acceptable_lag = -1
        self._last = TaskOffsetReport(StreamsTasks())
        """The last reported values."""
        self._last_ms: int | None = None

    def of_join(self) -> TaskOffsetReport:
        """Return the report of a member that joins."""
        self._last_ms = None
        return TaskOffsetReport(StreamsTasks(), self._offsets(StreamsTasks()), {})

    def of_heartbeat(self, owned: StreamsTasks, now: int) -> TaskOffsetReport:
        """Return the report of a heartbeat at `now` (ms). owned: the tasks of the member."""
        is_due = self._last_ms is None or owned != self._last.owned or self._has_passed(self._last_ms, now)
        if not is_due and not owned.warm_up:
            return TaskOffsetReport(owned)
        offsets, ends = self._offsets(owned), self._ends(owned)
        if not is_due and not self._has_caught_up(owned, offsets, ends):
            return TaskOffsetReport(owned)
        return TaskOffsetReport(
            owned,
            None if offsets == self._last.offsets else offsets,
            None if ends == self._last.ends else ends,
        )

    def answered(self, report: TaskOffsetReport, sent_ms: int, interval_ms: int, acceptable_lag: int) -> None:
        """Note an answer of the coordinator, with its settings.

        Args:
            report: the report of the answered heartbeat.
            sent_ms: the time (ms) of that heartbeat.
            interval_ms: the time (ms) between reports, 0 if the broker does not set it.
            acceptable_lag: the lag (records) of a warm-up that has caught up, -1 if the broker does not set it.
        """
        self._interval_ms, self._acceptable_lag = interval_ms, acceptable_lag
        if self._last_ms is None or report.offsets is not None or report.ends is not None:
            self._last_ms = sent_ms
        offsets = self._last.offsets if report.offsets is None else report.offsets
        ends = self._last.ends if report.ends is None else report.ends
        self._last = TaskOffsetReport(report.owned, offsets, ends)

    def _has_passed(self, since_ms: int, now: int) -> bool:
        return self._interval_ms > 0 and now >= since_ms + self._interval_ms

    def _offsets(self, owned: StreamsTasks) -> Offsets:
        positions = {} if self._state is None else self._state.positions()
        return {task: position for task, position in positions.items() if task not in owned.active}

    def _ends(self, owned: StreamsTasks) -> Offsets | None:
        """Return the end offsets of the copies here, None if the brokers do not answer."""
        copies = owned.standby | owned.warm_up
        if self._state is None or not copies:
            return {}
        try:
            ends = self._state.ends()
        except KafkaError as error:
            _log.warning("The group does not learn the end offsets of its tasks at the moment: %s", error)
            return None
        return {task: end for task, end in ends.items() if task in copies}

    def _has_caught_up(self, owned: StreamsTasks, offsets: Offsets, ends: Offsets | None) -> bool:
        known = owned.warm_up & offsets.keys() & (ends or {}).keys()
        return ends is not None and any(ends[task] - offsets[task] <= self._acceptable_lag for task in known)


def _encode(offsets: Offsets | None) -> list[Message] | None:
    if offsets is None:
        return None
    return [
        {"subtopology_id": str(task.subtopology), "partition": task.partition, "offset": offset}
        for task, offset in sorted(offsets.items())
    ]
