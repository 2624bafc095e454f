"""The configuration of topics: keys, accepted values, and the values of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_broker.errors import ApiError
from penstock_broker.topic_config import BROKER_KEYS, TOPIC_CONFIGS, check_topic_configs, log_config
from penstock_broker.wire.error_codes import ErrorCode


@pytest.mark.parametrize(
    ("name", "value"),
    [("compression.type", "gzip"), ("preallocate", "true"), ("unclean.leader.election.enable", "True")],
)
def test_a_configuration_that_would_not_be_acted_on_is_refused(name: str, value: str) -> None:
    with pytest.raises(ApiError, match=rf"{value} for {name} is not served .*use {TOPIC_CONFIGS[name].default}") as one:
        check_topic_configs({name: value}, {})
    assert one.value.code == ErrorCode.invalid_config
    assert check_topic_configs({name: TOPIC_CONFIGS[name].default}, {})


def test_a_compaction_lag_is_compared_with_the_default_of_the_other(tmp_path: Path) -> None:
    conflict = r"conflict topic config setting min.compaction.lag.ms \(9\) > max.compaction.lag.ms \(8\)"
    with pytest.raises(ApiError, match=conflict):
        check_topic_configs({"min.compaction.lag.ms": "9"}, {"max.compaction.lag.ms": "8"})
    assert check_topic_configs({"min.compaction.lag.ms": "8"}, {"max.compaction.lag.ms": "8"})


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup.policy": "delete", "segment.bytes": "52428800", "retention.ms": "-1"},
        {"cleanup.policy": "compact", "min.compaction.lag.ms": "0", "delete.retention.ms": "86400000"},
        {"cleanup.policy": "compact,delete", "retention.ms": "90000000", "retention.bytes": "-1"},
        {"message.timestamp.type": "CreateTime", "unclean.leader.election.enable": "false"},
    ],
)
def test_the_configuration_of_topics_that_kafka_streams_makes_is_accepted(configs: dict[str, str]) -> None:
    assert check_topic_configs(configs, {}) == configs


@pytest.mark.parametrize("name", sorted(TOPIC_CONFIGS))
def test_every_default_is_a_value_that_clients_may_set(name: str) -> None:
    default = TOPIC_CONFIGS[name].default
    assert check_topic_configs({name: default}, {}) == {name: default}
    assert log_config({name: default}) == log_config({})


def test_the_broker_has_a_default_of_every_key_but_that_of_tests() -> None:
    assert set(BROKER_KEYS.values()) == {name for name, key in TOPIC_CONFIGS.items() if not key.is_internal}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("nonsense", "1", "Unknown topic config name: nonsense"),
        (
            "retention.ms",
            "-2",
            "Invalid value -2 for retention.ms: expected a whole number from -1 to 9223372036854775807",
        ),
        ("retention.ms", "5.0", "Invalid value 5.0 for retention.ms"),
        ("retention.ms", None, "Invalid value None for retention.ms"),
        ("segment.bytes", "1048575", "expected a whole number from 1048576 to 2147483647"),
        ("min.cleanable.dirty.ratio", "1.01", "expected a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "expected a number from 0 to 1"),
        ("cleanup.policy", "compact,shrink", "expected compact, delete, or both"),
        ("preallocate", "yes", "expected true or false"),
        ("message.timestamp.type", "logappendtime", "expected CreateTime or LogAppendTime"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_those_that_can(name: str, value: str | None, reason: str) -> None:
    with pytest.raises(ApiError, match=reason) as refused:
        check_topic_configs({name: value}, {})
    assert refused.value.code == ErrorCode.invalid_config


def test_values_have_the_blanks_and_signs_of_kafka() -> None:
    config = log_config(check_topic_configs({"retention.ms": " +5 ", "cleanup.policy": "delete, compact"}, {}))
    assert (config.retention_ms, config.compact, config.delete) == (5, True, True)


def test_a_segment_of_a_compacted_topic_ends_within_the_compaction_lag() -> None:
    short = {"segment.ms": "100", "max.compaction.lag.ms": "50"}
    assert log_config(short).longest_segment_ms == 100
    assert log_config(short | {"cleanup.policy": "compact"}).longest_segment_ms == 50
    assert log_config({"segment.ms": "100", "cleanup.policy": "compact"}).longest_segment_ms == 100


def test_tests_may_use_smaller_segments_than_clients() -> None:
    assert log_config({"internal.segment.bytes": "14", "segment.bytes": "1048576"}).segment_bytes == 14
