"""The errors of requests: their classes and texts, in which no value of a setting is."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.failures import FORBIDDEN, Failures, Right
from penstock.errors import (
    CorruptRecordError,
    KafkaError,
    OffsetOutOfRangeError,
    RetriableError,
    TopicAuthorizationError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)

SERVERS = {"bootstrap.servers": "one:9092"}
SECRETS = {"sasl.username": "the-user", "sasl.password": "the-password", "ssl.key.pem": "the-key"}


def failures(**settings: Any) -> Failures:
    return Failures({**SERVERS, **{key.replace("_", "."): value for key, value in settings.items()}})


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, OffsetOutOfRangeError),
        (2, CorruptRecordError),
        (3, UnknownTopicOrPartitionError),
        (29, TopicAuthorizationError),
        (36, TopicExistsError),
        (42, KafkaError),
    ],
)
def test_the_class_of_an_error_follows_from_its_code(code: int, kind: type[KafkaError]) -> None:
    error = failures().answer(code, "the reason", "asking")
    assert type(error) is kind
    assert "the reason" in str(error)
    assert "asking" in str(error)


def test_only_an_error_without_its_own_class_is_retriable() -> None:
    assert type(failures().answer(42, "x", "asking", is_passing=True)) is RetriableError
    assert type(failures().answer(36, "x", "asking", is_passing=True)) is TopicExistsError


def test_a_missing_right_is_named_with_the_command_that_grants_it() -> None:
    needs = Right("READ", "group", "g"), Right("WRITE", "topic", "t")
    said = str(failures(sasl_mechanism="plain", security_protocol="sasl_ssl").answer(29, "x", "asking", *needs))
    assert "do not allow WRITE on the topic t to the user of sasl.username: x." in said
    assert "kafka-acls --add --operation WRITE --topic t)" in said


@pytest.mark.parametrize("code", FORBIDDEN)
def test_an_unknown_right_is_named_by_its_kind(code: int) -> None:
    kind, resource = FORBIDDEN[code]
    error = failures().answer(code, "x", "asking")
    assert type(error) is kind
    assert f"the necessary operation on a {resource} to the user of no login" in str(error)


@pytest.mark.parametrize(
    ("right", "shown"),
    [
        (Right("READ", "topic", "t"), "READ on the topic t"),
        (Right("WRITE", "transactional-id", "x"), "WRITE on the transactional id x"),
        (Right("ALTER", "cluster", ""), "ALTER on the cluster"),
    ],
)
def test_a_right_is_shown_as_in_acls(right: Right, shown: str) -> None:
    assert str(right) == shown


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({}, "security.protocol=PLAINTEXT, ssl.ca.location"),
        ({"security_protocol": "sasl_plaintext", "sasl_mechanisms": "plain"}, "sasl.mechanism=PLAIN, sasl.username"),
        ({"security_protocol": "sasl_ssl", "sasl_mechanism": "oauthbearer"}, "the token, ssl.ca.location"),
    ],
)
def test_a_refused_login_names_the_keys_that_may_be_wrong(settings: dict[str, str], keys: str) -> None:
    said = str(failures(**settings).login("asking", "refused"))
    assert said.startswith("Cannot log in at bootstrap.servers=one:9092 (asking): refused. Check security.protocol=")
    assert keys in said


@pytest.mark.parametrize("protocol", ["ssl", "sasl_ssl"])
def test_no_error_has_the_value_of_a_setting(protocol: str) -> None:
    made = Failures({**SERVERS, **SECRETS, "security.protocol": protocol, "ssl.certificate.pem": "the-key"})
    errors = [
        made.login("a", "b"),
        made.silence("a", "b", 0.5),
        *(made.answer(code, "b", "a") for code in (1, 2, 3, 29, 36)),
    ]
    assert not [error for error in errors if any(secret in str(error) for secret in SECRETS.values())]
    assert "answered within 500 ms (a): b." in str(errors[1])
