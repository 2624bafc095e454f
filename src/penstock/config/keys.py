"""The configuration keys: one row per key, with type, default, importance and one line of documentation.

Keys of Kafka keep their names; Penstock's own begin with `penstock.`.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config.check_keys import CHECK_KEYS
from penstock.config.definition import (
    ConfigKey,
    anything,
    boolean,
    function,
    handler,
    one_of,
    rocksdb_config_setter,
    serde,
    text,
    topic_name,
    whole,
)
from penstock.config.http_keys import HTTP_KEYS
from penstock.config.offset_reset import EARLIEST, offset_reset
from penstock.exception_handlers import (
    DEAD_LETTER_QUEUE_TOPIC,
    DefaultProductionExceptionHandler,
    DeserializationExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
    ProcessingExceptionHandler,
    ProductionExceptionHandler,
)
from penstock.private_files import default_directory

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE_V2 = "exactly_once_v2"

UPGRADE_FROM = (
    *("0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1"),
    *(f"2.{minor}" for minor in range(9)),
    *(f"3.{minor}" for minor in range(10)),
    *(f"4.{minor}" for minor in range(3)),
)
"""The versions of Kafka Streams allowed in `upgrade.from`."""

KEYS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            "application.id",
            topic_name,
            None,
            "high",
            "Name of the application, and prefix of its internal topics, its group and its directories.",
            "It is another application: it starts without state, at the positions that auto.offset.reset "
            "gives. A savepoint can bring the state (docs/changing-a-topology.md#savepoints).",
        ),
        ConfigKey("bootstrap.servers", text, None, "high", "Brokers to ask first, as host:port,host:port."),
        ConfigKey(
            "client.id", text, "", "medium", "Prefix of the client ids that brokers see; empty for the application.id."
        ),
        ConfigKey(
            "application.server",
            text,
            None,
            "low",
            "host:port at which the program offers its state to others; query_metadata_for_key returns it.",
        ),
        ConfigKey(
            "state.dir",
            text,
            str(default_directory()),
            "high",
            "Directory of the bases of the state stores; not set: the platform's directory for the state of this user.",
            "Copies of state are made again there, from the checkpoint or from changelog topics. On Spark "
            "without penstock.checkpoint.dir, the checkpoint is in it: move the directory.",
        ),
        ConfigKey(
            "processing.guarantee",
            one_of(AT_LEAST_ONCE, EXACTLY_ONCE_V2),
            None,
            "medium",
            "at_least_once or exactly_once_v2; not set: the best that host and broker support.",
        ),
        ConfigKey(
            "default.key.serde",
            serde,
            None,
            "medium",
            "Serde of keys if an operator names none.",
            "Stores that it serves must be readable with it: see docs/changing-a-topology.md#what-happens-to-state.",
        ),
        ConfigKey(
            "default.value.serde",
            serde,
            None,
            "medium",
            "Serde of values if an operator names none.",
            "Stores that it serves must be readable with it: see docs/changing-a-topology.md#what-happens-to-state.",
        ),
        ConfigKey(
            "default.timestamp.extractor",
            function,
            None,
            "medium",
            "Timestamp extractor if a source names none; not set: the record's own, failing below 0.",
        ),
        ConfigKey(
            "statestore.cache.max.bytes",
            whole(0),
            10 * 1024 * 1024,
            "medium",
            "Bytes of the record caches of all tasks that run at the same time; 0 turns caching off.",
        ),
        ConfigKey(
            "deserialization.exception.handler",
            handler(DeserializationExceptionHandler),
            LogAndFailExceptionHandler(),
            "medium",
            "What to do about a record that cannot be read.",
        ),
        ConfigKey(
            "processing.exception.handler",
            handler(ProcessingExceptionHandler),
            LogAndFailProcessingExceptionHandler(),
            "medium",
            "What to do about a record that a processor fails on.",
        ),
        ConfigKey(
            "processing.exception.handler.global.enabled",
            boolean,
            False,
            "low",
            "Whether `processing.exception.handler` also handles errors in processors of global stores.",
        ),
        ConfigKey(
            "production.exception.handler",
            handler(ProductionExceptionHandler),
            DefaultProductionExceptionHandler(),
            "medium",
            "What to do about a record that cannot be serialised or sent.",
        ),
        ConfigKey(
            DEAD_LETTER_QUEUE_TOPIC,
            topic_name,
            None,
            "medium",
            "Topic to which the built-in handlers write the records that failed; not set: none.",
        ),
        *CHECK_KEYS,
        ConfigKey(
            "processor.wrapper.class",
            anything,
            None,
            "low",
            "ProcessorWrapper, or its class, that wraps all processors; allowed in a TopologyConfig.",
        ),
        ConfigKey(
            "upgrade.from",
            one_of(*UPGRADE_FROM),
            None,
            "low",
            "Version of Kafka Streams that wrote the data, if its internal formats were different.",
        ),
        ConfigKey(
            "stream.time.policy",
            one_of("max", "min"),
            "max",
            "low",
            "max: stream time is the largest timestamp taken; min: the smallest of the partition times.",
        ),
        ConfigKey(
            "partition.pause.threshold.ms",
            whole(0),
            None,
            "low",
            "How far (ms) a partition may be ahead of the slowest of its task before the host pauses it; not set: any.",
        ),
        ConfigKey(
            "partition.grouper",
            anything,
            None,
            "low",
            "PartitionGrouper that assigns partitions to tasks; not set: partition n to task n.",
            "Tasks have other partitions; a store with another number of tasks needs a savepoint: see "
            "docs/changing-a-topology.md#another-number-of-partitions.",
        ),
        ConfigKey(
            "rocksdb.config.setter",
            rocksdb_config_setter,
            None,
            "medium",
            "RocksDBConfigSetter, or its class, that changes the options of bases that are RocksDB.",
        ),
        ConfigKey(
            "max.task.idle.ms",
            whole(-1),
            0,
            "medium",
            "How long (ms) a task waits for records of a partition that has none while others have some.",
        ),
        ConfigKey(
            "commit.interval.ms",
            whole(0),
            None,
            "low",
            "Time (ms) between two commits in an ordinary process; not set: 30000, or 100 for exactly_once_v2.",
        ),
        ConfigKey(
            "poll.ms",
            whole(0),
            100,
            "low",
            "Longest wait (ms) for records in an ordinary process, when there is nothing else to do.",
        ),
        ConfigKey(
            "buffered.records.per.partition",
            whole(1),
            30_000,
            "low",
            "Records of a partition that may wait in an ordinary process, for their task or in it; beyond that, it is "
            "not read.",
        ),
        ConfigKey(
            "penstock.buffer.max.bytes",
            whole(1024),
            64 * 1024 * 1024,
            "medium",
            "Bytes of records that may wait in an ordinary process: in the consumer, for tasks or in them. Beyond "
            "that, partitions with waiting records are not read.",
        ),
        ConfigKey(
            "penstock.topology.weight",
            whole(1),
            1,
            "low",
            "Share of a named topology in the processing time of an ordinary process and its workers, relative to "
            "that of the others, while several have records to process.",
        ),
        ConfigKey(
            "penstock.task.slice.ms",
            whole(1),
            100,
            "low",
            "How long (ms) a task in an ordinary process should run before others, and commits, have their turn. Tasks "
            "with few records go first.",
        ),
        ConfigKey(
            "penstock.task.stuck.ms",
            whole(1),
            5_000,
            "low",
            "How long (ms) a function may take in an ordinary process before the other tasks go on, and are committed, "
            "without its task; the log shows where it is.",
        ),
        ConfigKey(
            "num.standby.replicas",
            whole(0),
            0,
            "high",
            "Copies of the state of each task that other ordinary processes keep up to date, to take the task over.",
        ),
        ConfigKey(
            "group.protocol",
            one_of("classic", "streams"),
            "classic",
            "medium",
            "How ordinary processes form a group: classic, they assign the tasks; streams, the brokers do (KIP-1071).",
            "Stop all instances first: see docs/threads.md#groups-of-kafka-streams.",
        ),
        ConfigKey(
            "acceptable.recovery.lag",
            whole(0),
            10_000,
            "medium",
            "How many records another process's copy of the state may be behind for the task to move there "
            "immediately.",
        ),
        ConfigKey(
            "max.warmup.replicas",
            whole(1),
            2,
            "medium",
            "Most warm-up copies of task state built at the same time.",
        ),
        ConfigKey(
            "task.timeout.ms",
            whole(0),
            300_000,
            "medium",
            "For how long (ms) an ordinary process tries again what brokers do not serve, before the uncaught "
            "exception handler decides; 0: not at all.",
        ),
        ConfigKey(
            "probing.rebalance.interval.ms",
            whole(60_000),
            600_000,
            "low",
            "Time (ms) after which ordinary processes look whether a task can move whose copy was not ready.",
        ),
        ConfigKey(
            "rack.aware.assignment.tags",
            text,
            "",
            "low",
            "Keys of client.tag. with commas between them: if possible, their values differ between the ordinary "
            "processes that have a task and copies of its state.",
        ),
        ConfigKey(
            "num.stream.threads",
            whole(1),
            1,
            "medium",
            "Where an ordinary process runs its tasks: 1, in a thread; more, in so many worker processes, each with "
            "its own copy of what functions of the program share.",
        ),
        ConfigKey(
            "state.cleanup.delay.ms",
            whole(0),
            600_000,
            "low",
            "How long (ms) the copy of a task's state stays on a machine after the task has moved to another one.",
        ),
        ConfigKey(
            "topology.optimization",
            text,
            "none",
            "medium",
            "none, all, or a list of optimisations.",
            "The topology changes as if the program had been edited: see docs/changing-a-topology.md.",
        ),
        ConfigKey(
            "replication.factor",
            whole(-1),
            -1,
            "medium",
            "Replication factor of internal topics; -1 for the broker's default.",
            "It holds for the topics that are created afterwards.",
        ),
        ConfigKey(
            "auto.offset.reset",
            offset_reset,
            EARLIEST,
            "medium",
            "Where to start without a position, or if its records are deleted; by_duration: at the first record that "
            "is not older; none: fail.",
        ),
        ConfigKey(
            "metadata.max.age.ms",
            whole(0),
            300_000,
            "low",
            "How often (ms) to look for new or deleted topics and partitions.",
        ),
        ConfigKey(
            "dsl.store.suppliers.class",
            one_of("in_memory", "rocksdb"),
            "rocksdb",
            "low",
            "Kind of the DSL's stores if the operator names none.",
        ),
        ConfigKey(
            "dsl.store.format",
            one_of("default", "headers"),
            "default",
            "low",
            "What the stores of the DSL keep beside values: timestamps, or timestamps and headers.",
            "The stores of the DSL hold other bytes: give them other names, or keep the value.",
        ),
        ConfigKey("num.partitions", whole(1), 1, "low", "Partitions of topics that the tools create."),
        ConfigKey(
            "penstock.host",
            one_of("spark", "threads"),
            "spark",
            "high",
            "Where tasks run: on spark, or in threads of this process, which shares the tasks with the others of its "
            "group.",
            "The other host has no state yet: see docs/changing-a-topology.md#from-kafka-streams-in-java-and-back.",
        ),
        ConfigKey(
            "penstock.execution",
            one_of("auto", "record"),
            "auto",
            "low",
            "auto: column by column where the results are the same and at least 25 records come together; record: "
            "record by record.",
        ),
        ConfigKey(
            "penstock.check.shared.values",
            boolean,
            False,
            "low",
            "Whether a node that changes a value in place which another branch receives too is an error; for tests.",
        ),
        ConfigKey(
            "penstock.checkpoint.dir",
            text,
            None,
            "high",
            "Directory of checkpoint and state; not set: <state.dir>/<application.id>/checkpoint.",
            "Move the directory to the new place first: without it, the application has no state.",
        ),
        ConfigKey(
            "penstock.spark.checkpoint.dir",
            text,
            None,
            "medium",
            "Directory below which Spark keeps the checkpoints of queries between topics and DataFrames, on a file "
            "system that Hadoop knows; not set: in the checkpoint.",
        ),
        ConfigKey(
            "penstock.trace.order",
            text,
            None,
            "low",
            "Directory to which each task logs the order in which it takes its records; not set: no log.",
        ),
        ConfigKey(
            "penstock.batch.max.bytes",
            whole(1024),
            64 * 1024 * 1024,
            "medium",
            "Most bytes of input of one epoch; an epoch reads less if tasks send more than four times as much.",
        ),
        ConfigKey(
            "penstock.max.skew.ms",
            whole(0),
            3_600_000,
            "medium",
            "On Spark, first step (ms) in the search for the common time up to which an epoch that cannot read "
            "everything reads topics that meet in a task. On threads, the age (ms) from which on records are read "
            "together in time by the tasks that feed a repartition topic. 0: no common time.",
        ),
        ConfigKey(
            "penstock.held.max.bytes",
            whole(1),
            16 * 1024 * 1024,
            "low",
            "Most bytes of a partition's records that wait for another partition; beyond that, it is not read.",
        ),
        ConfigKey(
            "penstock.batch.target.ms",
            whole(1),
            2000,
            "medium",
            "Time that an epoch should take; the planner adapts its bytes to it.",
        ),
        ConfigKey(
            "penstock.changelog.topics",
            boolean,
            False,
            "medium",
            "Whether the Spark host also writes changelog topics, so that another host can take the application over.",
            "With true, an application that has state needs an export first: see "
            "docs/changing-a-topology.md#changelog-topics-on-spark.",
        ),
        ConfigKey(
            "penstock.restart.max.attempts",
            whole(0),
            10,
            "medium",
            "Most consecutive restarts without a commit between them: after lost processes of Spark, if the uncaught "
            "exception handler answers to replace, and at a start if others take the checkpoint over.",
        ),
        ConfigKey(
            "penstock.restart.backoff.ms",
            whole(0),
            1000,
            "low",
            "Wait in ms before the first restart after an error; doubles with each consecutive restart.",
        ),
        ConfigKey("penstock.restart.backoff.max.ms", whole(0), 60_000, "low", "Longest wait in ms before a restart."),
        ConfigKey(
            "penstock.clock.max.hold.back.ms",
            whole(0),
            60_000,
            "low",
            "How far (ms) the machine's clock may go back while the clock of the epochs stands still; beyond that, it "
            "goes back too.",
        ),
        ConfigKey("penstock.poll.ms", whole(0), 100, "low", "Pause in ms between looks for new records."),
        ConfigKey(
            "penstock.spark.master",
            text,
            None,
            "medium",
            "Master of the session that Penstock starts; not set: local[<cores>,4].",
        ),
        ConfigKey(
            "penstock.spark.log.level",
            one_of("off", "error", "warn", "info", "debug"),
            None,
            "low",
            "Level of Spark's log on standard error; not set: warnings go to spark.log below <state.dir>.",
        ),
        ConfigKey(
            "penstock.spark.partitions",
            whole(1),
            None,
            "low",
            "Spark partitions of each level and of the sink of a new checkpoint; not set: cores.",
            "The next topology version starts: see docs/changing-a-topology.md#topology-versions-of-a-checkpoint.",
        ),
        ConfigKey(
            "penstock.spark.send.code",
            boolean,
            True,
            "low",
            "Whether Penstock sends itself and the program's modules that are not installed to executors on other "
            "machines.",
        ),
        ConfigKey(
            "repartition.purge.interval.ms",
            whole(0),
            30_000,
            "low",
            "Interval in ms at which records that have been read are deleted from repartition topics, and from topics "
            "between DataFrames and the application.",
        ),
        ConfigKey(
            "windowstore.changelog.additional.retention.ms",
            whole(0),
            24 * 60 * 60 * 1000,
            "low",
            "By how many ms longer the changelog topic of a window or session store keeps records than the store.",
            "It holds for the topics that are created afterwards.",
        ),
        ConfigKey(
            "metrics.recording.level",
            one_of("INFO", "DEBUG", "TRACE"),
            "INFO",
            "low",
            "Highest level that is recorded: sensors of processors, and from DEBUG on nodes, stores and caches.",
        ),
        ConfigKey(
            "metrics.num.samples",
            whole(1),
            2,
            "low",
            "Number of samples for rates, averages and largest values of metrics.",
        ),
        ConfigKey("metrics.sample.window.ms", whole(1), 30_000, "low", "Length (ms) of one metrics sample."),
        *HTTP_KEYS,
        ConfigKey(
            "penstock.otel.enabled",
            boolean,
            False,
            "low",
            "Whether OpenTelemetry gets the metrics, and a span for each batch (docs/tracing.md).",
        ),
        ConfigKey(
            "penstock.otel.links.max",
            whole(0),
            128,
            "low",
            "Most links of the span of a batch to the spans of its producers.",
        ),
        ConfigKey(
            "penstock.otel.setup",
            function,
            None,
            "low",
            "Function without arguments that sets the providers of OpenTelemetry; called once in each process that "
            "runs tasks.",
        ),
        ConfigKey(
            "log.summary.interval.ms",
            whole(-1),
            120_000,
            "low",
            "Interval in ms of the log line that shows the progress of the application; below 1: none.",
        ),
        ConfigKey("penstock.row.max.bytes", whole(1024), 1024 * 1024, "low", "Most bytes of one row between stages."),
        ConfigKey(
            "penstock.segment.max.bytes",
            whole(64 * 1024),
            8 * 1024 * 1024,
            "low",
            "Most bytes of one segment of state.",
        ),
        ConfigKey(
            "penstock.state.base",
            one_of("lmdb", "rocksdb"),
            "lmdb",
            "medium",
            "Base of stores on Spark: lmdb; or rocksdb, opened each epoch, for state far beyond memory.",
            "The copies of state are made again, from the checkpoint or from changelog topics.",
        ),
        ConfigKey(
            "penstock.state.shared",
            boolean,
            False,
            "low",
            "Whether all tasks of a process keep their state in one database: fewer files, and commits and restores "
            "of different tasks wait for each other.",
            "The copies of state are made again, from changelog topics.",
        ),
        ConfigKey(
            "penstock.state.remote.dir",
            text,
            None,
            "medium",
            "Directory, or URI of a file system of pyarrow, for snapshots of the state of tasks, with which an empty "
            "disk begins; not set: it begins with the changelogs.",
        ),
        ConfigKey(
            "penstock.state.remote.interval.ms",
            whole(1),
            600_000,
            "low",
            "Time in ms between two snapshots of the state of a task in penstock.state.remote.dir.",
        ),
        ConfigKey(
            "penstock.uncommitted.max.bytes",
            whole(1024),
            128 * 1024 * 1024,
            "medium",
            "Most bytes of memory for a task's uncommitted changes of state; beyond that, they are written as "
            "segments of its next commit and kept on disk.",
        ),
        ConfigKey(
            "penstock.query.refresh.ms",
            whole(0),
            100,
            "low",
            "Longest time (ms) for which queries of state do not look for a newer commit.",
        ),
        ConfigKey(
            "penstock.manifests.retained",
            whole(2),
            100,
            "low",
            "Manifests kept, and with them the segments that they name.",
        ),
        ConfigKey(
            "penstock.emit.interval.ms",
            whole(0),
            1000,
            "low",
            "Wall-clock throttle of final results of windows and joins, within an epoch.",
        ),
    )
}
"""All keys with a row, by name."""
