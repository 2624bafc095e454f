"""Metrics of hosts, by the names of Kafka Streams.

It has only true measurements of a host: metrics that are meaningless without stream threads, or not counted, are
omitted. Records of repartition topics that pass through no broker do not count as consumed or produced. This module
neither counts nor sends metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.metrics import MeasurableStat, Metric, MetricName, SensorMetric, SensorReport
from penstock.metrics.drop_reasons import Dropped, DropReason
from penstock.metrics.measurements import (
    MOST_KEYS,
    NOTHING,
    Measurement,
    Sampled,
    SampledMeasurements,
    age_of,
    age_quantile,
    bucket_of,
)
from penstock.metrics.record_counts import RecordCounts
from penstock.metrics.rocksdb_names import ROCKSDB_PROPERTIES, ROCKSDB_RATIOS, ROCKSDB_STATISTICS
from penstock.record import TopicPartition

_STREAM, _TASK, _TOPIC = "stream-metrics", "stream-task-metrics", "stream-topic-metrics"
_THREAD, _NODE = "stream-thread-metrics", "stream-processor-node-metrics"
_UPDATER = "stream-state-updater-metrics"
_STATE, _CACHE = "stream-state-metrics", "stream-record-cache-metrics"
_CONSUMER, _PRODUCER, _FETCH = "consumer-metrics", "producer-metrics", "consumer-fetch-manager-metrics"

COMMIT: Final = "commit"
PROCESS: Final = "process"
PROCESS_RECORDS: Final = "process-records"
PUNCTUATE: Final = "punctuate"
DROPPED_RECORDS: Final = "dropped-records"
DROPPED_BY_REASON: Final = "dropped-records-by-reason"
RECORD_LATENESS: Final = "record-lateness"
RECORD_E2E_LATENCY: Final = "record-e2e-latency"
DEAD_LETTER_RECORDS: Final = "dead-letter-records"
POLL: Final = "poll"
POLL_RECORDS: Final = "poll-records"
TASK_CREATED: Final = "task-created"
TASK_CLOSED: Final = "task-closed"
RESTORE: Final = "restore"
RESTORE_REMAINING: Final = "restore-remaining-records-total"
UPDATE: Final = "update"
ACTIVE_RESTORING: Final = "active-restoring-tasks"
STANDBY_UPDATING: Final = "standby-updating-tasks"
ACTIVE_RESTORE: Final = "active-restore"
STANDBY_UPDATE: Final = "standby-update"
IDLE: Final = "idle"
HIT_RATIO: Final = "hit-ratio"
OUTPUT_AGE: Final = "committed-output-age"
STREAM_TIME: Final = "stream-time"
THREAD_STATE: Final = "thread-state"
STATE_SIZE: Final = "state-size"
NUM_KEYS: Final = "num-keys"
SUPPRESSION_EMIT: Final = "suppression-emit"
SUPPRESSION_BUFFER_SIZE: Final = "suppression-buffer-size"
SUPPRESSION_BUFFER_COUNT: Final = "suppression-buffer-count"
PARKED_RECORDS: Final = "parked-records"
CALLS_IN_FLIGHT: Final = "calls-in-flight"
CALLS_WAITING: Final = "calls-waiting"
CALLS_ANSWERED: Final = "calls-answered"
CALLS_FAILED: Final = "calls-failed"
CALL_RETRIES: Final = "call-retries"
CALL: Final = "call"
CALL_LATENCIES: Final = ("call-latency-p50", "call-latency-p99")
BLOCKED_TIME: Final = "blocked-time"
BUFFER_COUNT: Final = "active-buffer-count"
BUFFER_BYTES: Final = "input-buffer-bytes-total"
CACHE_BYTES: Final = "cache-size-bytes-total"
ITERATOR_DURATION: Final = "iterator-duration"
OPEN_ITERATORS: Final = "num-open-iterators"
OLDEST_ITERATOR: Final = "oldest-iterator-open-since-ms"
FETCH_THROTTLE_TIME: Final = "fetch-throttle-time"
PRODUCE_THROTTLE_TIME: Final = "produce-throttle-time"
REQUEST_LATENCY: Final = "request-latency"
BUFFERED_BYTES: Final = "buffered-bytes"
OUTGOING_BYTE: Final = "outgoing-byte"
INCOMING_BYTE: Final = "incoming-byte"

STORE_OPERATIONS: Final = (
    *("put", "put-if-absent", "put-all", "get", "delete", "remove"),
    *("fetch", "range", "all", "prefix-scan", "flush"),
)
"""The measured calls of stores."""

_THREAD_ID: Final = "main"  # the name of the runner in the reports of tasks
_THREAD_IDS: Final[Mapping[str, str]] = {
    **dict.fromkeys((_THREAD, _TASK, _NODE, _STATE, _CACHE), _THREAD_ID),
    _UPDATER: "StateUpdater-1",
}
"""The suffix of thread-id in the metrics of a group; other groups have no thread-id."""
_OF_THREADS: Final = frozenset((PROCESS, PUNCTUATE))
"""Kafka's measurements of single tasks, and of all tasks of a thread."""
_CLOSED: Final = "closed"
"""In place of a task id: all closed tasks."""
_OF_UPDATER: Final = frozenset((RESTORE, ACTIVE_RESTORING, STANDBY_UPDATING, ACTIVE_RESTORE, STANDBY_UPDATE, IDLE))
"""The measurements of the thread that restores tasks and updates standby tasks."""
FALLING: Final = frozenset((RESTORE_REMAINING, BUFFER_BYTES, CACHE_BYTES))
"""The metrics ending in -total whose values also fall: gauges, not counters."""

