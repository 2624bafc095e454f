"""The configuration keys of Kafka Streams: one row per key."""

from __future__ import annotations

from typing import Final

from penstock.config.definition import (
    SPARK,
    THREADS,
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
from penstock.config.endpoint import endpoint
from penstock.config.isolation_level import IsolationLevel
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

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE_V2: Final = "exactly_once_v2"

UPGRADE_FROM: Final = (
    *("0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1"),
    *(f"2.{minor}" for minor in range(9)),
    *(f"3.{minor}" for minor in range(10)),
    *(f"4.{minor}" for minor in range(4)),
)
"""The versions of Kafka Streams allowed in `upgrade.from`."""

ASSIGNED_BY_SPARK: Final = (
    "Spark assigns tasks to its executors, and each of them can build the state of a task from the checkpoint"
)

KAFKA_KEYS: Final = (
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
        endpoint,
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
        "at_least_once or exactly_once_v2. The default on Spark is the best that the brokers support, on threads "
        "that of Kafka Streams, at_least_once.",
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
        "enable.transactional.statestores",
        boolean,
        False,
        "low",
        "Whether queries with READ_COMMITTED see committed changes only, and statestore.uncommitted.max.bytes holds. "
        "Stores keep uncommitted changes apart in any case; with exactly_once_v2, such queries always see committed "
        "ones only.",
        without_effect={SPARK: "stores are transactional, and queries see committed changes only"},
    ),
    ConfigKey(
        "statestore.uncommitted.max.bytes",
        whole(-1),
        64 * 1024 * 1024,
        "low",
        "Most bytes of uncommitted changes of state in an ordinary process before an early commit, if "
        "enable.transactional.statestores is true; 0 or -1: no limit.",
        without_effect={
            SPARK: "each epoch ends with a commit; set penstock.batch.max.bytes for smaller epochs, and "
            "penstock.uncommitted.max.bytes for memory"
        },
    ),
    ConfigKey(
        "default.interactive.query.isolation.level",
        one_of(*(level.value for level in IsolationLevel)),
        None,
        "low",
        "Isolation level of queries that name none; not set: READ_COMMITTED with exactly_once_v2, otherwise "
        "READ_UNCOMMITTED.",
        without_effect={SPARK: "queries see committed changes only, which answers both levels"},
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
        without_effect={THREADS: "set buffered.records.per.partition"},
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
        without_effect={SPARK: "each epoch ends with a commit; set penstock.batch.target.ms"},
    ),
    ConfigKey(
        "poll.ms",
        whole(0),
        100,
        "low",
        "Longest wait (ms) for records in an ordinary process, when there is nothing else to do.",
        without_effect={SPARK: "set penstock.poll.ms"},
    ),
    ConfigKey(
        "buffered.records.per.partition",
        whole(1),
        30_000,
        "low",
        "Records of a partition that may wait in an ordinary process, for their task or in it; beyond that, it is "
        "not read.",
        without_effect={SPARK: "tasks take records in batches; set penstock.batch.max.bytes"},
    ),
    ConfigKey(
        "num.standby.replicas",
        whole(0),
        0,
        "high",
        "Copies of the state of each task that other ordinary processes keep up to date, to take the task over.",
        without_effect={SPARK: ASSIGNED_BY_SPARK},
    ),
    ConfigKey(
        "group.protocol",
        one_of("classic", "streams"),
        "classic",
        "medium",
        "How ordinary processes form a group: classic, they assign the tasks; streams, the brokers do (KIP-1071).",
        "Stop all instances first: see docs/threads.md#groups-of-kafka-streams.",
        without_effect={SPARK: "no consumer group assigns partitions"},
    ),
    ConfigKey(
        "topology.description.push.enabled",
        boolean,
        True,
        "low",
        "Whether instances with group.protocol=streams send the description of the topology to brokers that ask for it "
        "(KIP-1331).",
        without_effect={SPARK: "no consumer group assigns partitions"},
    ),
    ConfigKey(
        "acceptable.recovery.lag",
        whole(0),
        10_000,
        "medium",
        "How many records another process's copy of the state may be behind for the task to move there immediately.",
        without_effect={SPARK: ASSIGNED_BY_SPARK},
    ),
    ConfigKey(
        "max.warmup.replicas",
        whole(1),
        2,
        "medium",
        "Most warm-up copies of task state built at the same time.",
        without_effect={SPARK: ASSIGNED_BY_SPARK},
    ),
    ConfigKey(
        "task.timeout.ms",
        whole(0),
        300_000,
        "medium",
        "For how long (ms) an ordinary process tries again what brokers do not serve, before the uncaught "
        "exception handler decides; 0: not at all.",
        without_effect={
            SPARK: "the application waits for missing brokers, and then calls the uncaught exception handler"
        },
    ),
    ConfigKey(
        "probing.rebalance.interval.ms",
        whole(60_000),
        600_000,
        "low",
        "Time (ms) after which ordinary processes look whether a task can move whose copy was not ready.",
        without_effect={SPARK: ASSIGNED_BY_SPARK},
    ),
    ConfigKey(
        "rack.aware.assignment.tags",
        text,
        "",
        "low",
        "Keys of client.tag. with commas between them: if possible, their values differ between the ordinary "
        "processes that have a task and copies of its state.",
        without_effect={SPARK: ASSIGNED_BY_SPARK},
    ),
    ConfigKey(
        "num.stream.threads",
        whole(1),
        1,
        "medium",
        "Where an ordinary process runs its tasks: 1, in a thread; more, in so many worker processes, each with "
        "its own copy of what functions of the program share.",
        without_effect={SPARK: "the cores of Spark run tasks; set penstock.spark.master and penstock.spark.partitions"},
    ),
    ConfigKey(
        "state.cleanup.delay.ms",
        whole(0),
        600_000,
        "low",
        "How long (ms) the copy of a task's state stays on a machine after the task has moved to another one.",
    ),
    ConfigKey(
        "state.cleanup.dir.max.age.ms",
        whole(-1),
        -1,
        "low",
        "Age (ms) since its last use from which a start deletes the state of a task on this machine, which is then "
        "restored; -1: never. Set it below delete.retention.ms of the changelogs: after that, they have forgotten "
        "which keys were deleted.",
        without_effect={
            SPARK: "the checkpoint has the state of tasks, and knows all deleted keys at any age; "
            "state.cleanup.delay.ms deletes the copies"
        },
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
        "With dsl.store.format=headers, only tables, windows and sessions on disk keep headers: the start rewrites or "
        "restores the stores, see [docs/state.md](state.md#another-format).",
    ),
    ConfigKey(
        "dsl.store.format",
        one_of("default", "headers"),
        "default",
        "low",
        "What the stores of the DSL keep beside values: timestamps, or timestamps and headers.",
        "The start rewrites or restores the stores of the DSL, see [docs/state.md](state.md#another-format).",
    ),
    ConfigKey("num.partitions", whole(1), 1, "low", "Partitions of topics that the tools create."),
    ConfigKey(
        "repartition.purge.interval.ms",
        whole(0),
        30_000,
        "low",
        "Interval in ms at which records that have been read are deleted from repartition topics, from topics of "
        "answers and of requests, and from topics between DataFrames and the application.",
    ),
    ConfigKey(
        "windowstore.changelog.additional.retention.ms",
        whole(0),
        24 * 60 * 60 * 1000,
        "low",
        "By how many ms longer the changelog topic of a window or session store keeps records than the store.",
        "It holds for the topics that are created afterwards.",
        without_effect={SPARK: "state on Spark has no changelog topics"},
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
    ConfigKey(
        "log.summary.interval.ms",
        whole(-1),
        120_000,
        "low",
        "Interval in ms of the log line that shows the progress of the application; below 1: none.",
    ),
    ConfigKey(
        "ensure.explicit.internal.resource.naming",
        boolean,
        False,
        "high",
        "Refuse generated names of stores and internal topics; allowed in a TopologyConfig.",
    ),
)
"""See `keys`."""
