"""Keys that nobody has, and keys that change nothing, on every host."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock import Consumed, KafkaStreams, Serdes, StreamsBuilder, Topology
from penstock.client.confluent import ConfluentAdmin
from penstock.client.confluent.keys import takes
from penstock.client.keys import OF_LIBRDKAFKA, check_client_keys
from penstock.client.settings import CONSUMER, PRODUCER
from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.testing import TopologyTestDriver

UNKNOWN = [
    ("fetch.min.byte", "fetch.min.bytes"),
    ("consumer.fetch.min.byte", "fetch.min.bytes"),
    ("main.consumer.fetch.min.byte", "fetch.min.bytes"),
    ("restore.consumer.fetch.min.byte", "fetch.min.bytes"),
    ("global.consumer.max.poll.record", "max.poll.records"),
    ("producer.linger.m", "linger.ms"),
    ("admin.client.rak", "client.rack"),
    ("num.stream.thread", "num.stream.threads"),
    ("aplication.id", "application.id"),
    ("security.protocoll", "security.protocol"),
]
KNOWN = {
    "producer.compression.type": "zstd",
    "consumer.fetch.min.bytes": 2,
    "linger.ms": 5,
    "max.request.size": 1_000_000,
    "statistics.interval.ms": 1_000,
    "consumer.queuing.strategy": "fifo",
    "restore.consumer.max.poll.records": 10,
    "restore.consumer.fetch.max.wait.ms": 10,
    "global.consumer.queuing.strategy": "fifo",
    "oauth_cb": print,
    "sasl.jaas.config": "${env:LOGIN}",
    "ssl.truststore.location": "/a/file.jks",
    "config.providers": "env",
    "topic.retention.ms": 5,
    "spark.ui.enabled": "true",
}


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(Serdes.bytes(), Serdes.bytes())).to("out")
    return builder.build()


def config_of(values: dict[str, Any]) -> StreamsConfig:
    return StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1", **values}, environment={})


@pytest.mark.parametrize(("key", "meant"), UNKNOWN)
def test_a_key_that_nobody_has_is_refused_by_the_test_driver(key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"Unknown configuration {key}: did you mean {meant}\?"):
        TopologyTestDriver(topology(), {key: "1"})


@pytest.mark.parametrize(("key", "meant"), UNKNOWN)
def test_a_key_that_nobody_has_is_refused_on_spark_before_anything_starts(key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"Unknown configuration {key}: did you mean {meant}\?"):
        KafkaStreams(topology(), config_of({key: "1"})).start()


def test_a_client_that_is_made_refuses_it_in_the_same_words() -> None:
    with pytest.raises(ConfigError, match=r"Unknown configuration fetch.min.byte: did you mean fetch.min.bytes\?"):
        ConfluentAdmin(config_of({"fetch.min.byte": 1}))


def test_keys_of_clients_are_taken_and_no_secret_is_looked_up() -> None:
    TopologyTestDriver(topology(), KNOWN).close()
    check_client_keys(config_of(KNOWN))


def test_a_key_that_changes_nothing_is_named_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock.config"):
        TopologyTestDriver(topology(), {"producer.buffer.memory": 1_000_000}).close()
    assert caplog.messages == ["The configuration producer.buffer.memory is ignored: set queue.buffering.max.kbytes."]


def test_the_test_driver_takes_keys_of_every_host_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """A test runs with the configuration of the program, and its host says what has no effect there."""
    with caplog.at_level(logging.WARNING, "penstock.config"):
        TopologyTestDriver(topology(), {"commit.interval.ms": 100, "penstock.poll.ms": 5}).close()
    assert caplog.messages == []


@pytest.mark.parametrize(("prefix", "warnings"), [("", 0), ("consumer.", 1)])
def test_keys_of_metrics_have_an_effect_without_the_prefix_of_a_client(
    prefix: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    check_client_keys(config_of({f"{prefix}metrics.recording.level": "DEBUG"}))
    expected = f"The configuration {prefix}metrics.recording.level is ignored: set it without a prefix."
    assert caplog.messages == [expected] * warnings


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("restore.consumer.fetch.min.bytes", "the prefix consumer. sets up all that reads topics"),
        ("global.consumer.fetch.min.bytes", "the prefix consumer. sets up the consumers of global stores too"),
    ],
)
def test_a_key_of_a_client_that_does_not_exist_here_is_named_with_the_reason(
    key: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock.config"):
        check_client_keys(config_of({key: 2}))
    assert caplog.messages == [f"The configuration {key} is ignored: {why}."]


def test_librdkafka_has_the_keys_that_are_suggested() -> None:
    assert [key for key in OF_LIBRDKAFKA if not (takes(CONSUMER, key) and takes(PRODUCER, key))] == []
