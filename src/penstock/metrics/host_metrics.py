"""Metrics by the names of Kafka Streams, of what hosts count and measure.

Only what a host can tell truly is here; what has no meaning without stream threads, or is not counted, is left out.
Records of repartition topics that pass through no broker are not among those consumed and produced. Nothing here
counts, and nothing here sends metrics anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from penstock.metrics import MeasurableStat, Metric, MetricName, SensorMetric, SensorReport
from penstock.metrics.drop_reasons import Dropped
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
SUPPRESSION_EMIT: Final = "suppression-emit"
SUPPRESSION_BUFFER_SIZE: Final = "suppression-buffer-size"
SUPPRESSION_BUFFER_COUNT: Final = "suppression-buffer-count"
BLOCKED_TIME: Final = "blocked-time"
BUFFER_COUNT: Final = "active-buffer-count"
BUFFER_BYTES: Final = "input-buffer-bytes-total"
CACHE_BYTES: Final = "cache-size-bytes-total"
ITERATOR_DURATION: Final = "iterator-duration"
OPEN_ITERATORS: Final = "num-open-iterators"
OLDEST_ITERATOR: Final = "oldest-iterator-open-since-ms"

ROCKSDB_PROPERTIES: Final[Mapping[str, str]] = {
    "num-immutable-mem-table": "The number of memtables that are full and not yet flushed",
    "cur-size-active-mem-table": "The bytes of the active memtable",
    "cur-size-all-mem-tables": "The bytes of the active memtable and of those that are not yet flushed",
    "size-all-mem-tables": "The bytes of all memtables, those that iterators hold too",
    "num-entries-active-mem-table": "The number of entries in the active memtable",
    "num-entries-imm-mem-tables": "The number of entries in memtables that are not yet flushed",
    "num-deletes-active-mem-table": "The number of deletes in the active memtable",
    "num-deletes-imm-mem-tables": "The number of deletes in memtables that are not yet flushed",
    "mem-table-flush-pending": "1 if a flush of a memtable is pending, else 0",
    "num-running-flushes": "The number of flushes that run",
    "compaction-pending": "1 if a compaction is pending, else 0",
    "num-running-compactions": "The number of compactions that run",
    "estimate-pending-compaction-bytes": "The estimated bytes that compaction has to write",
    "total-sst-files-size": "The bytes of all SST files",
    "live-sst-files-size": "The bytes of the SST files of the newest version",
    "num-live-versions": "The number of live versions",
    "block-cache-capacity": "The capacity of the block cache in bytes",
    "block-cache-usage": "The bytes of the entries in the block cache",
    "block-cache-pinned-usage": "The bytes of the entries that are pinned in the block cache",
    "estimate-num-keys": "The estimated number of keys",
    "estimate-table-readers-mem": "The estimated bytes of memory of table readers, beside the block cache",
    "background-errors": "The number of errors of background work",
}
"""The properties of a RocksDB database (KIP-607) as they were last read."""

BYTES_WRITTEN: Final = "bytes-written"
BYTES_READ: Final = "bytes-read"
MEMTABLE_BYTES_FLUSHED: Final = "memtable-bytes-flushed"
MEMTABLE_FLUSH_TIME: Final = "memtable-flush-time"
COMPACTION_TIME: Final = "compaction-time"
WRITE_STALL_DURATION: Final = "write-stall-duration"
BYTES_WRITTEN_COMPACTION: Final = "bytes-written-compaction"
BYTES_READ_COMPACTION: Final = "bytes-read-compaction"
FILE_ERRORS: Final = "number-file-errors"
ROCKSDB_RATIOS: Final[Mapping[str, str]] = {
    "memtable-hit-ratio": "The part of the reads that memtables have answered",
    "block-cache-data-hit-ratio": "The part of the reads of data blocks that the block cache has answered",
    "block-cache-index-hit-ratio": "The part of the reads of index blocks that the block cache has answered",
    "block-cache-filter-hit-ratio": "The part of the reads of filter blocks that the block cache has answered",
}
"""What parts of the reads were answered from memory (KIP-471)."""

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
"""The calls of stores that are measured."""

_THREAD_ID: Final = "main"  # the name by which tasks speak of what runs them
_THREAD_IDS: Final[Mapping[str, str]] = {
    **dict.fromkeys((_THREAD, _TASK, _NODE, _STATE, _CACHE), _THREAD_ID),
    _UPDATER: "StateUpdater-1",
}
"""The end of the thread-id of the metrics of a group; no others have one."""
_OF_THREADS: Final = frozenset((PROCESS, PUNCTUATE))
"""What Kafka measures of tasks, and of all tasks of a thread together."""
_CLOSED: Final = "closed"
"""In place of a task: all that are closed."""
_OF_UPDATER: Final = frozenset((RESTORE, ACTIVE_RESTORING, STANDBY_UPDATING, ACTIVE_RESTORE, STANDBY_UPDATE, IDLE))
"""What is measured of the thread that restores tasks and updates standby tasks."""
FALLING: Final = frozenset((RESTORE_REMAINING, BUFFER_BYTES, CACHE_BYTES))
"""The metrics whose names end in -total though their values also fall: gauges, not counters."""

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
    (_STATE, OPEN_ITERATORS): "The number of iterators of the store that are open",
    (_STATE, OLDEST_ITERATOR): "Since when the oldest open iterator of the store is open, in ms since the epoch",
    (_STATE, "iterator-duration-avg"): "The average time in ns from the opening of an iterator to its end",
    (_STATE, "iterator-duration-max"): "The longest time in ns from the opening of an iterator to its end",
    (_NODE, "suppression-emit-total"): "The number of updates that left the suppression buffer",
    (_NODE, "suppression-emit-rate"): "The number of updates that leave the suppression buffer a second",
    (_STATE, "suppression-buffer-size-avg"): "The average of the bytes that the updates in the buffer count for",
    (_STATE, "suppression-buffer-size-max"): "The most bytes that the updates in the buffer counted for",
    (_STATE, "suppression-buffer-count-avg"): "The average number of updates in the buffer",
    (_STATE, "suppression-buffer-count-max"): "The largest number of updates in the buffer",
    **{(_STATE, name): text for name, text in {**ROCKSDB_PROPERTIES, **ROCKSDB_RATIOS}.items()},
    (_STATE, "bytes-written-rate"): "The bytes that are written to the database a second",
    (_STATE, "bytes-written-total"): "The bytes that were written to the database",
    (_STATE, "bytes-read-rate"): "The bytes that are read from the database a second",
    (_STATE, "bytes-read-total"): "The bytes that were read from the database",
    (_STATE, "memtable-bytes-flushed-rate"): "The bytes that flushes of memtables write a second",
    (_STATE, "memtable-bytes-flushed-total"): "The bytes that flushes of memtables have written",
    (_STATE, "memtable-flush-time-avg"): "The average time of a flush of a memtable in ms",
    (_STATE, "memtable-flush-time-max"): "The longest time of a flush of a memtable in ms",
    (_STATE, "compaction-time-avg"): "The average time of a compaction in ms",
    (_STATE, "compaction-time-max"): "The longest time of a compaction in ms",
    (_STATE, "write-stall-duration-avg"): "The average time in ms for which a write was stalled",
    (_STATE, "write-stall-duration-total"): "The time in ms for which writes were stalled",
    (_STATE, "bytes-written-compaction-rate"): "The bytes that compactions write a second",
    (_STATE, "bytes-read-compaction-rate"): "The bytes that compactions read a second",
    (_STATE, "number-file-errors-total"): "The number of errors of files",
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
"""The description of each metric, by group and name. Totals begin with the start of the application, and grow with
commits."""

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
    (_NODE, RECORD_E2E_LATENCY): _SPREAD,
    (_CACHE, HIT_RATIO): _SPREAD,
    (_NODE, SUPPRESSION_EMIT): (_TOTAL, _RATE),
    (_STATE, SUPPRESSION_BUFFER_SIZE): _LEVEL,
    (_STATE, SUPPRESSION_BUFFER_COUNT): _LEVEL,
    **{(_STATE, name): (_RATE, *_LATENCY) for name in STORE_OPERATIONS},
    (_STATE, ITERATOR_DURATION): _LEVEL,
    **{(_STATE, name): _SUM for name in (BYTES_WRITTEN, BYTES_READ, MEMTABLE_BYTES_FLUSHED)},
    **{(_STATE, name): _LEVEL for name in (MEMTABLE_FLUSH_TIME, COMPACTION_TIME)},
    (_STATE, WRITE_STALL_DURATION): (("-avg", MeasurableStat.AVG), ("-total", MeasurableStat.CUMULATIVE_SUM)),
    **{(_STATE, name): _SUM[:1] for name in (BYTES_WRITTEN_COMPACTION, BYTES_READ_COMPACTION)},
    (_STATE, FILE_ERRORS): _SUM[1:],
    **{(_STATE, name): (("", MeasurableStat.AVG),) for name in ROCKSDB_RATIOS},
    (_FETCH, FETCH_THROTTLE_TIME): _LEVEL,
    (_PRODUCER, PRODUCE_THROTTLE_TIME): _LEVEL,
    **{(group, name): _LEVEL for group in (_CONSUMER, _PRODUCER) for name in (REQUEST_LATENCY, BUFFERED_BYTES)},
    **{(group, name): _SUM for group in (_CONSUMER, _PRODUCER) for name in (OUTGOING_BYTE, INCOMING_BYTE)},
}
"""What is shown of each operation that is measured, by group: the end of the name, and its description."""

NODE_ID: Final = "processor-node-id"
"""The tag of what is measured of a node."""
REASON: Final = "reason"
"""The tag that says why a node has dropped records, beside that of the node."""
CACHE_ID: Final = "record-cache-id"
"""The tag of what is measured of the record cache of a store."""
CLIENT: Final = "client"
"""Marks what is measured of all consumers or producers of an application, whichever task they worked for."""
_BUCKET: Final = "bucket"
_OF_ALL_TASKS: Final = frozenset((POLL, POLL_RECORDS))
"""What tasks report of themselves that is of no task in particular."""
_GAUGES: Final = frozenset(
    (*ROCKSDB_PROPERTIES, STREAM_TIME, STATE_SIZE, BUFFER_COUNT, OPEN_ITERATORS, OLDEST_ITERATOR, *FALLING)
)
"""What is not added up, but shown as it was last."""
_NANOSECONDS_OF_MS: Final = 1_000_000
_STATE_ID: Final = "-state-id"
_GROUPS: Final[Mapping[str, str]] = {NODE_ID: _NODE, CACHE_ID: _CACHE}


def state_id(scope: str) -> str:
    """Return the tag of what is measured of a store of `scope`, such as rocksdb-window."""
    return f"{scope}{_STATE_ID}"


def operation_of(name: str, tag: str, id: str) -> str:
    """Return the operation `name` of one part of a task, which `tag` says by its `id`, as tasks report it."""
    return f"{name}/{tag}/{id}"


def dropped_for(dropped: Dropped) -> str:
    """Return the operation by which tasks report the records that a node or store drops for a reason."""
    return operation_of(DROPPED_BY_REASON, NODE_ID, f"{dropped.reason}/{dropped.place}")


def output_age(bucket: int) -> str:
    """Return the operation by which tasks report how many of the records that they have sent are of an age
    (`bucket_of`); what it measures is when that was (ms since the epoch)."""
    return operation_of(OUTPUT_AGE, _BUCKET, str(bucket))


class Operation(NamedTuple):
    """What is measured: an operation, of a task where it is its, and of the part of it that `tag` says by its `id`."""

    name: str
    task: str = ""
    tag: str = ""
    id: str = ""

    @staticmethod
    def reported(reported: str, task: str) -> Operation:
        """Return what `task` reports by the name of its own operation, or by `operation_of`."""
        name, *part = reported.split("/", 2)
        is_of_task = part[:1] not in ([CLIENT], [_BUCKET]) and name not in _OF_ALL_TASKS
        return Operation(name, task if is_of_task else "", *part)


class Measured(NamedTuple):
    """What a host has measured at one moment: operations, sensors of users by their metrics, what is not added up, as
    it was last, and how many records of the output were in each bucket of ages when they were committed.

    lags: how many offsets of each partition are to come, as far as it is known. committed_ms: when the last commit was
    made (ms since the epoch), None before the first. ratios: the share of the time (0 to 1) that operations have taken.
    started_ms: when the host began to run (ms since the epoch), None if it does not tell.
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
"""What is measured where nothing runs."""


