"""The hierarchy of Penstock's errors, and counts for messages. Imports nothing.

Penstock's `XError` is `XException` in Kafka Streams. Penstock raises ValueError for Java's IllegalArgumentException,
RuntimeError for IllegalStateException and TypeError for NullPointerException, as Python callers expect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.record import FailedRecord, TopicPartition


class StreamsError(Exception):
    """The root of all errors of Penstock (Kafka class: StreamsException).

    What to do: Read the message, which names the node, topic, partition, store or file, the expectation and the remedy.
    If your function failed, its error is the cause (`__cause__`).
    """

    failed_record: FailedRecord | None = None
    """The record on which a task failed; None for any other error."""

    def __reduce__(self) -> tuple[object, ...]:
        # Constructors of subclasses make the message of other arguments, so a copy is made without them.
        return _copied, (type(self), self.args, dict(self.__dict__))


def _copied(kind: type[StreamsError], arguments: tuple[object, ...], attributes: Mapping[str, object]) -> StreamsError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(attributes)
    return error


class TopologyError(StreamsError):
    """The program describes an invalid topology; raised while it is built (Kafka class: TopologyException).

    What to do: Correct the call that the message names; the traceback has the line of your program.
    `print(topology.describe())` shows the topology so far.
    """

    def __init__(self, message: str) -> None:
        super().__init__(f"Invalid topology: {message}")


class ConfigError(StreamsError, ValueError):
    """A configuration key is missing or unknown, or its value is invalid (Kafka class: ConfigException).

    What to do: Set or correct the key that the message names. docs/configuration.md lists the keys, their types and
    their defaults.
    """


class CallFailedError(StreamsError):
    """The function of an operator with `Calls` failed at the last attempt for a record, or did not end in time.

    What to do: Correct the cause that the message names, or give Calls more attempts with `retry=`. To go on without
    such records, give it `on_failure="skip"`, or a topic for them with `then=`. A processor may handle the error in its
    method `failed`.
    """

    def __init__(self, node: str, failure: str, attempts: int, details: str) -> None:
        super().__init__(f"The call of {node} failed at attempt {attempts}: {failure}")
        if details:
            self.add_note(details)


class SerializationError(StreamsError):
    """A serde cannot serialise or deserialise a value (Kafka class: SerializationException).

    What to do: Give the topic or the store the serde of its records; try one with `penstock consume TOPIC --value-serde
    ...`. If only some records are unreadable, a `deserialization.exception.handler` can skip them.
    """


class ClassCastError(TypeError):
    """The type of a value does not match the serde of its store. Kafka Streams raises Java's ClassCastException from
    the store unchanged.

    What to do: Name the serdes of the store with `Materialized` or `Grouped`, or change `default.key.serde` and
    `default.value.serde`.
    """


class ProcessorStateError(StreamsError):
    """A state store failed, is damaged, or its directory is unusable (Kafka class: ProcessorStateException).

    What to do: Check the directory or the file that the message names: free space, owner, permissions. If the cause is
    an error of a function that ran during a cache flush, correct the function.
    """


class InvalidStateStoreError(StreamsError):
    """A requested store is closed, unknown or of another kind (Kafka class: InvalidStateStoreException).

    What to do: Check the name and the type of the store with `streams.state_stores()`, query while the application
    runs, and do not keep a store or an iterator after the end of its task.
    """


class StreamsNotStartedError(InvalidStateStoreError):
    """The application has not been started (Kafka class: StreamsNotStartedException). It has no state to read and no
    end to wait for.

    What to do: Call `start()` first, or enter the `with` block of the application.
    """


class StreamsRebalancingError(InvalidStateStoreError):
    """State was requested during a rebalance (Kafka class: StreamsRebalancingException).

    What to do: Retry after a pause. A state listener reports when the application is RUNNING.
    """


class StreamsStoppedError(InvalidStateStoreError):
    """State was requested after the end of the application (Kafka class: StreamsStoppedException).

    What to do: Read the state with `penstock query`, which needs no running application, or on Spark with `open_state`,
    or start the application again.
    """


class StateStoreNotAvailableError(InvalidStateStoreError):
    """A store is currently not readable here, for example before the first commit. Kafka class:
    StateStoreNotAvailableException.

    What to do: Follow the message: let the application run an epoch here, keep more commits
    (`penstock.manifests.retained`), or query the process that runs the tasks.
    """


class UnknownStateStoreError(InvalidStateStoreError):
    """The topology has no store of this name (Kafka class: UnknownStateStoreException).

    What to do: Correct the name. A store name generated by the DSL changes with the program: name the store with
    `Materialized.as_`.
    """


class UnknownTopologyError(InvalidStateStoreError):
    """An application has no topology of the requested name (Kafka class: UnknownTopologyException).

    What to do: Use one of the names listed in the message, or add the topology first.
    """


class InvalidStateStorePartitionError(InvalidStateStoreError):
    """A store has no such partition (Kafka class: InvalidStateStorePartitionException).

    What to do: Use a partition of the source topic of the store; `query_metadata_for_key` returns the partition of a
    key.
    """


class UnsupportedOperationError(StreamsError):
    """The operation is not supported here, such as a write to a global store. Java class:
    UnsupportedOperationException.

    What to do: Use an object that supports the operation. A global store is filled only from its topic, and a processor
    of a global store has no schedule and no stream time.
    """


class LockError(StreamsError):
    """Another process holds the lock of a directory (Kafka class: LockException).

    What to do: Stop the other process; the message has its id if known. If both must run, give each its own
    `application.id`, `state.dir` or directory.
    """


class TaskMigratedError(StreamsError):
    """Another driver or a newer attempt has taken over this work (Kafka class: TaskMigratedException). The work of this
    one is discarded.

    What to do: Nothing, if another instance took over: the application continues there. If the error recurs, two
    programs run with the same `application.id`: stop one. If a transaction was open too long, set a larger
    `transaction.timeout.ms`.
    """


class ProducerFencedError(TaskMigratedError):
    """Another producer with the same transactional id has taken over (Kafka class: ProducerFencedException).

    What to do: As for `TaskMigratedError`: look for a second program with this `application.id`.
    """


class TaskCorruptedError(StreamsError):
    """The state of a task is outdated or torn and must be rebuilt (Kafka class: TaskCorruptedException).

    What to do: Nothing, if the application restarts: it rebuilds the state. If it ends with this error, restore the
    checkpoint from the newest copy or from a savepoint, and make sure that nothing else changes its files.
    """


class CorruptedBaseError(TaskCorruptedError):
    """A local copy of state is damaged; the next attempt deletes and rebuilds it.

    What to do: Nothing: the next attempt rebuilds the copy. If it happens again, check the disk of `state.dir`.

    path: the directory of its database.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"The base {path} is damaged: {why}. Penstock deletes it and makes it again.")
        self.path = path