DESCRIPTIONS: Mapping[tuple[str, str], str] = {
    (_STREAM, "version"): "The version of Penstock",
    (_STREAM, "application-id"): "The application.id",
    (_STREAM, "topology-description"): "The description of the topology that runs",
    (_STREAM, "state"): "The state of the application",
    (_STREAM, "client-state"): "The state of the application as a number, in the order of the states",
    (_STREAM, "recording-level"): "The metrics.recording.level as a number: 0 for INFO, 1 for DEBUG, 2 for TRACE",
    **{
        (_STREAM, f"{OUTPUT_AGE}-p{percent}"): f"The age in ms that {percent} % of the output had at most at its commit"
        for percent in (50, 95, 99)
    },
    (_STREAM, "alive-stream-threads"): "1 while something runs the tasks, else 0: a query of Spark, or an instance",
    (_STREAM, "failed-stream-threads"): "The number of errors that stopped all tasks",
    (_THREAD, "commit-total"): "The number of commits",
    (_THREAD, "commit-rate"): "The number of commits a second",
    (_THREAD, "commit-latency-avg"): "The average time of a commit in ms",
    (_THREAD, "commit-latency-max"): "The longest time of a commit in ms",
    (_THREAD, "last-commit-time"): "When the last commit was made, in ms since the epoch",
    (_THREAD, THREAD_STATE): "The state of what runs the tasks, as the number of Kafka's StreamThread.State",
    (_THREAD, "thread-start-time"): "When what runs the tasks was set up, in ms since the epoch",
    (_THREAD, "blocked-time-ns-total"): "The time in ns that was spent on fetching records, or waiting for brokers",
    (_THREAD, "commit-ratio"): "The share of the time in which a commit was being made",
    (_THREAD, "process-total"): "The number of records that all tasks have processed",
    (_THREAD, "process-rate"): "The number of records that all tasks process a second",
    (_THREAD, "process-latency-avg"): "The average time in ms in which a task processes a record",
    (_THREAD, "process-latency-max"): "The longest time in ms of a record, as the average of those of a commit",
    (_THREAD, "process-ratio"): "The share of the time in which tasks processed records",
    (_THREAD, "process-records-avg"): "The average number of records that a task processed in one run",
    (_THREAD, "process-records-max"): "The largest number of records that a task processed in one run",
    (_THREAD, "punctuate-total"): "The number of punctuations of all tasks",
    (_THREAD, "punctuate-rate"): "The number of punctuations of all tasks a second",
    (_THREAD, "punctuate-latency-avg"): "The average time of a punctuation in ms",
    (_THREAD, "punctuate-latency-max"): "The longest time of a punctuation in ms",
    (_THREAD, "punctuate-ratio"): "The share of the time in which tasks made punctuations",
    (_THREAD, "poll-total"): "The number of times that records were fetched",
    (_THREAD, "poll-rate"): "How often records are fetched a second",
    (_THREAD, "poll-latency-avg"): "The average time in ms in which records were fetched",
    (_THREAD, "poll-latency-max"): "The longest time in ms in which records were fetched",
    (_THREAD, "poll-ratio"): "The share of the time that was spent on fetching records, or waiting for them",
    (_THREAD, "poll-records-avg"): "The average number of records that were fetched at one time",
    (_THREAD, "poll-records-max"): "The largest number of records that were fetched at one time",
    (_THREAD, "task-created-total"): "The number of tasks that were set up",
    (_THREAD, "task-created-rate"): "The number of tasks that are set up a second",
    (_THREAD, "task-closed-total"): "The number of tasks that were closed",
    (_THREAD, "task-closed-rate"): "The number of tasks that are closed a second",
    (_TASK, "active-process-ratio"): "The share of the task in the time in which tasks process records",
    (_TASK, "dead-letter-records-total"): "The number of records that were sent to dead letter queues",
    (_TASK, "dead-letter-records-rate"): "The number of records that are sent to dead letter queues a second",
    (_TASK, "process-total"): "The number of records that the task has processed",
    (_TASK, "process-rate"): "The number of records that the task processes a second",
    (_TASK, "process-latency-avg"): "The average time in ns in which the task processes a record",
    (_TASK, "process-latency-max"): "The longest time in ns of a record, as the average of those of a commit",
    (_TASK, "punctuate-total"): "The number of punctuations",
    (_TASK, "punctuate-rate"): "The number of punctuations a second",
    (_TASK, "punctuate-latency-avg"): "The average time of a punctuation in ns",
    (_TASK, "punctuate-latency-max"): "The longest time of a punctuation in ns",
    (_TASK, "record-lateness-avg"): "The average time in ms by which a record is behind stream time",
    (_TASK, "record-lateness-max"): "The longest time in ms by which a record is behind stream time",
    (_TASK, "dropped-records-total"): "The number of records that were dropped, by processors or stores",
    (_TASK, "dropped-records-rate"): "The number of records that are dropped a second",
    (_TASK, BUFFER_COUNT): "The number of records that wait for the task in this process, or in it",
    (_TASK, BUFFER_BYTES): "The bytes of the keys and values that wait for the task in this process, or in it",
    (_TASK, CACHE_BYTES): "The bytes of the record caches of the task at the last commit",
    (_TASK, "restore-total"): "The number of records that were restored from changelogs",
    (_TASK, "restore-rate"): "The number of records that are restored from changelogs a second",
    (_TASK, RESTORE_REMAINING): "The number of offsets of changelogs that are still to be restored",
    (_TASK, "update-total"): "The number of records that the standby task has applied",
    (_TASK, "update-rate"): "The number of records that the standby task applies a second",
    (_TASK, STATE_SIZE): "The bytes of the stores of the task in its local database, LMDB",
    (_TASK, STREAM_TIME): "The stream time of the task in ms since the epoch",
    (_TASK, "stream-time-skew"): "How far in ms the task is behind the largest stream time of the tasks of its program",
    (_UPDATER, ACTIVE_RESTORING): "The number of active tasks that are being restored, or wait for it",
    (_UPDATER, STANDBY_UPDATING): "The number of standby tasks that follow their changelogs",
    (_UPDATER, "restore-records-rate"): "The number of records of changelogs that are applied a second",
    (_UPDATER, "restore-call-rate"): "How often records of changelogs are applied a second",
    (_UPDATER, "active-restore-ratio"): "The share of the time that was spent on restoring active tasks",
    (_UPDATER, "standby-update-ratio"): "The share of the time that was spent on updating standby tasks",
    (_UPDATER, "idle-ratio"): "The share of the time in which tasks were neither restored nor updated",
    (_NODE, "dropped-records-total"): "The number of records that the node, or the store, has dropped",
    (_NODE, "dropped-records-rate"): "The number of records that the node, or the store, drops a second",
    (_NODE, "dropped-records-by-reason-total"): "The number of records that were dropped for what the tag reason says",
    (_NODE, "process-total"): "The number of records that the node has processed",
    (_NODE, "process-rate"): "The number of records that the node processes a second",
    (_NODE, "record-e2e-latency-avg"): "The average age in ms of a record when the node has processed it",
    (_NODE, "record-e2e-latency-min"): "The smallest age in ms of a record when the node has processed it",
    (_NODE, "record-e2e-latency-max"): "The largest age in ms of a record when the node has processed it",
    **{(_STATE, f"{name}-rate"): f"The number of calls to {name} a second" for name in STORE_OPERATIONS},
    **{(_STATE, f"{name}-latency-avg"): f"The average time of a call to {name} in ns" for name in STORE_OPERATIONS},
    **{(_STATE, f"{name}-latency-max"): f"The longest time of a call to {name} in ns" for name in STORE_OPERATIONS},
    (_STATE, NUM_KEYS): "The number of keys in the store at the last commit, if it is in memory",
    (_STATE, OPEN_ITERATORS): "The number of iterators of the store that are open",
    (_STATE, OLDEST_ITERATOR): "Since when the oldest open iterator of the store is open, in ms since the epoch",
    (_STATE, "iterator-duration-avg"): "The average time in ns from the opening of an iterator to its end",
    (_STATE, "iterator-duration-max"): "The longest time in ns from the opening of an iterator to its end",
    (_NODE, PARKED_RECORDS): "The number of records that wait for another attempt at the last commit (on_error)",
    (_NODE, CALLS_IN_FLIGHT): "The number of attempts to call the function of the node that run in the process",
    (_NODE, CALLS_WAITING): "The number of records in the process that wait for the answers of their calls",
    (_NODE, "calls-answered-total"): "The number of calls that were answered, with a result or a failure",
    (_NODE, "calls-answered-rate"): "The number of calls that are answered a second",
    (_NODE, "calls-failed-total"): "The number of calls that have failed in their last attempt",
    (_NODE, "calls-failed-rate"): "The number of calls that fail in their last attempt a second",
    (_NODE, "call-retries-total"): "The number of attempts that followed a failed one",
    (_NODE, "call-retries-rate"): "The number of attempts a second that follow a failed one",
    (_NODE, "call-latency-avg"): "The average time of an attempt in ms",
    (_NODE, "call-latency-max"): "The longest time of an attempt in ms",
    (_NODE, "call-latency-p50"): "The time in ms that 50 % of the last 1,000 attempts took at most",
    (_NODE, "call-latency-p99"): "The time in ms that 99 % of the last 1,000 attempts took at most",
    (_NODE, "suppression-emit-total"): "The number of updates that left the suppression buffer",
    (_NODE, "suppression-emit-rate"): "The number of updates that leave the suppression buffer a second",
    (_STATE, "suppression-buffer-size-avg"): "The average of the bytes that the updates in the buffer count for",
    (_STATE, "suppression-buffer-size-max"): "The most bytes that the updates in the buffer counted for",
    (_STATE, "suppression-buffer-count-avg"): "The average number of updates in the buffer",
    (_STATE, "suppression-buffer-count-max"): "The largest number of updates in the buffer",
    **{(_STATE, name): text for name, text in {**ROCKSDB_PROPERTIES, **ROCKSDB_RATIOS}.items()},
    **{
        (_STATE, f"{name}{end}"): text for name, shown in ROCKSDB_STATISTICS.items() for end, (_, text) in shown.items()
    },
    (_FETCH, "fetch-throttle-time-avg"): "The average time in ms for which brokers throttled a fetch",
    (_FETCH, "fetch-throttle-time-max"): "The longest time in ms for which brokers throttled a fetch",
    (_FETCH, "records-lag"): "The number of offsets between the position in the partition and its end",
    (_PRODUCER, "produce-throttle-time-avg"): "The average time in ms for which brokers throttled a request",
    (_PRODUCER, "produce-throttle-time-max"): "The longest time in ms for which brokers throttled a request",
    **{
        (group, name): text
        for group in (_CONSUMER, _PRODUCER)
        for name, text in {
            "request-latency-avg": "The average time in ms in which a broker answered",
            "request-latency-max": "The longest time in ms in which a broker answered",
            "buffered-bytes-avg": "The average bytes of records in the buffers of a client",
            "buffered-bytes-max": "The most bytes of records in the buffers of a client",
            "outgoing-byte-rate": "The bytes that are sent to brokers a second",
            "outgoing-byte-total": "The bytes that were sent to brokers",
            "incoming-byte-rate": "The bytes that brokers send a second",
            "incoming-byte-total": "The bytes that brokers have sent",
        }.items()
    },
    (_CACHE, "hit-ratio-avg"): "The average share of the reads that the record cache has answered",
    (_CACHE, "hit-ratio-min"): "The smallest share of the reads that the record cache has answered",
    (_CACHE, "hit-ratio-max"): "The largest share of the reads that the record cache has answered",
    (_TOPIC, "records-consumed-total"): "The number of records that were taken from the topic",
    (_TOPIC, "bytes-consumed-total"): "The bytes of the keys and values that were taken from the topic",
    (_TOPIC, "records-produced-total"): "The number of records that were written to the topic",
    (_TOPIC, "bytes-produced-total"): "The bytes of the keys and values that were written to the topic",
}
"""The description of each metric, by group and name. Totals start with the application, and grow with commits."""

