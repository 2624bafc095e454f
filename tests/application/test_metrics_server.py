"""The HTTP server for metrics: one answer a connection, and none without the head of a request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from penstock.application.metrics_server import MetricsServer
from penstock.application.open_connections import HEAD_BYTES
from penstock.config import StreamsConfig

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"


def shout(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].upper().encode()]


@pytest.fixture
def port() -> Iterator[int]:
    server = MetricsServer("127.0.0.1", 0, shout, StreamsConfig({}, environment={}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def answer(port: int, *parts: bytes) -> bytes:
    """Return the answer to a request that is sent in these parts, until the server closes the connection."""
    found = b""
    with (
        socket.create_connection(("127.0.0.1", port), 60) as connection,
        suppress(OSError),
    ):  # the server may close first
        for part in parts:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        while received := connection.recv(4096):
            found += received
    return found


def test_a_request_may_arrive_in_parts(port: int) -> None:
    for parts in ([REQUEST], [REQUEST[:10], REQUEST[10:]], [REQUEST.replace(b"\r\n", b"\n")]):
        head, _, body = answer(port, *parts).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200 OK")
        assert body == b"/METRICS"


@pytest.mark.parametrize(
    "request_", [b"", REQUEST[:-2], b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * HEAD_BYTES + b"\r\n\r\n"]
)
def test_a_head_that_is_incomplete_or_too_long_has_no_answer(port: int, request_: bytes) -> None:
    assert answer(port, request_) == b""


def test_silent_connections_do_not_keep_others_waiting(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 60), socket.create_connection(("127.0.0.1", port), 60):
        assert answer(port, REQUEST).endswith(b"/METRICS")


def test_a_port_that_is_taken_is_an_error(port: int) -> None:
    with pytest.raises(OSError, match="in use"):
        MetricsServer("127.0.0.1", port, shout, StreamsConfig({}, environment={}))
