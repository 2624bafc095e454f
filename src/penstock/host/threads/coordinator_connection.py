"""The connection of a member to its group coordinator, for one request at a time."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.client.failures import Right
from penstock.client.settings import CONSUMER
from penstock.client.sockets.cluster import GROUP, Cluster
from penstock.client.sockets.connection import BrokerConnection
from penstock.config import StreamsConfig
from penstock.errors import RetriableError, StreamsError
from penstock.host.threads import member_messages as m
from penstock.host.threads.group_protocol import Request
from penstock_broker.wire.codec import Message

TIMEOUT_MS: Final = 5_000


class CoordinatorConnection:
    """Finds the coordinator and sends requests to it. Used by the membership thread; any thread may wake it.

    Args:
        config: configuration of the application.
        group: the group name.
    """

    def __init__(self, config: StreamsConfig, group: str) -> None:
        self._group = group
        self._right = Right("READ", "group", group)
        self._doing = f"being a member of the group {group!r}"
        self._cluster = Cluster(config, TIMEOUT_MS, CONSUMER)
        self._connection: BrokerConnection | None = None
        self._answer: tuple[Callable[[Message], m.MemberEvent], float] | None = None
        self._awake, self._waker = socket.socketpair()
        self._waker.setblocking(False)

    def wake(self) -> None:
        """End a wait; from any thread."""
        with suppress(OSError):  # already awake, or closed
            self._waker.send(b"\0")

    def send(self, request: Request) -> None:
        """Send a request; `receive` and `wait` return the outcome. An outstanding answer is dropped. Raises
        StreamsError, and closes the connection, if the request cannot be sent."""
        if self._answer is not None:
            self.disconnect()
        try:
            if self._connection is None:
                node = self._cluster.coordinator(GROUP, self._group, self._doing, self._right)
                self._connection = self._cluster.connect(node, self._doing)
            body = request.fields(self._connection.version(request.api))
            self._connection.send(request.api, body, self._doing)
        except StreamsError:
            self.disconnect()
            raise
        self._answer = request.take, time.monotonic() + (request.waits_ms + TIMEOUT_MS) / 1000

    def receive(self) -> m.MemberEvent | None:
        """Wait for the answer to the request and return it, None without a request."""
        if self._connection is None or self._answer is None:
            return None
        take, _ = self._answer
        self._answer = None
        try:
            return take(self._connection.receive(self._doing))
        except RetriableError:
            self.disconnect()
            return m.Disconnected()
        except StreamsError as error:
            self.disconnect()
            return m.Unusable(error)

    def wait(self, seconds: float) -> m.MemberEvent:
        """Return the next event: an answer, a timeout, or a tick after `seconds` or `wake`."""
        if self._connection is None or self._answer is None:
            self._sleep(None, seconds)
            return m.Tick()
        if self._connection.has_pending_bytes or self._sleep(self._connection, seconds):
            return self.receive() or m.Tick()
        if time.monotonic() >= self._answer[1]:
            self.disconnect()
            return m.Disconnected()
        return m.Tick()

    def _sleep(self, connection: BrokerConnection | None, seconds: float) -> bool:
        """Wait for `wake` or an answer, up to `seconds`; return whether an answer has arrived."""
        poll = select.poll()  # `select` supports file descriptors below 1,024 only
        for each in (self._awake,) if connection is None else (self._awake, connection):
            poll.register(each.fileno(), select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)}
        if self._awake.fileno() in ready:
            self._awake.recv(4096)
        return connection is not None and connection.fileno() in ready

    def check(self, code: int, message: str) -> None:
        """Raise the error for a refusal by the coordinator. message: from the coordinator."""
        self._cluster.check({"error_code": code, "error_message": message}, self._doing, self._right)

    def disconnect(self) -> None:
        """Close the connection; the next request finds the coordinator again."""
        self._answer = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Release all resources; safe to call again."""
        self._cluster.close()
        self._awake.close()
        self._waker.close()
