"""Named topologies: several topologies in one application, added, removed and paused independently.

Each named topology runs like a separate application: with the application.id `<application.id>-<name>` for its internal
topics, transactions and positions, and with its own checkpoint. All share one Spark session. Adding a topology
therefore neither stops nor slows the commits of another. The names are those of Kafka, whose implementation is internal
(package org.apache.kafka.streams.processor.internals.namedtopology).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Self

from penstock.application.close_options import DEFAULT_CLOSE_TIMEOUT_MS
from penstock.application.life import ApplicationLife
from penstock.application.running_topology import Identity, RunningTopology
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.errors import StreamsError, StreamsNotStartedError, TopologyError, UnknownTopologyError
from penstock.host.api import Host, State
from penstock.host.open import open_host
from penstock.host.supervision.cores import cores_at_a_time
from penstock.host.supervision.named import NamedHosts
from penstock.host.supervision.turns import ApplicationTurns, Turns
from penstock.metrics import Metric, MetricName, RecordingLevel
from penstock.notebook import HTML, TEXT, heading_text, mime_bundle, with_heading
from penstock.plan.describe import TopologyDescription
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.topic_loops import warn_of_topic_loops
from penstock.plan.topology import Topology
from penstock.plan.topology_config import TopologyConfig
from penstock.serdes import Serde
from penstock.state.query.metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from penstock.state.query.queryable import StoreQueryParameters
from penstock.state.query.request import StateQueryRequest, StateQueryResult
from penstock_broker.common.clock import SystemClock

_log = logging.getLogger(__name__)

_DELIMITER = "__"


def _check_name(name: str) -> None:
    if _DELIMITER in name or not name:
        raise ValueError(
            f"Invalid name {name!r} of a topology: expected one that is not empty and does not contain {_DELIMITER!r}."
        )


class NamedTopology(Topology):
    """A topology with a name (Kafka class: NamedTopology), built by `NamedTopologyBuilder`.

    Shares the graph of the unnamed topology.

    Args:
        name: not empty and without `__`; raises ValueError otherwise.
        topology: the topology to name.
    """

    def __init__(self, name: str, topology: Topology) -> None:
        super().__init__()
        _check_name(name)
        vars(self).update(vars(topology))
        self._name = name

    def name(self) -> str:
        """Return the name."""
        return self._name

    def source_topics(self) -> list[str]:
        """Return the names of its source topics, in order."""
        return sorted(self._source_topics)


class NamedTopologyBuilder(StreamsBuilder):
    """Builds a named topology (Kafka class: NamedTopologyBuilder).

    Created by `new_named_topology_builder`.
    """

    def __init__(self, name: str, topology_config: TopologyConfig) -> None:
        super().__init__(topology_config)
        self._name = name
        self._config = topology_config.config

    def build(self, config: Mapping[str, Any] | None = None) -> NamedTopology:
        """Return the topology built so far; raises the errors of `StreamsBuilder.build`."""
        return NamedTopology(self._name, super().build(self._config.given() if config is None else config))


class _Change:
    """The result of a change of the topologies."""

    def __init__(self, error: Exception | None = None) -> None:
        self._future: Future[None] = Future()
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)

    def all(self) -> Future[None]:
        """Return the future of the change; its `result()` raises the error of a failed change."""
        return self._future


class AddNamedTopologyResult(_Change):
    """The result of an addition (Kafka class: AddNamedTopologyResult)."""

    def exception_now(self) -> BaseException | None:
        """Return the error of the addition, None if it succeeded."""
        return self._future.exception()


class RemoveNamedTopologyResult(_Change):
    """The result of a removal (Kafka class: RemoveNamedTopologyResult)."""


class KafkaStreamsNamedTopologyWrapper(ApplicationLife[NamedHosts]):
    """Runs named topologies (Kafka class: KafkaStreamsNamedTopologyWrapper).

    Topologies added before the start only run from the start on; later ones run at once. A removed topology stops after
    its current commit. If the handler of uncaught exceptions returns REPLACE_THREAD, only the failed topology restarts;
    any other response ends the application.

    Args:
        config: the configuration, with application.id and bootstrap.servers.
        spark: an existing pyspark.sql.SparkSession, which stays open; None creates one for the application.

    Raises:
        ConfigError: a key is missing or its value is invalid.
    """

    def __init__(self, config: StreamsConfig | Mapping[str, Any], spark: Any = None) -> None:
        super().__init__(config)
        self._spark = spark
        self._runs: dict[str, RunningTopology] = {}
        self._topologies: dict[str, NamedTopology] = {}
        self._paused_at_ms: dict[str, int] = {}
        self._changing = threading.RLock()
        self._until_end = False
        clock = SystemClock()
        self._turns = ApplicationTurns(Turns(clock.nanoseconds), Turns(clock.nanoseconds, cores_at_a_time()))

    # ---------------------------------------- start

    def start(self, initial_topologies: NamedTopology | Iterable[NamedTopology] = ()) -> Self:
        """Add topologies and start all in the background.

        Raises:
            RuntimeError: it was already started or closed.
            ValueError: a name is taken.
            StreamsError: a topology must not start; the state is then ERROR.
        """
        self._add_all(initial_topologies)
        return super().start()

    def _start(self, until_end: bool) -> None:
        with self._changing:
            super()._start(until_end)

    def _add_all(self, topologies: NamedTopology | Iterable[NamedTopology]) -> None:
        for topology in [topologies] if isinstance(topologies, NamedTopology) else topologies:
            self.add_named_topology(topology).all().result()

    def _open_host(self, until_end: bool) -> NamedHosts:
        hosts = NamedHosts()
        self._until_end = until_end
        for name, topology in self._topologies.items():
            hosts.add(name, self._host_of(topology))
        return hosts

    def _host_of(self, topology: NamedTopology) -> Host:
        """Return an unstarted host for `topology`; it begins paused if the topology is paused."""
        config = self._config_of(topology.name())
        built = topology.build(config.required("application.id"))
        if built.lake_sinks:
            raise TopologyError(
                f"Topology {topology.name()} writes to a table of a lake, which only KafkaStreams does: run it as an "
                "application of its own."
            )
        warn_of_topic_loops(built)
        config = config.overridden(built.config_overrides)
        host = self._open(built, config)
        if topology.name() in self._paused_at_ms:
            host.pause()
        return host

    def _open(self, built: BuiltTopology, config: StreamsConfig) -> Host:
        return open_host(
            built,
            config,
            session=self._spark,
            until_end=self._until_end,
            restore_listener=self._restore_listener,
            turns=self._turns,
        )

    def _config_of(self, name: str) -> StreamsConfig:
        chosen = self._config["penstock.checkpoint.dir"]
        own = {} if chosen is None else {"penstock.checkpoint.dir": f"{chosen.rstrip('/')}/{name}"}
        if self._config["client.id"]:
            own["client.id"] = f"{self._config['client.id']}-{name}"
        return self._config.overridden({"application.id": f"{self._application_id}-{name}", **own})

    # ---------------------------------------- topologies

    def new_named_topology_builder(
        self, topology_name: str, topology_overrides: Mapping[str, Any] | None = None
    ) -> NamedTopologyBuilder:
        """Return a builder for a topology of this application.

        Args:
            topology_name: its name. Since it is part of topic names, their characters only, and no `__`.
            topology_overrides: configuration of this topology only, as for TopologyConfig.

        Raises:
            ValueError: the name is invalid.
            ConfigError: a key cannot be set for a single topology.
        """
        _check_name(topology_name)
        return NamedTopologyBuilder(topology_name, TopologyConfig(self._config, topology_overrides))

    def get_topology_by_name(self, name: str) -> NamedTopology | None:
        """Return the topology `name`, None if absent."""
        return self._topologies.get(name)

    def get_all_topologies(self) -> list[NamedTopology]:
        """Return all topologies in the order of their addition."""
        return list(self._topologies.values())

    def get_full_topology_description(self) -> str:
        """Return Kafka's description of all topologies, each under its name."""
        return "".join(
            f"Topology: {topology.name()}:" + str(topology.describe()).removeprefix("Topologies:")
            for topology in sorted(self.get_all_topologies(), key=NamedTopology.name)
        )

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        title = f"KafkaStreamsNamedTopologyWrapper {self._application_id}"
        facts = {"state": self.state().value, "host": str(self._config["penstock.host"])}
        forms = {
            TEXT: lambda: f"{heading_text(title, facts)}\n{self.get_full_topology_description()}".rstrip(),
            HTML: lambda: with_heading(title, facts, "".join(map(self._html_of, self.running_topologies()))),
        }
        return mime_bundle(forms, include, exclude)

    def _html_of(self, name: str) -> str:
        """Return the HTML of a topology for notebooks, with its own state."""
        return self._description_of(name).forms(f"Topology {name}", {"state": self._state_of(name).value})[HTML]()

    def add_named_topology(self, new_topology: NamedTopology) -> AddNamedTopologyResult:
        """Add a topology; returns when it runs, or immediately before the start.

        If the topology cannot be added or must not start, the result has the error: RuntimeError after the end of the
        application, ValueError if the name is taken, StreamsError for its brokers, topics or checkpoint.
        """
        name = new_topology.name()
        with self._changing:
            try:
                self._check_changeable("add")
                if name in self._topologies:
                    raise ValueError(
                        f"Unable to add the new NamedTopology {name} as another of the same name already exists."
                    )
                self._topologies[name] = new_topology
                try:
                    if self._host is not None:
                        self._host.add(name, self._host_of(new_topology))
                        self._follow_pause(name)
                except BaseException:
                    del self._topologies[name]
                    raise
            except (RuntimeError, ValueError, StreamsError) as error:
                return AddNamedTopologyResult(error)
        _log.info("%s now has the named topology %s.", self._application_id, name)
        return AddNamedTopologyResult()

    def remove_named_topology(self, topology_to_remove: str, reset_offsets: bool = False) -> RemoveNamedTopologyResult:
        """Remove a topology; returns after its current commit and stop.

        The result of a failed removal has the error: RuntimeError after the end of the application,
        UnknownTopologyError for an unknown name.

        Args:
            topology_to_remove: its name.
            reset_offsets: delete its checkpoint, that is its positions together with their state. Otherwise the
                topology continues from there when it is added again.
        """
        with self._changing:
            try:
                self._check_changeable("remove")
                self._check_known(topology_to_remove)
                topology = self._topologies[topology_to_remove]
                if self._host is not None:
                    self._host.remove(topology_to_remove, DEFAULT_CLOSE_TIMEOUT_MS)
                del self._topologies[topology_to_remove]
                self._paused_at_ms.pop(topology_to_remove, None)
                if reset_offsets:
                    self._host_of(topology).reset()
            except (RuntimeError, StreamsError) as error:
                return RemoveNamedTopologyResult(error)
        _log.info("%s no longer has the named topology %s.", self._application_id, topology_to_remove)
        return RemoveNamedTopologyResult()

    def clean_up_named_topology(self, name: str) -> None:
        """Delete the local files of an inactive topology that can be rebuilt.

        Raises:
            RuntimeError: the application has the topology.
            LockError: another program runs it.
        """
        with self._changing:
            if name in self._topologies:
                raise RuntimeError(f"Can't clean up local state for an active NamedTopology: {name}")
            config = self._config_of(name)
            open_host(Topology().build(config.required("application.id")), config, session=self._spark).clean_up()

    def _check_changeable(self, change: str) -> None:
        state = self.state()
        if state not in (State.CREATED, State.REBALANCING, State.RUNNING):
            raise RuntimeError(f"Cannot {change} a NamedTopology while the state is {state.value}.")

    # ---------------------------------------- pause

    def pause_named_topology(self, topology_name: str) -> None:
        """Pause the tasks of one topology after its current commit; raises UnknownTopologyError."""
        self._check_known(topology_name)
        self._paused_at_ms.setdefault(topology_name, SystemClock().milliseconds())
        self._follow_pause(topology_name)

    def resume_named_topology(self, topology_name: str) -> None:
        """Resume the tasks of one topology; raises UnknownTopologyError."""
        self._check_known(topology_name)
        self._paused_at_ms.pop(topology_name, None)
        self._follow_pause(topology_name)

    def is_named_topology_paused(self, topology_name: str) -> bool:
        """Return whether one topology is paused."""
        return topology_name in self._paused_at_ms

    def pause(self) -> None:
        """Pause all topologies."""
        for name in list(self._topologies):
            self.pause_named_topology(name)

    def resume(self) -> None:
        """Resume all topologies."""
        for name in list(self._topologies):
            self.resume_named_topology(name)

    def is_paused(self) -> bool:
        """Return whether all topologies are paused."""
        return self.paused_since_ms() is not None

    def paused_since_ms(self) -> int | None:
        """Return the time since all topologies are paused (ms since the epoch), else None."""
        names = list(self._topologies)
        since = [at_ms for name in names if (at_ms := self._paused_at_ms.get(name)) is not None]
        return max(since) if since and len(since) == len(names) else None

    def _follow_pause(self, name: str) -> None:
        """Pause or resume the host of a topology, if it exists."""
        host = None if self._host is None else self._host.find(name)
        if host is not None:
            (host.pause if name in self._paused_at_ms else host.resume)()

    def _check_known(self, name: str) -> None:
        if name not in self._topologies:
            known = ", ".join(self._topologies) or "none"
            raise UnknownTopologyError(f"This application has no topology {name}; it has: {known}.")

    # ---------------------------------------- queries

    def running_topology(self, topology_name: str) -> RunningTopology:
        """Return the interface to one topology; raises UnknownTopologyError.

        It has the methods of KafkaStreams, such as `store`, `query`, `table`, `metrics`. The `client-id` of its metrics
        is that of this application, `-` and the name of the topology.
        """
        self._check_known(topology_name)
        return self._run(topology_name)

    def _run(self, name: str) -> RunningTopology:
        """Return the interface to a topology: always the same object, with the open taps and views."""
        return self._runs.setdefault(name, NamedTopologyRun(self, name))

    def running_topologies(self) -> Mapping[str, RunningTopology]:
        """Return the interface to each topology, by its name; see `running_topology`."""
        return {name: self._run(name) for name in list(self._topologies)}

    def metrics(self) -> Mapping[MetricName, Metric]:
        """Return the metrics of all topologies, by their names; see `running_topology`."""
        runs = self.running_topologies().values()
        return {name: metric for run in runs for name, metric in run.metrics().items()}

    def store(self, parameters: StoreQueryParameters, topology_name: str) -> Any:
        """Return a readable store of one topology, like `KafkaStreams.store`; raises UnknownTopologyError too."""
        return self.running_topology(topology_name).store(parameters)

    def query(self, request: StateQueryRequest, topology_name: str) -> StateQueryResult:
        """Return the results for each partition of a store of one topology.

        Like `KafkaStreams.query`; raises UnknownTopologyError too.
        """
        return self.running_topology(topology_name).query(request)

    def all_local_store_partition_lags_for_topology(self, topology_name: str) -> Mapping[str, Mapping[int, LagInfo]]:
        """Return the lag of the stores of one topology.

        Like `KafkaStreams.all_local_store_partition_lags`; raises UnknownTopologyError too.
        """
        return self.running_topology(topology_name).all_local_store_partition_lags()

    def all_streams_clients_metadata_for_topology(self, topology_name: str) -> list[StreamsMetadata]:
        """Return the metadata of one topology in each program.

        Like `KafkaStreams.metadata_for_all_streams_clients`; raises UnknownTopologyError too.
        """
        return self.running_topology(topology_name).metadata_for_all_streams_clients()

    def streams_metadata_for_store(self, store_name: str, topology_name: str) -> list[StreamsMetadata]:
        """Return the metadata of each program with a store of one topology.

        Like `KafkaStreams.streams_metadata_for_store`; raises UnknownTopologyError too.
        """
        return self.running_topology(topology_name).streams_metadata_for_store(store_name)

    def query_metadata_for_key(
        self, store_name: str, key: Any, key_serde: Serde | None, topology_name: str
    ) -> KeyQueryMetadata:
        """Return the partition of a key in a store of one topology.

        Like `KafkaStreams.query_metadata_for_key`; raises UnknownTopologyError too.
        """
        return self.running_topology(topology_name).query_metadata_for_key(store_name, key, key_serde)

    def _current_topologies(self) -> Mapping[str, Topology]:
        return dict(self._topologies)

    def _shown_metrics(self) -> Mapping[MetricName, Metric]:
        return self.metrics()

    def _state_of(self, name: str) -> State:
        """Return the state of one topology.

        That of its host if the application has hosts and runs or rebalances; otherwise the state of the application.
        """
        state, hosts = self.state(), self._host
        if hosts is None or state not in (State.REBALANCING, State.RUNNING):
            return state
        return hosts.state_of(name)

    def _host_named(self, name: str) -> Host:
        self._check_known(name)
        host = self._running_host().find(name)
        if host is None:
            raise StreamsNotStartedError(f"The named topology {name} has not been started yet; ask again.")
        return host

    def _identity_of(self, name: str) -> Identity:
        config, hosts = self._config_of(name), self._host
        errors = 0 if hosts is None else hosts.errors_of(name)
        return Identity(
            config.required("application.id"),
            config.client_id(),
            str(self._description_of(name)),
            errors,
            RecordingLevel[config["metrics.recording.level"]],
        )

    def _description_of(self, name: str) -> TopologyDescription:
        self._check_known(name)
        return self._topologies[name].describe()


class NamedTopologyRun(RunningTopology):
    """One topology of an application with several."""

    def __init__(self, streams: KafkaStreamsNamedTopologyWrapper, name: str) -> None:
        self._streams = streams
        self._name = name

    def state(self) -> State:
        """Return the state of the topology."""
        return self._streams._state_of(self._name)

    def _identity(self) -> Identity:
        return self._streams._identity_of(self._name)

    def describe(self) -> TopologyDescription:
        """Return the description of the topology."""
        return self._streams._description_of(self._name)

    def _topology_host(self) -> Host:
        return self._streams._host_named(self._name)
