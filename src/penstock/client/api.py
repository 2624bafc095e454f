"""The protocols of the clients (Admin, Fetcher, Consumer, producers) and their data types.

This module neither contains nor imports a client: `client/confluent` has the only implementation. All clients work with
bytes; serdes belong to tasks. Every call has a timeout. Failures raise a StreamsError that names topic, partition and
bootstrap.servers: BrokerNotFoundError if no broker answers, another RetriableError if the same call may succeed a
moment later, AuthenticationError if brokers refuse the login, AuthorizationError if a permission is missing,
UnknownTopicOrPartitionError, TopicExistsError, otherwise KafkaError. A client is not thread-safe: it is created in the
process that uses it, and used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from penstock.errors import KafkaError, TaskMigratedError
from penstock.record import Headers, PartitionBatch, RecordBatch, TopicPartition

UNKNOWN_LEADER_EPOCH: Final = -1
"""Leader epoch of a position whose epoch is unknown, as in Kafka's protocol (KIP-320)."""


@dataclass(frozen=True)
class NewTopic:
    """A new topic (Kafka class: NewTopic). partitions, replication_factor: -1 for the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


class PartitionInfo(NamedTuple):
    """A partition and the ids of its brokers; leader is -1 without a leader (Kafka class: TopicPartitionInfo)."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True)
class TopicDescription:
    """A topic, its partitions in order and its configuration (Kafka class: TopicDescription).

    config: every key except sensitive ones; overrides: the keys set on the topic itself rather than on the broker.
    """

    name: str
    partitions: tuple[PartitionInfo, ...]
    config: Mapping[str, str]
    overrides: frozenset[str] = frozenset()


class OffsetAndMetadata(NamedTuple):
    """A committed offset with its metadata (Kafka class: OffsetAndMetadata).

    leader_epoch: the epoch of the leader that wrote the previous record, -1 if unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = UNKNOWN_LEADER_EPOCH


class EpochPosition(NamedTuple):
    """A position in a partition, with the leader epoch of the previous record."""

    offset: int
    leader_epoch: int


class MemberDescription(NamedTuple):
    """A member of a group and its assigned partitions (Kafka class: MemberDescription)."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


DEAD: Final = "Dead"
"""The state of a group that the brokers do not have."""


@dataclass(frozen=True)
class GroupDescription:
    """A consumer group (Kafka class: ConsumerGroupDescription).

    group_type: Classic, Consumer or Streams; state: such as Stable or Empty; assignor: empty if the group has no
    assignor.
    """

    group_id: str
    group_type: str
    state: str
    assignor: str = ""
    members: tuple[MemberDescription, ...] = ()

    @property
    def exists(self) -> bool:
        """Whether the brokers have the group."""
        return self.state != DEAD


class GroupIdentity(NamedTuple):
    """A member of a consumer group, for committing offsets in a transaction (Kafka class: ConsumerGroupMetadata).

    instance_id: `group.instance.id` of a static member, None for others.
    """

    group: str
    generation: int
    member_id: str
    instance_id: str | None = None


class GroupCommit(NamedTuple):
    """Offsets of a consumer group without members, committed together with records."""

    group: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


