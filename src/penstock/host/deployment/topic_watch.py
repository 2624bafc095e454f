"""Looks whether the topics of a running application have changed: topics that a pattern matches have come or gone,
partitions were added, a topic was deleted. The next preparation of the application decides what to do about it.
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
    """The topics with which an application was started."""

    @property
    def topology(self) -> BuiltTopology:
        """The topology, with its patterns resolved."""
        ...

    @property
    def topic_partitions(self) -> Mapping[str, int]:
        """The partitions of each topic."""
        ...

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the source topics, the global topics and those that the application made for itself, where brokers
        give ids."""
        ...


class TopicChange(NamedTuple):
    """What has become of one topic. text: for people. is_growth: whether what there was is still there, and readers of
    it may go on without what is new."""

    text: str
    is_growth: bool


class TopicChanges(NamedTuple):
    """What has become of topics. are_growth: whether all changes are."""

    text: str
    are_growth: bool


class TopicWatch:
    """Asks the brokers at intervals; one thread at a time."""

    def __init__(self, built: BuiltTopology, config: StreamsConfig, internal: frozenset[str]) -> None:
        """Take the topology as it was built, with its patterns. internal: the application's own topics, which no
        pattern matches."""
        self._built = built
        self._config = config
        self._internal = internal
        self._interval_ms: int = config["metadata.max.age.ms"]
        self._looked_ms: int | None = None

    def look(self, used: UsedTopics, now_ms: int) -> TopicChanges | None:
        """Return what has changed since `used`; None for nothing, before the time for a look, or if no broker
        answers."""
        if self._looked_ms is None:
            self._looked_ms = now_ms
        if now_ms - self._looked_ms < self._interval_ms:
            return None
        self._looked_ms = now_ms
        return self.changes(used)

    def changes(self, used: UsedTopics) -> TopicChanges | None:
        """Return what has changed since `used`; None for nothing, or if no broker answers."""
        try:
            with closing(ConfluentAdmin(self._config)) as admin:
                topics, ids = admin.topics(), admin.topic_ids(used.topic_ids.keys())
        except KafkaError:
            return None  # the code that reads or writes waits for the brokers, and reports it
        now = resolve_patterns(self._built, topics, self._internal, self._config)
        found = list(topic_changes(used, now, topics, ids))
        if not found:
            return None
        return TopicChanges("; ".join(each.text for each in found), all(each.is_growth for each in found))


def topic_changes(
    used: UsedTopics, now: BuiltTopology, topics: Mapping[str, int], ids: Mapping[str, str]
) -> Iterator[TopicChange]:
    """Yield what differs between the topics that an application uses and those that there are.

    Args:
        used: what runs.
        now: the topology, with its patterns resolved for the topics that there are.
        topics: the partitions of each topic of the brokers now.
        ids: the ids of these topics now, where brokers give ids.
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
    return topics - set(topology.repartition_topics)
