"""Ports for servers that a test starts later, or again."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from itertools import islice
from typing import Final

# Below those that the system gives to clients, and to servers that ask for any: such a port may be in use when the
# server starts, even by a client of that server that tries again and again, which then is connected to itself.
_PORTS: Final = range(20_000, 32_000)


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return different ones."""
    return list(islice(_drawn(), count))


def _drawn() -> Iterator[int]:
    given = set[int]()
    while len(given) < len(_PORTS) // 2:
        port = _PORTS[secrets.randbelow(len(_PORTS))]  # whatever seed a test has set
        if port in given:
            continue
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        given.add(port)
        yield port
