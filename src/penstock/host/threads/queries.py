"""Interactive queries of an instance's stores, answered from its open tasks.

Kafka classes: QueryableStoreProvider, StreamsMetadataState. The isolation level of a query, by default that of the
configuration, decides whether it sees uncommitted writes (KIP-892).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock.client.api import Admin
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.config.isolation_level import IsolationLevel
from penstock.errors import InvalidStateStoreError, StateStoreNotAvailableError
from penstock.extras import load
from penstock.host.api import Staleness, StoreSize, TaskMetadata
from penstock.host.commits.task_positions import ANSWER_MS, Committed, TaskPositions
from penstock.host.deployment.key_partition import KeyPartitioner
from penstock.host.deployment.layout import Layout
from penstock.host.threads.commit_times import InstanceCommit
from penstock.host.threads.processing import OpenTasks
from penstock.host.threads.readable_store import ReadableStore
from penstock.host.threads.standbys import Standbys
from penstock.host.threads.subscription import Endpoint
from penstock.host.threads.visibility import Visibility, visibility
from penstock.plan.subtopology import BuiltTopology, StreamPartitioner, TaskId
from penstock.record import Headers, TopicPartition
from penstock.serdes import Serde
from penstock.serdes.columns import arrow
from penstock.state.api import StateStore, StoreBuilder
from penstock.state.query.execution import is_permitted, run_query
from penstock.state.query.metadata import HostInfo, KeyQueryMetadata, LagInfo, StreamsMetadata
from penstock.state.query.position import Position, PositionBound
from penstock.state.query.queries import TimestampedKeyWithHeadersQuery
from penstock.state.query.queryable import StoreQueryParameters, StoresOfPartitions, check_known
from penstock.state.query.request import (
    NOT_PRESENT,
    OF_GLOBAL_STORE,
    FailureReason,
    QueryResult,
    StateQueryRequest,
    StateQueryResult,
)
from penstock.task.taps import TappedRecord
from penstock_broker.common.clock import Clock

if TYPE_CHECKING:
    from penstock.state.query.features import Features

_NOT_RUNNING = QueryResult.for_failure(
    FailureReason.NOT_ACTIVE, "Query requires a running active task, but the instance is rebalancing."
)


class RunningTasks(NamedTuple):
    """The sources of query results while an instance runs.

    Args:
        layout: the tasks of the application.
        tasks: the open tasks.
        standbys: copies of the state of other instances.
        is_running: returns whether all tasks of the instance are being processed.
        committed: returns the last commit.
        endpoints: returns the addresses at which the members of the group offer their state.
    """

    layout: Layout
    tasks: OpenTasks
    standbys: Standbys
    is_running: Callable[[], bool]
    committed: Callable[[], InstanceCommit]
    endpoints: Callable[[], Sequence[Endpoint]]


class TaskQueries:
    """Answers queries of one instance (implements StateQueries); thread-safe.

    Args:
        built: the topology.
        config: of the application.
        clock: the wall clock.
    """

    def __init__(self, built: BuiltTopology, config: StreamsConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._builders = {name: store for spec in built.subtopologies for name, store in spec.stores.items()}
        self._global_builders = {} if built.global_topology is None else dict(built.global_topology.stores)
        self._subtopologies = {name: spec.id for spec in built.subtopologies for name in spec.stores}
        self._running: RunningTasks | None = None
        self._make_positions = partial(TaskPositions, partial(ConfluentAdmin, config, ANSWER_MS))
        self._positions = self._make_positions()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, running: RunningTasks) -> None:
        """Start to answer from these tasks."""
        self._positions = self._make_positions()
        self._running = running

    def close(self) -> None:
        """Stop answering; stores that callers still hold become unreadable."""
        self._running = None
        self._positions.close()

    def stores(self) -> Mapping[str, StoreBuilder]:
        """Return the builders of the topology's stores by name, including global stores."""
        return {**self._builders, **self._global_builders}

    def store(self, parameters: StoreQueryParameters) -> Any:
        """Return the requested store for reading; raises UnknownStateStoreError if the topology does not have it."""
        name, partition = parameters.store_name, parameters.partition
        check_known(name, self.stores())

        def stores(level: IsolationLevel | None) -> list[StateStore]:
            found = self._readable(name, self._visible(level), parameters.stale_stores)
            return [each.store for each in found if partition in (None, each.task.partition)]

        provider = StoresOfPartitions(stores, None if name in self._global_builders else partition, _migrated)
        return parameters.queryable_store_type.create(provider, name)

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Return the answers of this instance's partitions, including standbys unless active tasks are required.

        Raises:
            UnknownStateStoreError: the topology has no store of that name.
            StreamsError: a key of the query does not have the type of the store's serde.
            UnsupportedOperationError: Kafka refuses such a query of such a store.
        """
        check_known(request.store_name, self.stores())
        if request.store_name in self._global_builders:
            return StateQueryResult(global_result=OF_GLOBAL_STORE)
        running = self._tasks()
        asked = [
            each
            for each in self._here(
                request.store_name, self._visible_to(request), with_standbys=not request.active_required
            )
            if request.partitions is None or each.task.partition in request.partitions
        ]
        refused = request.active_required and not running.is_running()
        results = {each.task.partition: _NOT_RUNNING if refused else _answer(request, each) for each in asked}
        for partition in request.partitions or ():
            results.setdefault(partition, NOT_PRESENT)
        return StateQueryResult(results)

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return the changelog lag of each local partition of each store.

        The lag of an active task is 0; a standby may lag. Raises KafkaError if the brokers do not answer.
        """
        running = self._tasks()
        here = {
            (name, each.task.partition): partition
            for name in self._builders
            for each in self._here(name, Visibility.WRITTEN, with_standbys=True)
            if (partition := running.layout.changelogs(each.task).get(name)) is not None
        }
        admin = ConfluentAdmin(self._config)
        try:
            ends = admin.end_offsets(sorted(set(here.values()))) if here else {}
        finally:
            admin.close()
        lags: dict[str, dict[int, LagInfo]] = {}
        for (name, number), partition in sorted(here.items()):
            task = TaskId(self._subtopologies[name], number)
            reached = running.standbys.changelog_positions(name).get(task, ends[partition])
            lags.setdefault(name, {})[number] = LagInfo(min(reached, ends[partition]), ends[partition])
        return lags

    def store_sizes(self) -> dict[str, StoreSize]:
        """Return the approximate number of committed entries of each store, by name."""
        running = self._running
        return {name: StoreSize(None if running is None else running.tasks.entries(name)) for name in self.stores()}

    def query_metadata_for_key(
        self,
        store_name: str,
        key: Any,
        key_serde: Serde | None = None,
        partitioner: StreamPartitioner | None = None,
        headers: Headers = (),
    ) -> KeyQueryMetadata:
        """Return the partition of a store that has `key`, and the address that serves it.

        The address is unavailable if the partition is on an instance without application.server, or on no instance.

        Args:
            store_name: the name of the store.
            key: the key; for windows and sessions, the key without the window.
            key_serde: serializes the key as in the input records; None for the serde of the store.
            partitioner: the partitioner of the input records; None for Kafka's default.
            headers: the headers of the input records, for the serde and the partitioner.

        Raises:
            UnknownStateStoreError: the topology has no store of that name.
            StreamsError: the key cannot be serialized.
        """
        check_known(store_name, self.stores())
        running = self._tasks()
        own = HostInfo.build_from_endpoint(self._config["application.server"])
        if store_name in self._global_builders:  # every instance has the whole store
            return KeyQueryMetadata(own, frozenset(), -1)
        partitions = sum(task.subtopology == self._subtopologies[store_name] for task in running.layout.groups)
        place = KeyPartitioner(key_serde, partitioner, headers)
        partition = place.partition(self._builders[store_name], self._config, key, partitions)
        here = {each.task.partition for each in running.tasks.readable(store_name, Visibility.WRITTEN)}
        task, endpoints = TaskId(self._subtopologies[store_name], partition), running.endpoints()
        others = [HostInfo.build_from_endpoint(each.server) for each in endpoints if task in each.active]
        active = own if partition in here else next((each for each in others if each != own), HostInfo.unavailable())
        standby = {HostInfo.build_from_endpoint(each.server) for each in endpoints if task in each.standby}
        return KeyQueryMetadata(active, frozenset(standby), partition)

    def streams_metadata(self) -> list[StreamsMetadata]:
        """Return the stores and partitions of this instance and of each instance with application.server."""
        running = self._tasks()
        own = HostInfo.build_from_endpoint(self._config["application.server"])
        found = {HostInfo.build_from_endpoint(each.server): each for each in running.endpoints()}
        standby = found.pop(own).standby if own in found else frozenset()
        return [
            self._metadata(own, running.tasks.open_tasks(), standby),
            *(self._metadata(host, each.active, each.standby) for host, each in sorted(found.items())),
        ]

    def _metadata(self, host: HostInfo, active: Collection[TaskId], standby: Collection[TaskId]) -> StreamsMetadata:
        layout = self._tasks().layout
        stores, partitions = (
            [frozenset(name for task in tasks for name in layout.spec(task).stores) for tasks in (active, standby)],
            [frozenset(each for task in tasks for each in layout.groups[task]) for tasks in (active, standby)],
        )
        return StreamsMetadata(host, stores[0] | self._global_builders.keys(), partitions[0], stores[1], partitions[1])

    def staleness(self) -> Staleness:
        """Return the last commit; queries that read uncommitted writes see newer ones too."""
        commit = self._tasks().committed()
        if not commit.number:
            return Staleness(0, 0, None)
        return Staleness(commit.number, commit.time_ms, max(self._clock.milliseconds() - commit.time_ms, 0))

    def task_metadata(self) -> tuple[TaskMetadata, ...]:
        """Return the committed offsets and the end offsets of each task of this instance.

        Raises KafkaError if the brokers do not answer.
        """
        running = self._tasks()
        groups = {task: running.layout.groups[task] for task in running.tasks.open_tasks()}
        return self._positions.metadata(groups, committed_by(str(self._config.required("application.id"))))

    def table(self, store_name: str) -> Any:
        """Return the entries of a store on this instance; see `state.query.columns`.

        Raises:
            UnknownStateStoreError: the topology has no store of that name.
            InvalidStateStoreError: its entries do not form a table, or the instance has no part of it.
        """
        check_known(store_name, self.stores())
        found = self._readable(store_name, self._visible(None), stale=False)
        if not found:
            raise _migrated(store_name)
        columns = load("penstock.state.query.columns", "A table").StateColumns(found[0].store)
        batches = [batch for each in found for batch in columns.batches(each.task.partition, each.store)]
        return arrow().Table.from_batches(batches, columns.schema)

    def features(self, store_names: Sequence[str]) -> Features:
        """Return versioned stores as the features of labels.

        Raises the errors of `versioned_stores`. The features raise InvalidStateStoreError unless this instance has all
        partitions of the stores.
        """
        module = load("penstock.state.query.features", "Features")
        names = module.versioned_stores(store_names, self.stores())
        features: Features = module.Features(names, lambda: {name: self._all_partitions(name) for name in names})
        return features

    def _all_partitions(self, store_name: str) -> list[StateStore]:
        found = self._readable(store_name, self._visible(None), stale=False)
        count = sum(task.subtopology == self._subtopologies[store_name] for task in self._tasks().layout.groups)
        if len(found) < count:
            raise InvalidStateStoreError(
                f"This instance has {len(found)} of the {count} partitions of store {store_name}, and labels may have "
                "keys of the others: run the application in one instance while features are read, or on Spark."
            )
        return [each.store for each in found]

    def tapped(self, node: str, limit: int) -> list[TappedRecord]:
        """Return the last records that have reached a node, up to `limit` of each task.

        From now on such records are kept. Raises StateStoreNotAvailableError while no task runs.
        """
        return self._tasks().tasks.tapped(node, limit)

    def untap(self, node: str) -> None:
        """Stop keeping the records of a node."""
        if self._running is not None:
            self._running.tasks.untap(node)

    def _visible(self, level: IsolationLevel | None) -> Visibility:
        """Return the changes that queries of `level` see, or of the default level without one."""
        return visibility(level or self._config.default_interactive_query_isolation_level(), self._config)

    def _visible_to(self, request: StateQueryRequest) -> Visibility:
        visible, query = self._visible(request.isolation_level), request.query
        skips_cache = isinstance(query, TimestampedKeyWithHeadersQuery) and query.cache_skipped
        return Visibility.FLUSHED if skips_cache and visible is Visibility.WRITTEN else visible

    def _readable(self, store_name: str, visible: Visibility, stale: bool) -> list[ReadableStore]:
        """Return the readable stores; `stale` includes lagging stores, in every state of the instance."""
        running = self._tasks()
        if store_name not in self._global_builders and not stale and not running.is_running():
            raise InvalidStateStoreError(
                f"Cannot get state store {store_name} because the instance is setting up its tasks: ask again when it "
                "is RUNNING."
            )
        return self._here(store_name, visible, with_standbys=stale)

    def _here(self, store_name: str, visible: Visibility, with_standbys: bool) -> list[ReadableStore]:
        """Return the stores of that name of open tasks, and of standbys if requested."""
        running = self._tasks()
        active = running.tasks.readable(store_name, visible)
        return [*active, *running.standbys.readable(store_name)] if with_standbys else active

    def _tasks(self) -> RunningTasks:
        if self._running is None:
            raise StateStoreNotAvailableError("The application does not run in this process: it has no stores to read.")
        return self._running


