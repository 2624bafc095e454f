"""KafkaStreams: an application of one topology.

Its life is in application.py; here are the topology, its host, which is opened by name when the application starts, and
the doors to its stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock import __version__
from penstock.application import ApplicationLife
from penstock.config import StreamsConfig
from penstock.errors import StreamsNotStartedError, StreamsStoppedError
from penstock.host.api import Host, Staleness, State, StateQueries
from penstock.host.open import open_host
from penstock.host_metrics import NOT_MEASURED, Measured, streams_metrics
from penstock.metrics import Metric, MetricName
from penstock.plan.subtopology import StreamPartitioner
from penstock.plan.topology import Topology
from penstock.prometheus import PrometheusExporter
from penstock.serdes import Serde
from penstock.state.query.metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from penstock.state.query.queryable import StoreQueryParameters
from penstock.state.query.request import StateQueryRequest, StateQueryResult


class KafkaStreams(ApplicationLife[Host]):
    """Runs a topology (Kafka class: KafkaStreams).

    `with KafkaStreams(topology, config) as streams:` starts it at the beginning of the block and closes it at the end.
    An application that was started keeps the program alive until it ends, as in Java.
    """

    def __init__(self, topology: Topology, config: StreamsConfig | Mapping[str, Any], spark: Any = None) -> None:
        """Check and build the topology; nothing runs yet.

        Args:
            topology: what to run.
            config: the configuration, with application.id and bootstrap.servers.
            spark: a pyspark.sql.SparkSession to run in, which stays open; None for one of the application's own.

        Raises:
            ConfigError: a key is missing or has a value that cannot be.
            TopologyError: the topology cannot be run.
        """
        self._config = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        super().__init__(self._config.required("application.id"))
        self._built = topology.build(self._application_id)
        self._config = self._config.overridden(self._built.config_overrides)
        self._spark = spark
        self._description = str(topology.describe())
        self._exporter: PrometheusExporter | None = None

    # ---------------------------------------- metrics

    def metrics(self) -> Mapping[MetricName, Metric]:
        """Return the metrics of the application as they are now, by their names: what `penstock.host_metrics` lists,
        and those of the sensors of processors."""
        state = self.state()
        facts: dict[str, int | str] = {
            "version": __version__,
            "application-id": self._application_id,
            "topology-description": self._description,
            "state": state.value,
            "client-state": list(State).index(state),
        }
        return streams_metrics(self._config.client_id(), facts, self.statistics(), self._measured())

    def _measured(self) -> Measured:
        try:
            return self._running_host().measured()
        except StreamsNotStartedError:
            return NOT_MEASURED

    def _release(self, timeout_ms: int) -> bool:
        released = super()._release(timeout_ms)
        if released and self._exporter is not None:
            self._exporter.close()
            self._exporter = None
        return released

    def _open_host(self, until_end: bool) -> Host:
        port: int | None = self._config["penstock.metrics.prometheus.port"]
        if port is not None:
            self._exporter = PrometheusExporter(self.metrics, self._config["penstock.metrics.prometheus.host"], port)
        return open_host(
            self._built,
            self._config,
            session=self._spark,
            until_end=until_end,
            restore_listener=self._restore_listener,
        )

    # ---------------------------------------- interactive queries

    def store(self, parameters: StoreQueryParameters) -> Any:
        """Return a store to be read, as of the newest commit at each read.

        Args:
            parameters: its name, its type, and one partition or all.

        Returns:
            What the type makes: a ReadOnlyKeyValueStore, ReadOnlyWindowStore or ReadOnlySessionStore; reads raise
            InvalidStateStoreError where the store is of another type, or has no such partition.

        Raises:
            StreamsNotStartedError: the application was not started yet.
            RuntimeError: it neither runs nor rebalances.
            UnknownStateStoreError: the topology has no store of that name.
        """
        state = self.state()
        if state not in (State.CREATED, State.RUNNING, State.REBALANCING):
            raise RuntimeError(f"KafkaStreams is not running. State is {state.value}.")
        return self._queries().store(parameters)

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Return what each partition of a store answers to a query, all as of one commit (KIP-796).

        Raises:
            StreamsNotStartedError: the application was not started yet.
            StreamsStoppedError: it has ended, or is about to.
            UnknownStateStoreError: the topology has no store of that name.
            SerializationError: a key of the query cannot be written with the serde of the store.
            UnsupportedOperationError: Kafka refuses such a query of such a store.
        """
        state = self.state()
        if state not in (State.CREATED, State.RUNNING, State.REBALANCING):
            raise StreamsStoppedError(
                f"KafkaStreams has been stopped ({state.value}). This instance can no longer serve queries."
            )
        return self._queries().query(request)

    def table(self, store_name: str) -> Any:
        """Return the entries of a store as of the newest commit as a table; on Spark a DataFrame with the columns
        `partition`, `key`, `value` and, where the store has them, `timestamp`, `window_start` and `window_end`.

        Raises:
            StreamsNotStartedError: the application was not started yet, or has ended.
            UnknownStateStoreError: the topology has no store of that name.
        """
        return self._running_host().table(store_name)

    def staleness(self) -> Staleness:
        """Return as of when state is read now: epoch, time (ms) of its commit, and age (ms); raises as `store`."""
        return self._queries().staleness()

    def all_local_store_partition_lags(self) -> Mapping[str, Mapping[int, LagInfo]]:
        """Return how far each partition of each store is behind its source topics, by store and partition; asks the
        brokers how far these go. Raises StreamsNotStartedError, and KafkaError if no broker answers."""
        return self._queries().all_local_store_partition_lags()

    def query_metadata_for_key(
        self, store_name: str, key: Any, key_serde: Serde | None = None, partitioner: StreamPartitioner | None = None
    ) -> KeyQueryMetadata:
        """Return which partition of a store has `key`; all partitions are read by this program, under the address that
        `application.server` gives.

        Args:
            store_name: the name of the store.
            key: the key; of windows and sessions that within the window.
            key_serde: writes the key as the records do that led to it; None for the serde of the store.
            partitioner: chose the partitions of those records; None for Kafka's default.

        Raises:
            StreamsNotStartedError: the application was not started yet.
            UnknownStateStoreError: the topology has no store of that name.
            SerializationError: the key cannot be written.
        """
        return self._queries().query_metadata_for_key(store_name, key, key_serde, partitioner)

    def metadata_for_all_streams_clients(self) -> list[StreamsMetadata]:
        """Return what each program of the application has: this one has everything."""
        return [self._queries().streams_metadata()]

    def streams_metadata_for_store(self, store_name: str) -> list[StreamsMetadata]:
        """Return what each program has that has a store of that name, none for an unknown one."""
        return [each for each in self.metadata_for_all_streams_clients() if store_name in each.state_store_names]

    def _queries(self) -> StateQueries:
        return self._running_host().queries()
