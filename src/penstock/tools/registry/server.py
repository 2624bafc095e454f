"""The HTTP server of the registry, in the event loop of the broker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.config import StreamsConfig
from penstock.tools.registry.operations import Registry
from penstock.tools.registry.routes import application
from penstock.tools.registry.schemas import RefusedRequestError
from penstock.tools.registry.topic import SchemasTopic
from penstock.tools.ui.connections import BoundedServer
from penstock_broker.common.clock import Clock
from penstock_broker.errors import BrokerError
from penstock_broker.topics import TopicRegistry


@asynccontextmanager
async def serving(topics: TopicRegistry, clock: Clock, host: str, port: int) -> AsyncIterator[str]:
    """Serve during the block; yields the URL for clients.

    Args:
        topics: the topics of the broker.
        clock: the clock for the records.
        host: the loopback address to listen on.
        port: the TCP port; 0 for a free one.

    Raises:
        BrokerError: the port is in use, or the topic is unusable.
    """
    registry = Registry(SchemasTopic(topics, clock))
    try:
        registry.state()
    except RefusedRequestError as error:
        raise BrokerError(f"the schema registry cannot start: {error}") from error
    with _listening(host, port) as listening:
        server = BoundedServer(application(registry), StreamsConfig(), "The port of the schema registry")
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        address = f"[{host}]" if ":" in host else host
        try:
            yield f"http://{address}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise BrokerError(
            f"the schema registry cannot listen on {host}:{port}: {error.strerror or error}; choose another port with "
            "--schema-registry-port, 0 for a free one"
        ) from error
