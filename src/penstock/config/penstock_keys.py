"""The configuration keys of Penstock, which begin with `penstock.`: one row per key."""

from __future__ import annotations

from typing import Final

from penstock.config.definition import SPARK, THREADS, ConfigKey, boolean, function, mapping, one_of, text, whole

_CHECKPOINT_OF_SPARK: Final = "the checkpoint has the state; set penstock.checkpoint.dir"
_EPOCHS: Final = "this host has no epochs; set commit.interval.ms"
_NO_CHECKPOINT: Final = "this host keeps state in changelog topics and below state.dir, and has no checkpoint"
_SPARK_ONLY: Final = "it is a key of the host spark"

PENSTOCK_KEYS: Final = (
    ConfigKey(
        "penstock.determinism.check.epochs",
        whole(0),
        0,
        "low",
        "Interval in epochs at which each task runs twice, to find functions that are not deterministic; 0: never.",
        without_effect={THREADS: _EPOCHS},
    ),
    ConfigKey(
        "penstock.result.log",
        boolean,
        False,
        "medium",
        "Whether all tasks keep their results of an epoch in the checkpoint until it is committed, for functions that "
        "are not deterministic. Tasks that park records always do.",
        without_effect={THREADS: _EPOCHS},
    ),
    ConfigKey(
        "penstock.read.dead.letters",
        boolean,
        False,
        "low",
        "Whether sources may read the topic of errors.dead.letter.queue.topic.name, to which this application writes.",
    ),
    ConfigKey(
        "penstock.warn.none.results",
        boolean,
        True,
        "low",
        "Whether the log names, once for each node, a function that returns None and has returned no value before, an "
        "initializer that returns one object for all keys, or a process() that returns something.",
    ),
    ConfigKey(
        "penstock.buffer.max.bytes",
        whole(1024),
        64 * 1024 * 1024,
        "medium",
        "Bytes of records that may wait in an ordinary process: in the consumer, for tasks or in them. Beyond "
        "that, partitions with waiting records are not read.",
        without_effect={SPARK: "set penstock.batch.max.bytes"},
    ),
    ConfigKey(
        "penstock.topology.weight",
        whole(1),
        1,
        "low",
        "Share of a named topology in the processing time of an ordinary process and its workers, relative to "
        "that of the others, while several have records to process.",
        without_effect={SPARK: "Spark shares its cores between the queries of all topologies"},
    ),
    ConfigKey(
        "penstock.task.slice.ms",
        whole(1),
        100,
        "low",
        "How long (ms) a task in an ordinary process should run before others, and commits, have their turn. Tasks "
        "with few records go first.",
        without_effect={SPARK: "set penstock.batch.target.ms"},
    ),
    ConfigKey(
        "penstock.task.stuck.ms",
        whole(1),
        5_000,
        "low",
        "How long (ms) a function may take in an ordinary process before the other tasks go on, and are committed, "
        "without its task; the log shows where it is.",
        without_effect={SPARK: "Spark waits for each function"},
    ),
    ConfigKey(
        "penstock.host",
        one_of(SPARK, THREADS),
        SPARK,
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
        without_effect={THREADS: _NO_CHECKPOINT},
    ),
    ConfigKey(
        "penstock.spark.checkpoint.dir",
        text,
        None,
        "medium",
        "Directory below which Spark keeps the checkpoints of queries between topics and DataFrames, on a file "
        "system that Hadoop knows; not set: in the checkpoint.",
        without_effect={THREADS: _SPARK_ONLY},
    ),
    ConfigKey(
        "penstock.trace.order",
        text,
        None,
        "low",
        "Directory to which each task logs the order in which it takes its records; not set: no log.",
        without_effect={THREADS: "this host logs no order"},
    ),
    ConfigKey(
        "penstock.batch.max.bytes",
        whole(1024),
        64 * 1024 * 1024,
        "medium",
        "Most bytes of input of one epoch; an epoch reads less if tasks send more than four times as much.",
        without_effect={THREADS: "set penstock.buffer.max.bytes"},
    ),
    ConfigKey(
        "penstock.max.skew.ms",
        whole(0),
        3_600_000,
        "medium",
        "On Spark, first step (ms) in the search for the common time up to which an epoch that cannot read "
        "everything reads topics and partitions that meet in a task. On threads, the age (ms) from which on records "
        "are read together in time by the tasks that feed a repartition topic. 0: no common time.",
    ),
    ConfigKey(
        "penstock.held.max.bytes",
        whole(1),
        16 * 1024 * 1024,
        "low",
        "Most bytes of a partition's records that wait for another partition; beyond that, it is not read.",
        without_effect={THREADS: "set penstock.buffer.max.bytes"},
    ),
    ConfigKey(
        "penstock.batch.target.ms",
        whole(1),
        2000,
        "medium",
        "Time that an epoch should take; the planner adapts its bytes to it.",
        without_effect={THREADS: _EPOCHS},
    ),
    ConfigKey(
        "penstock.lake.commit.interval.ms",
        whole(1),
        60_000,
        "medium",
        "Interval in ms at which new records are written to tables of a lake; a shorter one makes smaller files.",
    ),
    ConfigKey(
        "penstock.lake.commit.max.bytes",
        whole(1),
        64 * 1024 * 1024,
        "medium",
        "Bytes of keys and values that a commit writes to a table of a lake, and that the program holds meanwhile.",
    ),
    ConfigKey(
        "penstock.changelog.topics",
        boolean,
        False,
        "medium",
        "Whether the Spark host also writes changelog topics, so that another host can take the application over.",
        "With true, an application that has state needs an export first: see "
        "docs/changing-a-topology.md#changelog-topics-on-spark.",
        without_effect={THREADS: "this host always writes changelog topics"},
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
        without_effect={THREADS: _EPOCHS},
    ),
    ConfigKey(
        "penstock.poll.ms",
        whole(0),
        100,
        "low",
        "Pause in ms between looks for new records.",
        without_effect={THREADS: "set poll.ms"},
    ),
    ConfigKey(
        "penstock.spark.master",
        text,
        None,
        "medium",
        "Master of the session that Penstock starts, or the address of a Spark Connect server (sc://...); not set: "
        "local[<cores>,4].",
        without_effect={THREADS: _SPARK_ONLY},
    ),
    ConfigKey(
        "penstock.spark.log.level",
        one_of("off", "error", "warn", "info", "debug"),
        None,
        "low",
        "Level of Spark's log on standard error; not set: warnings go to spark.log below <state.dir>.",
        without_effect={THREADS: _SPARK_ONLY},
    ),
    ConfigKey(
        "penstock.spark.partitions",
        whole(1),
        None,
        "low",
        "Spark partitions of each level and of the sink of a new checkpoint; not set: cores.",
        "The next topology version starts: see docs/changing-a-topology.md#topology-versions-of-a-checkpoint.",
        without_effect={THREADS: _SPARK_ONLY},
    ),
    ConfigKey(
        "penstock.spark.send.code",
        boolean,
        True,
        "low",
        "Whether Penstock sends itself and the program's modules that are not installed to executors on other "
        "machines.",
        without_effect={THREADS: _SPARK_ONLY},
    ),
    ConfigKey(
        "penstock.metrics.prometheus.port",
        whole(0),
        None,
        "low",
        "Port at which Prometheus can read the metrics, 0 for a free one; not set: none.",
    ),
    ConfigKey(
        "penstock.metrics.prometheus.host",
        text,
        "127.0.0.1",
        "low",
        "Address of this machine on which Prometheus can read the metrics; 0.0.0.0 for all.",
    ),
    ConfigKey(
        "penstock.http.max.connections",
        whole(1),
        100,
        "low",
        "Most open connections to the port of the pages, to that of the metrics, and to that of a schema registry.",
    ),
    ConfigKey(
        "penstock.http.timeout.ms",
        whole(1),
        10_000,
        "low",
        "Time (ms) in which a connection to these ports has to send its request, or to take its answer.",
    ),
    ConfigKey(
        "penstock.ui.port",
        whole(0),
        None,
        "low",
        "Port at which the application shows itself (docs/ui.md), 0 for a free one; not set: none.",
    ),
    ConfigKey(
        "penstock.ui.host",
        text,
        "127.0.0.1",
        "low",
        "Address of this machine on which the pages are served; 0.0.0.0 for all.",
    ),
    ConfigKey(
        "penstock.ui.control",
        boolean,
        False,
        "low",
        "Whether the pages also take actions, such as pause, with the token that the application prints.",
    ),
    ConfigKey(
        "penstock.ui.savepoint.dir",
        text,
        None,
        "low",
        "Directory, or URI of a file system of pyarrow, for savepoints that are taken there; not set: none are.",
    ),
    ConfigKey(
        "penstock.ui.allowed.hosts",
        text,
        "",
        "low",
        "Names, separated by commas, by which browsers may ask for the pages beside addresses and localhost.",
    ),
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
        "penstock.openlineage.enabled",
        boolean,
        False,
        "low",
        "Whether OpenLineage gets events with topics, stores and columns of the application (docs/openlineage.md).",
    ),
    ConfigKey(
        "penstock.openlineage.config",
        mapping,
        None,
        "low",
        "Configuration of the client of OpenLineage, such as its transport, as in the file openlineage.yml; not set: "
        "that file and the environment variables of the client.",
    ),
    ConfigKey(
        "penstock.openlineage.namespace",
        text,
        "default",
        "low",
        "Namespace of the job in OpenLineage; its name is the application.id.",
    ),
    ConfigKey(
        "penstock.openlineage.interval.ms",
        whole(1000),
        60_000,
        "low",
        "Time from one event RUNNING to the next.",
    ),
    ConfigKey(
        "penstock.row.max.bytes",
        whole(1024),
        1024 * 1024,
        "low",
        "Most bytes of one row between stages.",
        without_effect={THREADS: _SPARK_ONLY},
    ),
    ConfigKey(
        "penstock.segment.max.bytes",
        whole(64 * 1024),
        8 * 1024 * 1024,
        "low",
        "Most bytes of one segment of state.",
        without_effect={THREADS: _NO_CHECKPOINT},
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
        without_effect={SPARK: "each task has a database of its own"},
    ),
    ConfigKey(
        "penstock.state.remote.dir",
        text,
        None,
        "medium",
        "Directory, or URI of a file system of pyarrow, for snapshots of the state of tasks, with which an empty "
        "disk begins; not set: it begins with the changelogs.",
        without_effect={SPARK: _CHECKPOINT_OF_SPARK},
    ),
    ConfigKey(
        "penstock.state.remote.interval.ms",
        whole(1),
        600_000,
        "low",
        "Time in ms between two snapshots of the state of a task in penstock.state.remote.dir.",
        without_effect={SPARK: _CHECKPOINT_OF_SPARK},
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
        without_effect={THREADS: "queries see each write, or each commit, at once"},
    ),
    ConfigKey(
        "penstock.manifests.retained",
        whole(2),
        100,
        "low",
        "Manifests kept, and with them the segments that they name.",
        without_effect={THREADS: _NO_CHECKPOINT},
    ),
    ConfigKey(
        "penstock.manifests.retained.ms",
        whole(0),
        0,
        "low",
        "Age (ms) up to which manifests are kept, beyond the number in penstock.manifests.retained.",
        without_effect={THREADS: _NO_CHECKPOINT},
    ),
    ConfigKey(
        "penstock.emit.interval.ms",
        whole(0),
        1000,
        "low",
        "Wall-clock throttle of final results of windows and joins, within an epoch.",
    ),
)
"""See `keys`."""
