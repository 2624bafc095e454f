"""A redirected topology writes elsewhere, reads the same topics and stops at planned ends."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from penstock import StreamsBuilder, Topology, TopologyConfig
from penstock.config import StreamsConfig
from penstock.errors import MissingSourceTopicError, TopologyError
from penstock.plan.subtopology import SinkSpec, SourceSpec
from penstock.record import TopicPartition
from penstock.shadow.redirection import RedirectedTopology, Redirection

CONFIG = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1"})
TOPICS = {"in": 2, "in-2": 1, "out": 3}


def redirected(topology: Topology, **changes: object) -> Redirection:
    return Redirection("app-shadow-new", CONFIG, TOPICS, **changes)  # type: ignore[arg-type]  # fields by name


def counting(builder: StreamsBuilder) -> None:
    stream = builder.stream(re.compile("in.*"))
    stream.group_by(lambda key, value: value).count().to_stream().to("out")
    stream.to(lambda key, value, context: "other")


def made(build: Callable[[StreamsBuilder], None], config: TopologyConfig | None = None) -> Topology:
    builder = StreamsBuilder() if config is None else StreamsBuilder(config)
    build(builder)
    return builder.build()


def test_outputs_are_redirected_and_internal_topics_are_not() -> None:
    topology = made(counting)
    built = RedirectedTopology(topology, redirected(topology)).build("app-shadow-new")
    nodes = [node for part in built.subtopologies for node in part.nodes]
    (repartition,) = built.repartition_topics
    sinks = [node for node in nodes if isinstance(node, SinkSpec)]
    assert {node.topic for node in sinks} == {repartition, "app-shadow-new.output.out", None}
    assert {topic for part in built.subtopologies for topic in part.sink_topics} == {
        repartition,
        "app-shadow-new.output.out",
    }
    (chosen,) = [node.topic_extractor for node in sinks if node.topic_extractor is not None]
    context: object = None
    assert chosen("k", "v", context) == "app-shadow-new.output.other"  # type: ignore[arg-type]  # it is not used


@pytest.mark.parametrize(("from_beginning", "reset"), [(True, "earliest"), (False, None)])
def test_patterns_become_the_topics_of_now(from_beginning: bool, reset: str | None) -> None:
    topology = made(counting)
    built = redirected(topology, from_beginning=from_beginning).applied_to(topology.build("app-shadow-new"))
    (source,) = [
        node
        for part in built.subtopologies
        for node in part.nodes
        if isinstance(node, SourceSpec) and not node.repartition
    ]
    assert (source.topics, source.pattern, source.offset_reset) == (("in", "in-2"), None, reset)


def test_the_ends_are_planned_and_caches_are_off() -> None:
    topology = made(counting, TopologyConfig({"application.id": "app", "statestore.cache.max.bytes": 1_000}))
    ends = {TopicPartition("in", 0): 5}
    built = redirected(topology, ends=ends).applied_to(topology.build("app-shadow-new"))
    assert built.planned_ends == ends
    assert "statestore.cache.max.bytes" not in built.config_overrides


def test_a_missing_input_is_reported() -> None:
    topology = made(lambda builder: builder.stream("nowhere").to("out"))
    with pytest.raises(MissingSourceTopicError, match="nowhere"):
        redirected(topology).applied_to(topology.build("app-shadow-new"))


def test_a_loop_over_a_topic_is_refused() -> None:
    def returning(builder: StreamsBuilder) -> None:
        builder.stream("in").to("in-2")
        builder.stream("in-2").to("out")

    topology = made(returning)
    with pytest.raises(TopologyError, match=r"KSTREAM-SINK.*test_redirection.py.* writes to in-2, .* also reads"):
        redirected(topology).applied_to(topology.build("app-shadow-new"))
