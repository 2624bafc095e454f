"""`penstock ui FILE`: the pages of an application that other processes run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from penstock import savepoints
from penstock.application.running_topology import Identity
from penstock.cli.common import Settings, parsed_settings
from penstock.cli.program import load_program
from penstock.cli.run import DEFAULT_UI_PORT, File
from penstock.config import StreamsConfig
from penstock.extras import load
from penstock.host.api import Host
from penstock.host.open import keeps_checkpoint, open_watch
from penstock.streams import KafkaStreams
from penstock.termination import terminating

_OF_THE_APPLICATION = ("penstock.ui.port", "penstock.metrics.prometheus.port", "penstock.otel.enabled")
"""Keys of what the application itself shows: a second process would take its ports, or double its metrics."""


class _Watched(KafkaStreams):
    """An application that another process runs."""

    def _open_host(self, until_end: bool) -> Host:
        return open_watch(self._built, self._config)

    def _identity(self) -> Identity:
        identity = super()._identity()
        return identity._replace(client_id=f"{identity.client_id}-watcher")

    def _facts_of_running(self) -> Mapping[str, int | str]:
        return {}


def ui(
    file: File,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port for the pages; 0 for a free one.")
    ] = DEFAULT_UI_PORT,
    config: Settings = None,
) -> None:
    """Show over HTTP an application that another process runs, until Ctrl-C: on Spark from its checkpoint, with what
    FILE would change; on threads from the brokers."""
    program = load_program(file)
    settings = program.configured({**parsed_settings(config), "penstock.ui.port": port, "penstock.ui.control": False})
    own = config_of_watcher(settings)
    server_class = load("penstock.ui.server", "penstock ui").UiServer

    def changes() -> list[str]:
        evolution = savepoints.diff(program.topology, own, own)
        return list(evolution.lines()) if evolution.differences else []

    with terminating(), _Watched(program.topology, own) as streams:
        server = server_class(streams, settings, changes if keeps_checkpoint(own) else None)
        try:
            streams.await_termination()
        finally:
            server.close()


def config_of_watcher(settings: StreamsConfig) -> StreamsConfig:
    """Return the configuration of the application without what only the application itself shows."""
    values = {key: value for key, value in settings.given().items() if key not in _OF_THE_APPLICATION}
    return StreamsConfig(values, environment={})
