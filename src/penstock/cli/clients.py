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


def client_config(servers: str | None, settings: list[str] | None) -> StreamsConfig:
    """Return the configuration of a command that talks to brokers: options, then environment, then the default."""
    given = parsed_settings(settings)
    if servers is not None:
        given["bootstrap.servers"] = servers
    config = StreamsConfig(given)
    if config["bootstrap.servers"] is None:
        config = StreamsConfig({**given, "bootstrap.servers": DEFAULT_SERVERS})
    return config
