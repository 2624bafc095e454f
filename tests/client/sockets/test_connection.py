"""A connection to a broker: versions, answers that do not come, and answers that cannot be read."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from penstock.client.sockets.cluster import METADATA, parsed_servers
from penstock.client.sockets.connection import Api, BrokerConnection, ConnectionSettings
from penstock.errors import BrokerNotFoundError, ConfigError, KafkaError
from penstock_broker.process import BrokerProcess
from penstock_broker.wire.codec import Message, response_encoder
from penstock_broker.wire.primitives import Sink
from tests.support.brokers import RunningBroker

DOING = "asking"
VERSIONS = [{"api_key": 3, "min_version": 0, "max_version": 12}, {"api_key": 18, "min_version": 0, "max_version": 0}]


def connection_settings(**keys: object) -> ConnectionSettings:
    given = {key.replace("_", "."): value for key, value in keys.items()}
    return ConnectionSettings({"bootstrap.servers": "127.0.0.1:1", **given}, 20_000)


def frame(correlation_id: int, key: int, version: int, body: Message) -> bytes:
    sink = Sink()
    response_encoder(key, version)(sink, body)
    content = struct.pack(">i", correlation_id) + b"".join(bytes(chunk) for chunk in sink.chunks)
    return struct.pack(">i", len(content)) + content


@contextmanager
def answering(answer: Callable[[int, int, int], bytes | None]) -> Iterator[int]:
    """A server that answers each request with the bytes of `answer`(API key, version, correlation id), closes the
    connection on None, and yields its port."""

    def serve() -> None:
        with listener:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with accepted:
                while size := accepted.recv(4, socket.MSG_WAITALL):
                    request = accepted.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
                    content = answer(*struct.unpack_from(">hhi", request))
                    if content is None:
                        return
                    accepted.sendall(content)

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    thread.join(20)


@contextmanager
def connected(then: Callable[[int], bytes | None], **keys: object) -> Iterator[BrokerConnection]:
    """A connection to a server that is an `old_broker`."""
    with (
        answering(old_broker(then)) as port,
        BrokerConnection("127.0.0.1", port, connection_settings(**keys), DOING) as connection,
    ):
        yield connection


def old_broker(then: Callable[[int], bytes | None]) -> Callable[[int, int, int], bytes | None]:
    """Return what a broker answers that knows ApiVersions 0 alone; `then` answers all other requests by their id."""

    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        if key != 18:
            return then(correlation_id)
        if version > 0:
            return frame(correlation_id, 18, 0, {"error_code": 35, "api_keys": VERSIONS[1:]})
        return frame(correlation_id, 18, 0, {"api_keys": VERSIONS})

    return answer


def test_both_sides_agree_on_the_newest_version(broker: RunningBroker) -> None:
    [(host, port)] = parsed_servers(broker.bootstrap_servers)
    with BrokerConnection(host, port, connection_settings(), DOING) as connection:
        assert connection.version(METADATA) == 12
        assert connection.version(METADATA._replace(newest=9)) == 9
        assert len(connection.call(METADATA, {"topics": []}, DOING)["brokers"]) == 1
        with pytest.raises(KafkaError, match="Metadata; this client needs a version from 99 to 100"):
            connection.version(Api("Metadata", 3, 99, 100))
        with pytest.raises(KafkaError, match="does not have the API Fancy"):
            connection.version(Api("Fancy", 999, 0, 1))
    assert connection.is_closed


def test_a_broker_that_does_not_know_the_version_of_api_versions_is_asked_in_the_oldest() -> None:
    with connected(lambda _: None) as connection:
        assert connection.version(METADATA) == 12
        with pytest.raises(BrokerNotFoundError, match="it closed the connection"):
            connection.call(METADATA, {"topics": []}, DOING)
        assert connection.is_closed


BROKEN: dict[str, tuple[Callable[[int], bytes], str]] = {
    "too large": (lambda _: struct.pack(">i", 5_000), r"receive\.message\.max\.bytes is 2000"),
    "too small": (lambda _: struct.pack(">i", 3), "an answer of 3 bytes"),
    "of another request": (lambda n: frame(n + 1, 3, 12, {}), "an answer to another request"),
    "torn": (lambda n: struct.pack(">iib", 6, n, 0) + b"\x00", "cannot be read"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_answer_that_cannot_be_read_closes_the_connection(case: str) -> None:
    content, said = BROKEN[case]
    with connected(content, receive_message_max_bytes=2000) as connection:
        with pytest.raises(BrokerNotFoundError, match=said):
            connection.call(METADATA, {"topics": []}, DOING)
        assert connection.is_closed


def test_a_broker_that_does_not_answer_is_not_waited_for_without_end() -> None:
    with connected(lambda _: b"") as connection:
        with pytest.raises(BrokerNotFoundError, match="no answer came in time"):
            connection.call(METADATA, {"topics": []}, DOING, timeout_ms=50)
        assert connection.is_closed


def test_a_broker_that_is_away_is_named() -> None:
    with pytest.raises(BrokerNotFoundError, match=r"bootstrap\.servers=127\.0\.0\.1:1 .*\(asking\).*refused"):
        BrokerConnection("127.0.0.1", 1, connection_settings(), DOING)


def test_another_protocol_than_that_of_the_listener_is_named(embedded_broker: BrokerProcess) -> None:
    [(host, port)] = parsed_servers(embedded_broker.bootstrap_servers)
    given = ConnectionSettings({"bootstrap.servers": f"{host}:{port}", "security.protocol": "ssl"}, 20_000)
    with pytest.raises(KafkaError, match=r"security\.protocol=SSL"):
        BrokerConnection(host, port, given, DOING)
    with pytest.raises(ConfigError, match=r"security\.protocol"):
        ConnectionSettings({"bootstrap.servers": "a", "security.protocol": "tls"}, 1)


def test_requests_without_an_answer_cannot_be_read() -> None:
    with connected(lambda _: None) as connection, pytest.raises(RuntimeError, match="no request"):
        connection.receive(DOING)
