"""The interface of hosts for `KafkaStreams`.

A host is opened by name, so that no host depends on the packages of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Protocol, Self

from msgspec import Meta

from penstock.host.group_membership_operation import GroupMembershipOperation
from penstock.metrics.host_metrics import Measured
from penstock.metrics.record_counts import RecordCounts
from penstock.plan.subtopology import StreamPartitioner, TaskId
from penstock.record import Headers, TopicPartition
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder
from penstock.state.query.metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from penstock.state.query.queryable import StoreQueryParameters
from penstock.state.query.request import StateQueryRequest, StateQueryResult
from penstock.task.taps import TappedRecord

if TYPE_CHECKING:
    from penstock.state.query.features import Features  # its module needs Arrow

STATE_ELSEWHERE: Final = "penstock: the state is not in changelog topics"
"""The metadata of offsets from hosts with state outside of changelog topics.

Existing changelog topics are older than the offsets, and another host must not continue with them.
"""


AsOf = int | datetime
"""A commit: the one of an epoch, or the last one at a time. A time without a zone is in that of the machine."""


class State(Enum):
    """The states of an application (Kafka class: KafkaStreams.State)."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"

    def has_not_started(self) -> bool:
        """Return whether `start` has not been called."""
        return self is State.CREATED

    def is_running_or_rebalancing(self) -> bool:
        """Return whether the application has started, and is not shutting down."""
        return self in (State.RUNNING, State.REBALANCING)

    def is_shutting_down(self) -> bool:
        """Return whether the application is closing, or stops after an error."""
        return self in (State.PENDING_SHUTDOWN, State.PENDING_ERROR)

    def has_completed_shutdown(self) -> bool:
        """Return whether the application has ended, with or without an error."""
        return self in (State.NOT_RUNNING, State.ERROR)

    def has_started_or_finished_shutting_down(self) -> bool:
        """Return whether the application is shutting down or has ended."""
        return self.is_shutting_down() or self.has_completed_shutdown()


class StreamThreadExceptionResponse(Enum):
    """The response of a handler of uncaught exceptions (Kafka class: StreamThreadExceptionResponse).

    REPLACE_THREAD: continue from the last commit with new workers, within `penstock.restart.max.attempts`.
    SHUTDOWN_CLIENT: end in the state ERROR.
    SHUTDOWN_APPLICATION: end all instances of the application in the state ERROR. On Spark there is only one.
    """

    REPLACE_THREAD = "REPLACE_THREAD"
    SHUTDOWN_CLIENT = "SHUTDOWN_CLIENT"
    SHUTDOWN_APPLICATION = "SHUTDOWN_APPLICATION"


class HostListener(Protocol):
    """Receives the reports of a host, from any thread."""

    def on_running(self) -> None:
        """Report that tasks are running."""
        ...

    def on_rebalancing(self) -> None:
        """Report that tasks are stopped for a rebalance; `on_running` or `on_error` follows."""
        ...

    def on_stopped(self) -> None:
        """Report the planned end of the host. All input until then has been processed without an error."""
        ...

    def on_failure(self, error: BaseException) -> StreamThreadExceptionResponse:
        """Return the response to `error`, which has stopped all tasks."""
        ...

    def on_error(self, error: BaseException) -> None:
        """Report that the host has ended with `error`."""
        ...


class Staleness(NamedTuple):
    """The commit up to which state is read.

    epoch: number of the newest known commit, 0 before the first. committed_ms: time of the commit. age_ms: its age in
    ms, None before the first commit.
    """

    epoch: int
    committed_ms: int
    age_ms: int | None


class CommitFigures(NamedTuple):
    """The duration and size of a commit.

    number: of the commit, on Spark the epoch. committed_at_ms: its end, in ms since the epoch. records: number of
    records that tasks processed for it. phases_ms: duration (ms) of each phase, in order.
    """

    number: int
    committed_at_ms: int
    records: int
    phases_ms: Mapping[str, float]


@dataclass(frozen=True)
class MemberStatistics:
    """A member of a group."""

    member: Annotated[str, Meta(description="its id")]
    client: Annotated[str, Meta(description="its client id")]
    host: Annotated[str, Meta(description="its address")]


@dataclass(frozen=True)
class GroupStatistics:
    """The group of an application that is watched on threads."""

    type: Annotated[str, Meta(description="the protocol of the group")]
    state: Annotated[str, Meta(description="its state")]
    members: Annotated[Sequence[MemberStatistics], Meta(description="its members")]


