"""Common options and clients of the commands that connect to brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from penstock.config import StreamsConfig
from penstock.tools.cli.common import DEFAULT_PORT, Settings, parsed_settings

DEFAULT_SERVERS: Final = f"localhost:{DEFAULT_PORT}"
TIMEOUT_MS: Final = 5_000
"""How long a command waits for a broker's response."""

ServersOfProgram = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers", "-b", metavar="HOST:PORT", help="Brokers of the application; default: its configuration."
    ),
]


def with_default_servers(config: StreamsConfig) -> StreamsConfig:
    """Return the configuration of a program, with the default brokers if it names no brokers."""
    if config["bootstrap.servers"] is not None:
        return config
    return config.overridden({"bootstrap.servers": DEFAULT_SERVERS})


@dataclass(frozen=True)
class BrokerOptions:
    """The options of a command that connects to brokers."""

    servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            "-b",
            metavar="HOST:PORT",
            help=f"Brokers to ask; default: PENSTOCK_BOOTSTRAP_SERVERS, else {DEFAULT_SERVERS}.",
        ),
    ] = None
    config: Settings = None

    def client_config(self) -> StreamsConfig:
        """Return the configuration of the clients: options, then environment, then the default."""
        return with_default_servers(StreamsConfig(parsed_settings(self.config, servers=self.servers)))


@dataclass(frozen=True)
class ProgramOptions:
    """The options of a command that change the configuration of a program."""

    servers: ServersOfProgram = None
    config: Settings = None

    def overrides(self) -> dict[str, Any]:
        """Return the keys set by the options."""
        return parsed_settings(self.config, servers=self.servers)