_TOTAL: Final = ("-total", MeasurableStat.CUMULATIVE_COUNT)
_RATE: Final = ("-rate", MeasurableStat.COUNT_RATE)
_LATENCY: Final = (("-latency-avg", MeasurableStat.AVG), ("-latency-max", MeasurableStat.MAX))
_LEVEL: Final = (("-avg", MeasurableStat.AVG), ("-max", MeasurableStat.MAX))
_SPREAD: Final = (("-avg", MeasurableStat.AVG), ("-min", MeasurableStat.MIN), ("-max", MeasurableStat.MAX))
_SUM: Final = (("-rate", MeasurableStat.RATE), ("-total", MeasurableStat.CUMULATIVE_SUM))
_STATS: Final[Mapping[tuple[str, str], tuple[tuple[str, MeasurableStat], ...]]] = {
    **{(_THREAD, name): (_TOTAL, _RATE, *_LATENCY) for name in (COMMIT, PROCESS, PUNCTUATE, POLL)},
    **{(_THREAD, name): _LEVEL for name in (POLL_RECORDS, PROCESS_RECORDS)},
    **{(_THREAD, name): (_TOTAL, _RATE) for name in (TASK_CREATED, TASK_CLOSED)},
    (_THREAD, BLOCKED_TIME): (("-ns-total", MeasurableStat.CUMULATIVE_SUM),),
    (_UPDATER, RESTORE): (("-records-rate", MeasurableStat.RATE), ("-call-rate", MeasurableStat.COUNT_RATE)),
    **{(_TASK, name): _SUM for name in (RESTORE, UPDATE)},
    (_TASK, PROCESS): (_RATE, *_LATENCY),
    (_TASK, PUNCTUATE): (_TOTAL, _RATE, *_LATENCY),
    (_TASK, DROPPED_RECORDS): (_RATE,),
    (_NODE, DROPPED_RECORDS): (_TOTAL, _RATE),
    (_NODE, DROPPED_BY_REASON): (_TOTAL,),
    (_TASK, DEAD_LETTER_RECORDS): (_TOTAL, _RATE),
    (_TASK, RECORD_LATENESS): _LEVEL,
    (_NODE, PROCESS): (_TOTAL, _RATE),
    **{(_NODE, name): (_TOTAL, _RATE) for name in (CALLS_ANSWERED, CALLS_FAILED, CALL_RETRIES)},
    (_NODE, CALL): _LATENCY,
    (_NODE, RECORD_E2E_LATENCY): _SPREAD,
    (_CACHE, HIT_RATIO): _SPREAD,
    (_NODE, SUPPRESSION_EMIT): (_TOTAL, _RATE),
    (_STATE, SUPPRESSION_BUFFER_SIZE): _LEVEL,
    (_STATE, SUPPRESSION_BUFFER_COUNT): _LEVEL,
    **{(_STATE, name): (_RATE, *_LATENCY) for name in STORE_OPERATIONS},
    (_STATE, ITERATOR_DURATION): _LEVEL,
    **{
        (_STATE, name): tuple((end, stat) for end, (stat, _) in shown.items())
        for name, shown in ROCKSDB_STATISTICS.items()
    },
    **{(_STATE, name): (("", MeasurableStat.AVG),) for name in ROCKSDB_RATIOS},
    (_FETCH, FETCH_THROTTLE_TIME): _LEVEL,
    (_PRODUCER, PRODUCE_THROTTLE_TIME): _LEVEL,
    **{(group, name): _LEVEL for group in (_CONSUMER, _PRODUCER) for name in (REQUEST_LATENCY, BUFFERED_BYTES)},
    **{(group, name): _SUM for group in (_CONSUMER, _PRODUCER) for name in (OUTGOING_BYTE, INCOMING_BYTE)},
}
"""The suffixes and statistics of each measured operation, by group and operation."""

