"""A small HTTP server for metrics: one thread and one request per connection.

Connections have the limits of `open_connections`.
"""

from __future__ import annotations

import io
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from penstock.application.open_connections import HEAD_BYTES, OpenConnections
from penstock.config import StreamsConfig

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

_log = logging.getLogger(__name__)

_PIECE: Final = 4096


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Serves from `serve_forever` until `shutdown`; listens on construction.

    Args:
        host: the address to listen on.
        port: the port; 0 for a free one.
        application: the WSGI application.
        config: the limits of the connections.

    Raises:
        OSError: listening is not possible.
    """

    daemon_threads = True
    request_queue_size = 128  # a burst of connections must not make others wait for the kernel's next SYN retry

    def __init__(self, host: str, port: int, application: WSGIApplication, config: StreamsConfig) -> None:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, (address, *_) = infos[0]
        self.connections = OpenConnections[socket.socket](config, "The port of the metrics", _hang_up)
        self.timeout_seconds: float = config["penstock.http.timeout.ms"] / 1000
        super().__init__((str(address), port), _Handler)
        self.set_app(application)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread."""
        self.connections.opened(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self.connections.closed(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close late connections; called twice a second."""
        self.connections.close_late()

    def server_close(self) -> None:
        """Stop listening, and close the connections."""
        super().server_close()
        self.connections.close_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the failure of a connection, usually a disconnect of its peer."""
        _log.debug("A connection to the port of the metrics failed.", exc_info=True)


class _Handler(WSGIRequestHandler):
    """Answers the request of a connection."""

    def handle(self) -> None:
        """Read the head of the request, and answer it."""
        server = cast(MetricsServer, self.server)
        head = _head_from(self.connection.recv)
        if head is None:
            return
        server.connections.is_answered(self.connection)
        self.connection.settimeout(server.timeout_seconds)  # the total time for sending the answer
        self.rfile = io.BytesIO(head)
        super().handle()

    def log_message(self, format: str, *args: Any) -> None:  # the parameter name of the base class
        """Log nothing."""


def _head_from(receive: Callable[[int], bytes]) -> bytes | None:
    """Return the head of a request; None if it is incomplete or too long."""
    head = b""
    while b"\r\n\r\n" not in head and b"\n\n" not in head:
        part = receive(_PIECE)
        head += part
        if not part or len(head) > HEAD_BYTES:
            return None
    return head


def _hang_up(connection: socket.socket) -> None:
    """Wake the thread of a connection, which then closes it."""
    with suppress(OSError):  # the peer has disconnected
        connection.shutdown(socket.SHUT_RDWR)
