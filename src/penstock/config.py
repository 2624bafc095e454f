"""The configuration: a row a key, with type, default, importance and one line of documentation.

A key comes from the user's mapping, else from the environment (`application.id` as PENSTOCK_APPLICATION_ID,
`penstock.host` as PENSTOCK_HOST), else from its
row. Keys without a row are kept: clients take those that they know (any librdkafka key). Nothing here opens anything.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError
from penstock.exception_handlers import (
    BUILT_IN,
    DEAD_LETTER_QUEUE_TOPIC,
    DefaultProductionExceptionHandler,
    DeserializationExceptionHandler,
    ExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
    ProcessingExceptionHandler,
    ProductionExceptionHandler,
)
from penstock.serdes import Serde

_log = logging.getLogger(__name__)

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE_V2 = "exactly_once_v2"

UPGRADE_FROM = (
    *("0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1"),
    *(f"2.{minor}" for minor in range(9)),
    *(f"3.{minor}" for minor in range(10)),
    *(f"4.{minor}" for minor in range(3)),
)
"""The versions of Kafka Streams that `upgrade.from` may name."""

_SECRET_PARTS = (
    "password",
    "secret",
    "sasl.jaas",
    "sasl.username",
    "ssl.key",
    "token",
    "credential",
    "oauthbearer.client",
)


@dataclass(frozen=True)
class ConfigKey:
    """One key: how its value is read, what it is if not set, how much it matters (high, medium, low) and what it
    does."""

    name: str
    parse: Callable[[str, Any], Any]
    default: Any
    importance: str
    doc: str


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected a text.")
    return value


def _whole(minimum: int) -> Callable[[str, Any], int]:
    def parse(name: str, value: Any) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected a whole number.") from error
        if isinstance(value, bool) or number < minimum:
            raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected {minimum} or more.")
        return number

    return parse


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected true or false.")


def _one_of(*choices: str) -> Callable[[str, Any], str]:
    def parse(name: str, value: Any) -> str:
        if value not in choices:
            raise ConfigError(
                f"Invalid value {value!r} for configuration {name}: expected one of {', '.join(choices)}."
            )
        return str(value)

    return parse


def _serde(name: str, value: Any) -> Serde:
    if isinstance(value, type) and issubclass(value, Serde):
        return value()
    if not isinstance(value, Serde):
        raise ConfigError(
            f"Invalid value {value!r} for configuration {name}: expected a Serde, such as Serdes.string()."
        )
    return value


def _anything(name: str, value: Any) -> Any:
    return value


def _handler(kind: type[ExceptionHandler]) -> Callable[[str, Any], ExceptionHandler]:
    """Return the reader of an exception handler: a class, an object, or the name of a built-in one."""

    def parse(name: str, value: Any) -> ExceptionHandler:
        named = BUILT_IN.get(value.rpartition(".")[2]) if isinstance(value, str) else value
        handler = named() if isinstance(named, type) else named
        if not isinstance(handler, kind):
            names = ", ".join(each.__name__ for each in BUILT_IN.values() if issubclass(each, kind))
            raise ConfigError(
                f"Invalid value {value!r} for configuration {name}: expected a {kind.__name__}, its class, or one of "
                f"{names}."
            )
        return handler

    return parse


def _function(name: str, value: Any) -> Any:
    if not callable(value):
        raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected a function.")
    return value


KEYS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            "application.id",
            _text,
            None,
            "high",
            "Name of the application: prefix of its internal topics, its group and its directories.",
        ),
        ConfigKey("bootstrap.servers", _text, None, "high", "Brokers to ask first, as host:port,host:port."),
        ConfigKey(
            "client.id", _text, "", "medium", "Prefix of the client ids that brokers see; empty for the application.id."
        ),
        ConfigKey(
            "application.server",
            _text,
            None,
            "low",
            "host:port under which the program offers its state to others; told by query_metadata_for_key.",
        ),
        ConfigKey(
            "state.dir",
            _text,
            str(Path(tempfile.gettempdir()) / "penstock"),
            "high",
            "Directory of the bases of the state stores.",
        ),
        ConfigKey(
            "processing.guarantee",
            _one_of(AT_LEAST_ONCE, EXACTLY_ONCE_V2),
            None,
            "medium",
            "at_least_once or exactly_once_v2; not set: what the host prefers and the broker can do.",
        ),
        ConfigKey("default.key.serde", _serde, None, "medium", "Serde of keys where an operator names none."),
        ConfigKey("default.value.serde", _serde, None, "medium", "Serde of values where an operator names none."),
        ConfigKey(
            "default.timestamp.extractor",
            _function,
            None,
            "medium",
            "Timestamp extractor where a source names none; not set: the record's own, failing below 0.",
        ),
        ConfigKey(
            "statestore.cache.max.bytes",
            _whole(0),
            10 * 1024 * 1024,
            "medium",
            "Bytes of the record cache of one task; 0 switches caching off.",
        ),
        ConfigKey(
            "deserialization.exception.handler",
            _handler(DeserializationExceptionHandler),
            LogAndFailExceptionHandler(),
            "medium",
            "What to do about a record that cannot be read.",
        ),
        ConfigKey(
            "processing.exception.handler",
            _handler(ProcessingExceptionHandler),
            LogAndFailProcessingExceptionHandler(),
            "medium",
            "What to do about a record that a processor fails on.",
        ),
        ConfigKey(
            "processing.exception.handler.global.enabled",
            _boolean,
            False,
            "low",
            "Whether that handler also serves the processors of global stores.",
        ),
        ConfigKey(
            "production.exception.handler",
            _handler(ProductionExceptionHandler),
            DefaultProductionExceptionHandler(),
            "medium",
            "What to do about a record that cannot be serialised or sent.",
        ),
        ConfigKey(
            DEAD_LETTER_QUEUE_TOPIC,
            _text,
            None,
            "medium",
            "Topic to which the built-in handlers write the records that failed; not set: none.",
        ),
        ConfigKey(
            "ensure.explicit.internal.resource.naming",
            _boolean,
            False,
            "high",
            "Refuse generated names of stores and internal topics; holds in a TopologyConfig.",
        ),
        ConfigKey(
            "processor.wrapper.class",
            _anything,
            None,
            "low",
            "ProcessorWrapper, or its class, that wraps all processors; holds in a TopologyConfig.",
        ),
        ConfigKey(
            "upgrade.from",
            _one_of(*UPGRADE_FROM),
            None,
            "low",
            "Version of Kafka Streams that wrote what is read now, where its internal formats were others.",
        ),
        ConfigKey(
            "stream.time.policy",
            _one_of("max", "min"),
            "max",
            "low",
            "max: stream time is the largest timestamp taken; min: the smallest of the partition times.",
        ),
        ConfigKey(
            "partition.pause.threshold.ms",
            _whole(0),
            None,
            "low",
            "How far (ms) a partition may be ahead of the slowest of its task before the host reads it no further; "
            "not set: any.",
        ),
        ConfigKey(
            "partition.grouper",
            _anything,
            None,
            "low",
            "PartitionGrouper that says which partitions make one task; not set: those of one number.",
        ),
        ConfigKey(
            "rocksdb.config.setter",
            _anything,
            None,
            "medium",
            "RocksDBConfigSetter, or its class, that changes the options of bases that are RocksDB.",
        ),
        ConfigKey(
            "max.task.idle.ms",
            _whole(-1),
            0,
            "medium",
            "How long (ms) a task waits for records of a partition that has none while others have some.",
        ),
        ConfigKey("topology.optimization", _text, "none", "medium", "none, all, or a list of optimisations."),
        ConfigKey(
            "replication.factor",
            _whole(-1),
            -1,
            "medium",
            "Replication factor of internal topics; -1 for the broker's default.",
        ),
        ConfigKey(
            "auto.offset.reset",
            _one_of("earliest", "latest", "none"),
            "earliest",
            "medium",
            "Where to begin where no position is known, or its records are deleted; none: fail.",
        ),
        ConfigKey(
            "metadata.max.age.ms",
            _whole(0),
            300_000,
            "low",
            "How often (ms) is looked for topics and partitions that are new or deleted.",
        ),
        ConfigKey(
            "dsl.store.suppliers.class",
            _one_of("in_memory", "rocksdb"),
            "rocksdb",
            "low",
            "Base of the stores of the DSL where the operator names none.",
        ),
        ConfigKey(
            "dsl.store.format",
            _one_of("default", "headers"),
            "default",
            "low",
            "What the stores of the DSL keep beside values: timestamps, or timestamps and headers.",
        ),
        ConfigKey("num.partitions", _whole(1), 1, "low", "Partitions of topics that the tools create."),
        ConfigKey("penstock.host", _one_of("spark"), "spark", "high", "Where tasks run."),
        ConfigKey(
            "penstock.execution",
            _one_of("auto", "record"),
            "auto",
            "low",
            "auto: column by column where it gives the same; record: record by record.",
        ),
        ConfigKey(
            "penstock.checkpoint.dir",
            _text,
            None,
            "high",
            "Directory of checkpoint and state; not set: <state.dir>/<application.id>/checkpoint.",
        ),
        ConfigKey(
            "penstock.spark.checkpoint.dir",
            _text,
            None,
            "medium",
            "Directory below which Spark keeps its own checkpoint, as Hadoop can; not set: in the checkpoint.",
        ),
        ConfigKey(
            "penstock.trace.order",
            _text,
            None,
            "low",
            "Directory to which each task logs the order in which it takes its records; not set: no log.",
        ),
        ConfigKey(
            "penstock.batch.max.bytes",
            _whole(1024),
            64 * 1024 * 1024,
            "medium",
            "Most bytes of input of one epoch; less is read where tasks send on more than four times as much.",
        ),
        ConfigKey(
            "penstock.max.skew.ms",
            _whole(0),
            3_600_000,
            "medium",
            "First step (ms) towards the one time up to which an epoch that cannot read all reads topics that meet in "
            "a task; 0: it reads them up to any times.",
        ),
        ConfigKey(
            "penstock.held.max.bytes",
            _whole(1),
            16 * 1024 * 1024,
            "low",
            "Most bytes of a partition's records that wait for those of another before it is not read on.",
        ),
        ConfigKey(
            "penstock.batch.target.ms",
            _whole(1),
            2000,
            "medium",
            "Time that an epoch should take; the planner adapts its bytes to it.",
        ),
        ConfigKey(
            "penstock.determinism.check.epochs",
            _whole(0),
            0,
            "low",
            "Every how many epochs each task runs twice, to find functions that are not deterministic; 0: never.",
        ),
        ConfigKey(
            "penstock.restart.max.attempts",
            _whole(0),
            10,
            "medium",
            "Most restarts in a row, without a commit between them, where the uncaught exception handler replaces.",
        ),
        ConfigKey(
            "penstock.restart.backoff.ms",
            _whole(0),
            1000,
            "low",
            "Wait in ms before the first restart after an error; doubles from restart to restart in a row.",
        ),
        ConfigKey("penstock.restart.backoff.max.ms", _whole(0), 60_000, "low", "Longest wait in ms before a restart."),
        ConfigKey("penstock.poll.ms", _whole(0), 100, "low", "Pause in ms between looks for new records."),
        ConfigKey(
            "penstock.spark.master",
            _text,
            None,
            "medium",
            "Master of the session that Penstock makes; not set: local[<cores>,4].",
        ),
        ConfigKey(
            "penstock.spark.log.level",
            _one_of("off", "error", "warn", "info", "debug"),
            None,
            "low",
            "Level of Spark's log on standard error; not set: warnings go to spark.log below <state.dir>.",
        ),
        ConfigKey(
            "penstock.spark.partitions",
            _whole(1),
            None,
            "low",
            "Spark partitions of each level and of the sink of a new checkpoint; not set: cores.",
        ),
        ConfigKey(
            "penstock.spark.send.code",
            _boolean,
            True,
            "low",
            "Whether executors on other machines are sent Penstock and those modules of the program that are installed "
            "nowhere.",
        ),
        ConfigKey(
            "repartition.purge.interval.ms",
            _whole(0),
            30_000,
            "low",
            "Time in ms between deletions of what has been read of topics between DataFrames and the application.",
        ),
        ConfigKey(
            "metrics.recording.level",
            _one_of("INFO", "DEBUG", "TRACE"),
            "INFO",
            "low",
            "Up to which level sensors of processors record.",
        ),
        ConfigKey(
            "metrics.num.samples",
            _whole(1),
            2,
            "low",
            "Over how many samples rates, averages and largest values of metrics are taken.",
        ),
        ConfigKey("metrics.sample.window.ms", _whole(1), 30_000, "low", "Time in ms that one of these samples covers."),
        ConfigKey(
            "penstock.metrics.prometheus.port",
            _whole(0),
            None,
            "low",
            "Port at which Prometheus can read the metrics, 0 for one that is free; not set: none.",
        ),
        ConfigKey(
            "penstock.metrics.prometheus.host",
            _text,
            "127.0.0.1",
            "low",
            "Address of this machine at which that port is; 0.0.0.0 for all of them.",
        ),
        ConfigKey(
            "log.summary.interval.ms",
            _whole(-1),
            120_000,
            "low",
            "Time in ms between lines in the log that say how far the application is; below 1: none.",
        ),
        ConfigKey("penstock.row.max.bytes", _whole(1024), 1024 * 1024, "low", "Most bytes of one row between stages."),
        ConfigKey(
            "penstock.segment.max.bytes",
            _whole(64 * 1024),
            8 * 1024 * 1024,
            "low",
            "Most bytes of one segment of state.",
        ),
        ConfigKey(
            "penstock.state.base",
            _one_of("lmdb", "rocksdb"),
            "lmdb",
            "medium",
            "Base of stores on Spark: lmdb; or rocksdb, opened each epoch, for state far beyond memory.",
        ),
        ConfigKey(
            "penstock.uncommitted.max.bytes",
            _whole(1024),
            128 * 1024 * 1024,
            "medium",
            "Most bytes of memory of a task's uncommitted changes of state; beyond, they are written as a part of its "
            "next segment and kept on disk.",
        ),
        ConfigKey(
            "penstock.query.refresh.ms",
            _whole(0),
            100,
            "low",
            "How old (ms) the look for a newer commit may be that a query of state is answered from.",
        ),
        ConfigKey(
            "penstock.manifests.retained",
            _whole(2),
            100,
            "low",
            "Manifests kept, and with them the segments that they name.",
        ),
        ConfigKey(
            "penstock.emit.interval.ms",
            _whole(0),
            1000,
            "low",
            "Wall-clock throttle of final results of windows and joins.",
        ),
    )
}


_RENAMED = {
    "default.deserialization.exception.handler": "deserialization.exception.handler",
    "default.production.exception.handler": "production.exception.handler",
}
"""Former names of keys, which hold where the new one is not set (KIP-1056)."""


def environment_name(key: str) -> str:
    """Return the environment variable of `key`: `application.id` -> PENSTOCK_APPLICATION_ID; the prefix penstock. is
    not doubled."""
    name = key.replace(".", "_").replace("-", "_").upper()
    return name if name.startswith("PENSTOCK_") else f"PENSTOCK_{name}"


def redacted(key: str, value: Any) -> str:
    """Return `value` as it may be shown: secrets (passwords, tokens, JAAS lines ...) as [hidden]."""
    return "[hidden]" if any(part in key.lower() for part in _SECRET_PARTS) else str(value)


_warned: set[str] = set()


def warn_without_meaning(key: str) -> None:
    """Say in the log, once in a process, that the configuration `key` changes nothing where the application runs."""
    if key not in _warned:
        _warned.add(key)
        _log.warning("The configuration %s has no meaning here and is left out.", key)


class StreamsConfig(Mapping[str, Any]):
    """The configuration of one application, checked (Kafka class: StreamsConfig). Reading a key that has a row and no
    value gives its default."""

    def __init__(self, values: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> None:
        """Take `values` (dotted keys), then the environment (default: os.environ); raises ConfigError for a value that
        cannot be."""
        given = dict(values or {})
        surroundings = os.environ if environment is None else environment
        for old, new in _RENAMED.items():
            if old in given and new not in given:
                given[new] = given.pop(old)
        for name in KEYS:
            if name not in given and environment_name(name) in surroundings:
                given[name] = surroundings[environment_name(name)]
        self._given: dict[str, Any] = given
        self._values: dict[str, Any] = dict(given)
        for name, row in KEYS.items():
            value = given.get(name)
            self._values[name] = row.default if value is None else row.parse(name, value)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def given(self) -> Mapping[str, Any]:
        """Return the keys and values as the user gave them (mapping and environment)."""
        return dict(self._given)

    def overridden(self, values: Mapping[str, Any]) -> StreamsConfig:
        """Return this configuration with `values` before its own; raises ConfigError for a value that cannot be."""
        return StreamsConfig({**self._given, **values}, environment={}) if values else self

    def required(self, key: str) -> Any:
        """Return the value of `key`; raises ConfigError naming the key and its environment variable if it is not
        set."""
        value = self._values.get(key)
        if value is None:
            raise ConfigError(
                f"Missing required configuration {key!r}: set it in the config or as {environment_name(key)}."
            )
        return value

    def client_config(self) -> dict[str, Any]:
        """Return the keys that have no row (a client's own, such as security settings), and bootstrap.servers."""
        own = {key: value for key, value in self._given.items() if key not in KEYS}
        if self._values["bootstrap.servers"] is not None:
            own["bootstrap.servers"] = self._values["bootstrap.servers"]
        return own

    def client_id(self) -> str:
        """Return client.id, or the application.id."""
        return str(self._values["client.id"] or self._values["application.id"] or "")

    def checkpoint_directory(self) -> str:
        """Return penstock.checkpoint.dir, or <state.dir>/<application.id>/checkpoint."""
        chosen: str | None = self._values["penstock.checkpoint.dir"]
        return chosen or str(Path(self._values["state.dir"]) / self.required("application.id") / "checkpoint")

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={redacted(key, value)}" for key, value in sorted(self._given.items()))
        return f"StreamsConfig({shown})"
