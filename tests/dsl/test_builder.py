"""From the DSL to the topology: sources, optimisations and errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Grouped, Materialized, Produced
from penstock.errors import ConfigError, TopologyError
from penstock.plan.subtopology import SinkSpec, SourceSpec, SubtopologySpec
from penstock.plan.topology import Topology
from penstock.serdes import Serdes

MERGE = {"topology.optimization": "merge.repartition.topics"}


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


def test_building_twice_gives_two_topologies_of_all_that_was_made() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    first = builder.build()
    stream.to("out")
    assert len(sinks(first)) == 0
    assert len(sinks(builder.build())) == 1


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
