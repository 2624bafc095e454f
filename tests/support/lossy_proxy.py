"""A proxy between clients and brokers that loses answers while all connections stay open."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, Self

from tests.support import api_keys

GROUPS: Final = frozenset(
    (
        api_keys.JOIN_GROUP,
        api_keys.SYNC_GROUP,
        api_keys.HEARTBEAT,
        api_keys.OFFSET_COMMIT,
        api_keys.TXN_OFFSET_COMMIT,
    )
)
"""What members of a group ask its coordinator for."""

_HOST: Final = "127.0.0.1"
_NAMES_BROKERS: Final = frozenset((api_keys.METADATA, api_keys.FIND_COORDINATOR, api_keys.DESCRIBE_CLUSTER))
_SIZE: Final = struct.Struct(">i")
_PORT: Final = struct.Struct(">i")
_KEY_AND_CORRELATION: Final = struct.Struct(">hxxi")


class LossyProxy:
    """Stands before each broker of a cluster on this machine; a context manager that closes all connections."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Listen at one port for each broker that `bootstrap_servers` names."""
        self._lost: Collection[int] = frozenset()
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

    def lose_answers(self, to: Collection[int] = GROUPS) -> None:
        """Lose all answers to requests of these APIs from now on; the requests arrive."""
        self._lost = to

    def lose_nothing(self) -> None:
        """Pass on all answers from now on; those that were lost stay lost."""
        self._lost = frozenset()

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
                frame = _frame_of(client)
                key, correlation_id = _KEY_AND_CORRELATION.unpack_from(frame, _SIZE.size)
                asked[correlation_id] = key
                broker.sendall(frame)
        self._end(client, broker)

    def _answer(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        with suppress(OSError):
            while True:
                frame = _frame_of(broker)
                key = asked.pop(_SIZE.unpack_from(frame, _SIZE.size)[0], None)
                if key in self._lost:
                    continue
                if key in _NAMES_BROKERS:
                    for port, ours in self._ports.items():
                        frame = frame.replace(port, ours)
                client.sendall(frame)
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


def _frame_of(source: socket.socket) -> bytes:
    """Return the next frame, with its size."""
    size = _exactly(source, _SIZE.size)
    return size + _exactly(source, _SIZE.unpack(size)[0])


def _exactly(source: socket.socket, number: int) -> bytes:
    content = bytearray()
    while len(content) < number:
        found = source.recv(min(number - len(content), 1 << 20))
        if not found:
            raise ConnectionResetError
        content += found
    return bytes(content)