class Admin(Protocol):
    """Describes and changes topics, offsets and groups (Kafka class: Admin)."""

    def cluster_id(self) -> str | None:
        """Return the id of the cluster, None if brokers do not return an id (Kafka class: DescribeClusterResult)."""
        ...

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic, including internal topics (`__consumer_offsets`)."""
        ...

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """Return the ids of topics; a recreated topic has another id.

        The result omits topics that do not exist, and all topics if the brokers have no ids (before 2.8). Raises
        TopicAuthorizationError for a topic that this user may not describe, whether it exists or not.
        """
        ...

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create `topics` and wait until they are usable.

        Raises TopicExistsError if one exists; the others are still created.
        """
        ...

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their records; raises UnknownTopicOrPartitionError if one does not exist."""
        ...

    def create_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions of topic `name` to `total`."""
        ...

    def describe_topic(self, name: str) -> TopicDescription:
        """Return the partitions and the configuration of topic `name`."""
        ...

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of the first remaining record of each partition."""
        ...

    def end_offsets(
        self, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each partition; with `read_committed` its last stable offset."""
        ...

    def offsets_for_time(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """Return the earliest offset of each partition with a timestamp of at least `timestamp_ms`.

        Partitions without such a record are omitted.
        """
        ...

    def end_positions(
        self, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, EpochPosition]:
        """Return the `end_offsets` with the epochs of the leaders that answered, -1 for unknown epochs."""
        ...

    def truncated(self, positions: Mapping[TopicPartition, EpochPosition]) -> dict[TopicPartition, EpochPosition]:
        """Return the truncated positions: those above the remaining log of their leader epoch (KIP-320).

        They count as truncated even if the log has grown since. Each comes with the end of the remaining log and its
        epoch, both -1 if brokers do not know it.
        """
        ...

    def committed_offsets(
        self, group: str, partitions: Sequence[TopicPartition], stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of consumer group `group`; partitions without an offset are omitted.

        stable: raise UnstableOffsetCommitError if an open transaction has pending offsets (KIP-447); otherwise return
        the last committed offsets.
        """
        ...

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit `offsets` for consumer group `group`, which must not have members."""
        ...

    def delete_groups(self, groups: Sequence[str]) -> None:
        """Delete consumer groups with their committed offsets.

        Groups that do not exist are skipped. Raises KafkaError for a group with members.
        """
        ...

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records before these offsets."""
        ...

    def close(self) -> None:
        """Release connections and threads; idempotent."""
        ...


class Fetcher(Protocol):
    """Reads ranges of partitions, one after the other, over warm connections."""

    def fetch(
        self, partition: TopicPartition, start_offset: int, end_offset: int, read_committed: bool
    ) -> Iterator[RecordBatch]:
        """Yield the records of `partition` from `start_offset` until before `end_offset`, in order, as bytes.

        Offsets may have gaps, due to compaction, aborted transactions (skipped with `read_committed`) and control
        records. `end_offset` must not be above the end of the partition (see `Admin.end_offsets`). Raises
        OffsetOutOfRangeError if records from `start_offset` on have been deleted, KafkaError if no records arrive in
        time.
        """
        ...

    def close(self) -> None:
        """Release connections and threads; idempotent."""
        ...


class Consumer(Protocol):
    """Reads assigned partitions, without a group (Kafka class: Consumer, with assign)."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, replacing the previous assignment."""
        ...

    def incremental_assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Add these partitions, from these offsets; the others keep their positions."""
        ...

    def incremental_unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these partitions; their records are no longer returned."""
        ...

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these partitions until `resume`; records that have already arrived are still returned.

        A pause ends when the partition is unassigned.
        """
        ...

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Return records of these partitions again."""
        ...

    def known_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the readable end of each partition from the last fetch, without a request.

        Partitions that have not been fetched yet are omitted.
        """
        ...

    def reached_ends(self) -> dict[TopicPartition, int]:
        """Return the end offsets of partitions read to their end since the last call.

        They may be above the offset of the last record plus one: offsets at the end may have no records.
        """
        ...

    def leader_epochs(self) -> Mapping[TopicPartition, int]:
        """Return the leader epoch of the last record received from each partition.

        Partitions are omitted if brokers do not return epochs.
        """
        ...

    def poll(
        self, timeout_ms: int, max_records: int, max_bytes: int | None = None
    ) -> list[tuple[TopicPartition, RecordBatch]]:
        """Return up to `max_records` records that have arrived, waiting up to `timeout_ms` for the first.

        The result has runs of records of one partition, in order of arrival, and exceeds `max_bytes` by a few records
        at most. Raises OffsetOutOfRangeError, with the partition, if the records from its position on were deleted or
        never existed; the partition is read again once it is assigned again.
        """
        ...

    def close(self) -> None:
        """Release connections and threads; idempotent."""
        ...


class Producer(Protocol):
    """Writes records without transactions, in order within each partition (Kafka class: Producer)."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Send a record in the background; blocks while the buffer is full.

        partition: None for Kafka's default (murmur2 of the key, any partition without a key). timestamp: ms since the
        epoch, None for now. Raises KafkaError if this record or an earlier one cannot be written.
        """
        ...

    def flush(self) -> None:
        """Wait until all records are written; raises KafkaError if one cannot be written."""
        ...

    def close(self) -> None:
        """Flush, and release connections and threads; idempotent."""
        ...


class RefusedRecord(NamedTuple):
    """A record that brokers refuse, with their error. part: index of its part of the output. timestamp: ms."""

    part: int
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    error: KafkaError


class RefusedOutputError(KafkaError):
    """Brokers refuse a part of the records sent.

    Send all records since the last commit again, unchanged: the producer then calls `on_refused` for the refused ones.
    """


class CommitRefusedError(TaskMigratedError):
    """The group refuses the offsets of a member.

    Args:
        message: the text of the error.
        code: the error code of the response.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


OnRefused = Callable[[RefusedRecord], Sequence[PartitionBatch]]
"""Returns the replacement of a refused record, empty to drop the record. Raises to write nothing."""


class BatchProducer(Protocol):
    """Writes batches of records without transactions, in order within each partition."""

    def send(self, output: Sequence[PartitionBatch], on_refused: OnRefused) -> None:
        """Send records in the background; blocks while the buffer is full.

        on_refused: called for records that the producer cannot encode, or that brokers have refused before. Raises the
        errors of `on_refused`, RefusedOutputError if brokers refuse records, and KafkaError if a record of this call or
        an earlier one cannot be written.
        """
        ...

    def flush(self) -> dict[TopicPartition, int]:
        """Wait until all records are written, and return end offsets by partition.

        They are the offset after the last record of each partition written to since the previous flush. Raises the
        errors of `send`.
        """
        ...

    def lags(self) -> bool:
        """Return whether slow brokers require a flush before more records are sent."""
        ...

    def close(self) -> None:
        """Release connections and threads, dropping unwritten records; idempotent."""
        ...


class TransactionalProducer(Protocol):
    """Writes batches of records in transactions, with the offsets of their input.

    A new producer first ends the open transaction of an earlier one with the same transactional id, and fences it.
    """

    def send(self, output: Sequence[PartitionBatch], on_refused: OnRefused) -> None:
        """Send records in the background, in the open transaction or a new one.

        It blocks while the buffer is full.

        on_refused: called for records that the producer cannot encode, or that brokers have refused before. Raises the
        errors of `on_refused`, RefusedOutputError if brokers refuse records, ProducerFencedError and TaskMigratedError
        as in `commit`, and KafkaError if a record cannot be written; the transaction is over then.
        """
        ...

    def lags(self) -> bool:
        """Return whether slow brokers require a commit before more records are sent."""
        ...

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupIdentity
    ) -> dict[TopicPartition, int]:
        """Commit the records sent, together with `offsets` of the group of `member`.

        Returns the offset after the last record of each partition written to.

        Raises CommitRefusedError if the group refuses the offsets of the member; TaskMigratedError if the broker has
        ended the transaction after transaction.timeout.ms; ProducerFencedError if another producer has fenced this one;
        RefusedOutputError if brokers refuse records; KafkaError if the transaction failed, or the outcome of the commit
        is unknown. In all cases the transaction is over, and the next one may begin.
        """
        ...

    def abort(self) -> None:
        """Abort the open transaction; its records are never read."""
        ...

    def close(self) -> None:
        """Abort, and release connections and threads; idempotent."""
        ...