class CorruptedSegmentError(TaskCorruptedError):
    """A segment of a task's state is missing, torn or changed.

    What to do: Restore the checkpoint directory from a copy, or an application without a checkpoint from a savepoint
    (`penstock savepoint restore`). Check which other program deletes or changes files there.

    segment: its id (hexadecimal digits).
    """

    def __init__(self, segment: str, why: str) -> None:
        super().__init__(f"The segment {segment} {why}.")
        self.segment = segment
        self.why = why


class NonDeterministicError(StreamsError):
    """A user's function returned different results for the same records. Found by `penstock.determinism.check.epochs`.

    What to do: Use times from the record or the context instead of a clock, and avoid random choices; the message lists
    the nodes and the common reasons.
    """


class MissingSourceTopicError(StreamsError):
    """A source topic of the topology does not exist (Kafka class: MissingSourceTopicException).

    What to do: Create the topic, for example with `penstock topics create NAME`, or correct its name.
    """


class MissingInternalTopicError(StreamsError):
    """A changelog, repartition, answers or requests topic in use by the application was deleted.

    What to do: Stop all instances, then rewrite the changelogs from the local state (`penstock recover FILE
    --from-state`), start over (`penstock reset FILE`), or continue without the records of the deleted topics (`penstock
    recover FILE --as-they-are`): see docs/commands.md#deleted-internal-topics.
    """


class IncompatibleCheckpointError(StreamsError):
    """A checkpoint belongs to another topology or another number of tasks.

    What to do: Follow the message, which has the reason and the remedy for each store; `penstock diff FILE` shows it
    before a start. docs/changing-a-topology.md lists the changes that a program may make.
    """


class KafkaError(StreamsError):
    """A broker rejected a request, or a client failed (Kafka class: KafkaException). The message names the topic and
    the reason.

    What to do: Read the reason in the message. `penstock topics describe TOPIC` shows whether a topic has leaders and
    enough replicas.
    """


class RetriableError(KafkaError):
    """The brokers temporarily cannot serve the request, for example during a failover. Kafka class: RetriableException.

    What to do: Retry. The application does so itself; if it ends with this error, the brokers were unavailable for too
    long: check them, and start again.
    """


class BrokerNotFoundError(RetriableError):
    """No broker of bootstrap.servers answered in time (Kafka class: BrokerNotFoundException).

    What to do: Check the address in `bootstrap.servers`, the network and the listener of the broker (TLS or not).
    `penstock broker` starts a broker on this machine.
    """


