"""Topology by hand: checks, groups of nodes, the built form."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from penstock.errors import TopologyError
from penstock.plan.subtopology import ProcessorSpec, SinkSpec, SourceSpec
from penstock.plan.topology import Topology
from penstock.processor.api import Processor, ProcessorSupplier, SimpleSupplier
from penstock.record import Record, RecordMetadata
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import KeyValueBytesStoreSupplier


class Pass(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


def store(name: str = "store", **options: Any) -> StoreBuilder:
    return StoreBuilder(KeyValueBytesStoreSupplier(name, False), **options)


def line() -> Topology:
    """S -> P -> K."""
    return Topology().add_source("S", "in").add_processor("P", Pass, "S").add_sink("K", "out", "P")


CHECKS: list[tuple[Callable[[Topology], object], str]] = [
    (lambda t: t.add_source("P", "other"), "Processor P is already added."),
    (lambda t: t.add_source("T", "in"), "Topic in has already been registered by another source."),
    (lambda t: t.add_source("T", "a", "a"), "Topic a has already been registered by another source."),
    (lambda t: t.add_source("T"), "topics cannot be empty"),
    (
        lambda t: t.add_source("T", pattern="i."),
        "Pattern i. will match a topic that has already been registered by another source.",
    ),
    (
        lambda t: t.add_source("T", pattern=re.compile("x-.*")).add_source("U", "x-1"),
        "Topic x-1 matches a Pattern already registered by another source.",
    ),
    (lambda t: t.add_processor("S", Pass, "P"), "Processor S is already added."),
    (lambda t: t.add_processor("Q", Pass), "predecessorNames cannot be empty"),
    (lambda t: t.add_processor("Q", Pass, "Q"), "Parent node Q is unknown (self-reference)."),
    (lambda t: t.add_processor("Q", Pass, "R"), "Parent node R is unknown."),
    (lambda t: t.add_processor("Q", Pass, "K"), "Sink K cannot be used a parent."),
    (lambda t: t.add_sink("L", "out"), "predecessorNames cannot be empty"),
    (lambda t: t.add_sink("P", "out", "S"), "Processor P is already added."),
    (lambda t: t.add_state_store(store(), "Q"), "Processor Q is not added yet."),
    (lambda t: t.add_state_store(store(), "S"), "cannot connect a state store store to a source node or a sink node."),
    (
        lambda t: t.add_state_store(store()).add_state_store(store()),
        "A different StateStore has already been added with the name store",
    ),
    (lambda t: t.connect_processor_and_state_stores("P"), "stateStoreNames cannot be empty"),
    (lambda t: t.connect_processor_and_state_stores("P", "gone"), "StateStore gone is not added yet."),
    (
        lambda t: t.add_state_store(store()).connect_processor_and_state_stores("K", "store"),
        "State stores cannot be connect to sources or sinks.",
    ),
]


@pytest.mark.parametrize(("change", "message"), CHECKS, ids=[message for _, message in CHECKS])
def test_what_cannot_be_is_refused_with_kafkas_text(change: Callable[[Topology], object], message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        change(line())
    assert str(caught.value) == f"Invalid topology: {message}"


def test_a_list_of_topics_is_refused_with_a_hint() -> None:
    with pytest.raises(TypeError, match=r"unpack a list with \*topics"):
        Topology().add_source("S", ["a", "b"])  # type: ignore[arg-type]  # the mistake that is tested


def test_a_source_takes_topics_or_a_pattern() -> None:
    with pytest.raises(ValueError, match="not both"):
        Topology().add_source("S", "a", pattern="b")


def test_an_unknown_offset_reset_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of earliest, latest"):
        Topology().add_source("S", "a", offset_reset="newest")


def test_the_empty_topology_is_described_as_by_kafka() -> None:
    assert str(Topology().describe()) == "Topologies:\n "


def test_sources_processors_and_sinks_are_described_as_by_kafka() -> None:
    def route(key: Any, value: Any, metadata: RecordMetadata) -> str:
        return "out"

    topology = (
        Topology()
        .add_source("S", "a", "b")
        .add_processor("P", SimpleSupplier(Pass, [store("y"), store("x")]), "S")
        .add_sink("K", "out", "P", "S")
        .add_source("T", pattern="in-.*")
        .add_sink("L", route, "T")
    )
    assert str(topology.describe()) == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: S (topics: [a, b])\n"
        "      --> P, K\n"
        "    Processor: P (stores: [x, y])\n"
        "      --> K\n"
        "      <-- S\n"
        "    Sink: K (topic: out)\n"
        "      <-- S, P\n"
        "\n"
        "  Sub-topology: 1\n"
        "    Source: T (topics: in-.*)\n"
        "      --> L\n"
        "    Sink: L (extractor class: "
        "test_sources_processors_and_sinks_are_described_as_by_kafka.<locals>.route)\n"
        "      <-- T\n"
        "\n"
    )


def test_the_built_form_names_topics_children_and_stores() -> None:
    topology = line().add_state_store(store(changelog_config={"retention.ms": "5"}), "P")
    (built,) = topology.build("app").subtopologies
    source, processor, sink = built.nodes
    assert isinstance(source, SourceSpec)
    assert (source.topics, source.children, source.repartition) == (("in",), ("P",), False)
    assert isinstance(processor, ProcessorSpec)
    assert (processor.parents, processor.children, processor.stores) == (("S",), ("K",), ("store",))
    assert isinstance(sink, SinkSpec)
    assert (sink.topic, sink.parents, sink.repartition) == ("out", ("P",), False)
    assert (built.source_topics, built.sink_topics) == (("in",), ("out",))
    assert built.changelogs == {
        "store": (
            "app-store-changelog",
            {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime", "retention.ms": "5"},
        )
    }


def test_children_stand_in_the_order_in_which_they_were_added() -> None:
    topology = Topology().add_source("S", "in")
    for name in ("z", "a", "m"):
        topology.add_processor(name, Pass, "S")
    (built,) = topology.build("app").subtopologies
    assert built.nodes[0].children == ("z", "a", "m")  # type: ignore[union-attr]  # the first node is a source


def test_a_store_without_changelog_has_none() -> None:
    (built,) = line().add_state_store(store(logging=False), "P").build("app").subtopologies
    assert list(built.stores) == ["store"]
    assert built.changelogs == {}


def test_a_store_that_no_processor_uses_belongs_to_no_subtopology() -> None:
    (built,) = line().add_state_store(store()).build("app").subtopologies
    assert built.stores == {}


def test_nodes_that_share_a_store_are_one_subtopology() -> None:
    topology = line().add_source("T", "in2").add_processor("Q", Pass, "T")
    assert len(topology.build("app").subtopologies) == 2
    topology.add_state_store(store(), "P", "Q")
    (built,) = topology.build("app").subtopologies
    assert [node.name for node in built.nodes] == ["S", "P", "K", "T", "Q"]


def test_subtopologies_are_numbered_by_their_first_nodes() -> None:
    topology = Topology().add_source("A", "a").add_source("B", "b").add_source("C", "c")
    topology.add_processor("P", Pass, "C").add_processor("Q", Pass, "A", "B")
    built = topology.build("app").subtopologies
    assert [(part.id, [node.name for node in part.nodes]) for part in built] == [(0, ["A", "B", "Q"]), (1, ["C", "P"])]


def test_stores_that_a_supplier_owns_are_added_once_for_all_its_processors() -> None:
    shared = store()

    class Supplier(ProcessorSupplier):
        def get(self) -> Processor:
            return Pass()

        def stores(self) -> list[StoreBuilder]:
            return [shared]

    topology = Topology().add_source("S", "in").add_source("T", "in2")
    topology.add_processor("P", Supplier(), "S").add_processor("Q", Supplier(), "T")
    (built,) = topology.build("app").subtopologies
    assert built.stores == {"store": shared}


def test_repartition_topics_are_prefixed_and_configured() -> None:
    topology = line()
    topology.add_internal_topic("r-repartition", 3)
    topology.add_sink("RK", "r-repartition", "P").add_source("RS", "r-repartition")
    built = topology.build("app")
    assert built.repartition_topics["app-r-repartition"].partitions == 3
    assert built.repartition_topics["app-r-repartition"].config["cleanup.policy"] == "delete"
    first, second = built.subtopologies
    assert first.sink_topics == ("out", "app-r-repartition")
    assert second.source_topics == ("app-r-repartition",)
    source = second.nodes[0]
    assert isinstance(source, SourceSpec)
    assert source.repartition
    assert "app-" not in str(topology.describe())


def test_copartition_groups_that_share_a_topic_are_one() -> None:
    topology = Topology()
    for name in "abcdef":
        topology.add_source(name.upper(), name)
    for group in ("AB", "CD", "EF", "BC"):
        topology.copartition_sources(group)
    assert set(topology.build("app").copartition_groups) == {frozenset("abcd"), frozenset("ef")}


def test_a_long_chain_is_described_and_built() -> None:
    topology = Topology().add_source("0", "in")
    for number in range(1, 1500):
        topology.add_processor(str(number), Pass, str(number - 1))
    (described,) = topology.describe().subtopologies
    assert [node.name for node in described.nodes] == [str(number) for number in range(1500)]
    (built,) = topology.build("app").subtopologies
    assert len(built.nodes) == 1500


def test_the_built_form_can_be_pickled() -> None:
    built = line().add_source("T", pattern=re.compile("X-.*", re.IGNORECASE)).build("app")
    copy = cloudpickle.loads(cloudpickle.dumps(built))
    assert [part.source_topics for part in copy.subtopologies] == [("in",), ()]
    pattern = copy.subtopologies[1].nodes[0].pattern
    assert pattern.fullmatch("x-1")


def test_a_store_is_replaced_where_that_is_allowed() -> None:
    topology = line().add_processor("Q", Pass, "S").add_state_store(store(), "P")
    other = store()
    topology.add_state_store(other, "Q", allow_override=True)
    assert topology.state_store("store") is other
    assert str(topology.describe()).count("(stores: [store])") == 2


def test_the_log_shows_how_nodes_are_united(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "penstock.plan.internal_topology_builder"):
        topology = Topology().add_source("a", "in-a").add_source("b", "in-b")
        topology.add_processor("one", Pass, "a").add_processor("two", Pass, "b").add_sink("out", "out", "two")
        topology.add_state_store(store("s"), "one", "two").build("app")
    assert caplog.messages == [
        "Source a is added.",
        "Source b is added.",
        "Processor one is added below a, which it is united with.",
        "Processor two is added below b, which it is united with.",
        "Sink out is added below two, which it is united with.",
        "Store s is added.",
        "Store s is connected to one.",
        "Store s is connected to two, which is united with one.",
        "Sub-topology 0 has the nodes a, b, one, two, out.",
    ]
