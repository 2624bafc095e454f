"""What the commands that talk to brokers share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from penstock.cli.common import DEFAULT_PORT, parsed_settings
from penstock.config import StreamsConfig

DEFAULT_SERVERS: Final = f"localhost:{DEFAULT_PORT}"
TIMEOUT_MS: Final = 5_000
"""How long a command waits for an answer of a broker."""

Servers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        metavar="HOST:PORT",
        help=f"Brokers to ask; default: PENSTOCK_BOOTSTRAP_SERVERS, else {DEFAULT_SERVERS}.",
    ),
]


ServersOfProgram = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers", "-b", metavar="HOST:PORT", help="Brokers of the application; default: its configuration."
    ),
]


def with_default_servers(config: StreamsConfig) -> StreamsConfig:
    """Return the configuration of a program, with the default brokers if it names none."""
    if config["bootstrap.servers"] is not None:
        return config
    return config.overridden({"bootstrap.servers": DEFAULT_SERVERS})


def client_config(servers: str | None, settings: list[str] | None) -> StreamsConfig:
    """Return the configuration of a command that talks to brokers: options, then environment, then the default."""
    return with_default_servers(StreamsConfig(parsed_settings(settings, servers=servers)))
