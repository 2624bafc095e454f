"""The warning of a topic that a chain of operators both reads and writes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import pytest

from penstock import KafkaStreams, Serdes, StreamsBuilder, Topology
from penstock.testing import TopologyTestDriver

CONFIG = {"application.id": "app", "default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
LOG = "penstock.plan.topic_loops"


def warnings_of(topology: Topology, caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.WARNING, LOG), TopologyTestDriver(topology, CONFIG):
        return [record.getMessage() for record in caplog.records if record.name == LOG]


def test_a_sink_that_feeds_its_own_source_is_named_with_the_lines_of_both(caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder()
    code = sys._getframe().f_code
    builder.stream("in").filter(lambda key, value: False).to("in")
    [warning] = warnings_of(builder.build(), caplog)
    at = f"(created at {code.co_filename}:{code.co_firstlineno + 3})"
    assert warning.startswith(
        f"KSTREAM-SINK-0000000002 {at} writes to in, the topic that its source KSTREAM-SOURCE-0000000000 {at} reads: "
    )


def _two_topics(builder: StreamsBuilder) -> None:
    builder.stream("in").to("out")


def _another_chain(builder: StreamsBuilder) -> None:
    builder.stream("in").to("between")
    builder.stream("between").to("out")


def _chosen_by_a_function(builder: StreamsBuilder) -> None:
    builder.stream("in").to(lambda key, value, context: "in")


def _through_a_repartition(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by(lambda key, value: value).count().to_stream().to("counts")


@pytest.mark.parametrize("build", [_two_topics, _another_chain, _chosen_by_a_function, _through_a_repartition])
def test_other_chains_are_not_named(build: Callable[[StreamsBuilder], None], caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder()
    build(builder)
    assert warnings_of(builder.build(), caplog) == []


def test_the_topic_of_one_of_several_sources_counts(caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "b"]).merge(builder.stream("c")).to("b")
    assert len(warnings_of(builder.build(), caplog)) == 1


def test_an_application_warns_when_it_is_made(caplog: pytest.LogCaptureFixture) -> None:
    topology = Topology().add_source("source", "in").add_sink("sink", "in", "source")
    with caplog.at_level(logging.WARNING, LOG):
        KafkaStreams(topology, {**CONFIG, "bootstrap.servers": "127.0.0.1:1"})
    [warning] = caplog.messages
    assert warning.startswith("sink (created at ")
