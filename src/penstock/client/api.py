"""The protocols of the clients: Admin, Fetcher, Consumer and Producer, and the values that they take and give.

Here is no client and no import of one: `confluent.py` has the only implementation. All clients speak bytes; serdes
belong to tasks. Every call is bounded in time; what went wrong is a StreamsError that names topic, partition and
bootstrap.servers: BrokerNotFoundError if no broker answers, another RetriableError where the same call may succeed a
moment later, AuthenticationError if brokers refuse the login, AuthorizationError if a right is missing,
UnknownTopicOrPartitionError, TopicExistsError, else KafkaError. A client is used by one thread at a time and is made in
the process that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from penstock.errors import KafkaError, TaskMigratedError
from penstock.record import Headers, PartitionBatch, RecordBatch, TopicPartition

UNKNOWN_LEADER_EPOCH: Final = -1
"""In place of the epoch of a leader that is not known, as in Kafka's protocol (KIP-320)."""


@dataclass(frozen=True)
class NewTopic:
    """A topic to be created (Kafka class: NewTopic). partitions, replication_factor: -1 for the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


class PartitionInfo(NamedTuple):
    """A partition and the ids of the brokers that hold it; leader -1 for none (Kafka class: TopicPartitionInfo)."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True)
class TopicDescription:
    """A topic, its partitions in order and its configuration (Kafka class: TopicDescription).

    config: every key that may be shown; overrides: the keys that are set for this topic and not by the broker.
    """

    name: str
    partitions: tuple[PartitionInfo, ...]
    config: Mapping[str, str]
    overrides: frozenset[str] = frozenset()


class OffsetAndMetadata(NamedTuple):
    """A committed offset and the text beside it (Kafka class: OffsetAndMetadata). leader_epoch: of the leader that has
    written the record before it, -1 if that is not known."""

    offset: int
    metadata: str = ""
    leader_epoch: int = UNKNOWN_LEADER_EPOCH


class EpochPosition(NamedTuple):
    """A position in a partition, and the epoch of the leader that has written the record before it."""

    offset: int
    leader_epoch: int


