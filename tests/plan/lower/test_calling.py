"""Lowering of operators with calls: inbox, answers topic, operator, store and sink of dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Calls, Consumed, Processor, Record, Serdes, Stores, StreamsBuilder
from penstock.errors import TopologyError
from penstock.plan.internal_topics import task_topic
from penstock.plan.subtopology import DroppedSinkSpec, ProcessorSpec, SourceSpec
from penstock.processor.call_answers import StreamCallAnswers
from penstock.processor.call_inbox import StreamCallInbox
from penstock.processor.calling_processor import CallingProcessor

TEXT = Consumed.with_(Serdes.string(), Serdes.string())


async def service(key: str, value: str) -> str:
    return value


async def asked(text: str) -> str:
    return text


class Asking(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.call(asked, record.value)

    def answered(self, record: Record[Any, Any], answer: Any) -> None:
        self.context.forward(record.with_value(answer))


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
    assert built.task_topics == {"app-call-answers": task_topic("app", "call-answers")}
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


def test_a_processor_is_its_own_inbox_below_the_receiver_of_its_answers() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    stream.process(Asking, named="ask", calls=Calls(then="letters"), call_functions=(asked,)).to("out")
    topology = builder.build()
    (part,) = topology.build("app").subtopologies
    nodes = {node.name: node for node in part.nodes}
    receiver, source, processor = nodes["ask-calls"], nodes["ask-answers"], nodes["ask"]
    assert isinstance(source, SourceSpec)
    assert source.calls is not None
    assert (source.calls.node, source.calls.store) == ("ask", "ask-calls")
    assert isinstance(receiver, ProcessorSpec)
    assert isinstance(receiver.supplier.get(), StreamCallAnswers)
    assert (receiver.parents, receiver.stores) == (("ask-answers",), ("ask-calls",))
    assert isinstance(processor, ProcessorSpec)
    assert isinstance(processor.supplier.get(), CallingProcessor)
    assert processor.parents == ("KSTREAM-SOURCE-0000000000", "ask-calls")
    assert processor.stores == ("ask-calls",)
    sink = nodes["ask-calls-dead-letters"]
    assert isinstance(sink, DroppedSinkSpec)
    assert (sink.topic, sink.parents) == ("letters", ("ask-calls",))
    (upstream,) = topology.upstream_of("ask").build("app").subtopologies
    assert {node.name for node in upstream.nodes} == {*nodes} - {sink.name, "KSTREAM-SINK-0000000001"}


def test_a_processor_with_calls_connects_its_other_stores() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(
        Stores.key_value_store_builder(Stores.in_memory_key_value_store("seen"), Serdes.string(), Serdes.string())
    )
    stream = builder.stream("in", TEXT)
    stream.process(Asking, "seen", named="ask", calls=Calls(store_name="asked"), call_functions=(asked,))
    (part,) = builder.build().build("app").subtopologies
    (processor,) = (node for node in part.nodes if node.name == "ask")
    assert isinstance(processor, ProcessorSpec)
    assert set(processor.stores) == {"asked", "seen"}
