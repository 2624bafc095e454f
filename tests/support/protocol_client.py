"""A client of Kafka's protocol that sends whatever a test wants, right or wrong, over a plain socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from penstock_broker.apis import APIS
from penstock_broker.wire.codec import Message, is_flexible, request_encoder, response_decoder
from penstock_broker.wire.primitives import Cursor, Sink
from tests.support.api_keys import API_VERSIONS

TIMEOUT_SECONDS: Final = 60


def versions_of(key: int) -> range:
    """Return the versions of an API that the embedded broker serves."""
    return range(APIS[key].min_version, APIS[key].max_version + 1)


def _connected(address: str) -> socket.socket:
    """Return a connection to a broker."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS)


def _connected_to_one(addresses: Sequence[str]) -> socket.socket | None:
    """Return a connection to the first broker that accepts one, None if all refuse: brokers may just start."""
    for address in addresses:
        with suppress(ConnectionRefusedError):
            return _connected(address)
    return None


class ProtocolClient:
    """One connection to a broker; a context manager that closes it.

    Args:
        bootstrap_servers: addresses of brokers; the first that accepts a connection is used.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        *first, last = bootstrap_servers.split(",")
        self.socket = _connected_to_one(first) or _connected(last)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def call(self, key: int, version: int, body: Message) -> Message:
        """Send a request and return its response."""
        self.send(key, version, body)
        return self.receive(key, version)

    def send(self, key: int, version: int, body: Message) -> None:
        """Send a request."""
        sink = Sink()
        request_encoder(key, version)(sink, body)
        self.send_frame(self.header(key, version) + b"".join(bytes(chunk) for chunk in sink.chunks))

    def header(self, key: int, version: int) -> bytes:
        """Return the header of the next request."""
        self._correlation_id += 1
        header = struct.pack(">hhih", key, version, self._correlation_id, 4) + b"test"
        return header + b"\x00" if is_flexible(key, version) else header

    def send_frame(self, content: bytes) -> None:
        """Send bytes with their length in front."""
        self.socket.sendall(struct.pack(">i", len(content)) + content)

    def receive(self, key: int, version: int) -> Message:
        """Return the next response, which must be to the last request."""
        content = self.receive_frame()
        correlation_id: int = struct.unpack_from(">i", content)[0]
        assert correlation_id == self._correlation_id
        cursor = Cursor(memoryview(bytearray(content)))
        cursor.take(4)
        if key != API_VERSIONS and is_flexible(key, version):
            cursor.skip_tagged_fields()
        message: dict[str, Any] = response_decoder(key, version)(cursor)
        assert cursor.position == len(content)
        return message

    def receive_frame(self) -> bytes:
        """Return the bytes of the next frame.

        Raises:
            ConnectionError: the broker closed the connection.
        """
        size: int = struct.unpack(">i", self._receive_exactly(4))[0]
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            data += chunk
        return bytes(data)
