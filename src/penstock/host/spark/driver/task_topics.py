"""Creates and checks the topics with answers of calls, and with requests about parked records.

Each task has one partition of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from penstock.client.api import Admin, NewTopic
from penstock.config import StreamsConfig
from penstock.errors import AuthorizationError, StreamsError, TopicExistsError
from penstock.host.deployment.internal_topics import topic_settings
from penstock.plan.subtopology import BuiltTopology

_RETENTION: Final = "retention.ms"


def with_task_topics(
    topology: BuiltTopology, wanted: Mapping[str, int], config: StreamsConfig, admin: Admin, topics: Mapping[str, int]
) -> dict[str, int]:
    """Create missing task topics, and missing partitions of others; return `topics` with them.

    A topic may have more partitions than there are tasks, if a savepoint was restored with fewer. They are not read.

    Args:
        topology: of the application.
        wanted: the number of partitions that the tasks read of each of these topics.
        config: of the application.
        admin: a client of the brokers.
        topics: the number of partitions of each topic of the brokers.

    Raises:
        StreamsError: an existing topic does not keep its records for good, and the configuration does not say so.
        KafkaError: the brokers do not answer or do not allow it.
    """
    _check_retention(topology, [name for name in wanted if name in topics], config, admin)
    extra = topic_settings(config)
    known = dict(topics)
    for name, partitions in wanted.items():
        topic = topology.task_topics[name]
        if name not in topics:
            with suppress(TopicExistsError):  # by another program; the generation of the checkpoint decides
                admin.create_topics(
                    [NewTopic(name, partitions, config["replication.factor"], {**topic.config, **extra})]
                )
        elif topics[name] < partitions:
            admin.create_partitions(name, partitions)
        known[name] = max(partitions, topics.get(name, 0))
    return known


def _check_retention(topology: BuiltTopology, existing: Sequence[str], config: StreamsConfig, admin: Admin) -> None:
    """Check that brokers delete no records before they are used, as in a topic that a producer has created."""
    if not existing or _RETENTION in topic_settings(config):
        return
    try:
        described = [admin.describe_topic(name) for name in existing]
    except AuthorizationError:
        return  # the application works without this right
    for topic in described:
        expected = topology.task_topics[topic.name].config[_RETENTION]
        found = topic.config.get(_RETENTION, expected)
        if found != expected:
            raise StreamsError(
                f"Topic {topic.name}, with {topology.uses_of_task_topics[topic.name]}, has "
                f"{_RETENTION}={found}; expected: {expected}. The brokers would delete records before they are read, "
                "and calls would be made again, or requests lost. Change it (penstock topics alter "
                f"{topic.name} --set {_RETENTION}={expected}), or accept it with topic.{_RETENTION}={found}."
            )
