"""Looks whether the topics of a running application have changed: topics that a pattern matches have come or gone,
partitions were added, a topic was deleted. The next preparation of the application decides what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.errors import KafkaError
from penstock.host.spark.driver.preparation import internal_topics
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.topics import external_sink_topics, resolve_patterns
from penstock.plan.subtopology import BuiltTopology


class TopicWatch:
    """Asks the brokers at intervals; one thread at a time."""

    def __init__(self, built: BuiltTopology, interval_ms: int) -> None:
        """Take the topology as it was built, with its patterns; interval_ms: between two looks."""
        self._built = built
        self._interval_ms = interval_ms
        self._looked_ms: int | None = None

    def look(self, description: ApplicationDescription, now_ms: int) -> str | None:
        """Return what has changed since `description`; None for nothing, before the time for a look, or if no broker
        answers."""
        if self._looked_ms is None:
            self._looked_ms = now_ms
        if now_ms - self._looked_ms < self._interval_ms:
            return None
        self._looked_ms = now_ms
        try:
            admin = ConfluentAdmin(description.config)
            try:
                topics, ids = admin.topics(), admin.topic_ids(description.topic_ids.keys())
            finally:
                admin.close()
        except KafkaError:
            return None  # the code that reads or writes waits for the brokers, and reports it
        return "; ".join(topic_changes(self._built, description, topics, ids)) or None


def topic_changes(
    built: BuiltTopology, description: ApplicationDescription, topics: Mapping[str, int], ids: Mapping[str, str]
) -> Iterator[str]:
    """Yield what differs between the topics that `description` reads and writes and those that there are.

    Args:
        built: the topology, with its patterns.
        description: what runs.
        topics: the partitions of each topic of the brokers now.
        ids: the ids of source topics now, where brokers give ids.
    """
    before = description.topology
    now = resolve_patterns(built, topics, internal_topics(built, description.application_id))
    read, matched = _sources(before), _sources(now)
    for topic in sorted(matched - read):
        yield f"topic {topic} is new and matches a pattern"
    used = {*read, *external_sink_topics(before)}
    if before.global_topology is not None:
        used.update(before.global_topology.source_topics)
    for topic in sorted(used & description.topic_partitions.keys()):
        partitions, former_id = description.topic_partitions[topic], description.topic_ids.get(topic)
        if topic not in topics:
            yield f"topic {topic} was deleted"
        elif former_id is not None and ids.get(topic, former_id) != former_id:
            yield f"topic {topic} was deleted and created again"
        elif topics[topic] != partitions:
            yield f"topic {topic} has {topics[topic]} partitions, and had {partitions}"


def _sources(topology: BuiltTopology) -> set[str]:
    topics = {topic for spec in topology.subtopologies for topic in spec.source_topics}
    return topics - set(topology.repartition_topics)