class HostMeasurements:
    """What a host measures, added up; any number of calls, one at a time."""

    def __init__(self, samples: int, window_ms: int) -> None:
        """Keep the values of `metrics.num.samples` and `metrics.sample.window.ms`."""
        self._operations: SampledMeasurements[Operation] = SampledMeasurements(samples, window_ms)
        self._sensors: SampledMeasurements[tuple[SensorMetric, ...]] = SampledMeasurements(samples, window_ms)
        self._gauges: dict[Operation, float] = {}
        self._output_ages: SampledMeasurements[int] = SampledMeasurements(samples, window_ms)
        self._sent: dict[int, Measurement] = {}

    def take(self, operation: Operation, measurement: Measurement, now_ms: int) -> None:
        """Add what was measured of an operation by `now_ms`; ages of output count from its commit on (`committed`)."""
        if operation.name == OUTPUT_AGE:
            bucket = int(operation.id)
            self._sent[bucket] = self._sent.get(bucket, NOTHING).plus(measurement)
        elif operation.name not in _GAUGES:
            self._operations.take(operation, measurement, now_ms)
        elif operation in self._gauges or len(self._gauges) < MOST_KEYS:
            self._gauges[operation] = measurement.total

    def committed(self, committed_ms: int | None, now_ms: int) -> None:
        """Add the ages that the output has now that it is committed. committed_ms: when that was, in ms since the
        epoch; None if it will be sent again."""
        sent, self._sent = self._sent, {}
        if committed_ms is None:
            return
        for bucket, measurement in sent.items():
            waited = max(committed_ms - measurement.total / measurement.number, 0.0)
            at_commit = bucket_of(age_of(bucket + 0.5) + waited)
            self._output_ages.take(at_commit, Measurement(measurement.number), now_ms)

    def take_sensors(self, reports: Iterable[SensorReport], now_ms: int) -> None:
        """Add what sensors recorded by `now_ms`."""
        for report in reports:
            self._sensors.take(report.metrics, report.measured, now_ms)

    def closed(self, task: str) -> None:
        """Forget what was measured of a task that is closed, as Kafka removes its metrics; the totals of all tasks
        together stay, and its number of dead letters, as those of its other drops."""
        self.forget(task)
        gone = self._operations.forget(lambda each: each.task == task and each.name != DEAD_LETTER_RECORDS)
        for operation, measured in gone.items():
            if operation.name in _OF_THREADS and not operation.tag:
                self._operations.add_total_of(Operation(operation.name, _CLOSED), measured)

    def forget(self, task: str | None = None) -> None:
        """Forget what was measured last of a task that runs here no longer; None for all tasks. Totals stay."""
        self._gauges = {
            operation: value for operation, value in self._gauges.items() if task not in (None, operation.task)
        }

    def at(self, now_ms: int) -> Measured:
        """Return what there is at `now_ms`."""
        ages = {bucket: sampled.window.number for bucket, sampled in self._output_ages.at(now_ms).items()}
        return Measured(self._operations.at(now_ms), self._sensors.at(now_ms), dict(self._gauges), ages)