NODE_ID: Final = "processor-node-id"
"""The tag of a node's measurements."""
REASON: Final = "reason"
"""The tag for the reason of dropped records, in addition to that of the node."""
CACHE_ID: Final = "record-cache-id"
"""The tag of the measurements of a store's record cache."""
CLIENT: Final = "client"
"""Marks measurements of all consumers or producers of an application, regardless of their task."""
_BUCKET: Final = "bucket"
_OF_ALL_TASKS: Final = frozenset((POLL, POLL_RECORDS))
"""The operations reported by tasks that belong to no single task."""
_GAUGES: Final = frozenset(
    (
        *(*ROCKSDB_PROPERTIES, STREAM_TIME, STATE_SIZE, NUM_KEYS, PARKED_RECORDS, BUFFER_COUNT),
        *(OPEN_ITERATORS, OLDEST_ITERATOR, CALLS_IN_FLIGHT, CALLS_WAITING, *CALL_LATENCIES, *FALLING),
    )
)
"""Values that are not added up; only the last value is shown."""
_NANOSECONDS_OF_MS: Final = 1_000_000
_STATE_ID: Final = "-state-id"
_GROUPS: Final[Mapping[str, str]] = {NODE_ID: _NODE, CACHE_ID: _CACHE}


def state_id(scope: str) -> str:
    """Return the tag of the measurements of stores of `scope`, such as rocksdb-window."""
    return f"{scope}{_STATE_ID}"


