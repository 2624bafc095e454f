"""Interactive queries of an application on Spark, answered from its checkpoint.

The driver answers them, and so does any other process that reads the checkpoint. The program defines the stores; the
manifests and segments have their content (`state_reader`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.config.isolation_level import IsolationLevel
from penstock.errors import IncompatibleCheckpointError, InvalidStateStoreError
from penstock.host.api import AsOf, Staleness, StoreSize, TaskMetadata
from penstock.host.commits.task_positions import ANSWER_MS, TaskPositions
from penstock.host.deployment.key_partition import KeyPartitioner
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest, checkpoint_of
from penstock.host.spark.checkpoints.commits import commit_as_of
from penstock.host.spark.query.feature_frames import CheckpointFeatures
from penstock.host.spark.query.global_reader import GlobalStateReader
from penstock.host.spark.query.state_frames import StateScan, manifest_frame, segment_frame, store_frame
from penstock.host.spark.query.state_reader import StateReader, StoredTasks
from penstock.host.spark.query.store_positions import (
    partitions_read,
    position_of,
    settled_offsets,
    source_partitions,
)
from penstock.plan.subtopology import BuiltTopology, StreamPartitioner, TaskId
from penstock.record import Headers, TopicPartition
from penstock.serdes import Serde
from penstock.state.api import CUSTOM, StateStore, StoreBuilder
from penstock.state.query.execution import is_permitted, run_query
from penstock.state.query.features import Features, versioned_stores
from penstock.state.query.metadata import HostInfo, KeyQueryMetadata, LagInfo, StreamsMetadata
from penstock.state.query.position import PositionBound
from penstock.state.query.queryable import StoreQueryParameters, StoresOfPartitions, check_known
from penstock.state.query.request import (
    NOT_PRESENT,
    OF_GLOBAL_STORE,
    FailureReason,
    QueryResult,
    StateQueryRequest,
    StateQueryResult,
)
from penstock.state.segment_log import log_from_json
from penstock.task.standby_task import StandbySnapshot, empty_store
from penstock_broker.common.clock import Clock, SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOT_ACTIVE = QueryResult.for_failure(
    FailureReason.NOT_ACTIVE,
    "Query requires a running active task, but the application does not run in this process, or is rebalancing.",
)


MOST_COUNTED_BYTES: Final = 64 * 1024 * 1024
"""Largest state (bytes, before compression) whose entries are counted, because counting reads all of it."""


class CheckpointQueries:
    """Answers queries of one application (implements StateQueries). Thread-safe.

    Nothing is opened before the first query.

    Args:
        built: the topology.
        config: of the application.
        checkpoint: the checkpoint; None for the one in `config`.
        is_active: returns whether this process runs the application now.
        clock: for the age of commits; None for that of the machine.
        as_of: the commit to read; None for the newest one at each read.
    """

    def __init__(
        self,
        built: BuiltTopology,
        config: StreamsConfig,
        checkpoint: Checkpoint | None = None,
        is_active: Callable[[], bool] = lambda: False,
        clock: Clock | None = None,
        as_of: AsOf | None = None,
    ) -> None:
        self._built = built
        self._is_active = is_active
        self._as_of = as_of
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._settled_version, self._settled_epoch = "", -1
        self._settled_offsets: Mapping[str, list[int]] = {}
        self._builders = {name: store for spec in built.subtopologies for name, store in spec.stores.items()}
        self._global_builders = {} if built.global_topology is None else dict(built.global_topology.stores)
        self._global_reader = GlobalStateReader(self._global_builders, config)
        self._config = config
        self._checkpoint = checkpoint or checkpoint_of(config)
        self._reader = StateReader(self._builders, config, self._checkpoint, as_of)
        self._positions = TaskPositions(partial(ConfluentAdmin, config, ANSWER_MS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stores(self) -> Mapping[str, StoreBuilder]:
        """Return the builders of the topology's stores, by name, including global stores."""
        return {**self._builders, **self._global_builders}

    def store(self, parameters: StoreQueryParameters) -> Any:
        """Return the requested store, for reading; raises UnknownStateStoreError for an unknown name."""
        self._check_known(parameters.store_name)
        name = parameters.store_name
        provider = StoresOfPartitions(self._stores_of(parameters), parameters.partition, _not_there)
        return parameters.queryable_store_type.create(provider, name)

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Return the answer of each partition, all as of one commit.

        It is the newest commit if the request has a bound or requires an active task.

        Raises:
            UnknownStateStoreError: the topology has no store of that name.
            StreamsError: a key of the query does not have the type of the store's serde.
            UnsupportedOperationError: Kafka refuses such a query of such a store.
        """
        self._check_known(request.store_name)
        if request.store_name in self._global_builders:
            return StateQueryResult(global_result=OF_GLOBAL_STORE)
        active = self._is_active()
        if request.active_required or not request.position_bound.is_unbounded():
            self._reader.look()
        snapshot = self._reader.read(request.store_name, request.partitions)
        if request.active_required and not active:
            results = {task.task.partition: _NOT_ACTIVE for task in snapshot.tasks}
        else:
            results = {task.task.partition: self._answer(request, task, snapshot.manifest) for task in snapshot.tasks}
        for partition in request.partitions or ():
            results.setdefault(partition, NOT_PRESENT)
        return StateQueryResult(results)

    def _answer(self, request: StateQueryRequest, task: StandbySnapshot, manifest: Manifest) -> QueryResult:
        began, partition = time.perf_counter_ns(), task.task.partition
        needed = self._needed(request.store_name, task.task, manifest)
        position = position_of(needed, self._settled(manifest))
        bound = PositionBound.unbounded() if request.active_required else request.position_bound
        store = task.store(request.store_name)
        if is_permitted(position, bound, needed, partition):
            result = run_query(store, request.query)
        else:
            result = QueryResult.not_up_to_bound(position, bound, partition)
        if request.execution_info_enabled:
            result = result.add_execution_info(
                f"Handled in {type(store).__name__} of task {task.task} as of epoch {manifest.epoch} in "
                f"{time.perf_counter_ns() - began}ns"
            )
        return result.with_position(position)

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return the lag of each partition of each store, by store and partition.

        Asks the brokers for the ends of the source topics; raises KafkaError if they do not answer.
        """
        manifest, stored = self._reader.current()
        settled = self._settled(manifest)
        needed = {
            (name, task.partition): self._needed(name, task, manifest)
            for name in self._builders
            for task in stored.with_store(name)
        }
        with closing(ConfluentAdmin(self._config)) as admin:
            every = sorted({tp for each in needed.values() for tp in each})
            ends = admin.end_offsets(every, read_committed=True) if every else {}
        lags: dict[str, dict[int, LagInfo]] = {}
        for (name, partition), partitions in sorted(needed.items()):
            seen = sum(settled[tp.topic][tp.partition] for tp in partitions)
            lags.setdefault(name, {})[partition] = LagInfo(seen, sum(ends[tp] for tp in partitions))
        return lags

    def store_sizes(self) -> dict[str, StoreSize]:
        """Return the size of each store as of the newest commit, by name: its segments and entries.

        The segments are those of its tasks, which may have other stores too. The entries are counted in copies of the
        state on this machine, so only if the whole state has at most MOST_COUNTED_BYTES. The size of global stores is
        unknown, because they are not in the checkpoint.

        Raises:
            StateStoreNotAvailableError: there is no checkpoint.
            TaskCorruptedError: a segment of the newest manifest is missing.
        """
        manifest, stored = self._reader.current()
        logs = {task: log_from_json(dict(manifest.entry(str(task)).segments)) for task in stored.tasks}
        is_small = sum(log.content_bytes() for log in logs.values()) <= MOST_COUNTED_BYTES
        sizes = dict.fromkeys(self.stores(), StoreSize())
        for name, builder in self._builders.items():
            found = [logs[task] for task in stored.with_store(name)]
            if found:
                sizes[name] = StoreSize(
                    self._entries(name) if is_small and builder.supplier.kind != CUSTOM else None,
                    sum(len(log.deltas) + len(log.snapshots) for log in found),
                    sum(log.file_bytes() for log in found),
                )
        return sizes

    def _entries(self, name: str) -> int | None:
        """Return the number of entries of a store; None if the program has another layout."""
        try:
            return sum(task.entries(name) for task in self._reader.read(name).tasks)
        except IncompatibleCheckpointError:
            return None

    def query_metadata_for_key(
        self,
        store_name: str,
        key: Any,
        key_serde: Serde | None = None,
        partitioner: StreamPartitioner | None = None,
        headers: Headers = (),
    ) -> KeyQueryMetadata:
        """Return the partition of a store that has `key`, and the address of this program.

        Args:
            store_name: the name of the store.
            key: the key; for windows and sessions, the key within the window.
            key_serde: serializes the key like the source records did; None for the serde of the store.
            partitioner: chose the partitions of those records; None for Kafka's default.
            headers: the headers of the source records, for the serde and the partitioner.

        Raises:
            UnknownStateStoreError: the topology has no store of that name.
            StateStoreNotAvailableError: there is no checkpoint.
            StreamsError: the key cannot be serialized.
        """
        self._check_known(store_name)
        host = HostInfo.build_from_endpoint(self._config["application.server"])
        _, stored = self._reader.current()
        partitions = len(stored.with_store(store_name))
        place = KeyPartitioner(key_serde, partitioner, headers)
        partition = place.partition(self._builders[store_name], self._config, key, partitions)
        return KeyQueryMetadata(host, frozenset(), partition)

    def streams_metadata(self) -> list[StreamsMetadata]:
        """Return the metadata of this program: all stores and all input partitions.

        Raises StateStoreNotAvailableError if there is no checkpoint.
        """
        offsets = self._reader.newest().offsets
        partitions = (TopicPartition(topic, number) for topic, each in offsets.items() for number in range(len(each)))
        host = HostInfo.build_from_endpoint(self._config["application.server"])
        return [StreamsMetadata(host, frozenset(self.stores()), frozenset(partitions))]

    def _needed(self, store_name: str, task: TaskId, manifest: Manifest) -> list[TopicPartition]:
        _, stored = self._reader.current()
        group = stored.groups.get(task)
        return source_partitions(self._built, store_name, task.partition, manifest.offsets, group)

    def _settled(self, manifest: Manifest) -> Mapping[str, list[int]]:
        """Return the settled offsets of the source topics.

        All records before them are in the stores of `manifest`.
        """
        with self._lock:
            if self._settled_version != manifest.query_id:
                self._settled_version, self._settled_epoch, self._settled_offsets = manifest.query_id, -1, {}
            if manifest.epoch < self._settled_epoch:  # another thread has read a newer manifest in the meantime
                return settled_offsets(self._built, manifest, {})
            if manifest.epoch > self._settled_epoch:
                self._settled_epoch = manifest.epoch
                self._settled_offsets = settled_offsets(self._built, manifest, self._settled_offsets)
            return self._settled_offsets

    def staleness(self) -> Staleness:
        """Return epoch, time and age of the commit that answers queries now.

        Raises StateStoreNotAvailableError if there is no checkpoint.
        """
        manifest = self._reader.newest()
        age = max(self._clock.milliseconds() - manifest.committed_ms, 0) if manifest.epoch else None
        return Staleness(manifest.epoch, manifest.committed_ms, age)

    def task_metadata(self) -> tuple[TaskMetadata, ...]:
        """Return the progress of each task: positions of the newest commit, and the ends of its partitions.

        A task that reads only repartition topics, which Spark's shuffle carries, has no partitions.

        Raises:
            StateStoreNotAvailableError: there is no checkpoint.
            KafkaError: the brokers do not answer.
        """
        manifest, stored = self._reader.current()
        positions = {**stored.metadata.begin, **manifest.offsets}
        groups = {task: partitions_read(self._built, task, positions, stored.groups.get(task)) for task in stored.tasks}
        committed = {each: positions[each.topic][each.partition] for group in groups.values() for each in group}
        return self._positions.metadata(groups, lambda admin, partitions: committed)

    def table(self, store_name: str, session: SparkSession, as_of: AsOf | None = None) -> DataFrame:
        """Return the entries of a store as of the newest commit: see `state.query.columns`.

        Args:
            store_name: its name.
            session: the session to read in; its workers must reach the checkpoint.
            as_of: another commit.

        Raises:
            StateStoreNotAvailableError: the commit is not retained.
            UnknownStateStoreError: the topology has no store of that name.
            InvalidStateStoreError: the checkpoint does not have it, or its entries are no table.
        """
        self._check_known(store_name)
        self._check_kept(store_name)
        manifest, stored = self._reader.current()
        if as_of is not None:
            manifest = commit_as_of(self._checkpoint, stored.metadata, as_of)
        return store_frame(
            session, self._scan(store_name, manifest, stored), empty_store(self._builders[store_name], self._config)
        )

    def _scan(self, store_name: str, manifest: Manifest, stored: StoredTasks) -> StateScan:
        tasks = tuple((task, manifest.entry(str(task))) for task in stored.with_store(store_name))
        if not tasks:
            raise _not_there(store_name)
        return StateScan(self._checkpoint.uri, manifest.epoch, self._builders[store_name], self._config, tasks)

    def features(self, store_names: Sequence[str]) -> Features:
        """Return versioned stores as the features of labels, all as of one commit; also for labels in a DataFrame.

        Raises the errors of `versioned_stores`.
        """
        names = versioned_stores(store_names, self.stores())
        for name in names:
            self._check_kept(name)

        def partitions() -> dict[str, list[StateStore]]:
            found = self._reader.read_all(names)
            stores = {name: [task.store(name) for task in each.tasks] for name, each in found.items()}
            return {name: _existing(name, each) for name, each in stores.items()}

        def scans() -> dict[str, StateScan]:
            manifest, stored = self._reader.current()
            return {name: self._scan(name, manifest, stored) for name in names}

        return CheckpointFeatures(names, partitions, scans)

    def manifests(self, session: SparkSession) -> DataFrame:
        """Return a row for each epoch with a retained manifest."""
        return manifest_frame(session, self._reader.retained())

    def segments(self, session: SparkSession) -> DataFrame:
        """Return a row for each segment of the newest manifest."""
        return segment_frame(session, self._reader.newest())

    def close(self) -> None:
        """Release all resources; stores that were returned become unreadable."""
        self._reader.close()
        self._global_reader.close()
        self._positions.close()

    def _stores_of(self, parameters: StoreQueryParameters) -> Callable[[IsolationLevel | None], list[StateStore]]:
        """Return a function for the stores of the requested partitions, all as of one commit, at every level."""
        name, partition = parameters.store_name, parameters.partition
        if self._as_of is not None:
            self._check_kept(name)
        if name in self._global_builders:
            return lambda _: [self._global_reader.store(name)]
        partitions = None if partition is None else (partition,)

        def stores(_: IsolationLevel | None) -> list[StateStore]:
            found = [task.store(name) for task in self._reader.read(name, partitions).tasks]
            return [store for store in found if store is not None]

        return stores

    def _check_kept(self, store_name: str) -> None:
        if store_name in self._global_builders:
            raise InvalidStateStoreError(
                f"Store {store_name} is a global store, which is not in the checkpoint: read its present content with "
                "store(), or read the topic that fills it."
            )

    def _check_known(self, store_name: str) -> None:
        check_known(store_name, self.stores())


def _existing(store_name: str, stores: Iterable[StateStore | None]) -> list[StateStore]:
    found = [store for store in stores if store is not None]
    if not found:
        raise _not_there(store_name)
    return found


def _not_there(store_name: str) -> InvalidStateStoreError:
    return InvalidStateStoreError(
        f"The state store, {store_name}, is not in the checkpoint: another topology created the checkpoint."
    )
