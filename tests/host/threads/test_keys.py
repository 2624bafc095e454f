"""What the threads host takes from the configuration, and what it and the others say of keys without effect."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.client.keys import check_client_keys
from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.host.threads.keys import check_keys, commit_interval_ms, limits
from penstock.host.threads.task_manager import Limits

OF_THIS_HOST = {
    "acceptable.recovery.lag": 7,
    "buffered.records.per.partition": 7,
    "commit.interval.ms": "5",
    "max.warmup.replicas": 1,
    "num.standby.replicas": 1,
    "num.stream.threads": 1,
    "penstock.buffer.max.bytes": 4096,
    "poll.ms": 3,
    "probing.rebalance.interval.ms": 60_000,
    "rack.aware.assignment.tags": "zone",
    "task.timeout.ms": 1_000,
    "windowstore.changelog.additional.retention.ms": 5,
}


def config_of(**keys: Any) -> StreamsConfig:
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1", **given}, environment={})


@pytest.fixture(autouse=True)
def nothing_warned_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.config._warned", set())


def test_commits_are_as_far_apart_as_in_kafka_streams_or_as_the_user_says() -> None:
    assert commit_interval_ms(config_of()) == 30_000
    assert commit_interval_ms(config_of(processing__guarantee="exactly_once_v2")) == 100
    assert commit_interval_ms(config_of(processing__guarantee="exactly_once_v2", commit__interval__ms=0)) == 0


def test_the_user_says_how_much_waits() -> None:
    assert limits(config_of()) == Limits(10_000, 64 * 1024 * 1024)
    assert limits(config_of(**OF_THIS_HOST)) == Limits(7, 4096)


def test_keys_of_this_host_are_taken_here_and_named_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_keys(config_of(**OF_THIS_HOST))
        assert caplog.messages == []
        check_client_keys(config_of(**OF_THIS_HOST))
    assert sorted(message.split()[2] for message in caplog.messages) == sorted(OF_THIS_HOST)
    assert "The configuration poll.ms is ignored: set penstock.poll.ms." in caplog.messages


def test_keys_of_spark_are_named_here(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_keys(config_of(**{"penstock.batch.target.ms": 100, "penstock.spark.master": "local[2]"}))
    assert caplog.messages == [
        "The configuration penstock.batch.target.ms is ignored: this host has no epochs; set commit.interval.ms.",
        "The configuration penstock.spark.master is ignored: it is a key of the host spark.",
    ]


def test_a_key_that_nobody_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"did you mean commit\.interval\.ms"):
        check_keys(config_of(commit__interval__m=5))
