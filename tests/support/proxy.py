"""A proxy between clients and brokers that changes, loses or holds back answers, as a bad disk does."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from penstock_broker.batch import BatchHeader, read_header
from penstock_broker.wire.record_batches import HEADER_SIZE
from tests.support import api_keys

Change = Callable[[int, bytes], bytes | None]
"""Returns what clients get in place of an answer, given the key of its API; None to lose it."""

_HOST: Final = "127.0.0.1"
_NAMES_BROKERS: Final = frozenset((api_keys.METADATA, api_keys.FIND_COORDINATOR, api_keys.DESCRIBE_CLUSTER))
_SIZE: Final = struct.Struct(">i")
_PORT: Final = struct.Struct(">i")
_CORRELATION: Final = struct.Struct(">i")
_KEY_AND_CORRELATION: Final = struct.Struct(">hxxi")


class Proxy:
    """Stands before each broker of a cluster on this machine; a context manager that closes all connections."""

    def __init__(self, bootstrap_servers: str, change: Change) -> None:
        """Listen at one port for each broker.

        Args:
            bootstrap_servers: of all brokers.
            change: called with each answer, by the threads of all connections.
        """
        self._change = change
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self._listeners: list[socket.socket] = []
        self._ports: dict[bytes, bytes] = {}
        for server in bootstrap_servers.split(","):
            port = int(server.rpartition(":")[2])
            listener = socket.create_server((_HOST, 0))
            self._listeners.append(listener)
            # In each answer that names a broker, its port follows its host.
            for host in (_HOST, "localhost"):
                self._ports[host.encode() + _PORT.pack(port)] = host.encode() + _PORT.pack(listener.getsockname()[1])
            self._in_thread(lambda listener=listener, port=port: self._accept(listener, port))  # type: ignore[misc]  # defaults bind the loop's values

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
            left = [*self._listeners, *self._sockets]
        for each in left:
            _close(each)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the proxy."""
        return ",".join(f"{_HOST}:{listener.getsockname()[1]}" for listener in self._listeners)

    @staticmethod
    def _in_thread(run: Callable[[], None]) -> None:
        threading.Thread(target=run, name="proxy", daemon=True).start()

    def _accept(self, listener: socket.socket, port: int) -> None:
        with suppress(OSError):  # the proxy is closed
            while True:
                client, _ = listener.accept()
                try:
                    broker = socket.create_connection((_HOST, port))
                except OSError:  # the broker is away
                    _close(client)
                    continue
                with self._lock:
                    self._sockets |= {client, broker}
                    is_closed = self._is_closed
                if is_closed:
                    self._end(client, broker)
                asked: dict[int, int] = {}
                self._in_thread(lambda of=(client, broker, asked): self._ask(*of))  # type: ignore[misc]  # as above
                self._in_thread(lambda of=(client, broker, asked): self._answer(*of))  # type: ignore[misc]  # as above

    def _ask(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        with suppress(OSError):
            while True:
                request = _next_of(client)
                key, correlation_id = _KEY_AND_CORRELATION.unpack_from(request)
                asked[correlation_id] = key
                _send(broker, request)
        self._end(client, broker)

    def _answer(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        with suppress(OSError):
            while True:
                answer = _next_of(broker)
                key = asked.pop(_CORRELATION.unpack_from(answer)[0], -1)
                if key in _NAMES_BROKERS:
                    for port, ours in self._ports.items():
                        answer = answer.replace(port, ours)
                changed = self._change(key, answer)
                if changed is not None:
                    _send(client, changed)
        self._end(client, broker)

    def _end(self, *sockets: socket.socket) -> None:
        with self._lock:
            self._sockets -= set(sockets)
        for each in sockets:
            _close(each)


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)  # else a thread that waits for it keeps it open
    each.close()


def _next_of(source: socket.socket) -> bytes:
    """Return the next request or answer, without its size."""
    return _exactly(source, _SIZE.unpack(_exactly(source, _SIZE.size))[0])


def _send(target: socket.socket, message: bytes) -> None:
    target.sendall(_SIZE.pack(len(message)) + message)


def _exactly(source: socket.socket, number: int) -> bytes:
    content = bytearray()
    while len(content) < number:
        found = source.recv(min(number - len(content), 1 << 20))
        if not found:
            raise ConnectionResetError
        content += found
    return bytes(content)


def batch_at(answer: bytes, base_offset: int) -> tuple[int, BatchHeader] | None:
    """Return where the batch with a base offset begins in an answer to a Fetch, and its header; or None."""
    at = -1
    while (at := answer.find(struct.pack(">q", base_offset), at + 1)) >= 0:
        if len(answer) - at >= HEADER_SIZE:
            header = read_header(memoryview(answer)[at : at + HEADER_SIZE])
            if header.magic == 2 and HEADER_SIZE <= header.size <= len(answer) - at:
                return at, header
    return None
