"""Topic configuration: keys, defaults, checks of values, and the values used by a log.

Contains one row per key. Rule: every accepted value takes effect. A key with only one supported value accepts only its
default, and the error gives the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from penstock_broker.errors import ApiError
from penstock_broker.wire.error_codes import ErrorCode


class ConfigType(IntEnum):
    """Types of configuration values, with their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class TopicConfigKey:
    """A key of a topic's configuration.

    Args:
        default: the default value.
        type: the type of its values.
        is_valid: the check of a value given by a client.
        expected: description of valid values, for the error of the check.
        why_only_default: reason why only the default is supported; empty if all values are.
        is_internal: whether it is for tests, and shown only for a topic that sets it.
    """

    default: str
    type: ConfigType
    is_valid: Callable[[str], bool]
    expected: str
    why_only_default: str = ""
    is_internal: bool = False


def _number(default: int, minimum: int, maximum: int = 2**63 - 1, type: ConfigType = ConfigType.LONG) -> TopicConfigKey:
    def is_valid(value: str) -> bool:
        return re.fullmatch(r"[+-]?\d{1,19}", value.strip()) is not None and minimum <= int(value) <= maximum

    return TopicConfigKey(str(default), type, is_valid, f"a whole number from {minimum} to {maximum}")


def _int(default: int, minimum: int) -> TopicConfigKey:
    return _number(default, minimum, 2**31 - 1, ConfigType.INT)


def _boolean(default: bool) -> TopicConfigKey:
    return TopicConfigKey(
        str(default).lower(), ConfigType.BOOLEAN, lambda value: value.lower() in ("true", "false"), "true or false"
    )


def _one_of(default: str, *choices: str) -> TopicConfigKey:
    return TopicConfigKey(default, ConfigType.STRING, lambda value: value in choices, " or ".join(choices))


def _is_ratio(value: str) -> bool:
    try:
        return 0 <= float(value) <= 1
    except ValueError:
        return False


def _is_cleanup_policy(value: str) -> bool:
    return {part.strip() for part in value.split(",")} <= {"compact", "delete"}


def _is_compression(value: str) -> bool:
    return value in ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


_LARGEST: Final = 2**63 - 1

NEVER: Final = _LARGEST
"""Number of messages, or ms, that disables flushes."""

MIN_SEGMENT_BYTES: Final = 1024 * 1024
"""The smallest segment size that users may configure (KIP-1030)."""

