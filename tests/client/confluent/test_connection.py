"""What all clients share: their settings, repeated calls, and errors."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from penstock.client.confluent import ConfluentProducer
from penstock.client.confluent import connection as connection_module
from penstock.client.confluent.connection import Background, ClientConnection, is_silence
from penstock.config import StreamsConfig
from penstock.errors import (
    AuthenticationError,
    BrokerNotFoundError,
    ConfigError,
    CorruptRecordError,
    GroupAuthorizationError,
    KafkaError,
    OffsetOutOfRangeError,
    RetriableError,
    StreamsError,
    UnknownTopicOrPartitionError,
)
from tests.client.confluent.records import raise_code


@pytest.mark.parametrize(
    ("key", "value"), [("sasl.passwort", "hunter2"), ("security.protocol", "hunter2"), ("ssl.ca.pem", "hunter2")]
)
def test_a_key_that_the_client_refuses_is_named_and_its_value_is_not(key: str, value: str) -> None:
    with pytest.raises(StreamsError) as refused:
        ConfluentProducer(StreamsConfig({"bootstrap.servers": "x:1", "security.protocol": "SSL", key: value}))
    assert isinstance(refused.value, ConfigError | KafkaError)
    assert value not in f"{refused.value}{refused.value.__cause__}"


def test_a_call_is_made_again_while_the_broker_lags_behind_the_client() -> None:
    connection = ClientConnection({"bootstrap.servers": "localhost:1"}, 60_000)
    answers = [KafkaException(Code(Code.UNKNOWN_LEADER_EPOCH)), KafkaException(Code(Code.FENCED_LEADER_EPOCH)), None]

    def ask() -> str:
        refusal = answers.pop(0)
        if refusal is not None:
            raise refusal
        return "answer"

    assert connection.call("asking", ask) == "answer"


@pytest.mark.parametrize(
    "code",
    [
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.NOT_LEADER_FOR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.OFFSET_NOT_AVAILABLE,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.REQUEST_TIMED_OUT,
        Code._TRANSPORT,
        Code._TIMED_OUT,
        Code._ALL_BROKERS_DOWN,
    ],
)
def test_a_passing_error_is_reported_as_one(code: int) -> None:
    connection = ClientConnection({"bootstrap.servers": "localhost:1"}, 0)
    with pytest.raises(RetriableError):
        connection.call("asking", lambda: raise_code(code))
    with pytest.raises(KafkaError) as refused:
        connection.call("asking", lambda: raise_code(Code.TOPIC_AUTHORIZATION_FAILED))
    assert not isinstance(refused.value, RetriableError)


def test_a_client_that_cannot_go_on_hides_no_error() -> None:
    """confluent-kafka raises what ends a client wherever its reports are taken."""
    connection = ClientConnection({"bootstrap.servers": "localhost:1"}, 0)
    connection.serve = lambda _: raise_code(Code.INVALID_TXN_STATE)
    with pytest.raises(BrokerNotFoundError):
        connection.call("committing", lambda: raise_code(Code._TIMED_OUT))


NOWHERE = {"bootstrap.servers": "localhost:1"}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code._UNKNOWN_PARTITION, UnknownTopicOrPartitionError),
        (Code._AUTO_OFFSET_RESET, OffsetOutOfRangeError),
        (Code._BAD_COMPRESSION, CorruptRecordError),
        (Code._MSG_TIMED_OUT, RetriableError),
        (Code._TRANSPORT, BrokerNotFoundError),
        (Code._AUTHENTICATION, AuthenticationError),
        (Code.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError),
        (Code.INVALID_TXN_STATE, KafkaError),
    ],
)
def test_codes_of_librdkafka_are_errors_of_penstock(code: int, error: type[KafkaError]) -> None:
    with pytest.raises(error, match="asking") as caught:
        ClientConnection(NOWHERE, 0).fail(Code(code), "asking")
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("codes", "kept"),
    [
        ((Code._TRANSPORT, Code._ALL_BROKERS_DOWN), Code._TRANSPORT),
        ((Code._TRANSPORT, Code._RESOLVE), Code._RESOLVE),
        ((Code._AUTHENTICATION, Code._TRANSPORT), Code._AUTHENTICATION),
        ((Code.CLUSTER_AUTHORIZATION_FAILED, Code._TRANSPORT), Code.CLUSTER_AUTHORIZATION_FAILED),
        ((Code.CLUSTER_AUTHORIZATION_FAILED, Code._SSL), Code._SSL),
    ],
)
def test_the_error_that_tells_most_is_kept(codes: tuple[int, ...], kept: int) -> None:
    background = Background()
    for code in codes:
        background.notice(Code(code))
    assert background.noticed is not None
    assert background.noticed.code() == kept


def test_a_refused_login_in_the_background_is_the_reason_of_silence() -> None:
    connection = ClientConnection(NOWHERE, 0)

    def ask() -> None:
        connection.settings["error_cb"](Code(Code._TRANSPORT, "SSL handshake failed: certificate unknown"))
        raise_code(Code._TIMED_OUT)

    with pytest.raises(AuthenticationError, match="certificate unknown"):
        connection.call("asking", ask)
    connection.call("asking again", lambda: None)
    assert connection.noticed is None


def test_the_end_of_throttling_is_the_latest_that_was_reported() -> None:
    background = Background()
    for seconds in (3_600.0, 5.0):
        background.throttle(SimpleNamespace(throttle_time=seconds))  # type: ignore[arg-type]  # an event
    assert background.throttled_until > time.monotonic() + 3_000


def test_a_client_without_an_answer_is_silent() -> None:
    assert is_silence(TimeoutError())
    assert is_silence(KafkaException(Code(Code._TRANSPORT)))
    assert not is_silence(KafkaException(Code(Code.NOT_COORDINATOR)))


def test_silence_names_the_time_of_the_wait_and_not_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 5.0)
    monkeypatch.setattr(connection_module, "time", clock)
    connection = ClientConnection({"bootstrap.servers": "localhost:1"}, 60_000)
    clock.monotonic = lambda: 100.0
    connection.asks()
    clock.monotonic = lambda: 120.5
    with pytest.raises(BrokerNotFoundError, match=r"localhost:1 answered within 20500 ms \(writing\)"):
        connection.fail(Code(Code._ALL_BROKERS_DOWN), "writing")
