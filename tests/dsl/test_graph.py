"""The graph of a StreamsBuilder: the order of its nodes, their lines, and views of a part of it."""

from __future__ import annotations

import inspect

import pytest

from penstock import KGroupedStream, KGroupedTable, KStream, KTable, StreamsBuilder
from penstock.dsl.graph import Graph, Shells
from penstock.errors import TopologyError
from penstock.plan.nodes import NodeId, PeekNode, StreamSourceNode
from penstock.serdes import Serdes


@pytest.fixture
def graph() -> Graph:
    shells = Shells(stream=KStream, table=KTable, grouped_stream=KGroupedStream, grouped_table=KGroupedTable)
    return Graph(shells, None)


def added(graph: Graph, name: str, *parents: NodeId) -> NodeId:
    if parents:
        return graph.add(PeekNode(name=name, parents=parents, action=lambda key, value: None))
    return graph.add(StreamSourceNode(name=name, topics=(f"topic-{name}",)))


def test_a_plan_is_a_copy_in_the_order_of_creation(graph: Graph) -> None:
    source = added(graph, "source")
    plan = graph.plan()
    peek = added(graph, "peek", source)
    assert list(plan) == [source]
    assert [node.name for node in graph.plan().values()] == ["source", "peek"]
    assert (graph.name_of(peek), graph.node(peek).parents) == ("peek", (source,))


def test_a_moved_node_keeps_its_id_and_new_ids_stay_unique(graph: Graph) -> None:
    source = added(graph, "source")
    one, two = added(graph, "one", source), added(graph, "two", source)
    graph.move_to_end(one)
    three = added(graph, "three", one)
    assert list(graph.plan()) == [source, two, one, three]
    assert graph.name_of(one) == "one"


def test_a_replaced_node_keeps_its_place(graph: Graph) -> None:
    source = added(graph, "source")
    one = added(graph, "one", source)
    added(graph, "two", one)
    graph.replace(one, PeekNode(name="other", parents=(source,), action=lambda key, value: None))
    assert [node.name for node in graph.plan().values()] == ["source", "other", "two"]


def test_a_node_has_the_line_of_the_program_that_made_it(graph: Graph) -> None:
    id = graph.add(StreamSourceNode(name="source", topics=("in",)))
    frame = inspect.currentframe()
    assert frame is not None
    assert str(graph.node(id).line) == f"{__file__}:{frame.f_lineno - 3}"


def test_the_display_of_a_stream_has_only_the_nodes_above_it(graph: Graph) -> None:
    source, other = added(graph, "source"), added(graph, "other")
    one = added(graph, "one", source)
    added(graph, "below", one)
    added(graph, "aside", other)
    text = graph.forms("KStream", one, Serdes.string(), None)["text/plain"]()
    assert all(part in text for part in ("KStream one", "StringSerde", "default serde", "source"))
    assert not any(part in text for part in ("below", "aside", "other"))
    assert len(graph.plan()) == 5  # a display adds nothing


def test_the_display_of_an_invalid_program_shows_its_error() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    builder.table("in")
    with pytest.raises(TopologyError, match="already been registered") as caught:
        builder.build()
    assert str(caught.value) in stream._repr_mimebundle_()["text/plain"]  # the protocol of notebooks
