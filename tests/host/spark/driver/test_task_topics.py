"""The topics with answers of calls, before a query starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from penstock import Calls, Consumed, Serdes, StreamsBuilder
from penstock.client.api import NewTopic, TopicDescription
from penstock.config import StreamsConfig
from penstock.errors import StreamsError, TopicAuthorizationError, TopicExistsError
from penstock.host.spark.driver.task_topics import with_task_topics
from penstock.plan.subtopology import BuiltTopology

TOPIC = "app-ask-answers"


async def ask(value: str) -> str:
    return value


def asking() -> BuiltTopology:
    builder = StreamsBuilder()
    text = Serdes.string()
    stream = builder.stream("in", Consumed.with_(key_serde=text, value_serde=text))
    stream.map_values(ask, named="ask", calls=Calls()).foreach(lambda key, value: None)
    return builder.build().build("app")


TOPOLOGY = asking()


class Brokers:
    """Keeps the topics and partitions that are created."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.topics = dict(topics)
        self.created: list[NewTopic] = []
        self.retention = "-1"
        self.refusal: StreamsError | None = None

    def describe_topic(self, name: str) -> TopicDescription:
        if self.refusal is not None:
            raise self.refusal
        return TopicDescription(name, (), {"retention.ms": self.retention})

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        self.created.extend(topics)
        if any(topic.name in self.topics for topic in topics):
            raise TopicExistsError("there")
        self.topics.update({topic.name: topic.partitions for topic in topics})

    def create_partitions(self, name: str, total: int) -> None:
        self.topics[name] = total


def made(brokers: Brokers, listed: Mapping[str, int], **settings: Any) -> dict[str, int]:
    """Return the topics after a start with three tasks."""
    config = StreamsConfig({"application.id": "app", "replication.factor": 2, **settings})
    admin: Any = brokers
    return with_task_topics(TOPOLOGY, {TOPIC: 3}, config, admin, listed)


def test_a_missing_topic_is_created_with_a_partition_for_each_task() -> None:
    brokers = Brokers({"in": 3})
    assert made(brokers, {"in": 3}, **{"topic.min.insync.replicas": 2}) == {"in": 3, TOPIC: 3}
    (topic,) = brokers.created
    assert (topic.name, topic.partitions, topic.replication_factor) == (TOPIC, 3, 2)
    assert topic.config["retention.ms"] == "-1"
    assert topic.config["min.insync.replicas"] == "2"


def test_a_topic_that_another_program_creates_meanwhile_is_used() -> None:
    assert made(Brokers({TOPIC: 3}), {}) == {TOPIC: 3}


def test_missing_partitions_are_added_and_others_are_left() -> None:
    brokers = Brokers({TOPIC: 2})
    assert made(brokers, {TOPIC: 2}) == {TOPIC: 3}
    assert brokers.topics == {TOPIC: 3}
    larger = Brokers({TOPIC: 5})
    assert made(larger, {TOPIC: 5}) == {TOPIC: 5}
    assert larger.topics == {TOPIC: 5}
    assert brokers.created == larger.created == []


def test_a_topic_that_does_not_keep_its_answers_is_refused() -> None:
    brokers = Brokers({TOPIC: 3})
    brokers.retention = "604800000"
    with pytest.raises(StreamsError, match=f"{TOPIC}, with .* of ask, has retention.ms=604800000; expected: -1"):
        made(brokers, {TOPIC: 3})
    assert made(brokers, {TOPIC: 3}, **{"topic.retention.ms": 604_800_000}) == {TOPIC: 3}
    brokers.refusal = TopicAuthorizationError("not allowed")
    assert made(brokers, {TOPIC: 3}) == {TOPIC: 3}
