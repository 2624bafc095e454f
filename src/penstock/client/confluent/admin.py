"""Admin over confluent-kafka: topics, their configuration, offsets of partitions and of groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaException, TopicCollection
from confluent_kafka import ConsumerGroupTopicPartitions as GroupPartitions
from confluent_kafka import KafkaError as Code
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ConfigSource,
    ListOffsetsResultInfo,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.admin import NewTopic as AdminNewTopic

from penstock.client.api import NewTopic, OffsetAndMetadata, PartitionInfo, TopicDescription
from penstock.client.confluent.connection import RETRY_SECONDS, Connection, nothing_to_serve
from penstock.client.settings import ADMIN, client_settings
from penstock.config import StreamsConfig
from penstock.errors import KafkaError, UnstableOffsetCommitError
from penstock.record import TopicPartition

T = TypeVar("T")

_NO_ID = "A" * 22
"""How an id of zeros is written, which stands for none."""

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # confluent-kafka gives it no types
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # as above


class ConfluentAdmin:
    """Admin over confluent-kafka."""

    def __init__(self, config: StreamsConfig, timeout_ms: int = 10_000) -> None:
        """Connect in the background; each call is bounded by `timeout_ms`. Raises ConfigError."""
        self._connection = Connection(client_settings(config, ADMIN), timeout_ms)
        self._client: AdminClient | None = self._connection.make(AdminClient)
        self._connection.serve = self._client.poll
        self._knows_leaders = False

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic, internal ones too."""
        metadata = self._call("listing topics", lambda client: client.list_topics(timeout=self._connection.timeout))
        return {name: len(topic.partitions) for name, topic in metadata.topics.items()}

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """Return the id of each of these topics; those that do not exist are left out, and all where brokers give no
        ids."""
        if not names:
            return {}
        wanted = TopicCollection(sorted(names))

        def ask(client: AdminClient) -> dict[str, str]:
            futures = client.describe_topics(wanted, request_timeout=self._connection.timeout)
            return {name: topic_id for name, future in futures.items() if (topic_id := self._topic_id(future))}

        return self._call("asking for the ids of topics", ask)

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create `topics` and return when they can be used; raises TopicExistsError if one exists (others are made)."""
        if not topics:
            return
        wanted = [
            AdminNewTopic(topic.name, topic.partitions, topic.replication_factor, config=dict(topic.config))
            for topic in topics
        ]
        futures = self._call("creating topics", lambda client: client.create_topics(wanted, **self._bounds()))
        self._results("creating topic", futures)
        names = {topic.name for topic in topics}
        deadline = time.monotonic() + self._connection.timeout
        while not self._usable(names):
            if time.monotonic() >= deadline:
                raise KafkaError(f"Topics {sorted(names)} were created, but have no leaders yet; try again.")
            time.sleep(RETRY_SECONDS)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their records; raises UnknownTopicOrPartitionError if one does not exist."""
        if names:
            futures = self._call("deleting topics", lambda client: client.delete_topics(list(names), **self._bounds()))
            self._results("deleting topic", futures)

    def create_partitions(self, name: str, total: int) -> None:
        """Raise the number of partitions of topic `name` to `total`."""
        wanted = [NewPartitions(name, total)]
        futures = self._call("adding partitions", lambda client: client.create_partitions(wanted, **self._bounds()))
        self._results("adding partitions to topic", futures)

    def describe_topic(self, name: str) -> TopicDescription:
        """Return partitions and configuration of topic `name`."""
        doing = f"describing topic {name!r}"
        metadata = self._call(doing, lambda client: client.list_topics(timeout=self._connection.timeout))
        if name not in metadata.topics:
            self._connection.fail(Code(Code.UNKNOWN_TOPIC_OR_PART), doing)
        partitions = sorted(metadata.topics[name].partitions.values(), key=lambda each: int(each.id))
        resource = ConfigResource(ResourceType.TOPIC, name)
        futures = self._call(
            doing, lambda client: client.describe_configs([resource], request_timeout=self._connection.timeout)
        )
        entries = self._results("describing", futures)[resource]
        return TopicDescription(
            name,
            tuple(PartitionInfo(p.id, p.leader, tuple(p.replicas), tuple(p.isrs)) for p in partitions),
            {key: entry.value for key, entry in entries.items() if not entry.is_sensitive and entry.value is not None},
            frozenset(key for key, entry in entries.items() if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value),
        )

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of the first record that each partition still has."""
        return self._offsets(partitions, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    def end_offsets(
        self, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition; with `read_committed` its last stable offset."""
        isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(partitions, _LATEST, isolation)

    def offsets_for_time(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition that is not older than `timestamp_ms`; partitions
        without such a record are left out."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        found = self._offsets(partitions, spec, IsolationLevel.READ_UNCOMMITTED)
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def committed_offsets(
        self, group: str, partitions: Sequence[TopicPartition], stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what consumer group `group` has committed; partitions without are left out.

        stable: raise UnstableOffsetCommitError where an open transaction is about to commit others; else return the
        last that are committed.
        """
        if not partitions:
            return {}
        request = [GroupPartitions(group, [Position(*partition) for partition in partitions])]

        def ask(client: AdminClient) -> list[Position]:
            futures = client.list_consumer_group_offsets(
                request, require_stable=stable, request_timeout=self._connection.timeout
            )
            positions: list[Position] = self._result(futures[group]).topic_partitions
            if any(each.error is not None and each.error.code() == Code.UNSTABLE_OFFSET_COMMIT for each in positions):
                raise UnstableOffsetCommitError(f"A transaction of the group {group!r} is open; ask again.")
            return _checked(positions)

        found = self._call(f"reading the offsets of group {group!r}", ask)
        return {
            TopicPartition(each.topic, each.partition): OffsetAndMetadata(each.offset, each.metadata or "")
            for each in found
            if each.offset >= 0
        }

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit `offsets` for consumer group `group`, which must have no members."""
        if not offsets:
            return
        positions = [Position(*partition, at.offset, at.metadata) for partition, at in offsets.items()]

        def ask(client: AdminClient) -> None:
            futures = client.alter_consumer_group_offsets(
                [GroupPartitions(group, positions)], request_timeout=self._connection.timeout
            )
            _checked(self._result(futures[group]).topic_partitions)

        self._call(f"committing offsets of group {group!r}", ask)

    def delete_groups(self, groups: Sequence[str]) -> None:
        """Delete consumer groups with what they have committed; those that do not exist are left out. Raises KafkaError
        for one that has members."""

        def ask(client: AdminClient) -> None:
            futures = client.delete_consumer_groups(list(groups), request_timeout=self._connection.timeout)
            for future in futures.values():
                try:
                    self._result(future)
                except KafkaException as error:
                    if error.args[0].code() != Code.GROUP_ID_NOT_FOUND:
                        raise

        if groups:
            self._call(f"deleting the groups {', '.join(groups)}", ask)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records before these offsets; raises KafkaError where the brokers cannot or may not."""
        if before:
            positions = [Position(*partition, offset) for partition, offset in before.items()]
            futures = self._call("deleting records", lambda client: client.delete_records(positions, **self._bounds()))
            self._results("deleting records of", futures)

    def close(self) -> None:
        """Release connections and threads; harmless when called again."""
        self._connection.serve = nothing_to_serve
        self._client = None  # librdkafka ends an admin client when its last reference goes

    def _offsets(
        self, partitions: Sequence[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        request = {Position(*partition): spec for partition in partitions}

        def ask(client: AdminClient) -> dict[TopicPartition, int]:
            if not self._knows_leaders:  # librdkafka sometimes lets three seconds pass before it looks for them
                client.list_topics(timeout=self._connection.timeout)
                self._knows_leaders = True
            futures = client.list_offsets(request, isolation_level=isolation, request_timeout=self._connection.timeout)
            try:
                return {
                    TopicPartition(position.topic, position.partition): _offset(self._result(future))
                    for position, future in futures.items()
                }
            except KafkaException as error:
                if error.args[0].code() == Code.FENCED_LEADER_EPOCH:
                    # after a broker's restart librdkafka would go on with the leaders that it knows, for minutes
                    self._knows_leaders = False
                raise

        return self._call(f"asking for the offsets of {', '.join(map(str, partitions[:3]))}", ask)

    def _topic_id(self, future: Future[Any]) -> str | None:
        try:
            topic_id = str(self._result(future).topic_id)
        except KafkaException as error:
            if error.args[0].code() != Code.UNKNOWN_TOPIC_OR_PART:
                raise
            return None
        return None if topic_id == _NO_ID else topic_id

    def _usable(self, names: set[str]) -> bool:
        metadata = self._call("listing topics", lambda client: client.list_topics(timeout=self._connection.timeout))
        return all(
            name in metadata.topics
            and metadata.topics[name].partitions
            and all(partition.leader >= 0 for partition in metadata.topics[name].partitions.values())
            for name in names
        )

    def _bounds(self) -> dict[str, float]:
        return {"request_timeout": self._connection.timeout, "operation_timeout": self._connection.timeout}

    def _result(self, future: Future[Any]) -> Any:
        # librdkafka ends a request by itself at its bound; the second more is for its answer to arrive.
        return future.result(timeout=self._connection.timeout + 1)

    def _results(self, doing: str, futures: Mapping[Any, Future[Any]]) -> dict[Any, Any]:
        """Return the results of all `futures`; waits for each before the first error is raised."""
        results: dict[Any, Any] = {}
        failed: tuple[Code, str] | None = None
        for key, future in futures.items():
            try:
                results[key] = self._result(future)
            except KafkaException as error:
                failed = failed or (error.args[0], f"{doing} {key}")
        if failed is not None:
            self._connection.fail(*failed)
        return results

    def _call(self, doing: str, action: Callable[[AdminClient], T]) -> T:
        client = self._client
        if client is None:
            raise KafkaError(f"The client is closed ({doing}).")
        return self._connection.call(doing, lambda: action(client))


def _offset(found: ListOffsetsResultInfo) -> int:
    """Return an offset that a broker told; raises KafkaException where none did: librdkafka gives no error for a
    partition whose leader went away meanwhile, but an offset that cannot be."""
    offset = int(found.offset)
    if offset == OFFSET_INVALID:
        raise KafkaException(Code(Code._TRANSPORT, "the broker went away", False, True))  # one to be tried again
    return offset


def _checked(positions: list[Position]) -> list[Position]:
    for position in positions:
        if position.error is not None:
            raise KafkaException(position.error)
    return positions
