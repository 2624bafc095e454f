"""From the DSL to the topology: names, sources, repartitions and serdes. What operators compute is tested on tasks
and by the conformance cases.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Grouped, Materialized, Named, Produced
from penstock.dsl.stream import KStream
from penstock.errors import ConfigError, TopologyError
from penstock.plan.subtopology import SinkSpec, SourceSpec, SubtopologySpec
from penstock.plan.topology import Topology
from penstock.processor.api import Processor
from penstock.record import Record
from penstock.serdes import Serde, Serdes
from penstock.state.stores import Stores

KEY, VALUE = Serdes.string(), Serdes.integer()
MERGE = {"topology.optimization": "merge.repartition.topics"}


class Drop(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        pass


def swap(key: Any, value: Any) -> tuple[Any, Any]:
    return value, key


def sinks(topology: Topology) -> list[SinkSpec]:
    return [node for part in topology.build("app").subtopologies for node in part.nodes if isinstance(node, SinkSpec)]


def sources(topology: Topology) -> list[SourceSpec]:
    return [node for part in topology.build("app").subtopologies for node in part.nodes if isinstance(node, SourceSpec)]


def only(topology: Topology) -> SubtopologySpec:
    (part,) = topology.build("app").subtopologies
    return part


def test_the_word_count_of_the_kafka_documentation() -> None:
    builder = StreamsBuilder()
    (
        builder.stream("plaintext-input")
        .flat_map_values(str.split)
        .group_by(lambda key, word: word)
        .count(Materialized.as_("counts-store"))
        .to_stream()
        .to("word-count-output", Produced.with_(value_serde=Serdes.long()))
    )
    assert str(builder.build().describe()) == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: KSTREAM-SOURCE-0000000000 (topics: [plaintext-input])\n"
        "      --> KSTREAM-FLATMAPVALUES-0000000001\n"
        "    Processor: KSTREAM-FLATMAPVALUES-0000000001 (stores: [])\n"
        "      --> KSTREAM-KEY-SELECT-0000000002\n"
        "      <-- KSTREAM-SOURCE-0000000000\n"
        "    Processor: KSTREAM-KEY-SELECT-0000000002 (stores: [])\n"
        "      --> counts-store-repartition-filter\n"
        "      <-- KSTREAM-FLATMAPVALUES-0000000001\n"
        "    Processor: counts-store-repartition-filter (stores: [])\n"
        "      --> counts-store-repartition-sink\n"
        "      <-- KSTREAM-KEY-SELECT-0000000002\n"
        "    Sink: counts-store-repartition-sink (topic: counts-store-repartition)\n"
        "      <-- counts-store-repartition-filter\n"
        "\n"
        "  Sub-topology: 1\n"
        "    Source: counts-store-repartition-source (topics: [counts-store-repartition])\n"
        "      --> KSTREAM-AGGREGATE-0000000003\n"
        "    Processor: KSTREAM-AGGREGATE-0000000003 (stores: [counts-store])\n"
        "      --> KTABLE-TOSTREAM-0000000007\n"
        "      <-- counts-store-repartition-source\n"
        "    Processor: KTABLE-TOSTREAM-0000000007 (stores: [])\n"
        "      --> KSTREAM-SINK-0000000008\n"
        "      <-- KSTREAM-AGGREGATE-0000000003\n"
        "    Sink: KSTREAM-SINK-0000000008 (topic: word-count-output)\n"
        "      <-- KTABLE-TOSTREAM-0000000007\n"
        "\n"
    )


def test_naming_one_operator_does_not_rename_the_next() -> None:
    def names(**named: Any) -> list[str]:
        builder = StreamsBuilder()
        builder.stream("in").filter(lambda k, v: True, **named).peek(lambda k, v: None)
        return [node.name for node in only(builder.build()).nodes]

    assert names() == ["KSTREAM-SOURCE-0000000000", "KSTREAM-FILTER-0000000001", "KSTREAM-PEEK-0000000002"]
    assert names(named="mine") == ["KSTREAM-SOURCE-0000000000", "mine", "KSTREAM-PEEK-0000000002"]
    assert names(named=Named.as_("mine")) == names(named="mine")


def test_building_twice_gives_two_topologies_of_all_that_was_made() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    first = builder.build()
    stream.to("out")
    assert len(sinks(first)) == 0
    assert len(sinks(builder.build())) == 1


INHERITANCE: list[tuple[str, Callable[[KStream], KStream], Serde | None, Serde | None]] = [
    ("filter", lambda s: s.filter(lambda k, v: True), KEY, VALUE),
    ("filter_not", lambda s: s.filter_not(lambda k, v: True), KEY, VALUE),
    ("peek", lambda s: s.peek(lambda k, v: None), KEY, VALUE),
    ("map_values", lambda s: s.map_values(lambda v: v), KEY, None),
    ("flat_map_values", lambda s: s.flat_map_values(list), KEY, None),
    ("select_key", lambda s: s.select_key(lambda k, v: v), None, VALUE),
    ("map", lambda s: s.map(swap), None, None),
    ("flat_map", lambda s: s.flat_map(lambda k, v: []), None, None),
    ("process", lambda s: s.process(Drop), None, None),
    ("merge", lambda s: s.merge(s.map_values(len)), KEY, None),
    ("to_stream", lambda s: s.group_by_key().reduce(lambda a, b: a).to_stream(), KEY, VALUE),
]


@pytest.mark.parametrize(("name", "change", "key", "value"), INHERITANCE, ids=[row[0] for row in INHERITANCE])
def test_serdes_are_inherited_where_keys_and_values_are(
    name: str, change: Callable[[KStream], KStream], key: Serde | None, value: Serde | None
) -> None:
    builder = StreamsBuilder()
    change(builder.stream("in", Consumed.with_(key_serde=KEY, value_serde=VALUE))).to("out")
    (sink,) = sinks(builder.build())
    assert (sink.key_serde, sink.value_serde) == (key, value)


def test_a_count_is_a_long_and_an_aggregate_keeps_the_key_serde() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed.with_(key_serde=KEY, value_serde=VALUE)).group_by_key()
    grouped.count(Materialized.as_("count"))
    grouped.aggregate(int, lambda k, v, a: a, Materialized.as_("aggregate"))
    stores = only(builder.build()).stores
    assert isinstance(stores["count"].value_serde, type(Serdes.long()))
    assert (stores["aggregate"].key_serde, stores["aggregate"].value_serde) == (KEY, None)


@pytest.mark.parametrize(
    ("change", "repartitioned"),
    [
        (lambda s: s, False),
        (lambda s: s.filter(lambda k, v: True).map_values(str), False),
        (lambda s: s.select_key(lambda k, v: v).filter(lambda k, v: True), True),
        (lambda s: s.map(swap), True),
        (lambda s: s.process(Drop), True),
        (lambda s: s.merge(s.map(swap)), True),
    ],
)
def test_a_group_is_repartitioned_only_if_keys_may_have_changed(
    change: Callable[[KStream], KStream], repartitioned: bool
) -> None:
    builder = StreamsBuilder()
    change(builder.stream("in")).group_by_key().count(Materialized.as_("s"))
    assert set(builder.build().build("app").repartition_topics) == ({"app-s-repartition"} if repartitioned else set())


def test_aggregations_of_a_named_group_share_its_repartition() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by(lambda k, v: v, Grouped.as_("g"))
    grouped.count(Materialized.as_("a"))
    grouped.count(Materialized.as_("b"))
    first, second = builder.build().build("app").subtopologies
    assert first.sink_topics == second.source_topics == ("app-g-repartition",)
    assert list(second.stores) == ["a", "b"]


def test_two_groups_of_one_name_are_refused() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in").select_key(lambda k, v: v)
    stream.group_by_key(Grouped.as_("g")).count()
    stream.group_by_key(Grouped.as_("g")).count()
    with pytest.raises(TopologyError, match="Processor g-repartition-filter is already added"):
        builder.build()


def test_sources_of_the_same_topics_become_one_with_the_children_of_all() -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "b"]).foreach(lambda k, v: None, "first")
    builder.stream(["b", "a"]).foreach(lambda k, v: None, "second")
    builder.stream(re.compile("x.*")).foreach(lambda k, v: None, "third")
    builder.stream(re.compile("x.*")).foreach(lambda k, v: None, "fourth")
    found = sources(builder.build())
    assert [source.children for source in found] == [("first", "second"), ("third", "fourth")]
    assert set(found[0].topics) == {"a", "b"}


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (("a", None), (["a", "b"], None), "Two source nodes are subscribed to overlapping but not equal input topics"),
        ((["a", "b"], None), ("b", None), "Two source nodes are subscribed to overlapping but not equal input topics"),
        (("a", "latest"), ("a", None), "Can't configure different offset reset policies on the same input topic(s)"),
        (([], None), ("a", None), "topics cannot be empty"),
    ],
)
def test_sources_that_cannot_be_merged_are_refused(first: Any, second: Any, message: str) -> None:
    builder = StreamsBuilder()
    for topic, offset_reset in (first, second):
        builder.stream(topic, Consumed.with_(offset_reset=offset_reset))
    with pytest.raises(TopologyError) as caught:
        builder.build()
    assert str(caught.value) == f"Invalid topology: {message}"


def test_a_processor_is_connected_to_stores_by_name_and_owns_others() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), KEY, VALUE))
    builder.stream("in").process(Drop, "s", named="p").process(Drop, "s")
    part = only(builder.build())
    assert list(part.stores) == ["s"]
    assert [node.name for node in part.nodes] == ["KSTREAM-SOURCE-0000000000", "p", "KSTREAM-PROCESSOR-0000000001"]


def test_a_function_of_the_wrong_form_is_refused_when_the_operator_is_called() -> None:
    stream = StreamsBuilder().stream("in")
    with pytest.raises(TypeError, match=r"predicate\(key, value\)"):
        stream.filter(lambda v: True)  # type: ignore[arg-type, misc]  # the mistake that is tested
    with pytest.raises(TypeError, match=r"topic\(key, value, metadata\)"):
        stream.to(lambda k, v: "out")  # type: ignore[arg-type, misc]  # the mistake that is tested


def test_merging_with_what_is_no_stream_is_refused() -> None:
    stream = StreamsBuilder().stream("in")
    with pytest.raises(TypeError, match="Expected a KStream"):
        stream.merge("other")  # type: ignore[arg-type]  # the mistake that is tested


def test_repartitions_below_one_change_of_keys_are_merged_if_asked_for() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in").select_key(lambda k, v: v)
    keyed.group_by_key().count(Materialized.as_("a"))
    keyed.filter(lambda k, v: True).group_by_key().count(Materialized.as_("b"))
    keyed.map_values(str).group_by_key().count(Materialized.as_("c"))
    separate, merged = builder.build(), builder.build(MERGE)
    assert len(separate.build("app").repartition_topics) == 3
    assert set(merged.build("app").repartition_topics) == {"app-a-repartition", "app-c-repartition"}


def test_groups_below_one_filter_share_the_merged_repartition() -> None:
    builder = StreamsBuilder()
    filtered = builder.stream("in").select_key(lambda k, v: v).filter(lambda k, v: True, "f")
    filtered.group_by_key().count(Materialized.as_("a"), "count-a")
    filtered.group_by_key().count(Materialized.as_("b"), "count-b")
    built = builder.build(MERGE).build("app")
    assert set(built.repartition_topics) == {"app-a-repartition"}
    assert [node.name for node in built.subtopologies[1].nodes] == ["a-repartition-source", "f", "count-a", "count-b"]


def test_a_merged_repartition_has_the_name_of_the_oldest_even_if_that_is_used_again_later() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in").select_key(lambda k, v: v)
    grouped = keyed.group_by_key(Grouped.as_("oldest"))
    grouped.count()
    keyed.filter(lambda k, v: True).group_by_key(Grouped.as_("younger")).count()
    grouped.count()
    assert set(builder.build(MERGE).build("app").repartition_topics) == {"app-oldest-repartition"}


def test_a_long_program_can_be_optimised() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in").select_key(lambda k, v: v)
    for _ in range(1500):
        stream = stream.filter(lambda k, v: True)
    stream.group_by_key().count(Materialized.as_("s"))
    first, second = builder.build(MERGE).build("app").subtopologies
    assert (len(first.nodes), len(second.nodes)) == (4, 1502)


@pytest.mark.parametrize("value", ["all,none", "wrong", "", "all, merge.repartition.topics"])
def test_optimisations_that_do_not_exist_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="Acceptable values are"):
        StreamsBuilder().build({"topology.optimization": value})


@pytest.mark.parametrize(
    ("read", "error", "hint"),
    [
        (lambda b: b.stream("orders-.*"), TopologyError, r"write stream\(re.compile\('orders-\.\*'\)\)"),
        (lambda b: b.stream(["a", "(b|c)"]), TopologyError, r"write stream\(re.compile\('\(b\|c\)'\)\)"),
        (lambda b: b.table("a+"), TopologyError, r"write stream\(re.compile\('a\+'\)\).to_table\(\)"),
        (lambda b: b.global_table("a+"), TopologyError, r"write stream\(re.compile\('a\+'\)\).to_table\(\)"),
        (lambda b: b.stream([re.compile("a")]), TypeError, "a pattern must be the only argument"),
        (lambda b: b.table(re.compile("a")), TypeError, r"stream\(\) takes a pattern"),
        (lambda b: b.stream([1]), TypeError, "Expected the name of a topic"),
        (lambda b: b.table(["a"]), TypeError, "by its name"),
        (lambda b: Topology().add_source("s", "a.*"), TopologyError, r"write pattern='a\.\*'"),
    ],
)
def test_a_pattern_in_the_place_of_a_topic_is_refused_where_it_is_written(
    read: Callable[[StreamsBuilder], object], error: type[Exception], hint: str
) -> None:
    with pytest.raises(error, match=hint):
        read(StreamsBuilder())


def test_an_operator_that_cannot_be_added_is_named_with_its_line() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    builder.table("in")
    place = f"{__file__}:{inspect.currentframe().f_lineno - 1}"  # type: ignore[union-attr]  # CPython has frames
    with pytest.raises(TopologyError, match="Topic in has already been registered by another source") as caught:
        builder.build()
    assert caught.value.__notes__ == [f"KTABLE-SOURCE-0000000004 (created at {place}) cannot be added."]
