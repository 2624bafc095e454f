"""Lowering of operators that park records: processor, store and sink of dead letters."""

from __future__ import annotations

import pytest

from penstock import Backoff, Consumed, Park, Produced, Serdes, StreamsBuilder
from penstock.errors import TopologyError
from penstock.plan.internal_topics import task_topic
from penstock.plan.subtopology import DroppedSinkSpec, ProcessorSpec, SourceSpec
from penstock.processor.park import StreamPark

TEXT = Consumed.with_(Serdes.string(), Serdes.string())
PARK = Park(backoff=Backoff(1_000), attempts=3, then="letters")


def test_a_parking_operator_has_a_store_and_a_sink_of_dead_letters() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).peek(print, named="charge", on_error=PARK)
    (part,) = builder.build().build("test").subtopologies
    (node,) = [node for node in part.nodes if isinstance(node, ProcessorSpec)]
    assert isinstance(node.supplier.get(), StreamPark)
    assert node.stores == ("charge-parked",)
    assert part.stores["charge-parked"].logging
    (sink,) = [node for node in part.nodes if isinstance(node, DroppedSinkSpec)]
    assert (sink.name, sink.topic, sink.parents) == ("charge-dead-letters", "letters", ("charge",))


def test_a_parking_operator_also_receives_requests_from_a_topic_of_its_own() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).peek(print, named="charge", on_error=PARK)
    built = builder.build().build("app")
    (part,) = built.subtopologies
    (source,) = [node for node in part.nodes if isinstance(node, SourceSpec) and node.parked is not None]
    assert (source.name, source.topics, source.parked) == (
        "charge-parked-requests",
        ("app-charge-parked-requests",),
        "charge-parked",
    )
    (node,) = [node for node in part.nodes if isinstance(node, ProcessorSpec)]
    assert source.name in node.parents
    assert part.source_topics == ("in",)
    assert part.requests_topics == {"app-charge-parked-requests": "charge-parked"}
    assert (part.answers_topics, part.task_topics) == ({}, ("app-charge-parked-requests",))
    assert built.task_topics == {"app-charge-parked-requests": task_topic("app", "charge-parked-requests")}
    assert built.uses_of_task_topics == {"app-charge-parked-requests": "the requests about charge-parked"}


def test_the_name_of_the_topic_is_new() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    stream.to("out", Produced.as_("charge-parked-requests"))
    stream.peek(print, named="charge", on_error=PARK)
    with pytest.raises(TopologyError, match="charge-parked-requests is already added"):
        builder.build()


def test_the_store_moves_with_its_operator_below_a_repartition() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in", TEXT).select_key(lambda key, value: value)
    keyed.repartition().map_values(str.upper, named="charge", on_error=PARK).to("out")
    above, below = builder.build().build("test").subtopologies
    assert ([*above.stores], [*below.stores]) == ([], ["charge-parked"])


def test_the_name_of_the_store_is_new() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    stream.peek(print, named="a", on_error=PARK.with_store_name("waiting"))
    stream.peek(print, named="b", on_error=PARK.with_store_name("waiting"))
    with pytest.raises(TopologyError, match="waiting"):
        builder.build()


def test_the_name_of_the_sink_is_new() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).peek(print, named="a", on_error=PARK).to("out", Produced.as_("a-dead-letters"))
    with pytest.raises(TopologyError, match="a-dead-letters is already added"):
        builder.build()
