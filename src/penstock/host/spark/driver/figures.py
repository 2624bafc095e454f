"""Figures of a running application, computed by the driver from the manifests.

They are cheap to read, and as of the last committed epoch.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.config import StreamsConfig
from penstock.host.api import RECENT_COMMITS, CommitFigures, HostStatistics
from penstock.host.calls.measuring import CallFigures
from penstock.host.measuring.call_measuring import measured_calls
from penstock.host.measuring.record_counters import RecordCounters
from penstock.host.spark.checkpoints.checkpoint import Manifest
from penstock.host.spark.worker.measuring import operations_of
from penstock.metrics import SensorReport
from penstock.metrics.drop_reasons import Dropped
from penstock.metrics.host_metrics import (
    BLOCKED_TIME,
    COMMIT,
    DROPPED_RECORDS,
    POLL,
    PROCESS,
    PROCESS_RECORDS,
    TASK_CLOSED,
    TASK_CREATED,
    HostMeasurements,
    Measured,
    Operation,
)
from penstock.metrics.measurements import Measurement, TimeShares, measured_once
from penstock.plan.subtopology import BuiltTopology
from penstock.record import TopicPartition
from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)

_RECENT = 5

_ACTIVITIES = (Operation(POLL), Operation(PROCESS), Operation(COMMIT))


class ManifestFigures:
    """Adds up manifests. Any thread may take a snapshot.

    Args:
        samples: `metrics.num.samples`.
        window_ms: `metrics.sample.window.ms`.
        elapsed_ms: the clock for the samples, in ms.
        counters: of the records by topic; None if no topic is the application's own.
    """

    def __init__(
        self,
        samples: int = 2,
        window_ms: int = 30_000,
        elapsed_ms: Callable[[], int] = elapsed_milliseconds,
        counters: RecordCounters | None = None,
    ) -> None:
        self._elapsed_ms = elapsed_ms
        self._measurements = HostMeasurements(samples, window_ms)
        self._shares = TimeShares(_ACTIVITIES, samples, window_ms, elapsed_ms())
        self._started_ms: int | None = None
        self._lock = threading.Lock()
        self._last: Manifest | None = None
        self._ends: Mapping[TopicPartition, int] = {}
        self._begin: Mapping[str, list[int]] = {}
        self._counters = counters or RecordCounters()
        self._records_out = 0
        self._workers: dict[str, str] = {}
        self._awaited: dict[str, tuple[TopicPartition, ...]] = {}
        self._recent: deque[Manifest] = deque(maxlen=_RECENT)
        self._commits: deque[CommitFigures] = deque(maxlen=RECENT_COMMITS)
        self.tasks_created(0)
        self.tasks_closed(0)

    @staticmethod
    def of(config: StreamsConfig, topology: BuiltTopology) -> ManifestFigures:
        """Return figures of a topology with the settings in `config`."""
        counters = RecordCounters(topology.task_topics.__contains__, topology.answers_topics)
        samples, window_ms = config["metrics.num.samples"], config["metrics.sample.window.ms"]
        return ManifestFigures(samples, window_ms, counters=counters)

    @property
    def epoch(self) -> int:
        """The last epoch that was added."""
        return 0 if self._last is None else self._last.epoch

    @property
    def committed_ms(self) -> int | None:
        """Commit time of the last epoch (ms since the epoch), or None before the first."""
        last = self._last
        return None if last is None or not last.epoch else last.committed_ms

    def begin(
        self,
        last: Manifest,
        begin: Mapping[str, list[int]],
        ends: Mapping[TopicPartition, int],
        now_ms: int | None = None,
    ) -> None:
        """Start from the manifest `last` of an earlier run.

        Args:
            last: the last manifest of the earlier run.
            begin: positions before the first epoch.
            ends: the current ends of the inputs.
            now_ms: the time of the machine in ms; None if another process runs the application.
        """
        with self._lock:
            self._last, self._begin, self._ends, self._started_ms = last, begin, ends, now_ms
            self._workers.clear()
            self._awaited.clear()
            self._measurements.forget()

    def take_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Update the ends of the inputs."""
        with self._lock:
            self._ends = ends

    def take_calls(self, figures: Mapping[str, CallFigures]) -> None:
        """Add a report on calls, by operator."""
        with self._lock:
            now = self._elapsed_ms()
            for operation, measurement in measured_calls(figures):
                self._measurements.take(operation, measurement, now)

    def tasks_created(self, tasks: int) -> None:
        """Record that a query creates `tasks` tasks."""
        self._count(TASK_CREATED, tasks)

    def tasks_closed(self, tasks: int) -> None:
        """Record that a query with `tasks` tasks has ended."""
        self._count(TASK_CLOSED, tasks)

    def _count(self, name: str, number: int) -> None:
        with self._lock:
            self._measurements.take(Operation(name), Measurement(number, float(number)), self._elapsed_ms())

    def take(self, manifest: Manifest) -> None:
        """Add a new manifest."""
        with self._lock:
            self._last = manifest
            self._records_out += manifest.records_out
            for topic, figures in manifest.input.items():
                self._counters.consumed(topic, figures.records, figures.bytes)
            for topic, figures in manifest.output.items():
                self._counters.produced(topic, figures.records, figures.bytes)
            self._counters.processed.update(manifest.processed)
            self._counters.dropped.update(manifest.dropped)
            self._workers.update(manifest.workers)
            for task in manifest.workers:
                self._awaited[task] = tuple(TopicPartition(*each) for each in manifest.awaited.get(task, ()))
            self._recent.append(manifest)
            records = sum(manifest.processed.values())
            self._commits.append(CommitFigures(manifest.epoch, manifest.committed_ms, records, manifest.phases_ms))
            self._measure(manifest)

    def _measure(self, manifest: Manifest) -> None:
        take, now, took = self._measurements.take, self._elapsed_ms(), manifest.commit_ms
        take(Operation(COMMIT), measured_once(took), now)
        for task, measured in manifest.measured.items():
            for operation, measurement in operations_of(task, measured):
                take(operation, measurement, now)
                self._counters.measured(operation, measurement)
        for records in manifest.processed.values():
            take(Operation(PROCESS_RECORDS), measured_once(records), now)
        fetched, processed, sent = (manifest.phases_ms.get(phase, 0.0) for phase in ("fetch", "process", "transaction"))
        take(Operation(BLOCKED_TIME), measured_once((fetched + sent) * 1e6), now)
        for activity, spent in zip(_ACTIVITIES, (fetched, processed, took), strict=True):
            self._shares.take(activity, spent, now)
        self._measurements.committed(manifest.committed_ms, now)
        for task, records in manifest.dropped.items():
            take(Operation(DROPPED_RECORDS, task), Measurement(records), now)
        self._measurements.take_sensors(map(SensorReport.of_fields, manifest.sensors), now)

    def measured(self) -> Measured:
        """Return the measurements since this start; rates, averages and extremes end now."""
        with self._lock:
            committed_ms = self.committed_ms
            now = self._elapsed_ms()
            return self._measurements.at(now)._replace(
                lags=self._lags(), committed_ms=committed_ms, ratios=self._shares.at(now), started_ms=self._started_ms
            )

    def dropped(self) -> Mapping[Dropped, int]:
        """Return the records dropped since this start, by node or store, and reason."""
        with self._lock:
            return dict(self._counters.dropped_for)

    def snapshot(self) -> HostStatistics:
        """Return the figures since this start, as of the last committed epoch."""
        with self._lock:
            last, recent, is_internal = self._last, [m for m in self._recent if m.input], self._counters.is_internal
            busy_ms = sum(map(_duration_ms, recent))
            inputs = [each for manifest in recent for each in manifest.input.items()]
            taken = sum(figures.records for topic, figures in inputs if not is_internal(topic))
            return replace(
                self._counters.snapshot(),
                epoch=0 if last is None else last.epoch,
                epoch_ms=0 if last is None else _duration_ms(last),
                records_out=self._records_out,
                records_per_second=round(1000 * taken / busy_ms) if busy_ms > 0 else 0,
                lag=sum(self._lags().values()),
                workers=dict(self._workers),
                awaited={task: partitions for task, partitions in self._awaited.items() if partitions},
                recent_commits=list(self._commits),
            )

    def _lags(self) -> dict[TopicPartition, int]:
        """Return the number of unread offsets of each input."""
        last = self._last
        positions = self._begin if last is None or not last.offsets else last.offsets
        return {
            tp: max(end - positions[tp.topic][tp.partition], 0)
            for tp, end in self._ends.items()
            if tp.partition < len(positions.get(tp.topic, ()))
        }


def _duration_ms(manifest: Manifest) -> int:
    """Return the duration of an epoch (ms), or 0 if the clock went back meanwhile."""
    return max(manifest.committed_ms - manifest.planned_ms, 0)
