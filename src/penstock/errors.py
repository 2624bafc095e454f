"""The tree of Penstock's errors, and how messages count; it imports nothing.

`XError` here is `XException` of Kafka Streams. Where Java raises IllegalArgumentException Penstock raises ValueError,
for IllegalStateException RuntimeError, for NullPointerException TypeError: the types a Python caller expects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.record import FailedRecord, TopicPartition


class StreamsError(Exception):
    """Root of all errors of Penstock (Kafka class: StreamsException).

    What to do: Read the message, which names the node, topic, partition, store or file, what was expected and the
    remedy; and the cause (`__cause__`), which is the error of your function if one failed.
    """

    failed_record: FailedRecord | None = None
    """The record on which a task failed, None for any other error."""


class TopologyError(StreamsError):
    """The program describes a topology that is not possible; raised while it is built (Kafka class: TopologyException).

    What to do: Correct the call that the message names; the traceback has the line of your program.
    `print(topology.describe())` shows what has been built.
    """

    def __init__(self, message: str) -> None:
        super().__init__(f"Invalid topology: {message}")


class ConfigError(StreamsError, ValueError):
    """A configuration key is missing or unknown, or has a value that is not allowed (Kafka class: ConfigException).

    What to do: Set or correct the key that the message names. docs/configuration.md lists the keys, their types and
    their defaults.
    """


class SerializationError(StreamsError):
    """A serde cannot write a value or read bytes (Kafka class: SerializationException).

    What to do: Give the topic or the store the serde of what its records hold; `penstock consume TOPIC --value-serde
    ...` shows what can be read. If only some records are unreadable, a `deserialization.exception.handler` continues
    without them.
    """


class ClassCastError(TypeError):
    """A value has another type than the serde of its store writes (Java class: ClassCastException, which Kafka Streams
    raises from the store unchanged).

    What to do: Name the serdes of the store with `Materialized` or `Grouped`, or change `default.key.serde` and
    `default.value.serde`.
    """


class ProcessorStateError(StreamsError):
    """A state store failed, its content is damaged, or its directory cannot be used (Kafka class:
    ProcessorStateException).

    What to do: Check the directory or the file that the message names: free space, owner, rights. If the cause is an
    error of a function, which ran when a cache was flushed, correct the function.
    """


class InvalidStateStoreError(StreamsError):
    """A requested store is closed, unknown or of another kind (Kafka class: InvalidStateStoreException).

    What to do: Check the name and the type of the store with `streams.state_stores()`, ask while the application runs,
    and do not keep a store or an iterator after the end of its task.
    """


class StreamsNotStartedError(InvalidStateStoreError):
    """The application has not been started, so it has no state to read and no end to wait for (Kafka class:
    StreamsNotStartedException).

    What to do: Call `start()` first, or enter the `with` block of the application.
    """


class StreamsRebalancingError(InvalidStateStoreError):
    """State was requested while the application is rebalancing; ask again (Kafka class:
    StreamsRebalancingException).

    What to do: Ask again after a pause. A state listener shows when the application is RUNNING.
    """


class StreamsStoppedError(InvalidStateStoreError):
    """State was requested after the application has ended (Kafka class: StreamsStoppedException).

    What to do: Read the state with `penstock query`, which needs no running application, or on Spark with `open_state`,
    or start the application again.
    """


class StateStoreNotAvailableError(InvalidStateStoreError):
    """The state of a store cannot be read here at present, such as before the first commit (Kafka class:
    StateStoreNotAvailableException).

    What to do: Follow the message: let the application run an epoch here, keep more commits
    (`penstock.manifests.retained`), or ask the process that has the tasks.
    """


class UnknownStateStoreError(InvalidStateStoreError):
    """The topology has no store of this name (Kafka class: UnknownStateStoreException).

    What to do: Correct the name. A store that the DSL names itself changes its name with the program: name it with
    `Materialized.as_`.
    """


class UnknownTopologyError(InvalidStateStoreError):
    """An application has no topology of the requested name (Kafka class: UnknownTopologyException).

    What to do: Use one of the names that the message lists, or add the topology first.
    """


class InvalidStateStorePartitionError(InvalidStateStoreError):
    """A store has no such partition (Kafka class: InvalidStateStorePartitionException).

    What to do: Ask for a partition of the topic that the store is made from; `query_metadata_for_key` returns the
    partition of a key.
    """


class UnsupportedOperationError(StreamsError):
    """The operation is not supported here, such as a write to a global store (Java class:
    UnsupportedOperationException).

    What to do: Do it where it is supported: a global store is filled from its topic only, and a processor of a global
    store has no schedule and no stream time.
    """


class LockError(StreamsError):
    """Another process holds a directory that only one may use (Kafka class: LockException).

    What to do: Stop the other process, whose id the message has if it is known. If both must run, give each its own
    `application.id`, `state.dir` or directory.
    """


class TaskMigratedError(StreamsError):
    """Another driver or a newer attempt has taken over this work; the work of this one is discarded (Kafka class:
    TaskMigratedException).

    What to do: Nothing, if another instance took the work over: the application continues there. If it returns, two
    programs run with one `application.id`: stop one. If a transaction was open too long, set a larger
    `transaction.timeout.ms`.
    """


class ProducerFencedError(TaskMigratedError):
    """Another producer with the same transactional id has taken over (Kafka class: ProducerFencedException).

    What to do: As for `TaskMigratedError`: look for a second program with this `application.id`.
    """


class TaskCorruptedError(StreamsError):
    """The state of a task is behind or torn and must be rebuilt (Kafka class: TaskCorruptedException).

    What to do: Nothing, if the application restarts: it rebuilds the state. If it ends with this error, restore the
    checkpoint from the newest copy or from a savepoint, and make sure that nothing else changes its files.
    """


class CorruptedBaseError(TaskCorruptedError):
    """A copy of state on this machine is damaged; the next attempt deletes it and makes it again.

    What to do: Nothing: the next attempt rebuilds the copy. If it happens again, check the disk of `state.dir`.

    path: the directory of its database.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"The base {path} is damaged: {why}. Penstock deletes it and makes it again.")
        self.path = path


