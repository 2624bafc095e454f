"""From the application's configuration to that of a client."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from penstock.client.settings import ADMIN, CONSUMER, PRODUCER, RESTORE_CONSUMER, client_settings
from penstock.config import StreamsConfig
from penstock.errors import ConfigError


def settings(role: str, **given: Any) -> dict[str, Any]:
    keys = {key.replace("__", "."): value for key, value in given.items()}
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "broker:9092", **keys}, environment={})
    return client_settings(config, role)


@pytest.mark.parametrize("role", [CONSUMER, PRODUCER, ADMIN])
def test_any_key_of_librdkafka_passes_through(role: str) -> None:
    made = settings(role, security__protocol="SASL_SSL", sasl__password="pass")
    assert made["bootstrap.servers"] == "broker:9092"
    assert (made["security.protocol"], made["sasl.password"]) == ("SASL_SSL", "pass")


def test_a_key_with_the_prefix_of_a_role_is_for_that_role_and_overrides_the_plain_key() -> None:
    given: dict[str, Any] = {"consumer__socket__timeout__ms": 1, "producer__socket__timeout__ms": 2}
    given["socket__timeout__ms"] = 3
    assert settings(CONSUMER, **given)["socket.timeout.ms"] == 1
    assert settings(PRODUCER, **given)["socket.timeout.ms"] == 2
    assert settings(ADMIN, **given)["socket.timeout.ms"] == 3


def test_an_administrator_which_nobody_asks_for_statistics_makes_them_only_by_its_own_key() -> None:
    made = {
        role: settings(role, statistics__interval__ms=5).get("statistics.interval.ms") for role in (PRODUCER, ADMIN)
    }
    assert made == {PRODUCER: 5, ADMIN: None}
    assert settings(ADMIN, admin__statistics__interval__ms=7)["statistics.interval.ms"] == 7


def test_a_consumer_that_restores_has_keys_of_its_own_above_those_of_consumers() -> None:
    given: dict[str, Any] = {"consumer__fetch__min__bytes": 2, "restore__consumer__fetch__min__bytes": 3}
    made = {role: settings(role, **given) for role in (CONSUMER, RESTORE_CONSUMER)}
    assert {role: each.pop("fetch.min.bytes") for role, each in made.items()} == {CONSUMER: 2, RESTORE_CONSUMER: 3}
    assert made[RESTORE_CONSUMER] == made[CONSUMER]
    assert settings(RESTORE_CONSUMER, consumer__fetch__min__bytes=2)["fetch.min.bytes"] == 2
    assert "acks" not in settings(RESTORE_CONSUMER, acks="1")


def test_a_prefixed_key_does_not_reach_other_roles() -> None:
    made = settings(ADMIN, producer__acks="1", restore__consumer__fetch__min__bytes=2, spark__ui__enabled="true")
    assert not {key for key in made if "acks" in key or "fetch.min" in key or "spark" in key}


def test_defaults_can_be_overridden_under_either_name_of_a_key() -> None:
    assert settings(PRODUCER, linger__ms=50)["linger.ms"] == 50
    made = settings(PRODUCER, **{"queue.buffering.max.ms": 70})
    assert made["queue.buffering.max.ms"] == 70
    assert "linger.ms" not in made
    assert settings(CONSUMER, max__partition__fetch__bytes=9)["fetch.message.max.bytes"] == 9


@pytest.mark.parametrize(("role", "make"), [(CONSUMER, Consumer), (PRODUCER, Producer), (ADMIN, AdminClient)])
def test_a_client_does_not_get_keys_of_the_others_for_which_librdkafka_warns(
    role: str, make: Callable[[dict[str, Any]], Any], caplog: pytest.LogCaptureFixture
) -> None:
    keys: dict[str, Any] = {
        "session.timeout.ms": 20_000,
        "heartbeat.interval.ms": 2_000,
        "max.poll.interval.ms": 400_000,
        "group.instance.id": "one",
        "fetch.min.bytes": 2,
        "max.partition.fetch.bytes": 1_000_000,
        "acks": "all",
        "compression.type": "zstd",
        "linger.ms": 7,
        "delivery.timeout.ms": 5_000,
        "transaction.timeout.ms": 9_000,
        "statistics.interval.ms": 60_000,
    }
    made = settings(role, **keys, bootstrap__servers="localhost:1")
    with caplog.at_level(logging.DEBUG):
        client = make({**made, "logger": logging.getLogger("test.librdkafka")})
        client.poll(0)
    assert "CONFWARN" not in caplog.text


def test_a_key_of_other_clients_reaches_a_client_by_its_prefix() -> None:
    assert "fetch.min.bytes" not in settings(PRODUCER, fetch__min__bytes=2)
    assert settings(PRODUCER, producer__fetch__min__bytes=2)["fetch.min.bytes"] == 2


def test_names_of_the_java_clients_are_translated() -> None:
    assert settings(CONSUMER, fetch__max__wait__ms=7)["fetch.wait.max.ms"] == 7


def test_keys_that_penstock_owns_cannot_be_changed_and_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made = settings(CONSUMER, group__id="mine", consumer__enable__auto__commit="true")
    assert made["group.id"] == "app"
    assert made["enable.auto.commit"] is False


def test_keys_without_meaning_here_are_left_out_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for role in (CONSUMER, PRODUCER, CONSUMER):
            assert "rack.aware.assignment.strategy" not in settings(role, rack__aware__assignment__strategy="none")
    assert caplog.text.count("rack.aware.assignment.strategy") == 1


def test_the_push_of_metrics_to_brokers_can_be_turned_off_for_all_clients_or_one_kind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"enable__metrics__push": False, "producer__enable__metrics__push": True}
    with caplog.at_level(logging.WARNING):
        pushes = {role: settings(role, **given)["enable.metrics.push"] for role in (CONSUMER, PRODUCER, ADMIN)}
    assert pushes == {CONSUMER: False, PRODUCER: True, ADMIN: False}
    assert caplog.messages == []


def test_the_default_partitioner_is_that_of_kafka() -> None:
    assert settings(PRODUCER)["partitioner"] == "murmur2_random"


def test_a_producer_that_loses_its_last_broker_does_not_start_over_unless_the_user_says_so() -> None:
    key = "metadata.recovery.strategy"
    assert settings(PRODUCER)[key] == "none"
    assert settings(PRODUCER, metadata__recovery__strategy="rebootstrap")[key] == "rebootstrap"


def test_clients_are_named_after_the_application() -> None:
    assert settings(ADMIN)["client.id"] == "app-admin"
    assert settings(ADMIN, client__id="mine")["client.id"] == "mine-admin"


def test_without_brokers_the_error_names_the_key_and_the_command() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers.*penstock broker"):
        client_settings(StreamsConfig({}, environment={}), ADMIN)
