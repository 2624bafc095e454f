"""The counters and timings of an instance, for its metrics and statistics. The polling thread writes, any thread may
read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from penstock.host.api import HostStatistics
from penstock.host.calls.measuring import CallFigures
from penstock.host.deployment.layout import own_topics
from penstock.host.measuring.call_measuring import measured_calls
from penstock.host.measuring.record_counters import RecordCounters
from penstock.host.threads import vocabulary as v
from penstock.host.threads.commit_times import CommitTimes
from penstock.host.threads.frequent_figures import (
    BLOCKED,
    NANOSECONDS_OF_MS,
    POLLING,
    PROCESSING,
    PUNCTUATING,
    FrequentFigures,
)
from penstock.host.threads.unread import described
from penstock.metrics.drop_reasons import Dropped
from penstock.metrics.host_metrics import (
    ACTIVE_RESTORE,
    ACTIVE_RESTORING,
    BUFFER_BYTES,
    BUFFER_COUNT,
    COMMIT,
    DROPPED_RECORDS,
    IDLE,
    RESTORE,
    RESTORE_REMAINING,
    STANDBY_UPDATE,
    STANDBY_UPDATING,
    TASK_CLOSED,
    TASK_CREATED,
    UPDATE,
    HostMeasurements,
    Measured,
    Operation,
)
from penstock.metrics.measurements import Measurement, TimeShares, measured_once
from penstock.plan.subtopology import BuiltTopology, TaskId
from penstock.record import PartitionBatch, TopicPartition, size_of
from penstock.task.partition_group import BufferSize
from penstock_broker.common.clock import elapsed_milliseconds

_LAG_MS = 1_000

_COMMITTING = Operation(COMMIT)
_RESTORING, _UPDATING, _IDLE = Operation(ACTIVE_RESTORE), Operation(STANDBY_UPDATE), Operation(IDLE)
_ACTIVITIES = (POLLING, PROCESSING, PUNCTUATING, _COMMITTING, _RESTORING, _UPDATING)


class InstanceFigures:
    """Adds up events and output.

    Args:
        samples: `metrics.num.samples`.
        window_ms: `metrics.sample.window.ms`.
        is_internal: whether a topic is the application's own.
        elapsed_ms: clock for samples (ms).
        answers: the topics of the answers of calls.
    """

    def __init__(
        self,
        samples: int,
        window_ms: int,
        is_internal: Callable[[str], bool],
        elapsed_ms: Callable[[], int],
        answers: Set[str] = frozenset(),
    ) -> None:
        self._elapsed_ms = elapsed_ms
        self.commits = CommitTimes(elapsed_ms)
        self.counters = RecordCounters(is_internal, answers)
        self._measurements = HostMeasurements(samples, window_ms)
        self._shares = TimeShares(_ACTIVITIES, samples, window_ms, elapsed_ms())
        self._frequent = FrequentFigures(self._measurements, self._shares, elapsed_ms())
        self._workers = 1
        self._started_ms: int | None = None
        self._lock = threading.Lock()
        self._awaited: dict[str, tuple[TopicPartition, ...]] = {}
        self._looked_at: int | None = None
        self._lags: Mapping[TopicPartition, int] = {}
        self._unread: Mapping[TopicPartition, v.Unread] = {}
        self._waiting: Mapping[TaskId, BufferSize] = {}
        self._created: set[TaskId] = set()
        self._restoring: set[TaskId] = set()
        self._standing: set[TaskId] = set()
        self._poll_began = 0
        self._calls: Callable[[], Mapping[str, CallFigures]] = dict
        self._count(TASK_CREATED, 0)
        self._count(TASK_CLOSED, 0)

    @staticmethod
    def of(config: Mapping[str, Any], topology: BuiltTopology) -> InstanceFigures:
        """Return figures of a topology with the settings in `config`."""
        return InstanceFigures(
            config["metrics.num.samples"],
            config["metrics.sample.window.ms"],
            own_topics(topology).__contains__,
            elapsed_milliseconds,
            topology.answers_topics,
        )

    def started(self, workers: int, now_ms: int) -> None:
        """Note the setup of an instance. workers: number of processes or threads that run tasks. now_ms: wall clock."""
        with self._lock:
            self._workers, self._started_ms = workers, now_ms
            self._restoring, self._standing = set(), set()

    def take(self, event: v.Event) -> None:
        """Add the figures of an event."""
        match event:
            case v.Arrived((topic, _), batch):
                with self._lock:
                    self.counters.consumed(topic, len(batch), event.size)
            case v.Ran(task, records=records):
                name = str(task)
                with self._lock:
                    self.counters.processed[name] += records
                    self._awaited[name] = event.awaited
                    self._take_run(event)
                self.commits.ran(records, event.nanoseconds)
            case v.UnreadFound(unread):
                self._unread = unread or self._unread
            case v.CommitPrepared():
                self._take_prepared(event)
                self.commits.prepared()
            case v.Written() | v.OffsetsCommitted() | v.TransactionCommitted():
                self.commits.durable()
            case v.CommitApplied():
                self.commits.made()
            case v.Started(task) if task != v.GLOBAL_TASK:
                self._count(TASK_CREATED)
                self._created.add(task)
            case v.Closed(task):
                if task in self._created:
                    self._created.remove(task)
                    self._count(TASK_CLOSED)
                with self._lock:
                    self._awaited.pop(str(task), None)
                    self._measurements.closed(str(task))
                    self._restoring.discard(task)
            case v.Restored(task) | v.Failed(task=TaskId() as task):
                with self._lock:
                    self._restoring.discard(task)
            case _:
                pass

    def asked(self, action: v.Restore | v.StandBy | v.StandDown) -> None:
        """Note a request to the restore thread. A restore begins with the copy of a standby task, and ends with its
        event."""
        with self._lock:
            match action:
                case v.StandBy(task):
                    self._standing.add(task)
                case v.StandDown(task):
                    self._standing.discard(task)
                case v.Restore(task) if task != v.GLOBAL_TASK:
                    self._standing.discard(task)
                    self._restoring.add(task)

    def restoring(self) -> AbstractContextManager[None]:
        """Return a context that measures the time of the restore thread for restoring a task."""
        return self._taking(_RESTORING)

    def updating(self) -> AbstractContextManager[None]:
        """Return a context that measures the time of the restore thread for updating standby tasks."""
        return self._taking(_UPDATING)

    @contextmanager
    def _taking(self, activity: Operation) -> Iterator[None]:
        with self._lock:
            self._shares.begin(activity, self._elapsed_ms())
        try:
            yield
        finally:
            with self._lock:
                self._shares.end(activity, self._elapsed_ms())

    def restored(self, task: TaskId, records: int, remaining: int) -> None:
        """Add changelog records applied by a restore. remaining: number of offsets still to restore."""
        with self._lock:
            left = measured_once(remaining)
            self._measurements.take(Operation(RESTORE_REMAINING, str(task)), left, self._elapsed_ms())
            self._take_applied(RESTORE, task, records)

    def updated(self, task: TaskId, records: int) -> None:
        """Add changelog records applied by a standby task."""
        with self._lock:
            self._take_applied(UPDATE, task, records)

    def _take_applied(self, name: str, task: TaskId, records: int) -> None:
        measurement, now = Measurement(1 if records else 0, float(records)), self._elapsed_ms()
        for operation in (Operation(name, str(task)), Operation(RESTORE)):
            self._measurements.take(operation, measurement, now)

    def _take_run(self, event: v.Ran) -> None:
        """Add the time of a run as a share of all workers' time. Several run at once."""
        punctuated, of_all = event.punctuation_nanoseconds, NANOSECONDS_OF_MS * self._workers
        processing = event.nanoseconds - punctuated
        self._frequent.ran(event.records, processing / of_all, punctuated / of_all, self._elapsed_ms())

    def sent(self, output: Sequence[PartitionBatch]) -> None:
        """Add records that are being written."""
        with self._lock:
            for topic, _, batch, _ in output:
                self.counters.produced(topic, len(batch), size_of(batch))

    def wants_lag(self) -> bool:
        """Return whether the lag is due for measurement: at most once per second."""
        now = self._elapsed_ms()
        if self._looked_at is not None and now - self._looked_at < _LAG_MS:
            return False
        self._looked_at = now
        return True

    def lags(self, lags: Mapping[TopicPartition, int], waiting: Mapping[TaskId, BufferSize]) -> None:
        """Set the lags. lags: the number of records of each input not yet taken by the instance. waiting: the records
        that have arrived and wait, outside or inside each task."""
        self._lags = lags
        self._waiting = {task: size for task, size in waiting.items() if task != v.GLOBAL_TASK}

    def poll_began(self) -> None:
        """Start measuring a poll."""
        self._poll_began = self._elapsed_ms()

    def poll_ended(self, records: int) -> None:
        """Add the duration of the poll, and its number of records."""
        now = self._elapsed_ms()
        with self._lock:
            self._frequent.polled(now - self._poll_began, records, now)

    def commit_ended(self, now_ms: int) -> None:
        """Add the duration of the measured commit, if any, whether it succeeded or not. now_ms: wall clock."""
        if not self.commits.is_measured:
            return
        now = self._elapsed_ms()
        with self._lock:
            ended = self.commits.ended(now, now_ms)
            if ended is None:
                return
            if ended.is_made:
                self._measurements.take(BLOCKED, measured_once(ended.waited_ms * NANOSECONDS_OF_MS), now)
            took = float(ended.took_ms)
            self._shares.take(_COMMITTING, took, now)
            self._measurements.committed(now_ms if ended.is_made else None, now)
            self._measurements.take(Operation(COMMIT), measured_once(took), now)

    def take_clients(self, measured: Mapping[str, Measurement]) -> None:
        """Add measurements reported by consumers and producers, by operation."""
        now = self._elapsed_ms()
        with self._lock:
            for name, measurement in measured.items():
                self._measurements.take(Operation.reported(name, ""), measurement, now)

    def follow_calls(self, take: Callable[[], Mapping[str, CallFigures]]) -> None:
        """Follow the figures of calls. take: returns those since its last call, by operator."""
        self._calls = take

    def take_calls(self) -> None:
        """Add the figures of calls since the last time; called at intervals."""
        now = self._elapsed_ms()
        with self._lock:
            for operation, measurement in measured_calls(self._calls()):
                self._measurements.take(operation, measurement, now)

    def _take_prepared(self, event: v.CommitPrepared) -> None:
        task, now = str(event.task), self._elapsed_ms()
        with self._lock:
            for name, measurement in event.measured.items():
                operation = Operation.reported(name, task)
                self._measurements.take(operation, measurement, now)
                self.counters.measured(operation, measurement)
            self._measurements.take_sensors(event.sensors, now)
            if event.dropped:
                self.counters.dropped[task] += event.dropped
                self._measurements.take(Operation(DROPPED_RECORDS, task), Measurement(event.dropped), now)

    def _count(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._measurements.take(Operation(name), Measurement(number, float(number)), self._elapsed_ms())

    def measured(self) -> Measured:
        """Return the measurements, with rates, averages and extremes of the recent past."""
        self.take_calls()
        now = self._elapsed_ms()
        with self._lock:
            self._frequent.move(now)
            measured, ratios = self._measurements.at(now), self._shares.at(now)
            tasks = {ACTIVE_RESTORING: len(self._restoring), STANDBY_UPDATING: len(self._standing)}
        idle = max(1.0 - ratios[_RESTORING] - ratios[_UPDATING], 0.0)
        gauges = {**measured.gauges, **{Operation(name): float(number) for name, number in tasks.items()}}
        for task, size in self._waiting.items():
            gauges[Operation(BUFFER_COUNT, str(task))] = float(size.records)
            gauges[Operation(BUFFER_BYTES, str(task))] = float(size.bytes)
        return measured._replace(
            gauges=gauges,
            lags=self._lags,
            committed_ms=self.commits.last.time_ms if self.commits.last.number else None,
            ratios={**ratios, _IDLE: idle},
            started_ms=self._started_ms,
        )

    def dropped(self) -> dict[Dropped, int]:
        """Return the records dropped since the start, by node or store, and reason."""
        with self._lock:
            return dict(self.counters.dropped_for)

    def snapshot(self) -> HostStatistics:
        """Return the figures since the start, without those of single tasks that the threads know."""
        with self._lock:
            return replace(
                self.counters.snapshot(),
                commits=self.commits.last.number,
                lag=sum(self._lags.values()),
                unread=described(self._unread),
                awaited={task: partitions for task, partitions in self._awaited.items() if partitions},
                recent_commits=self.commits.recent(),
            )