class CorruptedSegmentError(TaskCorruptedError):
    """A segment of a task's state is missing, torn or changed. segment: its id (hexadecimal digits).

    What to do: Restore the checkpoint directory from a copy, or an application without a checkpoint from a savepoint
    (`penstock savepoint restore`). Check what else deletes or changes files there.
    """

    def __init__(self, segment: str, why: str) -> None:
        super().__init__(f"The segment {segment} {why}.")
        self.segment = segment
        self.why = why


class NonDeterministicError(StreamsError):
    """A user's function gave something else for the same records, found by `penstock.determinism.check.epochs`.

    What to do: Take times from the record or the context instead of a clock, and make no random choices; the message
    lists the nodes and the common reasons.
    """


class MissingSourceTopicError(StreamsError):
    """A topic that the topology reads does not exist (Kafka class: MissingSourceTopicException).

    What to do: Create the topic, for example with `penstock topics create NAME`, or correct its name.
    """


class MissingInternalTopicError(StreamsError):
    """A changelog or repartition topic was deleted after the application had used it.

    What to do: Stop all instances, then write changelogs again from the state on this machine (`penstock recover FILE
    --from-state`), start over (`penstock reset FILE`), or go on without the records of the deleted topics (`penstock
    recover FILE --as-they-are`): see docs/commands.md#deleted-internal-topics.
    """


class IncompatibleCheckpointError(StreamsError):
    """A checkpoint was made by a topology or a number of tasks that the program no longer has.

    What to do: Follow the message, which has the reason and the remedy for each store; `penstock diff FILE` shows it
    before a start. docs/changing-a-topology.md lists what a program may change.
    """


class KafkaError(StreamsError):
    """A broker refused a request, or a client failed; the message names the topic and the reason (Kafka class:
    KafkaException).

    What to do: Read the reason in the message. `penstock topics describe TOPIC` shows whether a topic has leaders and
    enough replicas.
    """


class RetriableError(KafkaError):
    """The brokers cannot serve the request right now, but may soon, such as when another broker has taken over (Kafka
    class: RetriableException).

    What to do: Ask again. The application does so itself; if it ends with this error, the brokers were away for too
    long: check them, and start again.
    """


class BrokerNotFoundError(RetriableError):
    """No broker of bootstrap.servers answered in time (Kafka class: BrokerNotFoundException).

    What to do: Check the address in `bootstrap.servers`, the network and the listener of the broker (TLS or not).
    `penstock broker` starts a broker on this machine.
    """


