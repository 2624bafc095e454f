"""Lowering of operators with calls: inbox, answers topic, operator, store and sink of dead letters."""

from __future__ import annotations

import pytest

from penstock import Calls, Consumed, Serdes, StreamsBuilder
from penstock.errors import TopologyError
from penstock.plan.internal_topics import answers_topic
from penstock.plan.subtopology import DroppedSinkSpec, ProcessorSpec, SourceSpec
from penstock.processor.call_answers import StreamCallAnswers
from penstock.processor.call_inbox import StreamCallInbox

TEXT = Consumed.with_(Serdes.string(), Serdes.string())


async def service(key: str, value: str) -> str:
    return value


def test_an_operator_is_an_inbox_and_the_reader_of_its_answers() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).map_values(service, "call", calls=Calls(then="letters")).to("out")
    built = builder.build().build("app")
    (part,) = built.subtopologies
    nodes = {node.name: node for node in part.nodes}
    inbox, source, operator = nodes["call-calls"], nodes["call-answers"], nodes["call"]
    assert isinstance(inbox, ProcessorSpec)
    assert isinstance(inbox.supplier.get(), StreamCallInbox)
    assert (inbox.parents, inbox.children, inbox.stores) == (("KSTREAM-SOURCE-0000000000",), (), ("call-calls",))
    assert isinstance(operator, ProcessorSpec)
    assert isinstance(operator.supplier.get(), StreamCallAnswers)
    assert (operator.parents, operator.stores) == (("call-answers",), ("call-calls",))
    assert isinstance(source, SourceSpec)
    assert (source.topics, source.offset_reset, source.repartition) == (("app-call-answers",), "earliest", False)
    assert source.is_internal
    assert source.calls is not None
    assert (source.calls.node, source.calls.store, source.calls.function) == ("call", "call-calls", service)
    sink = nodes["call-dead-letters"]
    assert isinstance(sink, DroppedSinkSpec)
    assert (sink.topic, sink.parents) == ("letters", ("call",))
    assert part.stores["call-calls"].logging


def test_an_answers_topic_is_no_input() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).map_values(service, "call", calls=Calls()).to("out")
    built = builder.build().build("app")
    (part,) = built.subtopologies
    assert part.source_topics == ("in",)
    assert list(part.answers_topics) == ["app-call-answers"]
    assert built.answers_topics == {"app-call-answers": answers_topic("app", "call-answers")}
    assert built.repartition_topics == {}


def test_a_join_below_calls_needs_no_partitions_of_answers() -> None:
    builder = StreamsBuilder()
    table = builder.table("table", TEXT)
    called = builder.stream("in", TEXT).map_values(service, "call", calls=Calls())
    called.join(table, lambda one, two: one + two).to("out")
    built = builder.build().build("app")
    assert built.copartition_groups == (frozenset(["in", "table"]),)
    (part,) = built.subtopologies
    assert set(part.source_topics) == {"in", "table"}


def test_nodes_upstream_include_the_inbox() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).map_values(service, "call", calls=Calls()).to("out")
    topology = builder.build()
    (part,) = topology.upstream_of("call").build("app").subtopologies
    assert {node.name for node in part.nodes} == {"KSTREAM-SOURCE-0000000000", "call-calls", "call-answers", "call"}


def test_the_name_of_the_answers_topic_is_new() -> None:
    builder = StreamsBuilder()
    builder.stream("call-answers", TEXT).map_values(service, "call", calls=Calls()).to("out")
    with pytest.raises(TopologyError, match="Topic call-answers has already been registered"):
        builder.build()


def test_the_description_shows_the_nodes() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).map_values(service, "call", calls=Calls()).to("out")
    shown = str(builder.build().describe())
    assert "Source: call-answers (topics: [call-answers])\n      --> call\n" in shown
    assert "Processor: call-calls (stores: [call-calls])\n      --> none\n" in shown
    assert "Processor: call (stores: [call-calls])\n      --> KSTREAM-SINK-0000000002\n      <-- call-answers" in shown
