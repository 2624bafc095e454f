"""Creates and checks the repartition, task and changelog topics of an application.

Kafka class: InternalTopicManager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.client.api import Admin, NewTopic
from penstock.config import StreamsConfig
from penstock.errors import StreamsError, TopicExistsError
from penstock.host.deployment.layout import Layout
from penstock.plan.internal_topics import changelog_config


def topic_settings(config: StreamsConfig) -> dict[str, str]:
    """Return the user's settings for all internal topics (`topic.`)."""
    given = config.client_config()
    return {key.removeprefix("topic."): str(value) for key, value in given.items() if key.startswith("topic.")}


def internal_topics(layout: Layout) -> list[NewTopic]:
    """Return the internal topics of the application."""
    topology, config = layout.topology, layout.config
    extra = topic_settings(config)
    configs: dict[str, Mapping[str, str]] = {
        name: {**topic.config, **extra}
        for name, topic in (*topology.repartition_topics.items(), *topology.task_topics.items())
    }
    additional_ms = config["windowstore.changelog.additional.retention.ms"]
    for spec in topology.subtopologies:
        for store, (topic, _) in spec.changelogs.items():
            if topic not in spec.source_topics:
                configs[topic] = changelog_config(spec.stores[store], extra, additional_ms)
    factor = config["replication.factor"]
    return [NewTopic(name, layout.topic_partitions[name], factor, each) for name, each in sorted(configs.items())]


def make_internal_topics(layout: Layout, admin: Admin, topics: Mapping[str, int]) -> None:
    """Create missing internal topics. topics: the number of partitions of existing topics.

    Raises StreamsError if one exists with another number of partitions, KafkaError if it cannot be created.
    """
    wanted = internal_topics(layout)
    missing = [topic for topic in wanted if topic.name not in topics]
    _check(wanted, topics)
    if missing:
        try:
            admin.create_topics(missing)
        except TopicExistsError:  # another instance creates them at the same time
            _check(wanted, admin.topics())


def wrong_partitions(layout: Layout, topics: Mapping[str, int]) -> Iterator[str]:
    """Yield an error text for each internal topic with a wrong number of partitions.

    topics: as in `make_internal_topics`.
    """
    return _wrong(internal_topics(layout), topics)


def _wrong(wanted: list[NewTopic], topics: Mapping[str, int]) -> Iterator[str]:
    for topic in wanted:
        found = topics.get(topic.name, topic.partitions)
        if found != topic.partitions:
            yield (
                f"Existing internal topic {topic.name} has invalid partitions: expected: {topic.partitions}; actual: "
                f"{found}. Its records belong to other tasks: use another application.id, or delete the topic with the "
                "state that it holds (penstock topics delete)."
            )


def _check(wanted: list[NewTopic], topics: Mapping[str, int]) -> None:
    for text in _wrong(wanted, topics):
        raise StreamsError(text)