@dataclass(frozen=True, kw_only=True)
class WatchedStatistics:
    """The facts about an application that another process can see.

    Args:
        state: its state; None if too little is seen of it.
        unseen: a text on the figures that cannot be seen; None if all can.
        advanced: by task, the number of offsets committed since the start.
        group: its group, on threads.
    """

    state: State | None = None
    unseen: str | None = None
    advanced: Mapping[str, int] | None = None
    group: GroupStatistics | None = None


@dataclass(frozen=True, kw_only=True)
class HostStatistics(RecordCounts):
    """The figures of a host since its start; None for those that only other hosts have.

    Those of named topologies are the sums of the numbers, and the figures of each.

    Args:
        records_in, bytes_in, records_out: of topics that are not the application's own.
        answers_in: answers of calls, from their topics.
        records_per_second: of input, over the last epochs with records.
        lag: offsets between positions and ends of the inputs at the last look; on threads those of this instance.
        epoch, epoch_ms: the last committed epoch of all runs, and its duration.
        unread: after a run to the end, the partitions that the group has not finished, as text.
        recent_commits: newest last.
        awaited: the partitions for which records of a task wait, by task.
        workers: where each task runs, or ran last; of a watched group, its member.
        standbys: the sum of the positions in the changelogs, by standby task.
        restoring: what is done and what there is in all, by task that is restored: offsets, on Spark entries.
        clients: see `client_statistics`.
        watched: None if this process runs the application.
        topologies: the figures of each named topology.
    """

    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    answers_in: int = 0
    records_per_second: int | None = None
    lag: int | None = None
    commits: int | None = None
    epoch: int | None = None
    epoch_ms: int | None = None
    unread: str | None = None
    recent_commits: Sequence[CommitFigures] = ()
    awaited: Mapping[str, Sequence[TopicPartition]] = field(default_factory=dict)
    workers: Mapping[str, str] = field(default_factory=dict)
    standbys: Mapping[str, int] | None = None
    restoring: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    clients: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    watched: WatchedStatistics | None = None
    topologies: Mapping[str, HostStatistics] | None = None

    def by_topology(self) -> Mapping[str, HostStatistics]:
        """Return the figures of each topology; the only one of an application has an empty name."""
        return {"": self} if self.topologies is None else self.topologies

    def by_name(self) -> dict[str, Any]:
        """Return the figures that the host has, by name."""
        if self.topologies is None:
            return {name: value for name, value in vars(self).items() if value is not None}
        sums = {name: value for name, value in vars(self).items() if isinstance(value, int)}
        return {**sums, "topologies": {name: each.by_name() for name, each in self.topologies.items()}}


class StoreSize(NamedTuple):
    """The size of a store; None for unknown values.

    entries: approximate number of committed entries in all partitions accessible to this program. segments,
    segment_bytes: on Spark, number and size of the segments of the tasks with the store.
    """

    entries: int | None = None
    segments: int | None = None
    segment_bytes: int | None = None


RECENT_COMMITS: Final = 60
"""Number of commits whose measurements a host keeps."""


@dataclass(frozen=True)
class TaskMetadata:
    """The progress of a task in its input partitions on the brokers (Kafka class: TaskMetadata).

    committed_offsets: the next offset to read after the last commit; before the first commit of a partition, its first
    offset. end_offsets: the offset after its last committed record.
    """

    task_id: TaskId
    committed_offsets: Mapping[TopicPartition, int]
    end_offsets: Mapping[TopicPartition, int]

    @property
    def topic_partitions(self) -> frozenset[TopicPartition]:
        """The partitions."""
        return frozenset(self.end_offsets)

    def lag_of(self, partition: TopicPartition) -> int:
        """Return the number of unread offsets of `partition`."""
        return max(0, self.end_offsets[partition] - self.committed_offsets[partition])

    @property
    def lag(self) -> int:
        """The number of unread offsets of all partitions."""
        return sum(map(self.lag_of, self.end_offsets))


