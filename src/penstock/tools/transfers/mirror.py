"""Mirrors of topics in another cluster, record by record and partition by partition, exactly once.

Positions are in the target cluster, in the transactions of the records. They include the ids of the topics in both
clusters: a topic that was deleted and created again is a different topic, and is mirrored from its beginning.

A mirror works in sessions: it opens clients, selects topics, and copies until topics change or a transient error ends
the session. Each session fences open transactions of an earlier one.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentConsumer
from penstock.config import StreamsConfig
from penstock.errors import (
    BrokerNotFoundError,
    KafkaError,
    MissingSourceTopicError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    RetriableError,
    StreamsError,
    TaskMigratedError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
    counted,
)
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from penstock.tools.transfers.progress import MIRROR, REDRIVE, Key, ProgressWriter, committed_progress, identified

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
"""The pattern of topic names; any other text is a regular expression."""

_OF_A_CLUSTER: Final = frozenset(
    (
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    )
)
"""Topic configs that are not copied, as in Kafka's MirrorMaker.

They are specific to a cluster, or would change or reject timestamps of the source.
"""

_KEPT: Final = {"message.timestamp.type": "CreateTime"}
"""The configs of new topics that preserve timestamps, independently of the target's defaults."""

_POLL_MS: Final = 200
_POLL_RECORDS: Final = 5_000
_TRANSACTION_TIMEOUT_MS: Final = 60_000
"""The default of Kafka's producers; a transaction may cross a slow link between clusters."""

_MEASURE_SECONDS: Final = 1.0
"""The interval between lag measurements while records arrive; each takes a call per partition."""

_MOST_FAILURES: Final = 10
_FIRST_WAIT_SECONDS: Final = 0.2
_LONGEST_WAIT_SECONDS: Final = 10.0


@dataclass(frozen=True)
class MirrorOptions:
    """The topics to mirror, and settings of the copies.

    Args:
        topics: names, and patterns for whole names (re syntax; any text that is not a valid name is a pattern).
        exclude: names and patterns to omit.
        prefix: of the names in the target.
        renames: names in the target by names in the source, without the prefix.
        name: of the mirror; None for the id of the source's cluster.
        replication_factor: of new topics, -1 for the target's default.
        exclude_configs: configs that new topics do not copy from the source.
        refresh_ms: the interval between checks for new topics and partitions.
    """

    topics: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    prefix: str = ""
    renames: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    replication_factor: int = -1
    exclude_configs: frozenset[str] = frozenset()
    refresh_ms: int = 30_000

    def target(self, topic: str) -> str:
        """Return the name of a source topic in the target cluster."""
        return self.renames.get(topic, self.prefix + topic)


@dataclass
class MirroredTopic:
    """A mirrored topic and its progress.

    Args:
        source: the name in the source cluster.
        target: the name in the target cluster.
        partitions: the number of partitions.
        records: the number of mirrored records since the start.
        lag: the number of offsets to the end of the source, as far as known.
    """

    source: str
    target: str
    partitions: int
    records: int = 0
    lag: int = 0


class _Topic(NamedTuple):
    """A topic to mirror, with its names and ids in the two clusters."""

    source: str
    source_id: str
    target: str
    target_id: str
    partitions: int

    def key(self, cluster: str, partition: int) -> Key:
        """Return the key of a partition's progress."""
        return (cluster, self.source, self.source_id, partition, self.target, self.target_id)


