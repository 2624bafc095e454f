"""The configuration of topics: the keys that Kafka knows, their defaults, the checks of their values, and the values as
a log uses them.

Here lives one row for each key. All keys are stored and returned; compaction and the properties of messages have no
effect yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kio.schema.errors import ErrorCode

from penstock.broker.errors import ApiError


class ConfigType(IntEnum):
    """Types of configuration values, by their numbers in DescribeConfigs."""

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
        default: the value where a topic sets none.
        type: the type of its values.
        is_valid: the check of a value that a client gives.
        expected: what the check accepts, for its error.
    """

    default: str
    type: ConfigType
    is_valid: Callable[[str], bool]
    expected: str


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

TOPIC_CONFIGS: Final[Mapping[str, TopicConfigKey]] = {
    "cleanup.policy": TopicConfigKey("delete", ConfigType.LIST, _is_cleanup_policy, "compact, delete, or both"),
    "compression.type": TopicConfigKey("producer", ConfigType.STRING, _is_compression, "a compression or producer"),
    "delete.retention.ms": _number(86_400_000, 0),
    "file.delete.delay.ms": _number(60_000, 0),
    "flush.messages": _number(_LARGEST, 1),
    "flush.ms": _number(_LARGEST, 0),
    "index.interval.bytes": _int(4096, 0),
    "max.compaction.lag.ms": _number(_LARGEST, 1),
    "max.message.bytes": _int(1_048_588, 0),
    "message.timestamp.after.max.ms": _number(3_600_000, 0),
    "message.timestamp.before.max.ms": _number(_LARGEST, 0),
    "message.timestamp.type": _one_of("CreateTime", "CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": TopicConfigKey("0.5", ConfigType.DOUBLE, _is_ratio, "a number from 0 to 1"),
    "min.compaction.lag.ms": _number(0, 0),
    "min.insync.replicas": _int(1, 1),
    "preallocate": _boolean(False),
    "retention.bytes": _number(-1, -1),
    "retention.ms": _number(604_800_000, -1),
    "segment.bytes": _int(1_073_741_824, 14),
    "segment.index.bytes": _int(10_485_760, 4),
    "segment.jitter.ms": _number(0, 0),
    "segment.ms": _number(604_800_000, 1),
    "unclean.leader.election.enable": _boolean(False),
}
"""The keys of a topic's configuration; those of replication and tiered storage without a use here are left out."""


def check_topic_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return the configuration of a new topic after checking keys and values.

    Args:
        configs: values as a client sent them.

    Raises:
        ApiError: INVALID_CONFIG, naming the key.
    """
    checked: dict[str, str] = {}
    for name, value in configs.items():
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            raise ApiError(ErrorCode.invalid_config, f"Unknown topic config name: {name}")
        if value is None or not key.is_valid(value):
            raise ApiError(ErrorCode.invalid_config, f"Invalid value {value} for {name}: expected {key.expected}")
        checked[name] = value
    return checked


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The configuration of a topic as the logs of its partitions use it (Kafka class: LogConfig).

    Args:
        compact: whether older records of a key are removed.
        delete: whether old segments are deleted.
        segment_bytes: size at which a new segment starts.
        segment_ms: time (ms) after which a new segment starts.
        segment_jitter_ms: how much earlier than that it may start, at random (ms).
        segment_index_bytes: size of the index at which a new segment starts, by Kafka's format.
        index_interval_bytes: bytes of log between two entries of the index, at least.
        retention_ms: age (ms) at which segments are deleted; negative for never.
        retention_bytes: size of the log above which segments are deleted; negative for never.
        file_delete_delay_ms: how long (ms) the file of a deleted segment stays.
        max_message_bytes: largest accepted batch, in bytes.
        max_compaction_lag_ms: time (ms) after which a record must be compacted.
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
    max_compaction_lag_ms: int

    @property
    def longest_segment_ms(self) -> int:
        """Time (ms) after which a new segment starts; a record of the active segment could not be compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms


def log_config(configs: Mapping[str, str]) -> LogConfig:
    """Return the configuration of logs.

    Args:
        configs: values by key, checked; a key that is missing has Kafka's default.
    """

    def text(name: str) -> str:
        return configs.get(name, TOPIC_CONFIGS[name].default)

    def number(name: str) -> int:
        return int(text(name))

    policies = {policy.strip() for policy in text("cleanup.policy").split(",")}
    return LogConfig(
        compact="compact" in policies,
        delete="delete" in policies,
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        segment_jitter_ms=number("segment.jitter.ms"),
        segment_index_bytes=number("segment.index.bytes"),
        index_interval_bytes=number("index.interval.bytes"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        file_delete_delay_ms=number("file.delete.delay.ms"),
        max_message_bytes=number("max.message.bytes"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
    )
