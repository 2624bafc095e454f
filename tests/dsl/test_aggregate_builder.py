"""The repartition of a group: whether there is one, its name, and who shares it."""

from __future__ import annotations

import pytest

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Grouped, Materialized
from penstock.errors import TopologyError
from penstock.plan.subtopology import SinkSpec, SourceSpec
from penstock.serdes import Serdes


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


def test_unnamed_groups_have_a_repartition_for_each_store() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by(lambda k, v: v)
    for name in ("a", "b"):
        grouped.count(Materialized.as_(name))
    assert list(builder.build().build("app").repartition_topics) == ["app-a-repartition", "app-b-repartition"]


def test_an_aggregation_of_unchanged_keys_follows_the_stream() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key(Grouped.as_("g")).count(named="counts")
    built = builder.build().build("app")
    assert not built.repartition_topics
    assert [node.name for node in built.subtopologies[0].nodes] == ["KSTREAM-SOURCE-0000000000", "counts"]


def test_a_repartition_writes_and_reads_with_the_serdes_of_the_group() -> None:
    key, value = Serdes.string(), Serdes.long()
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(Serdes.long(), value))
    stream.group_by(lambda k, v: str(v), Grouped.with_(key_serde=key)).count(Materialized.as_("s"))
    writing, reading = builder.build().build("app").subtopologies
    ends = [node for node in (*writing.nodes[1:], *reading.nodes) if isinstance(node, SinkSpec | SourceSpec)]
    assert [(node.key_serde, node.value_serde) for node in ends] == [(key, value)] * 2
    assert reading.stores["s"].key_serde == key
