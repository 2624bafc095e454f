"""The topics that hold the outputs of a comparison: their names, their creation and their deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from typing import Any, Final

from penstock.client.api import Admin, NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import TopicExistsError, UnknownTopicOrPartitionError

HELD_TOPIC: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Records keep the timestamps of their input, which may be old."""


class RedirectedTopics:
    """Names the redirected topics that a program chooses while it runs, and creates them.

    Args:
        prefix: of their names.
        client: the configuration of clients.
        topics: the partitions of the topics of the brokers.
    """

    def __init__(self, prefix: str, client: Mapping[str, Any], topics: Mapping[str, int]) -> None:
        self._prefix = prefix
        self._client = client
        self._topics = topics
        self._created: set[str] = set()

    def of(self, topic: str) -> str:
        """Return the redirected topic of `topic`, or itself if it is redirected already."""
        if topic.startswith(self._prefix):
            return topic
        if topic not in self._created and topic in self._topics:
            # Another sink, or this one in another process, may have created it.
            with closing(ConfluentAdmin(StreamsConfig(self._client))) as admin, suppress(TopicExistsError):
                create_redirected(admin, {self._prefix + topic: self._topics[topic]})
            self._created.add(topic)
        return self._prefix + topic


def output_prefix(application_id: str) -> str:
    """Return the first part of the names of the redirected topics of an application."""
    return f"{application_id}.output."


def create_redirected(admin: Admin, topics: Mapping[str, int]) -> None:
    """Create redirected topics with their numbers of partitions; raises TopicExistsError if one exists."""
    admin.create_topics([NewTopic(name, count, config=HELD_TOPIC) for name, count in topics.items()])


def delete_existing(admin: Admin, topics: Iterable[str]) -> None:
    """Delete topics. Those that are deleted already are skipped: brokers list them for a while."""
    with suppress(UnknownTopicOrPartitionError):
        admin.delete_topics(sorted(topics))