class StateQueries(Protocol):
    """Answers interactive queries of one application; every answer reflects one commit."""

    def stores(self) -> Mapping[str, StoreBuilder]:
        """Return the builders of the topology's stores, by name."""
        ...

    def store(self, parameters: StoreQueryParameters) -> Any:
        """Return a read-only view of a store. Raises UnknownStateStoreError if the topology does not have it."""
        ...

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Return the result of each partition; raises UnknownStateStoreError if the topology lacks the store."""
        ...

    def features(self, store_names: Sequence[str]) -> Features:
        """Return versioned stores as the features of labels."""
        ...

    def all_local_store_partition_lags(self) -> Mapping[str, Mapping[int, LagInfo]]:
        """Return the lag of each store partition to its source topics, by store and partition."""
        ...

    def store_sizes(self) -> Mapping[str, StoreSize]:
        """Return the size of each store, by name, at the newest commit; may read state."""
        ...

    def query_metadata_for_key(
        self,
        store_name: str,
        key: Any,
        key_serde: Serde | None = None,
        partitioner: StreamPartitioner | None = None,
        headers: Headers = (),
    ) -> KeyQueryMetadata:
        """Return the partition of a store for `key`, and the program that serves it."""
        ...

    def streams_metadata(self) -> list[StreamsMetadata]:
        """Return the stores and input partitions of each program of the application."""
        ...

    def task_metadata(self) -> tuple[TaskMetadata, ...]:
        """Return the progress of this program's tasks by id; sends requests to the brokers."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def staleness(self) -> Staleness:
        """Return the current staleness of queries; raises StateStoreNotAvailableError if no state is readable."""
        ...

    def close(self) -> None:
        """Release all resources; stores returned before are no longer readable."""
        ...


@dataclass(frozen=True)
class ApplicationReset:
    """The items that a reset of an application deletes.

    checkpoint: its URI, on Spark; None if absent. epoch: its last committed epoch; None if absent. state_directory: on
    this machine; None if absent. groups: consumer groups. topics: internal topics.
    """

    application_id: str
    checkpoint: str | None
    epoch: int | None
    state_directory: str | None
    groups: tuple[str, ...]
    topics: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not (self.checkpoint or self.state_directory or self.groups or self.topics)


class HostLife(Protocol):
    """Runs the tasks of one or more topologies, as used by an application."""

    def start(self, listener: HostListener) -> None:
        """Check the topology against brokers and checkpoint, then start in the background.

        Raises StreamsError if the host must not start.
        """
        ...

    def pause(self) -> None:
        """Pause all tasks after the current commit, or from the start: no records, no punctuations."""
        ...

    def resume(self) -> None:
        """Resume the tasks after `pause`."""
        ...

    def clean_up(self) -> None:
        """Delete the local files that can be rebuilt from durable ones; only while stopped.

        Raises LockError if another program runs.
        """
        ...

    def close(self, timeout_ms: int, operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT) -> bool:
        """Stop after the current commit and release everything; return whether all ended within `timeout_ms`.

        operation: whether the host leaves its group, so that other members take over the tasks at once instead of after
        the session timeout.
        """
        ...

    def rebalance(self, reason: str) -> None:
        """Rebalance the tasks after the current commit, for the current topics and brokers; returns immediately.

        reason: for the log.
        """
        ...

    def summary(self) -> str:
        """Return one line for humans: guarantee, broker, checkpoint."""
        ...

    def statistics(self) -> HostStatistics:
        """Return the current statistics."""
        ...


class Host(HostLife, Protocol):
    """Runs the tasks of one topology: input, output and commits."""

    def reset(self) -> None:
        """Delete all positions and state, so that the next start is a first one.

        Call it only while stopped. Raises LockError if another program runs.
        """
        ...

    def measured(self) -> Measured:
        """Return the measurements of tasks and the values of sensors."""
        ...

    def table(self, store_name: str, as_of: AsOf | None = None) -> Any:
        """Return a store's entries at the newest commit, or at an earlier one, as a table of the host.

        On Spark it is a DataFrame. Raises UnknownStateStoreError if the topology does not have the store,
        UnsupportedOperationError if the host keeps no earlier commits.
        """
        ...

    def tapped(self, node: str, limit: int) -> Sequence[TappedRecord]:
        """Keep the records that reach a node from now on, and return the last ones.

        The result has up to `limit` records of each task. Raises UnsupportedOperationError if this process does not run
        the tasks.
        """
        ...

    def untap(self, node: str) -> None:
        """Stop keeping the records of a node."""
        ...

    def queries(self) -> StateQueries:
        """Return the interactive queries, which are valid while the host is open."""
        ...
