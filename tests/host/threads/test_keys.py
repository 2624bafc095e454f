"""What the threads host takes from the configuration, and what it and the others say of keys without effect."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from penstock.client.keys import check_client_keys
from penstock.config import StreamsConfig, warn_of_keys_without_effect
from penstock.config.definition import SPARK
from penstock.dsl.builder import StreamsBuilder
from penstock.errors import ConfigError, TopologyError
from penstock.host.threads.keys import check_group_protocol, check_keys, commit_interval_ms
from penstock.plan.partition_grouper import PartitionGrouper
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.topology import built_topology

OF_THIS_HOST = {
    "acceptable.recovery.lag": 7,
    "buffered.records.per.partition": 7,
    "commit.interval.ms": "5",
    "group.protocol": "classic",
    "max.warmup.replicas": 1,
    "num.standby.replicas": 1,
    "num.stream.threads": 1,
    "penstock.buffer.max.bytes": 4096,
    "penstock.state.remote.dir": "/snapshots",
    "penstock.state.remote.interval.ms": 1_000,
    "penstock.state.shared": True,
    "penstock.topology.weight": 3,
    "penstock.task.slice.ms": 20,
    "poll.ms": 3,
    "probing.rebalance.interval.ms": 60_000,
    "rack.aware.assignment.tags": "zone",
    "restore.consumer.fetch.min.bytes": 2,
    "state.cleanup.dir.max.age.ms": 5,
    "task.timeout.ms": 1_000,
    "windowstore.changelog.additional.retention.ms": 5,
}


def config_of(**keys: Any) -> StreamsConfig:
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1", **given}, environment={})


@pytest.fixture(autouse=True)
def nothing_warned_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.config.streams_config._warned", set())


def test_commits_are_as_far_apart_as_in_kafka_streams_or_as_the_user_says() -> None:
    assert commit_interval_ms(config_of()) == 30_000
    assert commit_interval_ms(config_of(processing__guarantee="exactly_once_v2")) == 100
    assert commit_interval_ms(config_of(processing__guarantee="exactly_once_v2", commit__interval__ms=0)) == 0


def test_keys_of_this_host_are_taken_here_and_named_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_keys(config_of(**OF_THIS_HOST))
        assert caplog.messages == []
        warn_of_keys_without_effect(config_of(**OF_THIS_HOST), SPARK)
        check_client_keys(config_of(**OF_THIS_HOST))
    assert sorted(message.split()[2] for message in caplog.messages) == sorted(OF_THIS_HOST)
    assert "The configuration poll.ms is ignored: set penstock.poll.ms." in caplog.messages


def test_what_only_lmdb_can_do_is_refused_with_rocksdb(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match=r"penstock\.state\.remote\.dir needs penstock\.state\.base=lmdb"):
        check_keys(config_of(**{"penstock.state.remote.dir": "/snapshots", "penstock.state.base": "rocksdb"}))
    with pytest.raises(ConfigError, match=r"penstock\.state\.shared needs penstock\.state\.base=lmdb"):
        check_keys(config_of(**{"penstock.state.shared": True, "penstock.state.base": "rocksdb"}))
    with caplog.at_level(logging.WARNING):
        check_keys(config_of(**{"penstock.state.remote.interval.ms": 1_000}))
    assert caplog.messages == [
        "The configuration penstock.state.remote.interval.ms is ignored: set penstock.state.remote.dir too."
    ]


def test_a_key_that_no_consumer_has_is_refused_for_restores_too() -> None:
    with pytest.raises(ConfigError, match=r"Unknown configuration restore\.consumer\.fetch\.min\.byte: did you mean"):
        check_keys(config_of(**{"restore.consumer.fetch.min.byte": 2}))


def test_keys_of_spark_are_named_here(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_keys(config_of(**{"penstock.batch.target.ms": 100, "penstock.spark.master": "local[2]"}))
    assert caplog.messages == [
        "The configuration penstock.batch.target.ms is ignored: this host has no epochs; set commit.interval.ms.",
        "The configuration penstock.spark.master is ignored: it is a key of the host spark.",
    ]


def built(pattern: bool = False) -> BuiltTopology:
    builder = StreamsBuilder()
    builder.stream(re.compile("in.*") if pattern else "in").to("out")
    return built_topology(builder.build(), "app")


def test_groups_of_kafka_streams_have_static_members_but_no_groupers_and_patterns() -> None:
    check_group_protocol(built(), config_of(group__protocol="streams", group__instance__id="one"))
    with pytest.raises(ConfigError, match=r"remove partition\.grouper"):
        check_group_protocol(built(), config_of(group__protocol="streams", partition__grouper=PartitionGrouper))
    with pytest.raises(TopologyError, match=r"a pattern, 'in\.\*', .* set group\.protocol=classic"):
        check_group_protocol(built(pattern=True), config_of(group__protocol="streams"))
    check_group_protocol(built(pattern=True), config_of(group__instance__id="one"))
    with pytest.raises(ConfigError, match="expected one of classic, streams"):
        config_of(group__protocol="consumer")


def test_keys_that_brokers_decide_on_for_groups_of_kafka_streams_are_named(caplog: pytest.LogCaptureFixture) -> None:
    keys = {"num.standby.replicas": 1, "max.warmup.replicas": 1, "session.timeout.ms": 9_000}
    with caplog.at_level(logging.WARNING):
        check_group_protocol(built(), config_of(**keys))
        assert caplog.messages == []
        check_group_protocol(built(), config_of(group__protocol="streams", **keys))
    assert sorted(message.split()[2] for message in caplog.messages) == sorted(keys)


def test_a_key_that_nobody_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"did you mean commit\.interval\.ms"):
        check_keys(config_of(commit__interval__m=5))