def operation_of(name: str, tag: str, id: str) -> str:
    """Return the reported operation `name` for a part of a task, by `tag` and `id`."""
    return f"{name}/{tag}/{id}"


def dropped_for(dropped: Dropped) -> str:
    """Return the reported operation for records dropped by a node or store for a reason."""
    return operation_of(DROPPED_BY_REASON, NODE_ID, f"{dropped.reason}/{dropped.place}")


def dropped_of(operation: Operation) -> Dropped | None:
    """Return the node or store and the reason of an operation of `dropped_for`; None for any other."""
    if operation.name != DROPPED_BY_REASON:
        return None
    reason, _, place = operation.id.partition("/")
    return Dropped(place, DropReason(reason))


def output_age(bucket: int) -> str:
    """Return the operation for sent records of an age (`bucket_of`). Its values are times in ms since the epoch."""
    return operation_of(OUTPUT_AGE, _BUCKET, str(bucket))


class Operation(NamedTuple):
    """A measured operation: of a task, if any, and of the part of it identified by `tag` and `id`."""

    name: str
    task: str = ""
    tag: str = ""
    id: str = ""

    @staticmethod
    def reported(reported: str, task: str) -> Operation:
        """Return the operation reported by `task`: its own, or one from `operation_of`."""
        name, *part = reported.split("/", 2)
        is_of_task = part[:1] not in ([CLIENT], [_BUCKET]) and name not in _OF_ALL_TASKS
        return Operation(name, task if is_of_task else "", *part)