class AuthenticationError(KafkaError):
    """The brokers do not accept the login of this client, or it does not trust their certificate (Kafka classes:
    SaslAuthenticationException, SslAuthenticationException).

    What to do: Check the keys that the message names: `security.protocol`, `sasl.*`, `ssl.*`.
    docs/security.md#tls-and-logins has examples.
    """


class AuthorizationError(KafkaError):
    """The brokers do not allow this user to do this (Kafka class: AuthorizationException).

    What to do: Grant the right that the message names. docs/security.md#the-rights-that-an-application-needs lists the
    rights of an application.
    """


class TopicAuthorizationError(AuthorizationError):
    """The brokers do not allow this user an operation on a topic (Kafka class: TopicAuthorizationException).

    What to do: Grant the operation on the topic; or check the name, because brokers give this answer for a missing
    topic too if the user may not see it.
    """


class GroupAuthorizationError(AuthorizationError):
    """The brokers do not allow this user an operation on a consumer group (Kafka class:
    GroupAuthorizationException).

    What to do: Grant the operation on the group that the message names.
    """


class ClusterAuthorizationError(AuthorizationError):
    """The brokers do not allow this user an operation on the cluster (Kafka class: ClusterAuthorizationException).

    What to do: Grant the operation on the cluster, or let an administrator create the topic.
    """


class TransactionalIdAuthorizationError(AuthorizationError):
    """The brokers do not allow this user a transactional id (Kafka class:
    TransactionalIdAuthorizationException).

    What to do: Grant WRITE on the transactional ids with the prefix `<application.id>-`, or set
    `processing.guarantee=at_least_once`.
    """


class UnstableOffsetCommitError(RetriableError):
    """Offsets were requested while a transaction that commits others is open (Kafka class:
    UnstableOffsetCommitException).

    What to do: Ask again; the transaction ends with its commit or its timeout.
    """


class UnknownTopicOrPartitionError(KafkaError):
    """A topic or partition does not exist (Kafka class: UnknownTopicOrPartitionException).

    What to do: Create the topic, or correct its name; `penstock topics list` lists the topics.
    """


class TopicExistsError(KafkaError):
    """A topic to create already exists (Kafka class: TopicExistsException).

    What to do: Use the topic that exists, or delete it first.
    """


class UnsupportedVersionError(KafkaError):
    """A broker does not have an API, or not in a version that this client needs (Kafka class:
    UnsupportedVersionException).

    What to do: Upgrade the brokers, or choose what they support; docs/compatibility.md lists the versions.
    """


class RecordTooLargeError(KafkaError):
    """A record is larger than brokers take (Kafka class: RecordTooLargeException).

    What to do: Raise `max.message.bytes` of the topic and `message.max.bytes` of the producer, or write smaller
    records. A `production.exception.handler` may continue without the record.
    """


class CorruptRecordError(KafkaError):
    """A batch of records is damaged: its checksum, length, format or compression is wrong (Kafka class:
    CorruptRecordException).

    What to do: The message has the topic, the partition and the offset. Check the disk and the memory of the broker
    that leads the partition, and let an intact replica lead, or restore the log from a copy. If the batch is lost,
    delete the records up to its end (Kafka's `kafka-delete-records`): the application continues behind them, as
    `auto.offset.reset` says. `consumer.check.crcs=false` reads batches without comparing their checksums.
    """


class OffsetOutOfRangeError(KafkaError):
    """Requested records have been deleted, or never existed (Kafka class: OffsetOutOfRangeException).

    What to do: Keep records longer than the application may be down (`retention.ms`). With another
    `auto.offset.reset` than `none`, it continues at a record that is left. After a topic was deleted and created again,
    start over with `penstock reset` or another `application.id`.

    partition: of a consumer, the partition (TopicPartition) that it reads no further; else None.
    """

    partition: TopicPartition | None = None


class LogTruncationError(OffsetOutOfRangeError):
    """Brokers have lost records that were processed (Kafka class: LogTruncationException).

    What to do: Find out why the brokers lost records that they had acknowledged (`unclean.leader.election.enable`,
    `min.insync.replicas`, a disk). On threads, with another `auto.offset.reset` than `none`, reading continues at the
    first record that took the place of a lost one. On Spark, start on a new checkpoint. After `penstock reset`, all
    that is left is processed again.
    """


def counted(count: int, noun: str) -> str:
    """Return `count` with `noun`, in the plural except for one: `1 record`, `2,000 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
