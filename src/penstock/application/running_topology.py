"""Queries of a running topology: its state, by interactive queries and as tables, and its metrics.

`KafkaStreams` is the interface to its only topology; an application with several has one for each. Subclasses define
its host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock import __version__
from penstock.application.store_view import StoreView
from penstock.application.tap import Tap
from penstock.errors import StreamsError, StreamsNotStartedError, StreamsStoppedError, UnsupportedOperationError
from penstock.host.api import AsOf, Host, Staleness, State, StateQueries, StoreSize, TaskMetadata
from penstock.metrics import Metric, MetricName, RecordingLevel
from penstock.metrics.host_metrics import NOT_MEASURED, THREAD_STATE, streams_metrics
from penstock.metrics.record_counts import RecordCounts
from penstock.plan.describe import TopologyDescription
from penstock.plan.subtopology import StreamPartitioner
from penstock.record import checked_headers
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder
from penstock.state.query.metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from penstock.state.query.queryable import StoreQueryParameters, StoreTableType
from penstock.state.query.request import StateQueryRequest, StateQueryResult
from penstock.task.taps import TappedRecord
from penstock_broker.common.durations import Duration, milliseconds

if TYPE_CHECKING:
    from penstock.state.query.features import Features  # its module needs Arrow

_ANSWERING: Final = frozenset((State.CREATED, State.RUNNING, State.REBALANCING))
"""The states with readable stores."""

_WITH_TASKS: Final = frozenset((State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN))
"""The states with running tasks."""

_THREAD_STATES: Final[Mapping[State, int]] = {
    State.CREATED: 0,  # CREATED
    State.REBALANCING: 3,  # PARTITIONS_ASSIGNED
    State.RUNNING: 4,  # RUNNING
    State.PENDING_SHUTDOWN: 5,  # PENDING_SHUTDOWN
    State.PENDING_ERROR: 5,
    State.NOT_RUNNING: 6,  # DEAD
    State.ERROR: 6,
}
"""The state number of Kafka's stream thread for each state (Kafka class: StreamThread.State)."""


class Identity(NamedTuple):
    """The identity of a topology in its metrics.

    Args:
        application_id: its application.id.
        client_id: its client id.
        description: of the topology.
        errors: the number of errors that stopped all its tasks.
        recording_level: the level of recorded metrics.
    """

    application_id: str
    client_id: str
    description: str
    errors: int
    recording_level: RecordingLevel


