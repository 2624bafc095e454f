"""Admin over confluent-kafka: topics, their configuration, and offsets of partitions and groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    IsolationLevel,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import ConsumerGroupTopicPartitions as GroupPartitions
from confluent_kafka import KafkaError as Code
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ListOffsetsResultInfo,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.admin import NewTopic as AdminNewTopic

from penstock.client.api import (
    DEAD,
    UNKNOWN_LEADER_EPOCH,
    EpochPosition,
    GroupDescription,
    MemberDescription,
    NewTopic,
    OffsetAndMetadata,
    PartitionInfo,
    TopicDescription,
)
from penstock.client.confluent.admin_client import LeaderAwareClient, RenewableClient
from penstock.client.confluent.connection import RETRY_SECONDS, ClientConnection, is_silence, nothing_to_serve
from penstock.client.failures import Right
from penstock.client.settings import ADMIN, CONSUMER, HURRIED, client_settings
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.groups import describe_streams_group
from penstock.client.sockets.leader_epochs import truncated
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, KafkaError, UnknownTopicOrPartitionError, UnstableOffsetCommitError
from penstock.record import TopicPartition

T = TypeVar("T")

_NO_ID = "A" * 22
"""The text of an id of zeros, for a missing id."""

_NO_PARTITION = 2**31 - 1
_STABLE_SECONDS = 0.5
"""Time (s) for an offset to become stable before an error reports an open transaction."""

_FIRST_TRY = 0.25
"""Fraction of the timeout after which a new client repeats a request."""

_FIRST_TRY_SECONDS = 2.5
"""Maximum length (s) of the first attempt; each further attempt gets twice the time."""

_QUOTA_SECONDS = 120.0
"""Time (s) of retries for topic changes that brokers refuse because of a quota."""

_QUOTA_PAUSE_SECONDS = 1.0

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # confluent-kafka has no types for it
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # as above


class ConfluentAdmin:
    """Admin over confluent-kafka.

    It connects in the background. A client whose request times out is replaced, because librdkafka may keep asking a
    broker that is unavailable. The constructor raises ConfigError for settings that librdkafka refuses.

    Args:
        config: the configuration of the application.
        timeout_ms: the timeout (ms) of each call.
    """

    def __init__(self, config: StreamsConfig, timeout_ms: int = 10_000) -> None:
        self._config = config
        self._connection = ClientConnection(client_settings(config, ADMIN), timeout_ms)
        self._client = RenewableClient(self._connection)
        self._client.open("opening")

    def cluster_id(self) -> str | None:
        """Return the id of the cluster, None if brokers do not return an id."""

        def ask(client: AdminClient, seconds: float) -> str | None:
            found: str | None = _result(client.describe_cluster(request_timeout=seconds), seconds).cluster_id
            return found

        return self._call("asking for the id of the cluster", ask)

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic, including internal topics."""
        metadata = self._call("listing topics", lambda client, seconds: client.list_topics(timeout=seconds))
        return {name: len(topic.partitions) for name, topic in metadata.topics.items()}

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """Return the ids of topics, omitting missing topics; see `client.api`."""
        if not names:
            return {}
        wanted = TopicCollection(sorted(names))

        def ask(client: AdminClient, seconds: float) -> dict[str, str]:
            futures = client.describe_topics(wanted, request_timeout=seconds)
            return {name: topic_id for name, future in futures.items() if (topic_id := self._id(name, future, seconds))}

        return self._call("asking for the ids of topics", ask)

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create `topics` and wait until they are usable; see `client.api`."""
        if not topics:
            return
        wanted = {
            topic.name: AdminNewTopic(topic.name, topic.partitions, topic.replication_factor, config=dict(topic.config))
            for topic in topics
        }

        def ask(client: AdminClient, left: Collection[str]) -> dict[str, Future[Any]]:
            return client.create_topics([wanted[name] for name in left], **self._bounds())

        self._change_slowly("creating topic", wanted, ask, _topic_right("CREATE"))
        names = {topic.name for topic in topics}
        deadline = time.monotonic() + self._connection.timeout
        while not self._usable(names):
            self.topic_ids(names)  # raises if this user may create topics, but not describe them
            if time.monotonic() >= deadline:
                raise KafkaError(f"Topics {sorted(names)} were created, but have no leaders yet; try again.")
            time.sleep(RETRY_SECONDS)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their records; raises UnknownTopicOrPartitionError if one does not exist."""
        if names:

            def ask(client: AdminClient, left: Collection[str]) -> dict[str, Future[Any]]:
                return client.delete_topics(list(left), **self._bounds())

            self._change_slowly("deleting topic", names, ask, _topic_right("DELETE"))

    def create_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions of topic `name` to `total`."""

        def ask(client: AdminClient, left: Collection[str]) -> dict[str, Future[Any]]:
            return client.create_partitions([NewPartitions(name, total)], **self._bounds())

        self._change_slowly("adding partitions to topic", [name], ask, _topic_right("ALTER"))

    def describe_topic(self, name: str) -> TopicDescription:
        """Return the partitions and the configuration of topic `name`."""
        return self.describe_topics([name])[0]

    def describe_topics(self, names: Sequence[str]) -> list[TopicDescription]:
        """Return the partitions and configurations of topics, in the order of `names`, with two requests."""
        if not names:
            return []
        doing = f"describing topic {', '.join(map(repr, names[:3]))}"
        metadata = self._call(doing, lambda client, seconds: client.list_topics(timeout=seconds))
        missing = [name for name in names if name not in metadata.topics]
        if missing:
            self.topic_ids(missing)  # raises if the topic exists, but this user may not describe it
            self._connection.fail(Code(Code.UNKNOWN_TOPIC_OR_PART), f"describing topic {missing[0]!r}")
        resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in names}

        def ask(client: AdminClient, seconds: float) -> dict[str, dict[str, Any]]:
            futures = client.describe_configs(list(resources.values()), request_timeout=seconds)
            return {name: _result(futures[resource], seconds) for name, resource in resources.items()}

        configs = self._call(doing, ask, *(Right("DESCRIBE_CONFIGS", "topic", name) for name in names))
        return [_described(name, metadata.topics[name].partitions, configs[name]) for name in names]

    def alter_topic_configs(self, names: Sequence[str], set: Mapping[str, str], delete: Collection[str]) -> None:
        """Change the configuration of topics; other keys keep their values.

        Args:
            names: the topics.
            set: values by key.
            delete: keys to reset to their defaults.

        Raises:
            KafkaError: a key or a value is refused, or the brokers are older than Kafka 2.3.
        """
        operations = {
            **{key: (AlterConfigOpType.SET, value) for key, value in set.items()},
            **dict.fromkeys(delete, (AlterConfigOpType.DELETE, None)),
        }
        entries = [
            ConfigEntry(key, value, incremental_operation=operation) for key, (operation, value) in operations.items()
        ]
        wanted = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries) for name in names]

        def ask(client: AdminClient) -> dict[str, Future[Any]]:
            futures = client.incremental_alter_configs(wanted, request_timeout=self._connection.timeout)
            return {resource.name: future for resource, future in futures.items()}

        self._change("changing the configuration of topic", ask, lambda name: Right("ALTER_CONFIGS", "topic", name))

    def groups(self) -> list[GroupDescription]:
        """Return the consumer groups ordered by id, without their members."""

        def ask(client: AdminClient, seconds: float) -> list[GroupDescription]:
            found = _result(client.list_consumer_groups(request_timeout=seconds), seconds)
            for error in found.errors:
                raise error
            groups = [GroupDescription(one.group_id, _text(one.type), _text(one.state)) for one in found.valid]
            return sorted(groups, key=lambda group: group.group_id)

        return self._call("listing groups", ask, Right("DESCRIBE", "cluster", ""))

    def describe_group(self, group: str) -> GroupDescription:
        """Return the consumer group of this id with its members; a missing group is Dead."""

        def ask(client: AdminClient, seconds: float) -> GroupDescription:
            try:
                found = _result(client.describe_consumer_groups([group], request_timeout=seconds)[group], seconds)
            except KafkaException as error:
                if error.args[0].code() != Code.GROUP_ID_NOT_FOUND:
                    raise
                return GroupDescription(group, "", DEAD)
            members = tuple(
                MemberDescription(
                    each.member_id,
                    each.client_id,
                    each.host,
                    tuple(TopicPartition(at.topic, at.partition) for at in each.assignment.topic_partitions),
                )
                for each in found.members
            )
            return GroupDescription(group, _text(found.type), _text(found.state), found.partition_assignor, members)

        found = self._call(f"describing the group {group!r}", ask, Right("DESCRIBE", "group", group))
        return found if found.exists else self._streams_group(group) or found

    def _streams_group(self, group: str) -> GroupDescription | None:
        try:
            with Cluster(self._config, self._connection.timeout_ms) as cluster:
                return describe_streams_group(cluster, group)
        except ConfigError:  # the settings are not supported by the connections of this request
            return None

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of the first remaining record of each partition."""
        return self._offsets(partitions, _EARLIEST)

    def end_offsets(
        self, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each partition; with `read_committed` its last stable offset."""
        return {partition: end.offset for partition, end in self.end_positions(partitions, read_committed).items()}

    def end_positions(
        self, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, EpochPosition]:
        """Return the `end_offsets` with the epochs of the leaders that answered, -1 for unknown epochs."""
        isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        return self._positions(partitions, _LATEST, isolation)

    def offsets_for_time(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """Return the earliest offsets with timestamps of at least `timestamp_ms`; see `client.api`."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        found = self._offsets(partitions, spec)
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def truncated(self, positions: Mapping[TopicPartition, EpochPosition]) -> dict[TopicPartition, EpochPosition]:
        """Return the positions above the remaining log of their leader epoch; see `client.api`."""
        try:
            with Cluster(self._config, self._connection.timeout_ms) as cluster:
                return truncated(cluster, positions)
        except ConfigError:  # the settings are not supported by the connections of this request
            return {}

    def committed_offsets(
        self, group: str, partitions: Sequence[TopicPartition], stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of consumer group `group`; see `client.api`."""
        if not partitions:
            return {}
        # A consumer sends the request: an admin client of librdkafka ends the process if the coordinator moves
        # meanwhile, because it looks up the group, which only consumers have (rd_kafka_handle_OffsetFetch).
        forced = {"group.id": group, "isolation.level": "read_committed" if stable else "read_uncommitted"}
        settings = client_settings(self._config, CONSUMER, forced, HURRIED)
        connection = ClientConnection(settings, self._connection.timeout_ms)
        reader = connection.make(Consumer)
        connection.serve_events_of(reader)

        def ask() -> list[Position]:
            asked = [Position(*partition) for partition in partitions]
            # A partition without transactional offsets is answered as soon as the coordinator is found. librdkafka does
            # not report unstable offsets: it asks again until the timeout.
            reader.committed([Position(partitions[0].topic, _NO_PARTITION)], connection.timeout)
            try:
                return _checked(reader.committed(asked, _STABLE_SECONDS if stable else connection.timeout))
            except KafkaException as error:
                if not stable or error.args[0].code() not in (Code._TIMED_OUT, Code.UNSTABLE_OFFSET_COMMIT):
                    raise
                raise UnstableOffsetCommitError(f"A transaction of the group {group!r} is open; ask again.") from error

        topics = " ".join(dict.fromkeys(tp.topic for tp in partitions))
        needs = Right("DESCRIBE", "group", group), Right("DESCRIBE", "topic", topics)
        try:
            found = connection.call(f"reading the offsets of group {group!r}", ask, *needs)
        finally:
            connection.serve = nothing_to_serve
            reader.close()
        return {
            TopicPartition(each.topic, each.partition): OffsetAndMetadata(each.offset, _metadata(each))
            for each in found
            if each.offset >= 0
        }

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit `offsets` for consumer group `group`, which must have no members."""
        if not offsets:
            return
        positions = [Position(*partition, at.offset, at.metadata) for partition, at in offsets.items()]

        def ask(client: AdminClient, seconds: float) -> None:
            futures = client.alter_consumer_group_offsets([GroupPartitions(group, positions)], request_timeout=seconds)
            _checked(_result(futures[group], seconds).topic_partitions)

        topics = " ".join(dict.fromkeys(tp.topic for tp in offsets))
        needs = Right("READ", "group", group), Right("READ", "topic", topics)
        self._call(f"committing offsets of group {group!r}", ask, *needs)

    def delete_groups(self, groups: Sequence[str]) -> None:
        """Delete consumer groups with their committed offsets; see `client.api`."""

        def ask(client: AdminClient, seconds: float) -> None:
            futures = client.delete_consumer_groups(list(groups), request_timeout=seconds)
            for future in futures.values():
                try:
                    _result(future, seconds)
                except KafkaException as error:
                    if error.args[0].code() != Code.GROUP_ID_NOT_FOUND:
                        raise

        if groups:
            self._call(f"deleting the groups {', '.join(groups)}", ask, Right("DELETE", "group", " ".join(groups)))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records before these offsets. Raises KafkaError if the brokers cannot, or this user may not."""
        if before:
            positions = [Position(*partition, offset) for partition, offset in before.items()]

            def ask(client: AdminClient) -> dict[TopicPartition, Future[Any]]:
                futures = client.delete_records(positions, **self._bounds())
                return {TopicPartition(at.topic, at.partition): future for at, future in futures.items()}

            self._change("deleting records of", ask, lambda at: Right("DELETE", "topic", at.topic))

    def close(self) -> None:
        """Release connections and threads; idempotent."""
        self._client.close()

    def _offsets(self, partitions: Sequence[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        found = self._positions(partitions, spec, IsolationLevel.READ_UNCOMMITTED)
        return {partition: at.offset for partition, at in found.items()}

    def _positions(
        self, partitions: Sequence[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[TopicPartition, EpochPosition]:
        if not partitions:
            return {}
        request = {Position(*partition): spec for partition in partitions}

        def ask(client: LeaderAwareClient, seconds: float) -> dict[TopicPartition, EpochPosition]:
            if not client.knows_leaders:  # librdkafka sometimes waits three seconds before it looks up leaders
                client.list_topics(timeout=seconds)
                client.knows_leaders = True
            futures = client.list_offsets(request, isolation_level=isolation, request_timeout=seconds)
            try:
                return {
                    TopicPartition(position.topic, position.partition): _position(_result(future, seconds))
                    for position, future in futures.items()
                }
            except KafkaException as error:
                # after a broker's restart, librdkafka would keep the old leaders for minutes
                client.knows_leaders = False
                if error.args[0].code() == Code._NOENT and _has_all(client.list_topics(timeout=seconds), partitions):
                    raise KafkaException(Code(Code.LEADER_NOT_AVAILABLE, "no leader was known")) from error
                raise

        try:
            return self._call(f"asking for the offsets of {', '.join(map(str, partitions[:3]))}", ask)
        except UnknownTopicOrPartitionError:
            self.topic_ids(
                {tp.topic for tp in partitions}
            )  # librdkafka returns the same error for topics that this user may not describe
            raise

    def _id(self, topic: str, future: Future[Any], seconds: float) -> str | None:
        try:
            topic_id = str(_result(future, seconds).topic_id)
        except KafkaException as error:
            if error.args[0].code() == Code.TOPIC_AUTHORIZATION_FAILED:
                self._connection.fail(error.args[0], f"asking for topic {topic!r}", Right("DESCRIBE", "topic", topic))
            if error.args[0].code() != Code.UNKNOWN_TOPIC_OR_PART:
                raise
            return None
        return None if topic_id == _NO_ID else topic_id

    def _usable(self, names: set[str]) -> bool:
        metadata = self._call("listing topics", lambda client, seconds: client.list_topics(timeout=seconds))
        return all(
            name in metadata.topics
            and metadata.topics[name].partitions
            and all(partition.leader >= 0 for partition in metadata.topics[name].partitions.values())
            for name in names
        )

    def _bounds(self) -> dict[str, float]:
        return {"request_timeout": self._connection.timeout, "operation_timeout": self._connection.timeout}

    def _change_slowly(
        self,
        doing: str,
        names: Collection[str],
        ask: Callable[[AdminClient, Collection[str]], Mapping[Any, Future[Any]]],
        needs: Callable[[Any], Right],
    ) -> None:
        """Change topics as `_change` does, retrying those over a quota.

        Brokers refuse changes while this user exceeds `controller_mutation_rate`; these are requested again for some
        time.
        """
        deadline, left = time.monotonic() + _QUOTA_SECONDS, set(names)
        while left:
            put_off: set[str] | None = set() if time.monotonic() < deadline else None
            self._change(doing, lambda client, left=left: ask(client, sorted(left)), needs, put_off)  # type: ignore[misc]  # the default binds the loop's value
            left = put_off or set()
            if left:
                time.sleep(_QUOTA_PAUSE_SECONDS)

    def _change(
        self,
        doing: str,
        ask: Callable[[AdminClient], Mapping[Any, Future[Any]]],
        needs: Callable[[Any], Right],
        put_off: set[str] | None = None,
    ) -> None:
        """Request changes without retries, because a change may happen without an answer.

        All are awaited before the first error is raised.

        doing: the change, for errors. needs: returns the permission for one item. put_off: collects the items that
        brokers refused because of a quota; if None, these are errors.
        """
        client = self._client.open(doing)
        self._connection.asks()
        failed: tuple[KafkaException | TimeoutError, Any] | None = None
        for key, future in ask(client).items():
            try:
                _result(future, self._connection.timeout)
            except (KafkaException, TimeoutError) as error:
                if put_off is not None and _is_above_quota(error):
                    put_off.add(key)
                else:
                    failed = failed or (error, key)
        if failed is not None:
            reason, key = failed
            if is_silence(reason):
                self._client.renew()
            code = reason.args[0] if isinstance(reason, KafkaException) else Code(Code._TIMED_OUT)
            self._connection.fail(code, f"{doing} {key}", needs(key))

    def _call(self, doing: str, ask: Callable[[LeaderAwareClient, float], T], *needs: Right) -> T:
        """Return the result of `ask`, called with a client and its time (s).

        The first attempt gets a fraction of the timeout, later ones more, up to the remaining time. After an unanswered
        attempt, the next one uses a new client. needs: the permissions for the request.
        """
        deadline = time.monotonic() + self._connection.timeout
        seconds = min(self._connection.timeout * _FIRST_TRY, _FIRST_TRY_SECONDS)

        def attempt() -> T:
            nonlocal seconds
            try:
                return ask(self._client.open(doing), seconds)
            except (KafkaException, TimeoutError) as error:
                if is_silence(error):
                    self._client.renew()
                raise
            finally:
                seconds = max(min(2 * seconds, deadline - time.monotonic()), RETRY_SECONDS)

        result = self._connection.call(doing, attempt, *needs)
        self._connection.serve(0)  # else reports of brokers that no call needs would accumulate
        self._connection.answered()
        return result


def _is_above_quota(error: KafkaException | TimeoutError) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() == Code.THROTTLING_QUOTA_EXCEEDED


def _result(future: Future[T], seconds: float) -> T:
    """Return the result of a request of `seconds`; raises its error, or TimeoutError.

    The error is copied: raised by the future itself, it would keep the client in a reference cycle, and librdkafka ends
    the program if the garbage collector deletes a client in one of the client's threads.
    """
    error = future.exception(
        timeout=seconds + 1
    )  # librdkafka times out the request itself; leave time for that error to arrive
    if error is not None:
        raise type(error)(*error.args)
    return future.result()


def _described(name: str, partitions: Mapping[int, Any], entries: Mapping[str, Any]) -> TopicDescription:
    return TopicDescription(
        name,
        tuple(PartitionInfo(p.id, p.leader, tuple(p.replicas), tuple(p.isrs)) for _, p in sorted(partitions.items())),
        {key: entry.value for key, entry in entries.items() if not entry.is_sensitive and entry.value is not None},
        frozenset(key for key, entry in entries.items() if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value),
    )


def _metadata(position: Position) -> str:
    """Return the metadata of an offset, empty if it is not UTF-8.

    It is correct if a client of librdkafka has committed it, with a trailing zero byte: for others, librdkafka also
    returns the memory after it (see penstock/client/sockets/offsets.py).
    """
    try:
        return position.metadata or ""
    except UnicodeDecodeError:
        return ""


def _text(value: ConsumerGroupState | ConsumerGroupType) -> str:
    return value.name.replace("_", " ").capitalize()


def _topic_right(operation: str) -> Callable[[Any], Right]:
    return lambda name: Right(operation, "topic", str(name))


def _has_all(metadata: ClusterMetadata, partitions: Sequence[TopicPartition]) -> bool:
    return all(topic in metadata.topics and n in metadata.topics[topic].partitions for topic, n in partitions)


def _position(found: ListOffsetsResultInfo) -> EpochPosition:
    """Return the offset and the leader epoch from a broker's result.

    Raises KafkaException for an invalid offset. librdkafka returns an impossible offset, instead of an error, for a
    partition whose leader went away meanwhile.
    """
    offset = int(found.offset)
    if offset == OFFSET_INVALID:
        raise KafkaException(Code(Code._TRANSPORT, "the broker went away", False, True))  # retriable
    return EpochPosition(offset, UNKNOWN_LEADER_EPOCH if found.leader_epoch is None else int(found.leader_epoch))


def _checked(positions: list[Position]) -> list[Position]:
    for position in positions:
        if position.error is not None:
            raise KafkaException(position.error)
    return positions