class Measured(NamedTuple):
    """The measurements of a host at one moment.

    Args:
        operations: the measured operations.
        sensors: the measurements of users' sensors, by their metrics.
        gauges: the last values of measurements that are not added up.
        output_ages: the number of output records per bucket of ages at their commit.
        lags: the number of unread offsets of each partition, as far as known.
        committed_ms: the time of the last commit (ms since the epoch), None before the first.
        ratios: the share of the time (0 to 1) used by operations.
        started_ms: the start of the host (ms since the epoch), None if unknown.
    """

    operations: Mapping[Operation, Sampled]
    sensors: Mapping[tuple[SensorMetric, ...], Sampled]
    gauges: Mapping[Operation, float] = MappingProxyType({})
    output_ages: Mapping[int, int] = MappingProxyType({})
    lags: Mapping[TopicPartition, int] = MappingProxyType({})
    committed_ms: int | None = None
    ratios: Mapping[Operation, float] = MappingProxyType({})
    started_ms: int | None = None


NOT_MEASURED: Final = Measured({}, {})
"""The measurements before the start."""


class HostMeasurements:
    """The accumulated measurements of a host (arguments: see `SampledMeasurements`); not thread-safe."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self._operations: SampledMeasurements[Operation] = SampledMeasurements(samples, window_ms)
        self._sensors: SampledMeasurements[tuple[SensorMetric, ...]] = SampledMeasurements(samples, window_ms)
        self._gauges: dict[Operation, float] = {}
        self._output_ages: SampledMeasurements[int] = SampledMeasurements(samples, window_ms)
        self._sent: dict[int, Measurement] = {}

    def take(self, operation: Operation, measurement: Measurement, now_ms: int) -> None:
        """Add a measurement of an operation up to `now_ms`. Ages of output count from the commit (`committed`)."""
        if operation.name == OUTPUT_AGE:
            bucket = int(operation.id)
            self._sent[bucket] = self._sent.get(bucket, NOTHING).plus(measurement)
        elif operation.name not in _GAUGES:
            self._operations.take(operation, measurement, now_ms)
        elif operation in self._gauges or len(self._gauges) < MOST_KEYS:
            self._gauges[operation] = measurement.total

    def committed(self, committed_ms: int | None, now_ms: int) -> None:
        """Add the ages of the output at `committed_ms` (since the epoch). None if it will be sent again."""
        sent, self._sent = self._sent, {}
        if committed_ms is None:
            return
        for bucket, measurement in sent.items():
            waited = max(committed_ms - measurement.total / measurement.number, 0.0)
            at_commit = bucket_of(age_of(bucket + 0.5) + waited)
            self._output_ages.take(at_commit, Measurement(measurement.number), now_ms)

    def take_sensors(self, reports: Iterable[SensorReport], now_ms: int) -> None:
        """Add the measurements of sensors up to `now_ms`."""
        for report in reports:
            self._sensors.take(report.metrics, report.measured, now_ms)

    def closed(self, task: str) -> None:
        """Discard the measurements of a closed task, as Kafka removes its metrics.

        The totals of all tasks remain, and the task's number of dead letters, like its other drops.
        """
        self.forget(task)
        gone = self._operations.forget(lambda each: each.task == task and each.name != DEAD_LETTER_RECORDS)
        for operation, measured in gone.items():
            if operation.name in _OF_THREADS and not operation.tag:
                self._operations.add_total_of(Operation(operation.name, _CLOSED), measured)

    def forget(self, task: str | None = None) -> None:
        """Discard the last gauges of a task that no longer runs here. None for all tasks. Totals remain."""
        self._gauges = {each: value for each, value in self._gauges.items() if task not in (None, each.task)}

    def at(self, now_ms: int) -> Measured:
        """Return the measurements at `now_ms`."""
        ages = {bucket: sampled.window.number for bucket, sampled in self._output_ages.at(now_ms).items()}
        return Measured(self._operations.at(now_ms), self._sensors.at(now_ms), dict(self._gauges), ages)


def streams_metrics(
    client_id: str,
    facts: Mapping[str, int | str],
    counts: RecordCounts,
    measured: Measured = NOT_MEASURED,
) -> dict[MetricName, Metric]:
    """Return the metrics of an application.

    Args:
        client_id: the tag of all metrics.
        facts: values of the group stream-metrics, and thread-state, by name.
        counts: of the host.
        measured: the measurements of the host.
    """
    found: dict[MetricName, Metric] = {}

    def add(group: str, name: str, value: float | str, *tags: tuple[str, str]) -> None:
        thread = (("thread-id", f"{client_id}-{_THREAD_IDS[group]}"),) if group in _THREAD_IDS else ()
        items = (("client-id", client_id), *thread, *tags)
        metric_name = MetricName(name, group, DESCRIPTIONS[group, name], items)
        found[metric_name] = Metric(metric_name, value)

    for name, value in facts.items():
        add(_THREAD if name == THREAD_STATE else _STREAM, name, value)
    _add_counts(add, counts)
    for operation, sampled in {**measured.operations, **_of_all_tasks(measured.operations)}.items():
        group, tags = _place(operation)
        for end, stat in () if operation.task == _CLOSED else _STATS[group, operation.name]:
            add(group, f"{operation.name}{end}", stat.of(sampled), *tags)
    for operation, gauge in measured.gauges.items():
        group, tags = _place(operation)
        if gauge or operation.name != OLDEST_ITERATOR:  # as in Kafka, the metric exists while an iterator is open
            add(group, operation.name, gauge, *tags)
    for percent in (50, 95, 99) if any(measured.output_ages.values()) else ():
        add(_STREAM, f"{OUTPUT_AGE}-p{percent}", age_quantile(measured.output_ages, percent / 100))
    for task, ratio in _process_ratios(measured.operations).items():
        add(_TASK, "active-process-ratio", ratio, ("task-id", task))
    stream_times = {
        operation.task: time for operation, time in measured.gauges.items() if operation.name == STREAM_TIME
    }
    for task, time in stream_times.items():
        add(_TASK, "stream-time-skew", max(stream_times.values()) - time, ("task-id", task))
    for (topic, partition), lag in measured.lags.items():
        add(_FETCH, "records-lag", lag, ("topic", topic), ("partition", str(partition)))
    for operation, ratio in measured.ratios.items():
        group, tags = _place(operation)
        add(group, f"{operation.name}-ratio", ratio, *tags)
    for name, time_ms in (("last-commit-time", measured.committed_ms), ("thread-start-time", measured.started_ms)):
        if time_ms is not None:
            add(_THREAD, name, time_ms)
    for metrics, sampled in measured.sensors.items():
        found.update({name: Metric(name, stat.of(sampled)) for name, stat in metrics})
    return found


def _add_counts(add: Callable[..., None], counts: RecordCounts) -> None:
    """Add the host's record counts, by task and by topic."""
    for task in counts.processed:
        for name in (DROPPED_RECORDS, DEAD_LETTER_RECORDS):  # so that monitoring sees the first drop as an increase
            for end in ("-total", "-rate"):
                add(_TASK, f"{name}{end}", 0, ("task-id", task))
    for by_task, name in ((counts.processed, "process-total"), (counts.dropped, "dropped-records-total")):
        for task, records in by_task.items():
            add(_TASK, name, records, ("task-id", task))
    for by_topic, way in ((counts.consumed, "consumed"), (counts.produced, "produced")):
        for topic, (records, size) in by_topic.items():
            add(_TOPIC, f"records-{way}-total", records, ("topic", topic))
            add(_TOPIC, f"bytes-{way}-total", size, ("topic", topic))


