"""A proxy before a broker that changes or holds back answers, as a bad disk or a slow broker does."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from penstock.broker.batch import BatchHeader, read_header
from penstock.wire.record_batches import HEADER_SIZE

FETCH = 1
_NAMES_ADDRESSES = frozenset((3, 10, 60))
"""Metadata, FindCoordinator, DescribeCluster: their answers name the port of the broker."""

Change = Callable[[int, bytes], bytes]
"""Returns what clients get in place of an answer, given the key of its API."""


class Proxy:
    """Stands between clients and the broker at 127.0.0.1:`port`.

    Args:
        port: the broker's.
        change: called with the key of the API and each answer, by the threads of all connections.
    """

    def __init__(self, port: int, change: Change) -> None:
        self._port = port
        self._change = change
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._is_closed = False

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find the broker through this proxy."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for each in list(self._open):
            _end(each)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._port))
            self._open |= {client, broker}
            asked: dict[int, int] = {}
            for pump in (self._requests, self._answers):
                threading.Thread(target=pump, args=(client, broker, asked), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        while (request := self._read(client, broker)) is not None:
            key, _, correlation = struct.unpack_from(">hhi", request)
            asked[correlation] = key
            self._write(broker, request)

    def _answers(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        while (answer := self._read(broker, client)) is not None:
            key = asked.pop(struct.unpack_from(">i", answer)[0], -1)
            if key in _NAMES_ADDRESSES:
                answer = answer.replace(struct.pack(">i", self._port), struct.pack(">i", self.port))
            self._write(client, self._change(key, answer))

    def _read(self, source: socket.socket, other: socket.socket) -> bytes | None:
        """Return the next message of `source`, None after its end, which is that of `other` too."""
        size = _exactly(source, 4)
        message = None if size is None else _exactly(source, struct.unpack(">i", size)[0])
        if message is None:
            for each in (source, other):
                self._open.discard(each)
                _end(each)
        return message

    @staticmethod
    def _write(target: socket.socket, message: bytes) -> None:
        with suppress(OSError):
            target.sendall(struct.pack(">i", len(message)) + message)


def _exactly(source: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        try:
            more = source.recv(size - len(found))
        except OSError:
            return None
        if not more:
            return None
        found += more
    return bytes(found)


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


def batch_at(answer: bytes, base_offset: int) -> tuple[int, BatchHeader] | None:
    """Return where the batch with a base offset begins in an answer to a Fetch, and its header; or None."""
    at = -1
    while (at := answer.find(struct.pack(">q", base_offset), at + 1)) >= 0:
        if len(answer) - at >= HEADER_SIZE:
            header = read_header(memoryview(answer)[at : at + HEADER_SIZE])
            if header.magic == 2 and HEADER_SIZE <= header.size <= len(answer) - at:
                return at, header
    return None
