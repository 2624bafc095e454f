"""The configuration of topics: the keys and values that are accepted, and the values of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_broker.errors import ApiError
from penstock_broker.topic_config import TOPIC_CONFIGS, check_topic_configs
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