class AuthenticationError(KafkaError):
    """Authentication failed, or the client does not trust the brokers' certificate. Kafka classes:
    SaslAuthenticationException, SslAuthenticationException.

    What to do: Check the keys that the message names: `security.protocol`, `sasl.*`, `ssl.*`.
    docs/security.md#tls-and-logins has examples.
    """


class AuthorizationError(KafkaError):
    """The user is not authorized for an operation (Kafka class: AuthorizationException).

    What to do: Grant the permission that the message names. docs/security.md#the-rights-that-an-application-needs lists
    the permissions of an application.
    """


class TopicAuthorizationError(AuthorizationError):
    """The user is not authorized for a topic (Kafka class: TopicAuthorizationException).

    What to do: Grant the operation on the topic. Also check the name: brokers return this error for a missing topic if
    the user may not see it.
    """


class GroupAuthorizationError(AuthorizationError):
    """The user is not authorized for a consumer group (Kafka class: GroupAuthorizationException).

    What to do: Grant the operation on the group that the message names.
    """


class ClusterAuthorizationError(AuthorizationError):
    """The user is not authorized for the cluster (Kafka class: ClusterAuthorizationException).

    What to do: Grant the operation on the cluster, or ask an administrator to create the topic.
    """


class TransactionalIdAuthorizationError(AuthorizationError):
    """The user is not authorized for a transactional id (Kafka class: TransactionalIdAuthorizationException).

    What to do: Grant WRITE on the transactional ids with the prefix `<application.id>-`, or set
    `processing.guarantee=at_least_once`.
    """


class UnstableOffsetCommitError(RetriableError):
    """Offsets were requested during an open transaction with newer offsets. Kafka class: UnstableOffsetCommitException.

    What to do: Retry; the transaction ends with its commit or its timeout.
    """


class UnknownTopicOrPartitionError(KafkaError):
    """A topic or partition does not exist (Kafka class: UnknownTopicOrPartitionException).

    What to do: Create the topic, or correct its name; `penstock topics list` lists the topics.
    """


class TopicExistsError(KafkaError):
    """A topic to be created already exists (Kafka class: TopicExistsException).

    What to do: Use the existing topic, or delete it first.
    """


class UnsupportedVersionError(KafkaError):
    """A broker lacks an API, or the version this client needs (Kafka class: UnsupportedVersionException).

    What to do: Upgrade the brokers, or choose a feature they support; docs/compatibility.md lists the versions.
    """


class RecordTooLargeError(KafkaError):
    """A record is larger than the brokers' limit (Kafka class: RecordTooLargeException).

    What to do: Raise `max.message.bytes` of the topic and `message.max.bytes` of the producer, or write smaller
    records. A `production.exception.handler` can skip the record.
    """


class CorruptRecordError(KafkaError):
    """A batch of records is damaged (Kafka class: CorruptRecordException). Its checksum, length, format or compression
    is wrong.

    What to do: The message has the topic, the partition and the offset. Check the disk and the memory of the broker
    that leads the partition, and move leadership to an intact replica, or restore the log from a copy. If the batch is
    lost, delete the records up to its end (Kafka's `kafka-delete-records`): the application continues after them,
    according to `auto.offset.reset`. `consumer.check.crcs=false` reads batches without verifying their checksums. If
    librdkafka ends the process with an assertion in `rdbuf.c` instead, a batch before others is damaged: it may read
    on at a wrong place. The checks are the same.
    """


class OffsetOutOfRangeError(KafkaError):
    """Requested records have been deleted, or never existed (Kafka class: OffsetOutOfRangeException).

    What to do: Retain records longer than the application may be down (`retention.ms`). With any `auto.offset.reset`
    except `none`, it continues at a remaining record. After a topic was deleted and created again, start over with
    `penstock reset` or another `application.id`.

    partition: the partition (TopicPartition) that the consumer stops reading; None outside consumers.
    """

    partition: TopicPartition | None = None


class LogTruncationError(OffsetOutOfRangeError):
    """Brokers have lost processed records (Kafka class: LogTruncationException).

    What to do: Find out why the brokers lost acknowledged records (`unclean.leader.election.enable`,
    `min.insync.replicas`, a disk). On threads, with any `auto.offset.reset` except `none`, reading continues at the
    first record that replaced a lost one. On Spark, start on a new checkpoint. After `penstock reset`, all remaining
    records are processed again.
    """


def counted(count: int, noun: str) -> str:
    """Return `count` with `noun`, in the plural unless 1: `1 record`, `2,000 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