class MemberDescription(NamedTuple):
    """A member of a group and the partitions that it reads (Kafka class: MemberDescription)."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class GroupDescription:
    """A group of consumers (Kafka class: ConsumerGroupDescription).

    group_type: Classic, Consumer or Streams; state: such as Stable or Empty; assignor: empty where there is none.
    """

    group_id: str
    group_type: str
    state: str
    assignor: str = ""
    members: tuple[MemberDescription, ...] = ()


class GroupIdentity(NamedTuple):
    """A member of a consumer group, as offsets in a transaction show it (Kafka class: ConsumerGroupMetadata).

    instance_id: `group.instance.id` of a static member, None for others.
    """

    group: str
    generation: int
    member_id: str
    instance_id: str | None = None


class GroupCommit(NamedTuple):
    """Offsets that a consumer group without members commits together with records."""

    group: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


class Admin(Protocol):
    """Asks about and changes topics and offsets (Kafka class: Admin)."""

    def cluster_id(self) -> str | None:
        """Return the id of the cluster, None if brokers give none (Kafka class: DescribeClusterResult)."""
        ...

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic, internal ones (`__consumer_offsets`) too."""
        ...

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """Return the id of each of these topics; a topic that is deleted and created again has another id. The result
        leaves out topics that do not exist, and all topics if the brokers give no ids (before 2.8). Raises
        TopicAuthorizationError for one that this user may not see."""
        ...

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create `topics` and return when they can be used; raises TopicExistsError if one exists (others are made)."""
        ...

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their records; raises UnknownTopicOrPartitionError if one does not exist."""
        ...

    def create_partitions(self, name: str, total: int) -> None:
        """Raise the number of partitions of topic `name` to `total`."""
        ...

    def describe_topic(self, name: str) -> TopicDescription:
        """Return partitions and configuration of topic `name`."""
        ...

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of the first record that each partition still has."""
        ...

    def end_offsets(
        self, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition; with `read_committed` its last stable offset."""
        ...

    def offsets_for_time(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition that is not older than `timestamp_ms`; partitions
        without such a record are left out."""
        ...

    def end_positions(
        self, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, EpochPosition]:
        """Return what `end_offsets` does, each with the epoch of the leader that answered; -1 if it does not tell."""
        ...

    def truncated(self, positions: Mapping[TopicPartition, EpochPosition]) -> dict[TopicPartition, EpochPosition]:
        """Return which positions are above what is left of the log that they belong to, though it may have grown since
        (KIP-320), each with the end of what is left and its epoch; both -1 if brokers do not know it."""
        ...

    def committed_offsets(
        self, group: str, partitions: Sequence[TopicPartition], stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what consumer group `group` has committed; partitions without are left out.

        stable: raise UnstableOffsetCommitError if an open transaction is about to commit others (KIP-447); else
        return the last that are committed.
        """
        ...

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit `offsets` for consumer group `group`, which must have no members."""
        ...

    def delete_groups(self, groups: Sequence[str]) -> None:
        """Delete consumer groups with what they have committed; those that do not exist are left out. Raises KafkaError
        for one that has members."""
        ...

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records before these offsets."""
        ...

    def close(self) -> None:
        """Release connections and threads; harmless when called again."""
        ...


class Fetcher(Protocol):
    """Reads ranges of partitions: any number of them, one after the other, over warm connections."""

    def fetch(
        self, partition: TopicPartition, start_offset: int, end_offset: int, read_committed: bool
    ) -> Iterator[RecordBatch]:
        """Yield the records of `partition` from `start_offset` to before `end_offset`, in order, as batches of bytes.

        Offsets may have gaps: compaction, aborted transactions (left out with `read_committed`) and control records.
        `end_offset` must not lie behind the end of the partition (see `Admin.end_offsets`). Raises
        OffsetOutOfRangeError if records from `start_offset` on have been deleted, KafkaError if none arrive in time.
        """
        ...

    def close(self) -> None:
        """Release connections and threads; harmless when called again."""
        ...


class Consumer(Protocol):
    """Follows given partitions, without a group (Kafka class: Consumer, with assign)."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on, in place of what was assigned before."""
        ...

    def incremental_assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions too, from these offsets on; the others keep their positions."""
        ...

    def incremental_unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions no longer; no record of them is returned after it."""
        ...

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no more records of these partitions until `resume`, but for those that have arrived already. A pause
        ends when a partition is given up."""
        ...

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Return records of these partitions again."""
        ...

    def known_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return how far each of these partitions can be read, as the last fetch showed it, without a request;
        partitions that were not fetched yet are left out."""
        ...

    def reached_ends(self) -> dict[TopicPartition, int]:
        """Return up to where partitions have been read since the last call of this method, if it was to their end:
        behind the last record there may be offsets without one."""
        ...

    def leader_epochs(self) -> Mapping[TopicPartition, int]:
        """Return under which epoch of its leader the last record of each partition was written that has arrived, where
        brokers tell it."""
        ...

    def poll(
        self, timeout_ms: int, max_records: int, max_bytes: int | None = None
    ) -> list[tuple[TopicPartition, RecordBatch]]:
        """Return up to `max_records` records that have arrived, and few more than fill `max_bytes`, waiting up to
        `timeout_ms` for the first.

        Runs of records of one partition in the order of their arrival. Raises OffsetOutOfRangeError with the partition
        of which the records from its position on are deleted, or were never there; it is read further when it is
        assigned again.
        """
        ...

    def close(self) -> None:
        """Release connections and threads; harmless when called again."""
        ...


class Producer(Protocol):
    """Writes records, in order for each partition, without transactions (Kafka class: Producer)."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Take a record to be written in the background.

        partition: None for Kafka's default (murmur2 of the key, any where there is no key). timestamp: ms since the
        epoch, None for now. Waits while the buffer is full. Raises KafkaError for a record that cannot be written,
        this one or an earlier one.
        """
        ...

    def flush(self) -> None:
        """Return when all records taken are written; raises KafkaError if one could not be."""
        ...

    def close(self) -> None:
        """Flush and release connections and threads; harmless when called again."""
        ...


class RefusedRecord(NamedTuple):
    """A record that brokers refuse, and why. part: which part of the output it was in. timestamp: ms."""

    part: int
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    error: KafkaError


class RefusedOutputError(KafkaError):
    """Brokers refuse a part of what was sent. Make all since the last commit again, with the same records: the producer
    then asks about those that brokers refuse."""


class CommitRefusedError(TaskMigratedError):
    """The group refuses offsets of a member. code: the code of its answer."""

    def __init__(self, message: str, code: int) -> None:
        """Take the code."""
        super().__init__(message)
        self.code = code


OnRefused = Callable[[RefusedRecord], Sequence[PartitionBatch]]
"""Returns what is to be written in place of a record that is refused, nothing to drop it; raises to write nothing."""


class BatchProducer(Protocol):
    """Writes batches of records, in order for each partition, without transactions."""

    def send(self, output: Sequence[PartitionBatch], on_refused: OnRefused) -> None:
        """Take records to be written in the background. Waits while the buffer is full. on_refused: decides about
        records that the producer does not take for what they are, or that brokers have refused before. Raises what that
        raises, RefusedOutputError if brokers refuse records, and KafkaError for a record that cannot be written, this
        one or an earlier one."""
        ...

    def flush(self) -> dict[TopicPartition, int]:
        """Return when all records taken are written: the offset behind the last record of each partition that was
        written to since the flush before. Raises as `send`."""
        ...

    def lags(self) -> bool:
        """Return whether brokers take records so slowly that those sent should be flushed before there are more."""
        ...

    def close(self) -> None:
        """Release connections and threads, and drop what was not written; harmless when called again."""
        ...


class TransactionalProducer(Protocol):
    """Writes batches of records in transactions, with the offsets of what they were made from. A new one has ended what
    an earlier one of its transactional id left open, and fenced that one."""

    def send(self, output: Sequence[PartitionBatch], on_refused: OnRefused) -> None:
        """Take records to be written in the background, in the open transaction or a new one. Waits while the buffer is
        full. on_refused: decides about records that the producer does not take for what they are, or that brokers have
        refused before. Raises what that raises, RefusedOutputError if brokers refuse records, ProducerFencedError and
        TaskMigratedError as `commit`, and KafkaError for a record that cannot be written; then the transaction is
        over."""
        ...

    def lags(self) -> bool:
        """Return whether brokers take records so slowly that those sent should be committed before there are more."""
        ...

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupIdentity
    ) -> dict[TopicPartition, int]:
        """Commit what was sent together with `offsets` of the group of `member`; return the offset behind the last
        record of each partition that was written to.

        Raises CommitRefusedError if the group refuses the offsets of the member; TaskMigratedError if the broker has
        ended the transaction after transaction.timeout.ms; ProducerFencedError if another producer has fenced this one;
        RefusedOutputError if brokers refuse records; KafkaError if the transaction failed, or nobody knows whether it
        was committed. In all cases the transaction is over, and the next one may begin.
        """
        ...

    def abort(self) -> None:
        """End the open transaction without a commit; nothing of it is ever read."""
        ...

    def close(self) -> None:
        """Abort, and release connections and threads; harmless when called again."""
        ...