TOPIC_CONFIGS: Final[Mapping[str, TopicConfigKey]] = {
    "cleanup.policy": TopicConfigKey("delete", ConfigType.LIST, _is_cleanup_policy, "compact, delete, or both"),
    "compression.type": TopicConfigKey(
        "producer",
        ConfigType.STRING,
        _is_compression,
        "a compression or producer",
        why_only_default="it stores batches as producers compressed them",
    ),
    "delete.retention.ms": _number(86_400_000, 0),
    "file.delete.delay.ms": _number(60_000, 0),
    "flush.messages": _number(_LARGEST, 1),
    "flush.ms": _number(_LARGEST, 0),
    "index.interval.bytes": _int(4096, 0),
    "internal.segment.bytes": replace(_int(1_073_741_824, 14), is_internal=True),
    "max.compaction.lag.ms": _number(_LARGEST, 1),
    "max.message.bytes": _int(1_048_588, 0),
    "message.timestamp.after.max.ms": _number(3_600_000, 0),
    "message.timestamp.before.max.ms": _number(_LARGEST, 0),
    "message.timestamp.type": _one_of("CreateTime", "CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": TopicConfigKey("0.5", ConfigType.DOUBLE, _is_ratio, "a number from 0 to 1"),
    "min.compaction.lag.ms": _number(0, 0),
    "min.insync.replicas": _int(1, 1),  # Kafka caps it at the number of replicas, which is one here
    "preallocate": replace(_boolean(False), why_only_default="it does not reserve space for segments"),
    "retention.bytes": _number(-1, -1),
    "retention.ms": _number(604_800_000, -1),
    "segment.bytes": _int(1_073_741_824, MIN_SEGMENT_BYTES),
    "segment.index.bytes": _int(10_485_760, 4),
    "segment.jitter.ms": _number(0, 0),
    "segment.ms": _number(604_800_000, 1),
    "unclean.leader.election.enable": replace(
        _boolean(False), why_only_default="with one replica there is no leader to elect"
    ),
}
"""The keys of a topic's configuration, without unused ones of replication and tiered storage."""

BROKER_KEYS: Final[Mapping[str, str]] = {
    "compression.type": "compression.type",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleanup.policy": "cleanup.policy",
    "log.flush.interval.messages": "flush.messages",
    "log.flush.interval.ms": "flush.ms",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.preallocate": "preallocate",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.roll.jitter.ms": "segment.jitter.ms",
    "log.roll.ms": "segment.ms",
    "log.segment.bytes": "segment.bytes",
    "log.segment.delete.delay.ms": "file.delete.delay.ms",
    "message.max.bytes": "max.message.bytes",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""Topic configuration keys by the broker's keys for their defaults.

Kafka class: ServerTopicConfigSynonyms.
"""


def check_topic_configs(configs: Mapping[str, str | None], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration of a topic after checking keys and values.

    Args:
        configs: values as sent by a client.
        defaults: the default topic configuration, as far as it differs from Kafka's.

    Raises:
        ApiError: INVALID_CONFIG, with the name of the key.
    """
    checked: dict[str, str] = {}
    for name, value in configs.items():
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            raise ApiError(ErrorCode.invalid_config, f"Unknown topic config name: {name}")
        if value is None or not key.is_valid(value):
            raise ApiError(ErrorCode.invalid_config, f"Invalid value {value} for {name}: expected {key.expected}")
        if key.why_only_default and value.lower() != key.default:
            raise ApiError(
                ErrorCode.invalid_config,
                f"Value {value} for {name} is not served by this broker: {key.why_only_default}. Leave it out, or use "
                f"{key.default}",
            )
        checked[name] = value
    effective = log_config({**defaults, **checked})
    if effective.min_compaction_lag_ms > effective.max_compaction_lag_ms:
        raise ApiError(
            ErrorCode.invalid_config,
            f"conflict topic config setting min.compaction.lag.ms ({effective.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({effective.max_compaction_lag_ms})",
        )
    return checked


@dataclass(frozen=True, slots=True)
class LogConfig:
    """A topic's configuration, as used by the logs of its partitions (Kafka class: LogConfig).

    Args:
        compact: whether older records of a key are removed.
        delete: whether old segments are deleted.
        segment_bytes: size at which a new segment starts.
        segment_ms: time (ms) after which a new segment starts.
        segment_jitter_ms: maximum random reduction of that time (ms).
        segment_index_bytes: size of the index at which a new segment starts, in Kafka's format.
        index_interval_bytes: minimum bytes of log between two entries of the index.
        retention_ms: age (ms) at which segments are deleted; negative for never.
        retention_bytes: size of the log above which segments are deleted; negative for never.
        file_delete_delay_ms: time (ms) that the file of a deleted segment is kept.
        max_message_bytes: largest accepted batch, in bytes.
        min_compaction_lag_ms: time (ms) before which a record is not compacted.
        max_compaction_lag_ms: time (ms) after which a record must be compacted.
        min_cleanable_dirty_ratio: share of the log that must be uncompacted for a compaction to begin.
        delete_retention_ms: time (ms) that compaction keeps tombstones and transaction markers.
        is_log_append_time: whether records get the append time.
        timestamp_before_max_ms: maximum time (ms) of a record's timestamp before its append time.
        timestamp_after_max_ms: maximum time (ms) of a record's timestamp after its append time.
        flush_messages: records after which the log is forced to disk.
        flush_ms: time (ms) after which the log is forced to disk.
    """

    compact: bool
    delete: bool
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    retention_ms: int
    retention_bytes: int
    file_delete_delay_ms: int
    max_message_bytes: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    delete_retention_ms: int
    is_log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    flush_messages: int
    flush_ms: int

    @property
    def is_forced(self) -> bool:
        """Whether a record is on disk before it is acknowledged."""
        return self.flush_messages == 1

    @property
    def longest_segment_ms(self) -> int:
        """Time (ms) after which a new segment starts.

        Records of the active segment cannot be compacted, so it is at most `max_compaction_lag_ms` for a compacted
        topic.
        """
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms


def log_config(configs: Mapping[str, str]) -> LogConfig:
    """Return the configuration of logs.

    Args:
        configs: checked values by key; a missing key has Kafka's default.
    """

    def text(name: str) -> str:
        return configs.get(name, TOPIC_CONFIGS[name].default)

    def number(name: str) -> int:
        return int(text(name))

    policies = {policy.strip() for policy in text("cleanup.policy").split(",")}
    return LogConfig(
        compact="compact" in policies,
        delete="delete" in policies,
        # As in Kafka, tests may use smaller segments than users can configure.
        segment_bytes=number("internal.segment.bytes" if "internal.segment.bytes" in configs else "segment.bytes"),
        segment_ms=number("segment.ms"),
        segment_jitter_ms=number("segment.jitter.ms"),
        segment_index_bytes=number("segment.index.bytes"),
        index_interval_bytes=number("index.interval.bytes"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        file_delete_delay_ms=number("file.delete.delay.ms"),
        max_message_bytes=number("max.message.bytes"),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        min_cleanable_dirty_ratio=float(text("min.cleanable.dirty.ratio")),
        delete_retention_ms=number("delete.retention.ms"),
        is_log_append_time=text("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        flush_messages=number("flush.messages"),
        flush_ms=number("flush.ms"),
    )
