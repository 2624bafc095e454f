"""Sub-topologies from registered nodes: groups, full names, children, stores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.subtopology import BuiltTopology, NodeSpec, ProcessorSpec, SinkSpec, SourceSpec
from penstock.plan.subtopology_builder import QuickUnion, build_topology, node_groups
from penstock.processor.api import SimpleSupplier
from penstock.processor.stateless import StreamMerge
from penstock.state.api import StoreSource
from tests.plan.plans import TEXT, store

NAMES = "abcdefgh"
PASS = SimpleSupplier(StreamMerge)


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3))))
def test_names_are_in_one_group_if_pairs_connect_them(pairs: list[tuple[str, list[str]]]) -> None:
    union, model = QuickUnion(), {name: {name} for name in NAMES}
    for name in NAMES:
        union.add(name)
    for name, others in pairs:
        union.unite(name, others)
        for other in others:
            joined = model[name] | model[other]
            model.update(dict.fromkeys(joined, joined))
    groups = node_groups(NAMES, union)
    assert groups == [sorted(group) for group in dict.fromkeys(map(frozenset, model.values()))]


def test_a_name_that_was_not_added_has_no_group() -> None:
    union = QuickUnion()
    union.add("a")
    for unknown in (lambda: union.root("b"), lambda: union.unite("a", ["b"])):
        with pytest.raises(KeyError):
            unknown()


def built(*nodes: NodeSpec, copartitioned: tuple[str, ...] = ()) -> BuiltTopology:
    return build_topology(
        "app",
        {0: nodes},
        {"s": store("s"), "t": store("t", logging=False), "unused": store("unused")},
        {"r": 3},
        [frozenset(names) for names in copartitioned],
        {"t": "in"},
        (),
        {"frames"},
    )


SOURCE = SourceSpec("S", ("in", "r", "frames"), key_serde=TEXT)
NODES: tuple[NodeSpec, ...] = (
    SOURCE,
    ProcessorSpec("P", PASS, ("S",), stores=("t", "s")),
    SinkSpec("K", ("P", "S"), "r"),
    SinkSpec("L", ("P",), "out"),
)


def test_internal_topics_alone_have_the_prefix_of_the_application() -> None:
    topology = built(*NODES)
    (part,) = topology.subtopologies
    assert part.source_topics == ("in", "app-r", "app-frames")
    assert part.sink_topics == ("app-r", "out")
    assert [node.repartition for node in part.nodes if not isinstance(node, ProcessorSpec)] == [True, True, False]
    assert {name: topic.partitions for name, topic in topology.repartition_topics.items()} == {"app-r": 3}


def test_children_are_in_the_order_of_their_addition() -> None:
    source, processor, *_ = built(*NODES).subtopologies[0].nodes
    assert isinstance(source, SourceSpec)
    assert isinstance(processor, ProcessorSpec)
    assert (source.children, processor.children) == (("P", "K"), ("K", "L"))


def test_a_store_that_a_topic_fills_has_the_serdes_of_its_source() -> None:
    part = built(*NODES).subtopologies[0]
    assert set(part.stores) == {"s", "t"}
    assert (part.stores["s"].source, part.stores["t"].source) == (None, StoreSource("in", TEXT, None))
    assert {name: topic for name, (topic, _) in part.changelogs.items()} == {"s": "app-s-changelog", "t": "in"}


def test_copartitioned_sources_that_share_a_topic_are_one_group() -> None:
    sources = [SourceSpec(name, (name.lower(),)) for name in "ABCD"]
    groups = built(*sources, copartitioned=("AB", "CD", "BC")).copartition_groups
    assert groups == (frozenset("abcd"),)
    assert built(*sources, copartitioned=("AB", "CD")).copartition_groups == (frozenset("ab"), frozenset("cd"))


def test_global_nodes_are_a_topology_apart_with_topics_as_they_are() -> None:
    nodes = SourceSpec("G", ("r",)), ProcessorSpec("P", PASS, ("G",), stores=("s",))
    topology = build_topology("app", {}, {"s": store("s")}, {}, [], {}, nodes)
    assert topology.subtopologies == ()
    assert topology.global_topology is not None
    assert (topology.global_topology.id, topology.global_topology.source_topics) == (-1, ("r",))
    assert build_topology("app", {}, {}, {}, [], {}, ()).global_topology is None
