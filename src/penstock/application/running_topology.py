"""Queries to a running topology: its state, by interactive queries and as tables, and its metrics.

`KafkaStreams` answers for its only topology, an application with several for each of them. Subclasses define where a
topology runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from penstock import __version__
from penstock.application.store_view import StoreView
from penstock.application.tap import Tap
from penstock.errors import StreamsError, StreamsNotStartedError, StreamsStoppedError, UnsupportedOperationError
from penstock.host.api import Host, Staleness, State, StateQueries, StoreSize, TaskMetadata
from penstock.metrics import Metric, MetricName, RecordingLevel
from penstock.metrics.host_metrics import NOT_MEASURED, THREAD_STATE, streams_metrics
from penstock.plan.describe import TopologyDescription
from penstock.plan.subtopology import StreamPartitioner
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder
from penstock.state.query.metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from penstock.state.query.queryable import StoreQueryParameters, StoreTableType
from penstock.state.query.request import StateQueryRequest, StateQueryResult
from penstock.task.taps import TappedRecord
from penstock_broker.common.durations import Duration, milliseconds

_ANSWERING: Final = frozenset((State.CREATED, State.RUNNING, State.REBALANCING))
"""The states in which stores may be read."""

_WITH_TASKS: Final = frozenset((State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN))
"""The states in which something runs the tasks."""

_THREAD_STATES: Final[Mapping[State, int]] = {
    State.CREATED: 0,  # CREATED
    State.REBALANCING: 3,  # PARTITIONS_ASSIGNED
    State.RUNNING: 4,  # RUNNING
    State.PENDING_SHUTDOWN: 5,  # PENDING_SHUTDOWN
    State.PENDING_ERROR: 5,
    State.NOT_RUNNING: 6,  # DEAD
    State.ERROR: 6,
}
"""The number that the state of Kafka's stream thread has (Kafka class: StreamThread.State) in each state of the
application."""


class Identity(NamedTuple):
    """By what metrics tell a topology: its application.id, its client id, and its description; how many errors have
    stopped all its tasks; and at which level it records."""

    application_id: str
    client_id: str
    description: str
    errors: int
    recording_level: RecordingLevel


class RunningTopology(ABC):
    """Answers for one topology; see the module."""

    @abstractmethod
    def state(self) -> State:
        """Return the state of what runs the topology."""

    @abstractmethod
    def _identity(self) -> Identity:
        """Return by what metrics tell the topology."""

    @abstractmethod
    def describe(self) -> TopologyDescription:
        """Return the description of the topology, which draws it too (Kafka: Topology.describe)."""

    @abstractmethod
    def _topology_host(self) -> Host:
        """Return the host of the topology; raises StreamsNotStartedError if there is none yet."""

    # ---------------------------------------- metrics

    def metrics(self) -> Mapping[MetricName, Metric]:
        """Return the current metrics of the topology by name: those that `metrics.host_metrics` lists, and those of the
        sensors of processors."""
        identity = self._identity()
        facts: dict[str, int | str] = {
            "version": __version__,
            "application-id": identity.application_id,
            "topology-description": identity.description,
            **self._facts_of_running(),
        }
        try:
            host = self._topology_host()
        except StreamsNotStartedError:
            return streams_metrics(identity.client_id, facts, {}, NOT_MEASURED)
        return streams_metrics(identity.client_id, facts, host.statistics(), host.measured())

    def _facts_of_running(self) -> Mapping[str, int | str]:
        """Return the metrics that only the process that runs the topology knows, see `streams_metrics`."""
        state, identity = self.state(), self._identity()
        return {
            "state": state.value,
            "client-state": list(State).index(state),
            "alive-stream-threads": int(state in _WITH_TASKS),
            "failed-stream-threads": identity.errors,
            "recording-level": identity.recording_level.value,
            THREAD_STATE: _THREAD_STATES[state],
        }

    # ---------------------------------------- interactive queries

    def state_stores(self) -> Mapping[str, StoreBuilder]:
        """Return what describes the stores of the topology, global ones too, by name; raises StreamsNotStartedError
        if the application was not started yet."""
        return self._queries().stores()

    def store(self, parameters: StoreQueryParameters) -> Any:
        """Return a store to be read, as of the newest commit at each read.

        Args:
            parameters: its name, its type, and one partition or all.

        Returns:
            What the type makes, a ReadOnlyKeyValueStore, ReadOnlyWindowStore or ReadOnlySessionStore; reads raise
            InvalidStateStoreError if the store is of another type, or has no such partition.

        Raises:
            StreamsNotStartedError: the application was not started yet.
            RuntimeError: it neither runs nor rebalances.
            UnknownStateStoreError: the topology has no store of that name.
            TypeError: `parameters` are no StoreQueryParameters.
        """
        if not isinstance(parameters, StoreQueryParameters):
            raise TypeError(
                f"Expected StoreQueryParameters, got {parameters!r}: write StoreQueryParameters.from_name_and_type("
                '"counts", QueryableStoreTypes.key_value_store()), for example.'
            )
        state = self.state()
        if state not in _ANSWERING:
            raise RuntimeError(f"KafkaStreams is not running. State is {state.value}.")
        return self._queries().store(parameters)

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Return what each partition of a store answers to a query, all as of one commit (KIP-796).

        Raises:
            StreamsNotStartedError: the application was not started yet.
            StreamsStoppedError: it has ended, or is about to.
            UnknownStateStoreError: the topology has no store of that name.
            StreamsError: a key of the query is of another type than the serde of the store writes.
            UnsupportedOperationError: Kafka refuses such a query of such a store.
            TypeError: `request` is no StateQueryRequest.
        """
        if not isinstance(request, StateQueryRequest):
            raise TypeError(
                f"Expected a StateQueryRequest, got {request!r}: write "
                'StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("a")), for example.'
            )
        state = self.state()
        if state not in _ANSWERING:
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
        return self._topology_host().table(store_name)

    def view(self, store_name: str, refresh_ms: Duration = 1_000, rows: int = 20) -> StoreView:
        """Return a view of a store that redraws itself in place where a notebook shows it, until the application ends;
        it closes an earlier view of the same store.

        Args:
            store_name: the name of the store, of any kind.
            refresh_ms: how often the store is read (ms).
            rows: how many entries are shown at most.

        Raises:
            ValueError: `refresh_ms` or `rows` is below 1.
            StreamsNotStartedError, RuntimeError, UnknownStateStoreError: as `store`.
        """
        refresh = milliseconds(refresh_ms, "refresh_ms")
        for name, number in (("refresh_ms", refresh), ("rows", rows)):
            if number < 1:
                raise ValueError(f"{name} must be 1 or more, got {number}.")
        store = self.store(StoreQueryParameters.from_name_and_type(store_name, StoreTableType()))
        if store_name in self._views:
            self._views[store_name].close()
        view = StoreView(store, lambda: self.state() not in _ANSWERING, refresh, rows)
        self._views[store_name] = view
        return view

    def tap(self, node: str, n: int = 20) -> Tap:
        """Keep the last records that reach a node of the running topology, for a look at them; an earlier tap of the
        same node is closed.

        `with streams.tap("shouted") as tap:` keeps them in the block. Without taps the topology runs as fast as ever.

        Args:
            node: its name, as `describe` shows it.
            n: how many records are kept, by each task too.

        Raises:
            ValueError: `n` is below 1.
            UnsupportedOperationError: it is a node of a global store, or the tasks run in another program.
            StreamsNotStartedError: the application was not started yet.
            StreamsError: the topology has no node of that name, or no task runs now.
        """
        if n < 1:
            raise ValueError(f"n must be 1 or more, got {n}.")
        self._check_node(node)
        if node in self._taps:
            self._taps[node].close()
        tap = self._taps[node] = Tap(node, n, self._topology_host)
        return tap

    def tapped(self, node: str) -> Sequence[TappedRecord] | None:
        """Return the last records that have reached a node, the newest last; None if no tap of it is open, or none can
        be read now."""
        tap = self._taps.get(node)
        if tap is None or not tap.is_open:
            return None
        try:
            return tap.records()
        except StreamsError:
            return None

    def untap(self, node: str) -> None:
        """Close the tap of a node, if one is open; `Tap.close` does the same."""
        if node in self._taps:
            self._taps[node].close()

    def _check_node(self, node: str) -> None:
        description = self.describe()
        names = [each.name for part in description.subtopologies for each in part.nodes]
        if node in names:
            return
        if node in [each.name for store in description.global_stores for each in (store.source, store.processor)]:
            raise UnsupportedOperationError(
                f"Node {node} fills a global store, whose records cannot be tapped: look at the store, with view()."
            )
        raise StreamsError(f"The topology has no node {node!r}. It has: {', '.join(names)}.")

    @cached_property
    def _taps(self) -> dict[str, Tap]:
        """The last tap of each node."""
        return {}

    @cached_property
    def _views(self) -> dict[str, StoreView]:
        """The last view of each store."""
        return {}

    def staleness(self) -> Staleness:
        """Return as of when state is read now: epoch, time (ms) of its commit, and age (ms); raises as `store`."""
        return self._queries().staleness()

    def all_local_store_partition_lags(self) -> Mapping[str, Mapping[int, LagInfo]]:
        """Return how far each partition of each store is behind its source topics, by store and partition; asks the
        brokers how far these go. Raises StreamsNotStartedError, and KafkaError if no broker answers."""
        return self._queries().all_local_store_partition_lags()

    def store_sizes(self) -> Mapping[str, StoreSize]:
        """Return how large each store is, global ones too, by name, as of the newest commit: about how many entries it
        has, and on Spark the number and the bytes of its segments. On Spark this may read the state.

        Raises:
            StreamsNotStartedError: the application was not started yet.
            StateStoreNotAvailableError: nothing has been committed yet.
        """
        return self._queries().store_sizes()

    def task_metadata(self) -> tuple[TaskMetadata, ...]:
        """Return how far each task of this program has read and committed, by its id; asks the brokers.

        Raises:
            StreamsNotStartedError: the application was not started yet.
            StateStoreNotAvailableError: no task runs, or nothing has been committed yet.
            KafkaError: no broker answers.
        """
        return self._queries().task_metadata()

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
            StreamsError: the key cannot be written.
        """
        return self._queries().query_metadata_for_key(store_name, key, key_serde, partitioner)

    def metadata_for_all_streams_clients(self) -> list[StreamsMetadata]:
        """Return what each program of the application has; on Spark, this one has everything."""
        return self._queries().streams_metadata()

    def streams_metadata_for_store(self, store_name: str) -> list[StreamsMetadata]:
        """Return what each program has that has a store of that name, none for an unknown one."""
        return [each for each in self.metadata_for_all_streams_clients() if store_name in each.state_store_names]

    def _queries(self) -> StateQueries:
        return self._topology_host().queries()
