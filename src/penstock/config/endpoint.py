"""The values of `application.server`: the address at which a program offers its state (KIP-1245)."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.config.definition import reader, text
from penstock.errors import ConfigError

_HOST_AND_PORT: Final = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)]?:([0-9]+)")
"""As in Kafka (class: Utils, HOST_PORT_PATTERN)."""

_MAX_PORT: Final = 0x7FFFFFFF
"""Java's largest integer: Kafka has no other limit."""


def host_and_port(endpoint: str) -> tuple[str, int] | None:
    """Return the host and the port of an endpoint, also of "protocol://host:port"; None for any other text.

    Kafka class: HostInfo.
    """
    found = _HOST_AND_PORT.fullmatch(endpoint)
    if found is None or not found[1] or int(found[2]) > _MAX_PORT:
        return None
    return found[1], int(found[2])


@reader("host:port, or protocol://host:port")
def endpoint(name: str, value: Any) -> str | None:
    """Return an endpoint unchanged, None for a blank one; raises ConfigError for anything else.

    Kafka class: ApplicationServerConfigValidator.
    """
    given: str = text(name, value)
    if not given.strip():
        return None
    if host_and_port(given) is None:
        raise ConfigError(
            f"Invalid value {value!r} for configuration {name}: expected host:port, such as app-1.example.com:8080."
        )
    return given
