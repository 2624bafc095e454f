"""The limits of connections to the ports that an application listens on: of their number, and of their time."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Protocol
from urllib.request import urlopen

import pytest

from penstock import KafkaStreams
from penstock.application.open_connections import HEAD_BYTES, OpenConnections
from penstock.tools.ui import routes
from penstock.tools.ui.server import UiServer
from tests.application.test_open_connections import limits
from tests.support.waiting import until
from tests.tools.ui.conftest import CONFIG, UiHost, word_count

PORTS = ("penstock.ui.port", "penstock.metrics.prometheus.port")


class Port(Protocol):
    """A port of an application that listens."""

    def connect(self, said: bytes = b"") -> socket.socket: ...

    def works(self) -> bool: ...

    def close(self) -> None: ...


class _Port:
    def __init__(self, port: int, stack: ExitStack, close: Callable[[], object]) -> None:
        self.close = close
        self._port = port
        self._stack = stack

    def connect(self, said: bytes = b"") -> socket.socket:
        """Return a connection that has said something, or nothing."""
        connection = self._stack.enter_context(socket.create_connection(("127.0.0.1", self._port), 60))
        connection.sendall(said)
        return connection

    def works(self) -> bool:
        with urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=60) as answer:
            return bool(answer.status == 200 and b"kafka_streams" in answer.read())


@pytest.fixture(params=PORTS)
def port_with(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Port]]:
    """A function that starts an application with these limits, and returns its port for the pages or the metrics."""
    host = UiHost()
    monkeypatch.setattr("penstock.streams.open_host", host.open)
    with ExitStack() as stack:

        def start(**limits: Any) -> Port:
            streams = KafkaStreams(word_count(), {**CONFIG, request.param: 0, **limits})
            stack.callback(streams.close)
            streams.start()
            (server,) = streams._servers
            if isinstance(server, UiServer):
                return _Port(int(server.address.rstrip("/").rpartition(":")[2]), stack, streams.close)
            return _Port(server.port, stack, streams.close)

        yield start


def is_closed(connection: socket.socket) -> bool:
    """Return whether the application closes a connection, after what it still sends."""
    with suppress(ConnectionResetError):
        while connection.recv(65_536):
            pass
    return True


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
def test_connections_that_say_nothing_keep_nobody_out(port_with: Callable[..., Port], said: bytes) -> None:
    port = port_with(**limits(most=16))
    silent = [port.connect(said) for _ in range(40)]
    assert port.works()
    assert all(is_closed(each) for each in silent[:24])
    assert port.works()


HEAD = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def test_a_connection_that_sends_no_whole_request_in_time_is_closed(port_with: Callable[..., Port]) -> None:
    port = port_with(**limits(timeout_ms=200), **{"penstock.ui.control": "true"})
    body = b"POST /control HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n1"
    after_an_answer = b"%b\r\n" % HEAD, b"%b\r\nGET /metrics HTTP/1.1\r\nX: " % HEAD
    connections = [port.connect(said) for said in (b"", HEAD, body, *after_an_answer)]
    assert all(map(is_closed, connections))
    assert port.works()


def test_a_connection_that_sends_a_byte_now_and_then_is_closed(port_with: Callable[..., Port]) -> None:
    connection = port_with(**limits(timeout_ms=200)).connect(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")

    def sends() -> bool:
        connection.sendall(b"x")
        return True

    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        until(lambda: not sends())


def test_a_connection_that_does_not_take_its_answer_is_closed(
    port_with: Callable[..., Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"x" * 16 * 1024 * 1024
    monkeypatch.setattr(routes, "exposition", lambda metrics: (text.decode(), "text/plain"))
    monkeypatch.setattr("penstock.application.prometheus.make_wsgi_app", lambda registry: _answering(text))
    port = port_with(**limits(timeout_ms=200))
    ended = threading.Event()
    monkeypatch.setattr(OpenConnections, "closed", _then(OpenConnections.closed, ended.set))
    connection = port.connect(b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
    assert ended.wait(60)
    taken = 0
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            taken += len(part)
    assert taken < len(text)


@pytest.mark.parametrize("port_with", ["penstock.ui.port"], indirect=True)
def test_a_connection_that_does_not_follow_its_page_is_closed(
    port_with: Callable[..., Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sections(routes: Any, page: Any, request: Any) -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1024 * 1024
            await asyncio.sleep(0)

    ended = threading.Event()
    monkeypatch.setattr("penstock.tools.ui.routes._Routes._sections", sections)
    monkeypatch.setattr(OpenConnections, "closed", _then(OpenConnections.closed, ended.set))
    port = port_with(**limits(timeout_ms=200))
    port.connect(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert ended.wait(60)
    assert port.works()


def _answering(text: bytes) -> Callable[..., list[bytes]]:
    def app(environ: Any, start_response: Callable[..., Any]) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [text]

    return app


def _then(call: Callable[..., None], after: Callable[[], None]) -> Callable[..., None]:
    def both(*arguments: Any) -> None:
        call(*arguments)
        after()

    return both


def test_a_head_that_is_too_long_ends_its_connection(port_with: Callable[..., Port]) -> None:
    port = port_with(**limits())
    connection = port.connect(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
    with suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(b"x" * (2 * HEAD_BYTES))
    assert is_closed(connection)
    assert port.works()


def test_connections_end_with_the_application(port_with: Callable[..., Port]) -> None:
    port = port_with(**limits())
    silent = [port.connect() for _ in range(3)]
    assert port.works()
    port.close()
    assert all(map(is_closed, silent))
