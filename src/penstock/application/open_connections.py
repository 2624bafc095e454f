"""The open connections of a server, limited in number and in waiting time.

Either the server waits for the peer to send a request or to receive an answer, or the peer waits for an answer. Only
the server's wait has a timeout. If there are too many connections, the one with the longest wait is closed, so silent
connections cannot lock out others; if all of them are being answered, the newest is closed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from penstock.config import StreamsConfig
from penstock_broker.common.clock import elapsed_milliseconds
from penstock_broker.common.log_limits import limit_rate

_log = limit_rate(logging.getLogger(__name__))

HEAD_BYTES: Final = 16 * 1024
"""The maximum size of the head of a request in bytes, as in uvicorn."""

C = TypeVar("C", bound=Hashable)


class OpenConnections(Generic[C]):
    """The open connections of one server; thread-safe.

    Args:
        config: penstock.http.max.connections and penstock.http.timeout.ms are the limits.
        name: of the server, for the log.
        close: closes a connection, soon and in any state; the server then calls `closed`.
        milliseconds: a monotonic clock.
    """

    def __init__(
        self,
        config: StreamsConfig,
        name: str,
        close: Callable[[C], None],
        milliseconds: Callable[[], int] = elapsed_milliseconds,
    ) -> None:
        self._most: int = config["penstock.http.max.connections"]
        self._timeout_ms: int = config["penstock.http.timeout.ms"]
        self._name = name
        self._close = close
        self._milliseconds = milliseconds
        self._lock = threading.Lock()
        self._waiting: dict[C, int] = {}
        """The start of each connection's wait for its peer; the longest wait comes first."""
        self._answered: set[C] = set()

    def opened(self, connection: C) -> None:
        """Add a connection that waits for its peer; close one if there are too many."""
        with self._lock:
            self._waiting[connection] = self._milliseconds()
            if len(self._waiting) + len(self._answered) <= self._most:
                return
            late = next(iter(self._waiting))
            del self._waiting[late]
        _log.warning(
            "%s has %d open connections (penstock.http.max.connections): it closes the one that has waited for longest "
            "for a request.",
            self._name,
            self._most,
        )
        self._close(late)

    def waits(self, connection: C) -> None:
        """Mark a connection as waiting for its peer, if it was being answered."""
        with self._lock:
            if connection in self._answered:
                self._answered.remove(connection)
                self._waiting[connection] = self._milliseconds()

    def is_answered(self, connection: C) -> None:
        """Mark a connection as being answered."""
        with self._lock:
            if self._waiting.pop(connection, None) is not None:
                self._answered.add(connection)

    def closed(self, connection: C) -> None:
        """Remove a connection."""
        with self._lock:
            self._waiting.pop(connection, None)
            self._answered.discard(connection)

    def close_late(self) -> None:
        """Close the connections whose wait has timed out; called by the server about every second."""
        with self._lock:
            until = self._milliseconds() - self._timeout_ms
            late = [connection for connection, since in self._waiting.items() if since <= until]
            for connection in late:
                del self._waiting[connection]
        for connection in late:
            self._close(connection)

    def close_all(self) -> None:
        """Close all connections at the end of the server."""
        with self._lock:
            all_of_them = [*self._waiting, *self._answered]
            self._waiting.clear()
            self._answered.clear()
        for connection in all_of_them:
            self._close(connection)
