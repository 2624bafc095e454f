"""What `KafkaStreams` needs of a host. A host is opened by name, so that the packages of one are not those of
another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, Self

from penstock.metrics.host_metrics import Measured
from penstock.plan.subtopology import StreamPartitioner, TaskId
from penstock.record import TopicPartition
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder
from penstock.state.query.metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from penstock.state.query.queryable import StoreQueryParameters
from penstock.state.query.request import StateQueryRequest, StateQueryResult
from penstock.task.taps import TappedRecord

STATE_ELSEWHERE: Final = "penstock: the state is not in changelog topics"
"""The text beside the committed offsets of a host that keeps its state elsewhere. Changelog topics, if there are any,
are of an earlier time, and another host must not go on with them from there."""


class State(Enum):
    """The states of an application (Kafka class: KafkaStreams.State)."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


class StreamThreadExceptionResponse(Enum):
    """What a handler of uncaught exceptions decides (Kafka class: StreamThreadExceptionResponse).

    REPLACE_THREAD: continue from the last commit with new workers, within `penstock.restart.max.attempts`.
    SHUTDOWN_CLIENT: end in the state ERROR.
    SHUTDOWN_APPLICATION: have all instances of the application end so. On Spark there is one.
    """

    REPLACE_THREAD = "REPLACE_THREAD"
    SHUTDOWN_CLIENT = "SHUTDOWN_CLIENT"
    SHUTDOWN_APPLICATION = "SHUTDOWN_APPLICATION"


class HostListener(Protocol):
    """What a host tells the application, from any thread."""

    def on_running(self) -> None:
        """Tell that tasks are being processed."""
        ...

    def on_rebalancing(self) -> None:
        """Report that tasks stand still while they are set up again; `on_running` follows, or `on_error`."""
        ...

    def on_stopped(self) -> None:
        """Report that the host reached the planned end without an error: everything up to it has been processed."""
        ...

    def on_failure(self, error: BaseException) -> StreamThreadExceptionResponse:
        """Return the response to `error`, which has stopped all tasks."""
        ...

    def on_error(self, error: BaseException) -> None:
        """Tell that the host has ended with `error`."""
        ...


class Staleness(NamedTuple):
    """As of when state is read: the number of the newest commit that is known (0: none yet), when it was made, and how
    long ago that is (ms; None before the first)."""

    epoch: int
    committed_ms: int
    age_ms: int | None


class CommitFigures(NamedTuple):
    """What a commit took. number: of the commit, on Spark the epoch. committed_at_ms: when it ended, in ms since the
    epoch. records: that tasks processed for it. phases_ms: how long (ms) it was in each phase, in their order."""

    number: int
    committed_at_ms: int
    records: int
    phases_ms: Mapping[str, float]


class StoreSize(NamedTuple):
    """How large a store is. entries: about how many are committed in all partitions that this program can count.
    segments, segment_bytes: on Spark, the number and the bytes of the segments of the tasks that have the store. None
    is not known."""

    entries: int | None = None
    segments: int | None = None
    segment_bytes: int | None = None


RECENT_COMMITS: Final = 60
"""Commits whose figures a host keeps."""


@dataclass(frozen=True)
class TaskMetadata:
    """How far a task is in the partitions of brokers that it reads (Kafka class: TaskMetadata).

    committed_offsets: the next offset to be read after the last commit; before the first commit of a partition, the
    first offset that it has. end_offsets: the offset behind its last committed record.
    """

    task_id: TaskId
    committed_offsets: Mapping[TopicPartition, int]
    end_offsets: Mapping[TopicPartition, int]

    @property
    def topic_partitions(self) -> frozenset[TopicPartition]:
        """The partitions."""
        return frozenset(self.end_offsets)

    def lag_of(self, partition: TopicPartition) -> int:
        """Return how many offsets of `partition` are to come."""
        return max(0, self.end_offsets[partition] - self.committed_offsets[partition])

    @property
    def lag(self) -> int:
        """How many offsets of all its partitions are to come."""
        return sum(map(self.lag_of, self.end_offsets))


