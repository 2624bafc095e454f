"""`penstock ui FILE`: the pages of an application that other processes run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from penstock import savepoints
from penstock.application.comparison import Comparison
from penstock.application.running_topology import Identity, RunningTopology
from penstock.config import StreamsConfig
from penstock.extras import load
from penstock.host.api import Host
from penstock.host.open import keeps_checkpoint, open_watch
from penstock.host.threads.takeover import topic_changes
from penstock.named_topologies import KafkaStreamsNamedTopologyWrapper, NamedTopologyRun
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.topology import Topology, built_topology
from penstock.streams import KafkaStreams
from penstock.termination import terminating
from penstock.tools.cli.clients import ProgramOptions
from penstock.tools.cli.common import option_groups
from penstock.tools.cli.program import LoadedProgram, load_program
from penstock.tools.cli.run import DEFAULT_UI_PORT, File

_OF_THE_APPLICATION = (
    "penstock.ui.port",
    "penstock.metrics.prometheus.port",
    "penstock.openlineage.enabled",
    "penstock.otel.enabled",
)
"""Keys of outputs of the application itself: a second process would take its ports, or double metrics and events."""


def _as_watcher(identity: Identity) -> Identity:
    """Return `identity` with a client id of its own.

    A watcher's measurements differ from the application's.
    """
    return identity._replace(client_id=f"{identity.client_id}-watcher")


class _Watched(KafkaStreams):
    """An application that another process runs."""

    def _open_host(self, until_end: bool) -> Host:
        return open_watch(self._built, self._config)

    def _identity(self) -> Identity:
        return _as_watcher(super()._identity())

    def _facts_of_running(self) -> Mapping[str, int | str]:
        return {}

    def changes(self) -> list[str]:
        """Return the changes that a start of its program would make, in lines."""
        return _changes(self._topology, self._config)


class _WatchedTopology(NamedTopologyRun):
    """One of the named topologies of an application that another process runs."""

    def _identity(self) -> Identity:
        return _as_watcher(super()._identity())

    def _facts_of_running(self) -> Mapping[str, int | str]:
        return {}


class _WatchedTopologies(KafkaStreamsNamedTopologyWrapper):
    """An application with named topologies that another process runs."""

    def _open(self, built: BuiltTopology, config: StreamsConfig) -> Host:
        return open_watch(built, config)

    def _run(self, name: str) -> RunningTopology:
        return self._runs.setdefault(name, _WatchedTopology(self, name))

    def changes(self) -> list[str]:
        """Return the changes that a start of its program would make.

        Each line begins with the topology's name.
        """
        return [
            f"{each.name()}: {line}"
            for each in self.get_all_topologies()
            for line in _changes(each, self._config_of(each.name()))
        ]


def _watched(program: LoadedProgram, config: StreamsConfig) -> _Watched | _WatchedTopologies:
    if not program.named_topologies:
        return _Watched(program.topology, config)
    streams = _WatchedTopologies(config)
    for topology in program.named_topologies:
        streams.add_named_topology(topology).all().result()
    return streams


def _changes(topology: Topology, config: StreamsConfig) -> list[str]:
    if keeps_checkpoint(config):
        evolution = savepoints.diff(topology, config, config)
        return evolution.lines() if evolution.differences else []
    built = built_topology(topology, config.required("application.id"))
    return topic_changes(built, config.overridden(built.config_overrides))


@option_groups
def ui(
    file: File,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port for the pages; 0 for a free one.")
    ] = DEFAULT_UI_PORT,
    *,
    options: ProgramOptions,
) -> None:
    """Show over HTTP an application that another process runs, until Ctrl-C.

    It also shows what FILE would change: on Spark by its checkpoint, on threads by the brokers.
    """
    program = load_program(file)
    settings = program.configured({**options.overrides(), "penstock.ui.port": port, "penstock.ui.control": False})
    own = config_of_watcher(settings)
    server_class = load("penstock.tools.ui.server", "penstock ui").UiServer

    other = "the checkpoint" if keeps_checkpoint(own) else "the internal topics of the brokers"

    with terminating(), _watched(program, own) as streams:

        def compare() -> Comparison:
            return Comparison(f"{file} was compared with {other}.", streams.changes())

        server = server_class(streams, settings, compare)
        try:
            streams.await_termination()
        finally:
            server.close()


def config_of_watcher(settings: StreamsConfig) -> StreamsConfig:
    """Return the configuration of the application without the outputs of the application itself."""
    values = {key: value for key, value in settings.given().items() if key not in _OF_THE_APPLICATION}
    return StreamsConfig(values, environment={})