def committed_by(group: str) -> Committed:
    """Return a function that requests the committed positions of a group."""

    def committed(admin: Admin, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        found = admin.committed_offsets(group, partitions, stable=False)
        return {partition: position.offset for partition, position in found.items()}

    return committed


def _answer(request: StateQueryRequest, readable: ReadableStore) -> QueryResult:
    began, partition = time.perf_counter_ns(), readable.task.partition
    position = _position_of(readable.positions)
    bound = PositionBound.unbounded() if request.active_required else request.position_bound
    if is_permitted(position, bound, readable.positions.keys(), partition):
        result = run_query(readable.store, request.query)
    else:
        result = QueryResult.not_up_to_bound(position, bound, partition)
    if request.execution_info_enabled:
        result = result.add_execution_info(
            f"Handled in {type(readable.store).__name__} of task {readable.task} in {time.perf_counter_ns() - began}ns"
        )
    return result.with_position(position)


def _position_of(positions: Mapping[TopicPartition, int]) -> Position:
    """Return the offset of the last record before each of `positions`."""
    seen: dict[str, dict[int, int]] = {}
    for (topic, number), following in positions.items():
        if following > 0:
            seen.setdefault(topic, {})[number] = following - 1
    return Position(seen)


def _migrated(store_name: str) -> InvalidStateStoreError:
    return InvalidStateStoreError(f"The state store, {store_name}, may have migrated to another instance.")