class StateQueries(Protocol):
    """Answers interactive queries of one application; every answer is as of one commit."""

    def stores(self) -> Mapping[str, StoreBuilder]:
        """Return what describes the stores of the topology, by name."""
        ...

    def store(self, parameters: StoreQueryParameters) -> Any:
        """Return the requested store, for reading; raises UnknownStateStoreError if the topology has none of
        that name."""
        ...

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Return what each partition answers; raises UnknownStateStoreError if the topology has no store of that
        name."""
        ...

    def all_local_store_partition_lags(self) -> Mapping[str, Mapping[int, LagInfo]]:
        """Return how far each partition of each store is behind its source topics, by store and partition."""
        ...

    def store_sizes(self) -> Mapping[str, StoreSize]:
        """Return how large each store is, by name, as of the newest commit; may read state."""
        ...

    def query_metadata_for_key(
        self, store_name: str, key: Any, key_serde: Serde | None = None, partitioner: StreamPartitioner | None = None
    ) -> KeyQueryMetadata:
        """Return the partition of a store that has `key`, and the program that offers it."""
        ...

    def streams_metadata(self) -> list[StreamsMetadata]:
        """Return what each program of the application has: stores, and the partitions that it reads."""
        ...

    def task_metadata(self) -> tuple[TaskMetadata, ...]:
        """Return how far each task of this program is, by its id; asks the brokers."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def staleness(self) -> Staleness:
        """Return as of when queries are answered now; raises StateStoreNotAvailableError if nothing can be read."""
        ...

    def close(self) -> None:
        """Release what was opened; stores that were handed out cannot be read any more."""
        ...


@dataclass(frozen=True)
class ApplicationReset:
    """What a reset of an application deletes.

    checkpoint: its URI, on Spark. epoch: the last that is committed there. state_directory: on this machine. They are
    None if there is none. groups: consumer groups. topics: internal topics.
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
    """Runs tasks, of one topology or more: what an application must be able to ask of it."""

    def start(self, listener: HostListener) -> None:
        """Check the topology against brokers and checkpoint, then start in the background; raises StreamsError when it
        must not start."""
        ...

    def pause(self) -> None:
        """Pause all tasks after the running commit, now or from the start: no records, no punctuations."""
        ...

    def resume(self) -> None:
        """Resume the tasks after `pause`."""
        ...

    def clean_up(self) -> None:
        """Delete the files on this machine that can be rebuilt from the durable ones; only while nothing runs. Raises
        LockError if another program runs."""
        ...

    def close(self, timeout_ms: int, leave_group: bool = True) -> bool:
        """Stop after the running commit and release everything; return whether all had ended within `timeout_ms`.
        leave_group: whether the other members of a group may have its tasks at once, or when the session has ended."""
        ...

    def rebalance(self, reason: str) -> None:
        """Set the tasks up again, after the running commit, for the current topics and brokers; returns immediately.
        reason: why, for the log."""
        ...

    def summary(self) -> str:
        """Return one line for people: guarantee, broker, checkpoint."""
        ...

    def statistics(self) -> Mapping[str, Any]:
        """Return a snapshot of figures: records, bytes and ms by name."""
        ...


class Host(HostLife, Protocol):
    """Runs the tasks of one topology: fills them, drains them, commits."""

    def reset(self) -> None:
        """Forget all positions and all state, so that the next start is a first one; only while nothing runs. Raises
        LockError if another program runs."""
        ...

    def measured(self) -> Measured:
        """Return what was measured of tasks, and what sensors recorded."""
        ...

    def table(self, store_name: str) -> Any:
        """Return the entries of a store as of the newest commit, as a table of the host's world: on Spark a DataFrame;
        raises UnknownStateStoreError if the topology has none of that name."""
        ...

    def tapped(self, node: str, limit: int) -> Sequence[TappedRecord]:
        """Return the last records that have reached a node, up to `limit` of each task, and keep such records from now
        on; raises UnsupportedOperationError where this process does not run the tasks."""
        ...

    def untap(self, node: str) -> None:
        """Keep the records of a node no longer."""
        ...

    def queries(self) -> StateQueries:
        """Return what answers interactive queries, for as long as the host is open."""
        ...
