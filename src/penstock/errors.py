"""The tree of Penstock's errors, and how messages count; it imports nothing.

`XError` here is `XException` of Kafka Streams. Where Java raises IllegalArgumentException Penstock raises ValueError,
for IllegalStateException RuntimeError, for NullPointerException TypeError: the types a Python caller expects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.record import TopicPartition


class StreamsError(Exception):
    """Root of all errors of Penstock (Kafka class: StreamsException)."""


class TopologyError(StreamsError):
    """The program describes a topology that cannot be; raised while it is built (Kafka class: TopologyException)."""

    def __init__(self, message: str) -> None:
        super().__init__(f"Invalid topology: {message}")


class ConfigError(StreamsError, ValueError):
    """A configuration key is missing, unknown where it must be known, or has a value that cannot be (Kafka class:
    ConfigException)."""


class SerializationError(StreamsError):
    """A serde cannot write a value or read bytes (Kafka class: SerializationException)."""


class ClassCastError(TypeError):
    """A value has another type than the serde of its store writes (Java class: ClassCastException, which Kafka Streams
    raises from the store unchanged)."""


class ProcessorStateError(StreamsError):
    """A state store failed or its content is not what it must be (Kafka class: ProcessorStateException)."""


class InvalidStateStoreError(StreamsError):
    """A requested store is closed, unknown or of another kind (Kafka class: InvalidStateStoreException)."""


class StreamsNotStartedError(InvalidStateStoreError):
    """The application has not been started, so it has no state to read and no end to wait for (Kafka class:
    StreamsNotStartedException)."""


class StreamsRebalancingError(InvalidStateStoreError):
    """State was requested while the application is rebalancing; ask again (Kafka class:
    StreamsRebalancingException)."""


class StreamsStoppedError(InvalidStateStoreError):
    """State was requested after the application has ended (Kafka class: StreamsStoppedException)."""


class StateStoreNotAvailableError(InvalidStateStoreError):
    """The state of a store cannot be read now, and not by asking again either (Kafka class:
    StateStoreNotAvailableException)."""


class UnknownStateStoreError(InvalidStateStoreError):
    """The topology has no store of this name (Kafka class: UnknownStateStoreException)."""


class UnknownTopologyError(InvalidStateStoreError):
    """An application has no topology of the requested name (Kafka class: UnknownTopologyException)."""


class InvalidStateStorePartitionError(InvalidStateStoreError):
    """A store has no such partition (Kafka class: InvalidStateStorePartitionException)."""


class UnsupportedOperationError(StreamsError):
    """The operation is not supported here, such as a write to a global store (Java class:
    UnsupportedOperationException)."""


class LockError(StreamsError):
    """Another process holds a directory that only one may use (Kafka class: LockException)."""


class TaskMigratedError(StreamsError):
    """Another driver or a newer attempt has taken over this work; the work of this one is discarded (Kafka class:
    TaskMigratedException)."""


class ProducerFencedError(TaskMigratedError):
    """Another producer with the same transactional id has taken over (Kafka class: ProducerFencedException)."""


class TaskCorruptedError(StreamsError):
    """The state of a task is behind or torn and must be rebuilt (Kafka class: TaskCorruptedException)."""


class CorruptedBaseError(TaskCorruptedError):
    """A copy of state on this machine is damaged; the next attempt deletes it and makes it again.

    path: the directory of its database.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"The base {path} is damaged: {why}. Penstock deletes it and rebuilds it from the segments.")
        self.path = path


class CorruptedSegmentError(TaskCorruptedError):
    """A segment of a task's state is missing, torn or changed. segment: its id (hexadecimal digits)."""

    def __init__(self, segment: str, why: str) -> None:
        super().__init__(f"The segment {segment} {why}.")
        self.segment = segment
        self.why = why


class NonDeterministicError(StreamsError):
    """A user's function gave something else for the same records, found by `penstock.determinism.check.epochs`."""


class MissingSourceTopicError(StreamsError):
    """A topic that the topology reads does not exist (Kafka class: MissingSourceTopicException)."""


class IncompatibleCheckpointError(StreamsError):
    """A checkpoint was made by a topology or a number of tasks that the program no longer has."""


class KafkaError(StreamsError):
    """A broker refused a request, or a client failed; the message names the topic and the reason (Kafka class:
    KafkaException)."""


class RetriableError(KafkaError):
    """The brokers do not serve a request now and may a moment later, such as while another broker takes over (Kafka
    class: RetriableException)."""


class BrokerNotFoundError(RetriableError):
    """No broker of bootstrap.servers answered in time (Kafka class: BrokerNotFoundException)."""


class AuthenticationError(KafkaError):
    """The brokers do not accept the login of this client, or it does not trust their certificate (Kafka classes:
    SaslAuthenticationException, SslAuthenticationException)."""


class AuthorizationError(KafkaError):
    """The brokers do not allow this user what was asked for (Kafka class: AuthorizationException)."""


class TopicAuthorizationError(AuthorizationError):
    """The brokers do not allow this user an operation on a topic (Kafka class: TopicAuthorizationException)."""


class GroupAuthorizationError(AuthorizationError):
    """The brokers do not allow this user an operation on a consumer group (Kafka class:
    GroupAuthorizationException)."""


class ClusterAuthorizationError(AuthorizationError):
    """The brokers do not allow this user an operation on the cluster (Kafka class: ClusterAuthorizationException)."""


class TransactionalIdAuthorizationError(AuthorizationError):
    """The brokers do not allow this user a transactional id (Kafka class:
    TransactionalIdAuthorizationException)."""


class UnstableOffsetCommitError(RetriableError):
    """Offsets were requested while a transaction that commits others is open (Kafka class:
    UnstableOffsetCommitException)."""


class UnknownTopicOrPartitionError(KafkaError):
    """A topic or partition does not exist (Kafka class: UnknownTopicOrPartitionException)."""


class TopicExistsError(KafkaError):
    """A topic to create already exists (Kafka class: TopicExistsException)."""


class UnsupportedVersionError(KafkaError):
    """A broker does not have an API, or not in a version that this client needs (Kafka class:
    UnsupportedVersionException)."""


class RecordTooLargeError(KafkaError):
    """A record is larger than brokers take (Kafka class: RecordTooLargeException)."""


class OffsetOutOfRangeError(KafkaError):
    """Requested records have been deleted, or never existed (Kafka class: OffsetOutOfRangeException).

    partition: of a consumer, the partition (TopicPartition) that it reads no further; else None.
    """

    partition: TopicPartition | None = None


def counted(count: int, noun: str) -> str:
    """Return `count` with `noun`, in the plural except for one: `1 record`, `2,000 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
