"""Detection of changes to the topics of a running application.

A topic that a pattern matches was created or deleted, partitions were added, or a topic was deleted. The next
preparation of the application handles the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NamedTuple, Protocol

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import KafkaError
from penstock.host.deployment.topics import external_sink_topics, resolve_patterns
from penstock.plan.subtopology import BuiltTopology


class UsedTopics(Protocol):
    """The topics of a running application."""

    @property
    def topology(self) -> BuiltTopology:
        """The topology, with its patterns resolved."""
        ...

    @property
    def topic_partitions(self) -> Mapping[str, int]:
        """The number of partitions of each topic."""
        ...

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The ids of source, global and internal topics, if brokers have ids."""
        ...


class TopicChange(NamedTuple):
    """A change of one topic.

    text: for humans. is_growth: whether the previous content is unaffected, so that readers may continue without the
    new.
    """

    text: str
    is_growth: bool


class TopicChanges(NamedTuple):
    """Changes of topics. are_growth: whether all of them are growth."""

    text: str
    are_growth: bool


class TopicWatch:
    """Compares the topics at intervals; used by one thread at a time.

    Args:
        built: the topology as built, with unresolved patterns.
        config: the configuration of the application.
        internal: the internal topics of the application, which no pattern matches.
    """

    def __init__(self, built: BuiltTopology, config: StreamsConfig, internal: frozenset[str]) -> None:
        self._built = built
        self._config = config
        self._internal = internal
        self._interval_ms: int = config["metadata.max.age.ms"]
        self._looked_ms: int | None = None

    def look(self, used: UsedTopics, now_ms: int) -> TopicChanges | None:
        """Return the changes since `used`; None if unchanged, not due, or without an answer."""
        if self._looked_ms is None:
            self._looked_ms = now_ms
        if now_ms - self._looked_ms < self._interval_ms:
            return None
        self._looked_ms = now_ms
        return self.changes(used)

    def changes(self, used: UsedTopics) -> TopicChanges | None:
        """Return the changes since `used`; None without changes, or if no broker answers."""
        try:
            with closing(ConfluentAdmin(self._config)) as admin:
                topics, ids = admin.topics(), admin.topic_ids(used.topic_ids.keys())
        except KafkaError:
            return None  # the readers and writers wait for the brokers, and report that
        now = resolve_patterns(self._built, topics, self._internal, self._config)
        found = list(topic_changes(used, now, topics, ids))
        if not found:
            return None
        return TopicChanges("; ".join(each.text for each in found), all(each.is_growth for each in found))


def topic_changes(
    used: UsedTopics, now: BuiltTopology, topics: Mapping[str, int], ids: Mapping[str, str]
) -> Iterator[TopicChange]:
    """Yield the differences between the topics that an application uses and those of the brokers.

    Args:
        used: the topics of the running application.
        now: the topology, with its patterns resolved for the current topics.
        topics: the current number of partitions of each topic on the brokers.
        ids: the current ids of these topics, if brokers have ids.
    """
    before = used.topology
    read, matched = _sources(before), _sources(now)
    for topic in sorted(matched - read):
        yield TopicChange(f"topic {topic} is new and matches a pattern", is_growth=True)
    named = {*read, *external_sink_topics(before), *used.topic_ids}
    if before.global_topology is not None:
        named.update(before.global_topology.source_topics)
    for topic in sorted(named & used.topic_partitions.keys()):
        partitions, former_id = used.topic_partitions[topic], used.topic_ids.get(topic)
        if topic not in topics:
            yield TopicChange(f"topic {topic} was deleted", is_growth=False)
        elif former_id is not None and ids.get(topic, former_id) != former_id:
            yield TopicChange(f"topic {topic} was deleted and created again", is_growth=False)
        elif topics[topic] != partitions:
            text = f"topic {topic} has {topics[topic]} partitions, and had {partitions}"
            yield TopicChange(text, is_growth=topics[topic] > partitions)


def _sources(topology: BuiltTopology) -> set[str]:
    topics = {topic for spec in topology.subtopologies for topic in spec.source_topics}
    return topics - {*topology.repartition_topics, *topology.task_topics}