def streams_metrics(
    client_id: str,
    facts: Mapping[str, int | str],
    statistics: Mapping[str, Any],
    measured: Measured = NOT_MEASURED,
) -> dict[MetricName, Metric]:
    """Return the metrics of an application.

    Args:
        client_id: tag of all of them.
        facts: values of the group stream-metrics, and thread-state, by name.
        statistics: what the host counts: `consumed` and `produced`, (records, bytes) by topic; `processed` and
            `dropped`, records by task; what is not there is no metric.
        measured: what the host has measured.
    """
    found: dict[MetricName, Metric] = {}

    def add(group: str, name: str, value: float | str, *tags: tuple[str, str]) -> None:
        thread = (("thread-id", f"{client_id}-{_THREAD_IDS[group]}"),) if group in _THREAD_IDS else ()
        items = (("client-id", client_id), *thread, *tags)
        metric_name = MetricName(name, group, DESCRIPTIONS[group, name], items)
        found[metric_name] = Metric(metric_name, value)

    for name, value in facts.items():
        add(_THREAD if name == THREAD_STATE else _STREAM, name, value)
    _add_counts(add, statistics)
    for operation, sampled in {**measured.operations, **_of_all_tasks(measured.operations)}.items():
        group, tags = _place(operation)
        for end, stat in () if operation.task == _CLOSED else _STATS[group, operation.name]:
            add(group, f"{operation.name}{end}", stat.of(sampled), *tags)
    for operation, gauge in measured.gauges.items():
        group, tags = _place(operation)
        if gauge or operation.name != OLDEST_ITERATOR:  # as in Kafka, it is there while an iterator is open
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


