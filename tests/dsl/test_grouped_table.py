"""KGroupedTable: repartitions, stores and serdes of its aggregations."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Grouped, Materialized
from penstock.plan.subtopology import SinkSpec, SourceSpec
from penstock.serdes import Serdes


def test_aggregations_share_the_repartition_that_the_user_named() -> None:
    builder = StreamsBuilder()
    grouped = builder.table("in").group_by(lambda k, v: (v, v), Grouped.as_("g"))
    grouped.count()
    grouped.reduce(lambda a, b: b, lambda a, b: a)
    assert list(builder.build().build("app").repartition_topics) == ["app-g-repartition"]
    unnamed = StreamsBuilder()
    grouped = unnamed.table("in").group_by(lambda k, v: (v, v))
    grouped.count(Materialized.as_("one"))
    grouped.count(Materialized.as_("two"))
    assert list(unnamed.build().build("app").repartition_topics) == ["app-one-repartition", "app-two-repartition"]


def test_the_store_and_the_repartition_have_the_serdes_of_the_group() -> None:
    key, value = Serdes.string(), Serdes.long()
    builder = StreamsBuilder()
    grouped = builder.table("in").group_by(lambda k, v: (v, v), Grouped.with_(key, value))
    grouped.reduce(lambda a, b: b, lambda a, b: a, Materialized.as_("reduced"))
    grouped.count(Materialized.as_("counted"))
    writing, reading, other = builder.build().build("app").subtopologies
    sinks = [node for node in writing.nodes if isinstance(node, SinkSpec)]
    sources = [node for part in (reading, other) for node in part.nodes if isinstance(node, SourceSpec)]
    assert {node.key_serde for node in (*sinks, *sources)} == {key}
    assert (reading.stores["reduced"].key_serde, reading.stores["reduced"].value_serde) == (key, value)
    assert other.stores["counted"].key_serde == key
    assert type(other.stores["counted"].value_serde) is type(Serdes.long())


def test_the_nodes_of_a_named_aggregation_are_named_after_it() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", Consumed.as_("t")).group_by(lambda k, v: (v, v))
    counts = table.count(Materialized.as_("s"), named="counts")
    assert counts.queryable_store_name == "s"
    assert table.count().queryable_store_name is None
    names = {node.name for part in builder.build().build("app").subtopologies for node in part.nodes}
    assert names >= {"counts-sink", "counts-source", "counts"}


@pytest.mark.parametrize(
    ("adder", "subtractor", "signature"),
    [
        (lambda k, v: v, lambda k, v, a: a, r"adder\(key, value, aggregate\)"),
        (lambda k, v, a: a, lambda v: v, r"subtractor\(key, value, aggregate\)"),
    ],
)
def test_adder_and_subtractor_take_key_value_and_aggregate(adder: Any, subtractor: Any, signature: str) -> None:
    table = StreamsBuilder().table("in").group_by(lambda k, v: (v, v))
    with pytest.raises(TypeError, match=signature):
        table.aggregate(str, adder, subtractor)
