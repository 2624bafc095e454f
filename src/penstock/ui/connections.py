"""Connections of uvicorn that end if their request, or the reader of the answer, takes too long; see
`open_connections`.

uvicorn itself limits only the time between two requests.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from penstock.application.open_connections import OpenConnections
from penstock.config import StreamsConfig


class BoundedConnection(H11Protocol):
    """A connection; `connection_class` adds the others of its server."""

    others: ClassVar[OpenConnections[BoundedConnection]]
    _takes_nothing = False
    """Whether its peer does not read what is sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin (asyncio)."""
        super().connection_made(cast(asyncio.Transport, transport))
        self.others.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End (asyncio)."""
        self.others.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what the peer has sent (asyncio)."""
        super().data_received(data)
        self._tell_who_waits()

    def pause_writing(self) -> None:
        """Note that the peer reads too slowly (asyncio)."""
        super().pause_writing()
        self._takes_nothing = True
        self._tell_who_waits()

    def resume_writing(self) -> None:
        """Note that the peer has read (asyncio)."""
        super().resume_writing()
        self._takes_nothing = False
        self._tell_who_waits()

    def on_response_complete(self) -> None:
        """Go on after an answer (uvicorn): the peer has to take it, and to send the next request."""
        self.others.waits(self)
        super().on_response_complete()
        self._tell_who_waits()

    def _tell_who_waits(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is None or cycle.response_complete or cycle.more_body or self._takes_nothing:
            self.others.waits(self)
        else:
            self.others.is_answered(self)


def connection_class(config: StreamsConfig) -> type[BoundedConnection]:
    """Return the class of the connections of one server."""

    class Connection(BoundedConnection):
        others = OpenConnections[Any](config, "The port of the pages", lambda connection: connection.transport.abort())

    return Connection
