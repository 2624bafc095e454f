"""`penstock broker`: the embedded broker in the foreground."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.config import StreamsConfig
from penstock.tools.cli.common import DEFAULT_PORT, Verbose, err, set_verbose
from penstock_broker.config import BrokerConfig
from penstock_broker.server import run

_REGISTRY_PORT: Final = 8081
"""The port of Confluent's schema registry."""

Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the embedded broker; 0 for a free one.")]

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Directory of the embedded broker's data; default: <state.dir>/broker."),
]


@dataclass(frozen=True)
class EmbeddedBrokerOptions:
    """The options of an embedded broker."""

    port: Port = DEFAULT_PORT
    data_dir: DataDir = None

    def directory(self, config: StreamsConfig) -> Path:
        """Return the directory of the broker's data, by default <state.dir>/broker."""
        return self.data_dir or Path(config["state.dir"]) / "broker"


def broker(
    data_dir: DataDir = None,
    port: Port = DEFAULT_PORT,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Partitions of topics that are created automatically.")
    ] = 1,
    log_retention_ms: Annotated[
        int,
        typer.Option(
            "--log-retention-ms",
            min=-1,
            help="Age (ms) at which records are deleted, unless the topic sets it; -1: never.",
        ),
    ] = -1,
    schema_registry: Annotated[
        bool, typer.Option("--schema-registry", help="Also serve a schema registry, for Avro, JSON and Protobuf.")
    ] = False,
    schema_registry_port: Annotated[
        int | None,
        typer.Option(
            "--schema-registry-port",
            min=0,
            max=65535,
            help=f"Port of the schema registry, which it implies; 0 for a free one; default: {_REGISTRY_PORT}.",
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Run an embedded Kafka broker on this machine until Ctrl-C; records stay in its directory."""
    if verbose:
        set_verbose(True)
    directory = EmbeddedBrokerOptions(port, data_dir).directory(StreamsConfig())

    def ready(address: str, registry_url: str | None) -> None:
        err.print(f"Listening at {address}; data in {directory}. Ctrl-C stops it.")
        if registry_url is not None:
            err.print(f"The schema registry is {registry_url}.")

    if schema_registry and schema_registry_port is None:
        schema_registry_port = _REGISTRY_PORT
    config = BrokerConfig(
        data_dir=directory,
        port=port,
        schema_registry_port=schema_registry_port,
        num_partitions=partitions,
        log_retention_ms=log_retention_ms,
    )
    run(config, ready)
