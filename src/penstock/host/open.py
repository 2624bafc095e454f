"""Opens hosts by name: their modules are imported by name, so that nobody needs the packages of all.

`KafkaStreams` passes `penstock.host`; the error for a host that is not installed names the missing package, and
the host that needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock import extras
from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.host.api import Host, StateQueries
from penstock.host.supervision.turns import ApplicationTurns
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.topology import Topology, built_topology
from penstock.state.restore_listener import StateRestoreListener

_FACTORIES: Mapping[str, tuple[str, str]] = {
    "spark": ("penstock.host.spark.driver.spark_host", "SparkHost"),
    "threads": ("penstock.host.threads.host", "ThreadsHost"),
}
"""Name of the host -> module and class; called with the arguments of `open_host`."""

_QUERIES: Mapping[str, tuple[str, str]] = {"spark": ("penstock.host.spark.query.queries", "CheckpointQueries")}
"""Name of the host -> module and class of what reads its state; called with the built topology and the
configuration."""

_DURABLE_STATE: Mapping[str, tuple[str, str]] = {
    **_QUERIES,
    "threads": ("penstock.host.threads.changelog_queries", "ChangelogQueries"),
}
"""Name of the host -> module and class of what reads its state from where it lasts; called as those of _QUERIES."""

_WATCHES: Mapping[str, tuple[str, str]] = {
    "spark": ("penstock.host.spark.driver.watching", "CheckpointWatch"),
    "threads": ("penstock.host.threads.watching", "GroupWatch"),
}
"""Name of the host -> module and class of what follows an application that another process runs; called as those of
_QUERIES."""


def open_watch(built: BuiltTopology, config: StreamsConfig) -> Host:
    """Return what follows an application that another process runs, from its checkpoint, or from the brokers where its
    host keeps none; not yet started. Raises ConfigError if one of the host's packages is not installed."""
    watch: Host = _load(_WATCHES, config)(built, config)
    return watch


def open_host(
    built: BuiltTopology,
    config: StreamsConfig,
    session: Any = None,
    until_end: bool = False,
    restore_listener: StateRestoreListener | None = None,
    turns: ApplicationTurns | None = None,
) -> Host:
    """Return the host that `penstock.host` names, not yet started.

    Args:
        built: the topology to run.
        config: the application's configuration.
        session: a SparkSession to run in; None for one that the host starts and stops itself. until_end: whether to
            stop at the ends that the inputs have at the start. restore_listener: receives the restores of stores.
        turns: which several topologies of this process take to process; None for one that is alone.

    Raises:
        ConfigError: a package that the host needs is not installed.
    """
    factory = _load(_FACTORIES, config)
    host: Host = factory(
        built, config, session=session, until_end=until_end, restore_listener=restore_listener, turns=turns
    )
    return host


def keeps_checkpoint(config: StreamsConfig) -> bool:
    """Return whether the host that `penstock.host` names keeps a checkpoint that other programs can read."""
    return config["penstock.host"] in _QUERIES


def check_host(config: StreamsConfig) -> None:
    """Raise ConfigError if a package that the host needs which `penstock.host` names is not installed, or for a key
    that does not exist. The host checks the keys again when it starts."""
    host: Any = _load(_FACTORIES, config)
    host.check_keys(config)


def open_state(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> StateQueries:
    """Return what reads the state of an application that this process need not run: from its checkpoint, as of the
    newest commit at each read, whether the application runs or not. Close it at the end, or use it in a `with`.

    Args:
        topology: that of the application; it defines the stores and their serdes.
        config: its configuration; application.id, state.dir and penstock.checkpoint.dir say where the checkpoint is.
            This does not contact brokers.

    Raises:
        ConfigError: a key is missing or has a value that cannot be, or the host keeps no state that others can read.
        TopologyError: the topology cannot be.
    """
    return _opened_state(_QUERIES, topology, config if isinstance(config, StreamsConfig) else StreamsConfig(config))


def open_durable_state(topology: Topology, config: StreamsConfig) -> StateQueries:
    """Return what reads the state of an application from its checkpoint, or on threads from its changelog topics; see
    `open_state`. Raises KafkaError, too, if brokers are asked and do not answer."""
    return _opened_state(_DURABLE_STATE, topology, config)


def _opened_state(table: Mapping[str, tuple[str, str]], topology: Topology, config: StreamsConfig) -> StateQueries:
    built = built_topology(topology, config.required("application.id"))
    config = config.overridden(built.config_overrides)
    queries: StateQueries = _load(table, config)(built, config)
    return queries


def _load(table: Mapping[str, tuple[str, str]], config: StreamsConfig) -> Callable[..., Any]:
    """Return what `table` has for the host that `penstock.host` names."""
    name = config["penstock.host"]
    if name not in table:
        raise ConfigError(
            f"penstock.host={name} keeps no checkpoint that other programs can read: ask the running application, by "
            "KafkaStreams.store, query and table."
        )
    module, attribute = table[name]
    try:
        loaded: Callable[..., Any] = vars(extras.load(module, f"penstock.host={name}"))[attribute]
    except ConfigError as error:
        if "penstock.host" not in config.given():
            raise ConfigError(
                f"{error} Without Spark, set penstock.host=threads: the application then runs in this process."
            ) from error
        raise
    return loaded