def _add_counts(add: Callable[..., None], statistics: Mapping[str, Any]) -> None:
    """Add the records that the host counts, by task and by topic."""
    for task in statistics.get("processed", {}):
        for name in (DROPPED_RECORDS, DEAD_LETTER_RECORDS):  # so that a reader sees the first one as an increase
            for end in ("-total", "-rate"):
                add(_TASK, f"{name}{end}", 0, ("task-id", task))
    for counted, name in (("processed", "process-total"), ("dropped", "dropped-records-total")):
        for task, records in statistics.get(counted, {}).items():
            add(_TASK, name, records, ("task-id", task))
    for way in ("consumed", "produced"):
        for topic, (records, size) in statistics.get(way, {}).items():
            add(_TOPIC, f"records-{way}-total", records, ("topic", topic))
            add(_TOPIC, f"bytes-{way}-total", size, ("topic", topic))


def client_statistics(measured: Measured) -> dict[str, dict[str, float]]:
    """Return what was measured of consumers and producers, by `consumer` or `producer` and the name of the metric;
    empty where nothing is, for `statistics.interval.ms` is 0."""
    found: dict[str, dict[str, float]] = {}
    for operation, sampled in measured.operations.items():
        if operation.tag == CLIENT:
            group, _ = _place(operation)
            values = {f"{operation.name}{end}": stat.of(sampled) for end, stat in _STATS[group, operation.name]}
            found.setdefault(operation.id, {}).update(values)
    return found


def _of_all_tasks(operations: Mapping[Operation, Sampled]) -> dict[Operation, Sampled]:
    """Return what Kafka measures of a thread, too, of all tasks together: in ms, where it is in ns of a task."""
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
    """Return the share of each task in the time of all, 0 for all while none processes."""
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
    if operation.name == DROPPED_BY_REASON:
        reason, _, place = operation.id.partition("/")
        return _NODE, [task, (NODE_ID, place), (REASON, reason)]
    if operation.tag:
        group = _STATE if operation.tag.endswith(_STATE_ID) else _GROUPS[operation.tag]
        return group, [task, (operation.tag, operation.id)]
    if operation.task:
        return _TASK, [task]
    return (_UPDATER if operation.name in _OF_UPDATER else _THREAD), []
