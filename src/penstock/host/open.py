"""Opens hosts by name.

Their modules are imported by name, so that a program needs only the packages of its host. The name is `penstock.host`
in `KafkaStreams`; the error for a host that is not installed names the missing package, and the host without additional
packages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from penstock import extras
from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.host.api import AsOf, Host, StateQueries
from penstock.host.supervision.turns import ApplicationTurns
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.topology import Topology, built_topology
from penstock.state.restore_listener import StateRestoreListener

_FACTORIES: Mapping[str, tuple[str, str]] = {
    "spark": ("penstock.host.spark.driver.spark_host", "SparkHost"),
    "threads": ("penstock.host.threads.host", "ThreadsHost"),
}
"""Module and class by name of the host; called with the arguments of `open_host`."""

_QUERIES: Mapping[str, tuple[str, str]] = {"spark": ("penstock.host.spark.query.queries", "CheckpointQueries")}
"""Module and class that reads the state, by name of the host.

Called with the built topology and the configuration.
"""

_DURABLE_STATE: Mapping[str, tuple[str, str]] = {
    **_QUERIES,
    "threads": ("penstock.host.threads.changelog_queries", "ChangelogQueries"),
}
"""Module and class that reads durable state, by host; called like those of _QUERIES."""

_WATCHES: Mapping[str, tuple[str, str]] = {
    "spark": ("penstock.host.spark.driver.watching", "CheckpointWatch"),
    "threads": ("penstock.host.threads.watching", "GroupWatch"),
}
"""Module and class that watches an application in another process, by name of the host.

Called like those of _QUERIES.
"""


def open_watch(built: BuiltTopology, config: StreamsConfig) -> Host:
    """Return a watcher, not yet started, of an application that another process runs.

    It reads the checkpoint of the application, or the brokers for hosts without a checkpoint. Raises ConfigError if one
    of the host's packages is not installed.
    """
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
    """Return the host of `penstock.host`, not yet started.

    Args:
        built: the topology to run.
        config: the configuration of the application.
        session: the SparkSession to use; None for one that the host starts and stops itself.
        until_end: whether to stop at the end offsets of the inputs at the start.
        restore_listener: receives the restores of stores.
        turns: the turns of several topologies in this process; None for a single topology.

    Raises:
        ConfigError: a package of the host is not installed.
    """
    factory = _load(_FACTORIES, config)
    host: Host = factory(
        built, config, session=session, until_end=until_end, restore_listener=restore_listener, turns=turns
    )
    return host


def keeps_checkpoint(config: StreamsConfig) -> bool:
    """Return whether the host of `penstock.host` keeps a checkpoint that other programs can read."""
    return config["penstock.host"] in _QUERIES


def check_host(config: StreamsConfig) -> None:
    """Raise ConfigError for an unknown key or a missing package of the configured host.

    The host checks the keys again when it starts.
    """
    host: Any = _load(_FACTORIES, config)
    host.check_keys(config)


def open_state(
    topology: Topology, config: StreamsConfig | Mapping[str, Any], as_of: AsOf | None = None
) -> StateQueries:
    """Return the state of an application from its checkpoint, whether the application runs or not.

    Each read returns the newest commit. The application may run in another process. Close the result at the end, or use
    it in a `with`.

    Args:
        topology: the topology of the application, which defines the stores and their serdes.
        config: the configuration of the application; application.id, state.dir and penstock.checkpoint.dir locate the
            checkpoint. This does not contact brokers.
        as_of: a retained commit of the checkpoint to read, by its epoch, or by a datetime whose last commit is read.

    Raises:
        ConfigError: a key is missing or has an invalid value, or the state of the host is not readable by others.
        TopologyError: the topology is invalid.
    """
    checked = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
    return _opened_state(_QUERIES, topology, checked, {} if as_of is None else {"as_of": as_of})


def open_durable_state(topology: Topology, config: StreamsConfig) -> StateQueries:
    """Return the state of an application from its checkpoint or changelog topics.

    The latter are those of the threads host. See `open_state`. It also raises KafkaError if brokers are needed and do
    not answer.
    """
    return _opened_state(_DURABLE_STATE, topology, config)


def _opened_state(
    table: Mapping[str, tuple[str, str]],
    topology: Topology,
    config: StreamsConfig,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> StateQueries:
    built = built_topology(topology, config.required("application.id"))
    config = config.overridden(built.config_overrides)
    queries: StateQueries = _load(table, config)(built, config, **options)
    return queries


def _load(table: Mapping[str, tuple[str, str]], config: StreamsConfig) -> Callable[..., Any]:
    """Return the entry of `table` for the host of `penstock.host`, imported."""
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