def client_statistics(measured: Measured) -> dict[str, dict[str, float]]:
    """Return client measurements by `consumer` or `producer` and metric; empty if `statistics.interval.ms` is 0."""
    found: dict[str, dict[str, float]] = {}
    for operation, sampled in measured.operations.items():
        if operation.tag == CLIENT:
            group, _ = _place(operation)
            values = {f"{operation.name}{end}": stat.of(sampled) for end, stat in _STATS[group, operation.name]}
            found.setdefault(operation.id, {}).update(values)
    return found


def _of_all_tasks(operations: Mapping[Operation, Sampled]) -> dict[Operation, Sampled]:
    """Return Kafka's thread measurements, the sums over all tasks: in ms, for tasks in ns."""
    found: dict[Operation, Sampled] = {}
    for operation, sampled in operations.items():
        if operation.task and not operation.tag and operation.name in _OF_THREADS:
            number, total, window, seconds = sampled
            before = found.get(Operation(operation.name), Sampled(0, 0.0, NOTHING, 0.0))
            found[Operation(operation.name)] = Sampled(
                before.number + number,
                before.total + total / _NANOSECONDS_OF_MS,
                before.window.plus(
                    Measurement(
                        window.number,
                        window.total / _NANOSECONDS_OF_MS,
                        window.least / _NANOSECONDS_OF_MS,
                        window.most / _NANOSECONDS_OF_MS,
                    )
                ),
                max(before.seconds, seconds),
            )
    return found


def _process_ratios(operations: Mapping[Operation, Sampled]) -> dict[str, float]:
    """Return each task's share of the total time; 0 for all while no task processes."""
    times = {
        operation.task: sampled.window.total
        for operation, sampled in operations.items()
        if operation.name == PROCESS and operation.task not in ("", _CLOSED) and not operation.tag
    }
    together = sum(times.values())
    return {task: time / together if together else 0.0 for task, time in times.items()}


def _place(operation: Operation) -> tuple[str, Sequence[tuple[str, str]]]:
    """Return the group and the tags of the metrics of an operation."""
    task = ("task-id", operation.task)
    if operation.tag == CLIENT:
        return _FETCH if operation.name == FETCH_THROTTLE_TIME else f"{operation.id}-metrics", []
    if dropped := dropped_of(operation):
        return _NODE, [task, (NODE_ID, dropped.place), (REASON, dropped.reason)]
    if operation.tag:
        group = _STATE if operation.tag.endswith(_STATE_ID) else _GROUPS[operation.tag]
        return group, [*([task] if operation.task else ()), (operation.tag, operation.id)]
    if operation.task:
        return _TASK, [task]
    return (_UPDATER if operation.name in _OF_UPDATER else _THREAD), []