class Mirror:
    """Copies topics from one cluster to another; connects on `run`.

    Args:
        source: the configuration of the source cluster.
        target: the configuration of the target cluster.
        options: the topics to mirror; StreamsError for an invalid pattern.
    """

    def __init__(self, source: StreamsConfig, target: StreamsConfig, options: MirrorOptions) -> None:
        self._source = source
        self._target = StreamsConfig({"transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS, **target.given()}, {})
        self._options = options
        self._wanted, self._unwanted = _pattern(options.topics), _pattern(options.exclude)
        self._topics: dict[str, MirroredTopic] = {}

    def run_to_end(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Mirror the current content of the source topics; raises the errors of `run`.

        Args:
            should_stop: called often; stops the mirror by returning True.
        """
        self._run(should_stop, to_end=True)

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Mirror until `should_stop`, which is called often, returns True.

        Raises:
            MissingSourceTopicError: a named topic does not exist in the source.
            StreamsError: two topics would have the same name in the target, or a topic would be copied to itself.
            ProducerFencedError: another mirror of this name has started.
            KafkaError: a permission is missing, brokers reject a record, or retries did not help.
        """
        self._run(should_stop, to_end=False)

    def topics(self) -> list[MirroredTopic]:
        """Return the mirrored topics, by their names in the source."""
        return [self._topics[name] for name in sorted(self._topics)]

    def _run(self, should_stop: Callable[[], bool], to_end: bool) -> None:
        failures, has_copied = 0, False
        while True:
            session = _Session(self._source, self._target, self._options, self._wanted, self._unwanted)
            before = sum(topic.records for topic in self._topics.values())
            try:
                session.open()
                has_copied = True
                if session.copy(should_stop, to_end, self._topics):
                    return
                failures = 0
            except ProducerFencedError:
                raise
            except (TaskMigratedError, KafkaError) as error:
                moved = sum(topic.records for topic in self._topics.values()) > before
                failures = 1 if moved else failures + 1
                is_no_address = isinstance(error, BrokerNotFoundError) and not has_copied
                if is_no_address or not _may_pass(error) or failures > _MOST_FAILURES:
                    raise
                _log.warning("The mirror retries after an error (attempt %d): %s", failures, error)
                _wait(min(_FIRST_WAIT_SECONDS * 2**failures, _LONGEST_WAIT_SECONDS), should_stop)
                if should_stop():
                    return
            finally:
                session.close()


def _may_pass(error: StreamsError) -> bool:
    """Return whether a new session may succeed after this error.

    It may if brokers are unavailable or do not know a new topic yet, a transaction has failed, or records were deleted.
    """
    passing = RetriableError | TaskMigratedError | OffsetOutOfRangeError | UnknownTopicOrPartitionError
    return isinstance(error, passing) or type(error) is KafkaError


def _wait(seconds: float, should_stop: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not should_stop():
        time.sleep(_FIRST_WAIT_SECONDS)


class _Session:
    """Clients of both clusters, and their work until the topics change."""

    def __init__(
        self,
        source: StreamsConfig,
        target: StreamsConfig,
        options: MirrorOptions,
        wanted: Sequence[re.Pattern[str]],
        unwanted: Sequence[re.Pattern[str]],
    ) -> None:
        self._configs = source, target
        self._options = options
        self._wanted, self._unwanted = wanted, unwanted
        self._source, self._target = ConfluentAdmin(source), ConfluentAdmin(target)
        self._consumer: ConfluentConsumer | None = None
        self._writer: ProgressWriter | None = None
        self._cluster = ""
        self._topics: list[_Topic] = []
        self._keys: dict[TopicPartition, Key] = {}
        self._targets: dict[str, str] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._found: Mapping[str, int] = {}

    def open(self) -> None:
        """Select the topics to copy, create missing ones in the target, and read the positions."""
        source, target = self._configs
        self._cluster, target_cluster = self._source.cluster_id() or "", self._target.cluster_id() or ""
        self._found = self._matching()
        copies = self._copies_of(target_cluster)
        names = [name for name in self._found if name not in copies]
        self._check(names, copies, target_cluster)
        self._create_missing(names)
        self._topics = self._identified(names)
        self._targets = {topic.source: topic.target for topic in self._topics}
        self._keys = {
            TopicPartition(topic.source, partition): topic.key(self._cluster, partition)
            for topic in self._topics
            for partition in range(topic.partitions)
        }
        self._writer = ProgressWriter(target, f"{MIRROR}{self._options.name or self._cluster}")
        self._positions = self._starts(self._writer)
        new = {key: self._positions[place] for place, key in self._keys.items() if key not in self._writer.committed}
        if new:  # before any record, so that a mirror in the opposite direction omits these topics
            self._writer.write([], new)
        if self._copies_of(target_cluster).keys() & set(names):
            raise RetriableError("Another mirror has begun to copy topics of the target cluster.")
        self._consumer = ConfluentConsumer(source, read_committed=True)
        self._consumer.assign(self._positions)

    def copy(self, should_stop: Callable[[], bool], to_end: bool, report: dict[str, MirroredTopic]) -> bool:
        """Copy; return True at the end, False if changed topics require a new session."""
        assert self._consumer is not None
        assert self._writer is not None
        for topic in self._topics:
            told = report.setdefault(topic.source, MirroredTopic(topic.source, topic.target, topic.partitions))
            told.partitions = topic.partitions
        places = list(self._positions)
        ends = self._source.end_offsets(places, read_committed=True) if to_end and places else {}
        measured, look = 0.0, time.monotonic() + self._options.refresh_ms / 1000
        while not should_stop():
            if to_end and all(self._positions[place] >= end for place, end in ends.items()):
                break
            arrived = self._consumer.poll(_POLL_MS, _POLL_RECORDS)
            if arrived:
                self._write(self._writer, arrived, report)
            for place, end in self._consumer.reached_ends().items():  # possibly before records of the same poll
                self._positions[place] = max(self._positions[place], end)
            if not arrived or time.monotonic() >= measured + _MEASURE_SECONDS:
                measured = time.monotonic()
                self._measure(self._consumer, report)
            if time.monotonic() >= look:
                look = time.monotonic() + self._options.refresh_ms / 1000
                if self._matching() != self._found and not to_end:  # always called, to detect unavailable brokers
                    return False
        self._measure(self._consumer, report)
        return True

    def close(self) -> None:
        """Release connections and threads."""
        if self._consumer is not None:
            self._consumer.close()
        if self._writer is not None:
            self._writer.close()
        self._source.close()
        self._target.close()

    def _matching(self) -> dict[str, int]:
        """Return the selected topics of the source, with their numbers of partitions."""
        return {
            name: count
            for name, count in sorted(self._source.topics().items())
            if not name.startswith(("__", MIRROR, REDRIVE)) and self._is_wanted(name)
        }

    def _is_wanted(self, name: str) -> bool:
        return _matches(self._wanted, name) and not _matches(self._unwanted, name)

    def _copies_of(self, cluster: str) -> dict[str, str]:
        """Return the source topics that are mirrors of topics in `cluster`, with their progress topics.

        To copy them back would create an endless loop of records.
        """
        source, _ = self._configs
        copies: dict[str, str] = {}
        for name in self._source.topics():
            if name.startswith(MIRROR):
                try:
                    keys = committed_progress(source, name)
                except TopicAuthorizationError as error:
                    _log.warning("Cannot see which topics %s copies: %s", name, error)
                    continue
                copies.update((str(key[4]), name) for key in keys if key[0] == cluster)
        return copies

    def _check(self, names: Sequence[str], copies: Mapping[str, str], target_cluster: str) -> None:
        """Raise for named topics that cannot be mirrored."""
        for name in filter(_NAME.fullmatch, self._options.topics):
            if name in copies:
                raise StreamsError(
                    f"Topic {name} is itself the mirror of a topic of the target cluster: its records would go round "
                    f"forever. Leave it out. If that mirror has ended for good, delete its topic {copies[name]} in the "
                    "source cluster."
                )
            if name not in self._found and self._is_wanted(name):
                self._source.topic_ids([name])  # raises if the topic exists but is not visible
                raise MissingSourceTopicError(
                    f"There is no topic {name!r} at bootstrap.servers={self._configs[0]['bootstrap.servers']}; "
                    "`penstock topics list` lists the topics."
                )
        by_target: dict[str, str] = {}
        for name in names:
            target = self._options.target(name)
            if target in by_target:
                raise StreamsError(
                    f"Topics {by_target[target]} and {name} would both be mirrored to {target}: rename one of them."
                )
            if target == name and target_cluster == self._cluster:
                raise StreamsError(
                    f"Topic {name} would be mirrored to itself: both clusters are {target_cluster}. Give another "
                    "name with --rename or --prefix."
                )
            by_target[target] = name

    def _create_missing(self, names: Sequence[str]) -> None:
        """Create missing topics and partitions in the target."""
        existing = self._target.topics()
        missing = [name for name in names if self._options.target(name) not in existing]
        for found in self._source.describe_topics(missing):
            own = {key: found.config[key] for key in found.overrides - _OF_A_CLUSTER if key in found.config}
            config = {key: value for key, value in {**own, **_KEPT}.items() if key not in self._options.exclude_configs}
            target, count = self._options.target(found.name), len(found.partitions)
            self._target.create_topics([NewTopic(target, count, self._options.replication_factor, config)])
            _log.info("Created topic %s with %s.", target, counted(count, "partition"))
        for name in names:
            target = self._options.target(name)
            if target in existing and existing[target] < self._found[name]:
                self._target.create_partitions(target, self._found[name])

    def _identified(self, names: Sequence[str]) -> list[_Topic]:
        targets = [self._options.target(name) for name in names]
        ids, target_ids = identified(self._source, names), identified(self._target, targets)
        return [
            _Topic(name, ids[name], target, target_ids[target], self._found[name])
            for name, target in zip(names, targets, strict=True)
        ]

    def _starts(self, writer: ProgressWriter) -> dict[TopicPartition, int]:
        """Return the start of each partition: the end of the last transaction, else its beginning."""
        if not self._keys:
            return {}
        places = list(self._keys)
        begins, ends = self._source.beginning_offsets(places), self._source.end_offsets(places)
        starts = {}
        for place, key in self._keys.items():
            start: int = writer.committed.get(key, begins[place])
            if start > ends[place]:
                raise RetriableError(  # a new leader may not know its end yet
                    f"{place} of the source ends at offset {ends[place]}, and was mirrored up to {start}: the source "
                    f"has lost records. Delete the topic {self._targets[place.topic]} of the target to mirror it again."
                )
            if start < begins[place]:
                _log.warning(
                    "%s of the source has lost the offsets %d to %d before they were mirrored: they were deleted.",
                    place,
                    start,
                    begins[place] - 1,
                )
            starts[place] = max(start, begins[place])
        return starts

    def _write(
        self,
        writer: ProgressWriter,
        arrived: Sequence[tuple[TopicPartition, RecordBatch]],
        report: Mapping[str, MirroredTopic],
    ) -> None:
        reached = {place: int(batch.offsets[-1]) + 1 for place, batch in arrived}
        output = [PartitionBatch(self._targets[place.topic], place.partition, batch) for place, batch in arrived]
        writer.write(output, {self._keys[place]: offset for place, offset in reached.items()})
        self._positions.update(reached)
        for place, batch in arrived:
            report[place.topic].records += len(batch)

    def _measure(self, consumer: ConfluentConsumer, report: Mapping[str, MirroredTopic]) -> None:
        ends = consumer.known_ends(self._positions)
        for topic in self._topics:
            report[topic.source].lag = sum(
                max(end - self._positions[place], 0) for place, end in ends.items() if place.topic == topic.source
            )


def _pattern(texts: Sequence[str]) -> list[re.Pattern[str]]:
    patterns = []
    for text in texts:
        try:
            patterns.append(re.compile(re.escape(text) if _NAME.fullmatch(text) else text))
        except re.error as error:
            raise StreamsError(f"{text!r} is neither the name of a topic nor a pattern: {error}.") from error
    return patterns


def _matches(patterns: Sequence[re.Pattern[str]], name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)