class RunningTopology(ABC):
    """The interface to one topology; see the module."""

    @abstractmethod
    def state(self) -> State:
        """Return the state of the application or host of the topology."""

    @abstractmethod
    def _identity(self) -> Identity:
        """Return the identity of the topology in its metrics."""

    @abstractmethod
    def describe(self) -> TopologyDescription:
        """Return the description of the topology, which can also draw it (Kafka: Topology.describe)."""

    @abstractmethod
    def _topology_host(self) -> Host:
        """Return the host of the topology; raises StreamsNotStartedError if it does not exist yet."""

    # ---------------------------------------- metrics

    def metrics(self) -> Mapping[MetricName, Metric]:
        """Return the current metrics of the topology by name.

        These are the metrics of `metrics.host_metrics` and of the processors' sensors.
        """
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
            return streams_metrics(identity.client_id, facts, RecordCounts(), NOT_MEASURED)
        return streams_metrics(identity.client_id, facts, host.statistics(), host.measured())

    def _facts_of_running(self) -> Mapping[str, int | str]:
        """Return the metrics known only to the process that runs the topology, see `streams_metrics`."""
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
        """Return the builders of the stores, global stores included, by name.

        Raises StreamsNotStartedError if the application has not been started.
        """
        return self._queries().stores()

    def store(self, parameters: StoreQueryParameters) -> Any:
        """Return a readable store; each read sees the newest commit.

        Args:
            parameters: its name, its type, and one partition or all.

        Returns:
            A ReadOnlyKeyValueStore, ReadOnlyWindowStore or ReadOnlySessionStore, depending on the type; reads raise
            InvalidStateStoreError if the store is of another type, or has no such partition.

        Raises:
            StreamsNotStartedError: the application has not been started.
            RuntimeError: it neither runs nor rebalances.
            UnknownStateStoreError: the topology has no store of that name.
            TypeError: `parameters` is not a StoreQueryParameters.
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
        """Query a store; all partitions answer as of one commit (KIP-796).

        Raises:
            StreamsNotStartedError: the application has not been started.
            StreamsStoppedError: it has ended, or is about to.
            UnknownStateStoreError: the topology has no store of that name.
            StreamsError: the type of a key in the query does not match the serde of the store.
            UnsupportedOperationError: Kafka does not support such a query for such a store.
            TypeError: `request` is not a StateQueryRequest.
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

    def table(self, store_name: str, as_of: AsOf | None = None) -> Any:
        """Return the entries of a store as of the newest commit, as a table.

        On Spark it is a DataFrame with the columns `partition`, `key`, `value` and, if the store has them, `timestamp`,
        `window_start` and `window_end`.

        Args:
            store_name: the name of the store.
            as_of: on Spark, an earlier commit: its epoch, or a datetime whose last commit is read.

        Raises:
            StateStoreNotAvailableError: the commit is not retained.
            UnsupportedOperationError: the host keeps no earlier commits.
            StreamsNotStartedError: the application has not been started, or has ended.
            UnknownStateStoreError: the topology has no store of that name.
        """
        return self._topology_host().table(store_name, as_of)

    def features(self, store_names: Sequence[str]) -> Features:
        """Return versioned stores as the features of labels, for `Features.as_of`.

        `streams.features(["profiles"]).as_of(labels, time="ts", key="customer")` returns the labels with the profile
        that each customer had at the time of the label.

        Args:
            store_names: the names of the stores.

        Raises:
            TypeError: `store_names` is a single name.
            ValueError: it is empty.
            ConfigError: pyarrow is not installed.
            StreamsNotStartedError: the application has not been started.
            UnknownStateStoreError: the topology has no store of that name.
            InvalidStateStoreError: a store keeps no versions.
        """
        return self._queries().features(store_names)

    def view(self, store_name: str, refresh_ms: Duration = 1_000, rows: int = 20) -> StoreView:
        """Return a view of a store that redraws itself in a notebook.

        It ends with the application, and closes an earlier view of the same store.

        Args:
            store_name: the name of the store, of any kind.
            refresh_ms: the interval between reads of the store (ms).
            rows: the maximum number of entries shown.

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
        """Keep the last records that reach a node of the running topology, for inspection.

        An earlier tap of the same node is closed. `with streams.tap("shouted") as tap:` keeps records during the block.
        Without taps the topology runs at full speed.

        Args:
            node: its name, as shown by `describe`.
            n: the number of records to keep, in total and per task.

        Raises:
            ValueError: `n` is below 1.
            UnsupportedOperationError: it is a node of a global store, or the tasks run in another program.
            StreamsNotStartedError: the application has not been started.
            StreamsError: the topology has no node of that name, or no task is running.
        """
        if n < 1:
            raise ValueError(f"n must be 1 or more, got {n}.")
        self._check_node(node)
        if node in self._taps:
            self._taps[node].close()
        tap = self._taps[node] = Tap(node, n, self._topology_host)
        return tap

    def tapped(self, node: str) -> Sequence[TappedRecord] | None:
        """Return the last records that have reached a node, newest last.

        None without an open tap, or if it cannot be read now.
        """
        tap = self._taps.get(node)
        if tap is None or not tap.is_open:
            return None
        try:
            return tap.records()
        except StreamsError:
            return None

    def untap(self, node: str) -> None:
        """Close the tap of a node, if open; same as `Tap.close`."""
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
        """Return the epoch, commit time (ms) and age (ms) of the readable state.

        Raises the errors of `store`.
        """
        return self._queries().staleness()

    def all_local_store_partition_lags(self) -> Mapping[str, Mapping[int, LagInfo]]:
        """Return the lag relative to the source topics, by store and partition.

        Requests the end offsets from the brokers. Raises StreamsNotStartedError, and KafkaError if no broker answers.
        """
        return self._queries().all_local_store_partition_lags()

    def store_sizes(self) -> Mapping[str, StoreSize]:
        """Return the sizes of all stores, global stores included, by name.

        A size, as of the newest commit, has the approximate number of entries, and on Spark the number and the bytes of
        the segments. On Spark this may read the state.

        Raises:
            StreamsNotStartedError: the application has not been started.
            StateStoreNotAvailableError: nothing has been committed yet.
        """
        return self._queries().store_sizes()

    def task_metadata(self) -> tuple[TaskMetadata, ...]:
        """Return the read and committed offsets of each task of this program, by id.

        Requests end offsets from the brokers.

        Raises:
            StreamsNotStartedError: the application has not been started.
            StateStoreNotAvailableError: no task is running, or nothing has been committed yet.
            KafkaError: no broker answers.
        """
        return self._queries().task_metadata()

    def query_metadata_for_key(
        self,
        store_name: str,
        key: Any,
        key_serde: Serde | None = None,
        partitioner: StreamPartitioner | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> KeyQueryMetadata:
        """Return the partition of `key` in a store.

        This program reads all partitions, under the address of `application.server`.

        Args:
            store_name: the name of the store.
            key: the key; for windows and sessions the key within the window.
            key_serde: the serde of the key in the source records; None for the serde of the store.
            partitioner: the partitioner of those records; None for Kafka's default.
            headers: the headers of those records, for a serde or a partitioner that uses them.

        Raises:
            StreamsNotStartedError: the application has not been started.
            UnknownStateStoreError: the topology has no store of that name.
            StreamsError: the key cannot be serialised.
            TypeError: the headers are not pairs.
        """
        return self._queries().query_metadata_for_key(store_name, key, key_serde, partitioner, checked_headers(headers))

    def metadata_for_all_streams_clients(self) -> list[StreamsMetadata]:
        """Return the metadata of each program of the application; on Spark, this one has everything."""
        return self._queries().streams_metadata()

    def streams_metadata_for_store(self, store_name: str) -> list[StreamsMetadata]:
        """Return the metadata of each program with a store of that name, if any."""
        return [each for each in self.metadata_for_all_streams_clients() if store_name in each.state_store_names]

    def _queries(self) -> StateQueries:
        return self._topology_host().queries()
