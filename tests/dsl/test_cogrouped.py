"""Cogroups: nodes, repartitions, results."""

from __future__ import annotations

from penstock import Materialized, Serdes, StreamsBuilder, TimeWindows
from penstock.dsl.options import Grouped, Repartitioned
from tests.support.tables import Row, updates
from tests.support.windows import SESSION, grouped


def test_a_cogroup_aggregates_each_stream_by_its_own_function() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    xs = stream.filter(lambda key, value: value == "x").group_by_key()
    others = stream.filter(lambda key, value: value != "x").group_by_key()
    table = (
        xs.cogroup(lambda key, value, aggregate: aggregate + "X")
        .cogroup(others, lambda key, value, aggregate: aggregate + "-")
        .windowed_by(TimeWindows.of_size_and_grace(10, 0))
        .aggregate(lambda: "", Materialized.with_(key_serde=Serdes.string(), value_serde=Serdes.string()))
    )
    table.to_stream(lambda key, value: str(key)).to("out")
    rows: list[Row] = [("a", "x", 1), ("a", "y", 2), ("b", "y", 3), ("a", "x", 11)]
    assert updates(builder, rows) == [
        ("[a@0/10]", "X", 1),
        ("[a@0/10]", "X-", 2),
        ("[b@0/10]", "-", 3),
        ("[a@10/20]", "X", 11),
    ]


def test_the_nodes_of_a_cogroup_are_named_after_it() -> None:
    builder = StreamsBuilder()
    cogrouped = grouped(builder).cogroup(lambda key, value, total: total + value)
    cogrouped.cogroup(grouped(builder, "other"), lambda key, value, total: total - value)
    cogrouped.aggregate(lambda: 0, Materialized.as_("s"), "sums")
    (part,) = builder.build().build("app").subtopologies
    assert {node.name for node in part.nodes if node.name.startswith("sums")} == {
        "sums-cogroup-agg-0",
        "sums-cogroup-agg-1",
        "sums-cogroup-merge",
    }
    assert list(part.stores) == ["s"]
    assert builder.build().build("app").copartition_groups == (frozenset({"in", "other"}),)


def test_a_cogroup_asks_nothing_of_topics_above_its_repartitions() -> None:
    builder = StreamsBuilder()
    three = builder.stream("in").repartition(Repartitioned.as_("three").with_number_of_partitions(3))
    two = builder.stream("other").repartition(Repartitioned.as_("two").with_number_of_partitions(2))
    rekeyed = three.group_by(lambda key, value: value, Grouped.as_("by-value"))
    rekeyed.cogroup(lambda key, value, total: total).cogroup(
        two.group_by_key(), lambda key, value, total: total
    ).aggregate(lambda: "")
    assert builder.build().build("app").copartition_groups == (
        frozenset({"app-by-value-repartition", "app-two-repartition"}),
    )


def test_a_cogroup_repartitions_a_stream_whose_key_changed_once_for_all_its_tables() -> None:
    builder = StreamsBuilder()
    rekeyed = builder.stream("in").group_by(lambda key, value: value, Grouped.as_("by-value"))
    cogrouped = rekeyed.cogroup(lambda key, value, total: total)
    cogrouped.aggregate(lambda: "", Materialized.as_("s"))
    cogrouped.windowed_by(SESSION).aggregate(lambda: "", lambda key, one, other: one, Materialized.as_("t"))
    built = builder.build().build("app")
    assert list(built.repartition_topics) == ["app-by-value-repartition"]
