"""A server of uvicorn with time limits for requests and for reading answers; see `open_connections`.

uvicorn itself limits only the time between two requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from penstock.application.open_connections import OpenConnections
from penstock.config import StreamsConfig


class BoundedConnection(H11Protocol):
    """A connection; `connection_class` adds the other connections of its server."""

    others: ClassVar[OpenConnections[BoundedConnection]]
    _takes_nothing = False
    """Whether the peer does not read the sent data."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin (asyncio)."""
        super().connection_made(cast(asyncio.Transport, transport))
        self.others.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End (asyncio)."""
        self.others.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process data from the peer (asyncio)."""
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
        """Continue after an answer (uvicorn).

        The peer has to read it, and to send the next request.
        """
        self.others.waits(self)
        super().on_response_complete()
        self._tell_who_waits()

    def _tell_who_waits(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is None or cycle.response_complete or cycle.more_body or self._takes_nothing:
            self.others.waits(self)
        else:
            self.others.is_answered(self)


class BoundedServer(uvicorn.Server):
    """A server that leaves signals to its program.

    Args:
        application: the application to serve.
        config: has the limits of its connections.
        name: name of the server, for the log.
    """

    def __init__(self, application: ASGIApp, config: StreamsConfig, name: str) -> None:
        class Connection(BoundedConnection):
            others = OpenConnections[Any](config, name, lambda connection: connection.transport.abort())

        async def close_late() -> None:
            Connection.others.close_late()

        super().__init__(
            uvicorn.Config(
                application,
                http=Connection,
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
                backlog=config["penstock.http.max.connections"],  # as many are accepted before one is closed
                callback_notify=close_late,
                timeout_notify=0,  # whenever uvicorn checks, every second
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone (uvicorn)."""
        yield
