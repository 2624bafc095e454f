"""The limits of connections to the ports that an application listens on: of their number, and of their time."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any, Protocol
from urllib.request import urlopen

import pytest

from penstock import KafkaStreams
from penstock.application.open_connections import HEAD_BYTES, OpenConnections
from penstock.config import StreamsConfig
from penstock.tools.ui import routes
from penstock.tools.ui.server import UiServer
from penstock_broker.common.clock import MockClock
from tests.support.waiting import until
from tests.tools.ui.conftest import CONFIG, UiHost, word_count

PORTS = ("penstock.ui.port", "penstock.metrics.prometheus.port")
LATER_MS = 3_600_000


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


def limits(most: int = 100, timeout_ms: int = LATER_MS) -> Mapping[str, Any]:
    return {"penstock.http.max.connections": most, "penstock.http.timeout.ms": timeout_ms}


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


class Opened:
    """The open connections of a server of names, with a clock of its own."""

    def __init__(self, **given: Any) -> None:
        self.clock = MockClock(1_000)
        self.ended: list[str] = []
        config = StreamsConfig(given, environment={})
        self.open = OpenConnections[str](config, "The port", self.ended.append, self.clock.milliseconds)

    def after(self, milliseconds: int) -> list[str]:
        """Let time pass, and return the connections that are closed then."""
        self.clock.advance(milliseconds)
        self.open.close_late()
        ended, self.ended[:] = [*self.ended], []
        return ended


def test_of_too_many_connections_the_one_that_has_waited_for_longest_is_closed() -> None:
    opened = Opened(**limits(most=3))
    for name in "abc":
        opened.open.opened(name)
    opened.open.is_answered("a")
    opened.open.is_answered("b")
    opened.open.waits("a")  # for the next request
    opened.open.opened("d")
    assert opened.ended == ["c"]
    for name in "ad":
        opened.open.is_answered(name)
    opened.open.opened("e")
    assert opened.ended == ["c", "e"], "all others are being answered"
    opened.open.closed("b")
    opened.open.opened("f")
    assert opened.ended == ["c", "e"]


def test_only_the_time_counts_in_which_the_peer_has_to_do_something() -> None:
    opened = Opened(**limits(timeout_ms=1_000))
    opened.open.opened("silent")
    opened.open.opened("asking")
    opened.open.is_answered("asking")
    assert opened.after(999) == []
    opened.open.waits("silent")  # it has sent a byte
    assert opened.after(1) == ["silent"]
    assert opened.after(LATER_MS) == []
    opened.open.waits("asking")
    assert opened.after(999) == []
    opened.open.closed("silent")
    assert opened.after(1) == ["asking"]
    assert opened.after(LATER_MS) == []
