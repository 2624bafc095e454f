"""The keys of Kafka Streams: their defaults, and the versions of `upgrade.from`."""

from __future__ import annotations

import pytest

from penstock.config.constants import ConfigConstants
from penstock.config.kafka_keys import KAFKA_KEYS, UPGRADE_FROM
from penstock.config.keys import KEYS


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("acceptable.recovery.lag", 10_000),
        ("max.task.idle.ms", 0),
        ("max.warmup.replicas", 2),
        ("metrics.num.samples", 2),
        ("metrics.recording.level", "INFO"),
        ("metrics.sample.window.ms", 30_000),
        ("num.standby.replicas", 0),
        ("num.stream.threads", 1),
        ("poll.ms", 100),
        ("probing.rebalance.interval.ms", 600_000),
        ("replication.factor", -1),
        ("state.cleanup.delay.ms", 600_000),
        ("state.cleanup.dir.max.age.ms", -1),
        ("statestore.cache.max.bytes", 10_485_760),
        ("task.timeout.ms", 300_000),
        ("topology.optimization", "none"),
    ],
)
def test_a_default_is_that_of_kafka(key: str, default: object) -> None:
    assert KEYS[key].default == default


def test_versions_to_upgrade_from_are_those_of_kafka() -> None:
    constants = {key for name, key in vars(ConfigConstants).items() if name.startswith("UPGRADE_FROM_")}
    assert constants - {ConfigConstants.UPGRADE_FROM_CONFIG} <= set(UPGRADE_FROM)
    assert len(UPGRADE_FROM) == len(set(UPGRADE_FROM))


def test_no_key_has_the_prefix_of_penstock() -> None:
    assert [key.name for key in KAFKA_KEYS if key.name.startswith("penstock.")] == []
