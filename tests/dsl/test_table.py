"""KTable: names and numbers, serdes, stores that can be queried, errors."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Materialized
from penstock.dsl.suppressed import BufferConfig, Suppressed
from penstock.errors import TopologyError
from penstock.plan.subtopology import ProcessorSpec, SinkSpec
from penstock.serdes import Serdes
from penstock.state.stores import Stores
from penstock.windows import SessionWindows, TimeWindows


def nodes_of(builder: StreamsBuilder) -> dict[str, Any]:
    return {node.name: node for part in builder.build().build("app").subtopologies for node in part.nodes}


def stores_of(builder: StreamsBuilder) -> list[str]:
    return [name for part in builder.build().build("app").subtopologies for name in part.stores]


def test_a_table_takes_numbers_for_its_store_its_source_and_itself() -> None:
    builder = StreamsBuilder()
    builder.table("in")
    assert list(nodes_of(builder)) == ["KSTREAM-SOURCE-0000000001", "KTABLE-SOURCE-0000000002"]


def test_the_source_of_a_named_table_is_named_after_it() -> None:
    builder = StreamsBuilder()
    builder.table("in", Consumed.as_("t"), Materialized.as_("store")).to_stream(named="s")
    assert list(nodes_of(builder)) == ["t-source", "t", "s"]
    assert stores_of(builder) == ["store"]


def test_a_table_has_no_store_that_nobody_needs() -> None:
    builder = StreamsBuilder()
    table = builder.table("in").map_values(str.upper).filter(lambda key, value: True)
    table.to_stream().to("out")
    assert stores_of(builder) == []
    assert table.queryable_store_name is None


@pytest.mark.parametrize(
    "materialized", [Materialized.as_("s"), Materialized.as_(Stores.in_memory_key_value_store("s"))]
)
def test_a_store_that_the_user_names_can_be_queried(materialized: Materialized) -> None:
    builder = StreamsBuilder()
    table = builder.table("in").map_values(str.upper, materialized=materialized)
    assert table.queryable_store_name == "s"
    assert stores_of(builder) == ["s"]


def test_materialized_without_a_name_takes_a_number_and_makes_no_store() -> None:
    builder = StreamsBuilder()
    options = Materialized.with_(value_serde=Serdes.long())
    table = builder.table("in").map_values(len, materialized=options)
    table.to_stream().to("out")
    assert stores_of(builder) == []
    assert "KTABLE-MAPVALUES-0000000004" in nodes_of(builder)  # 3 is the number of the store
    sink = nodes_of(builder)["KSTREAM-SINK-0000000006"]
    assert isinstance(sink, SinkSpec)
    assert sink.value_serde == options.value_serde


def test_consumed_goes_before_the_serdes_of_materialized() -> None:
    builder = StreamsBuilder()
    key, value = Serdes.string(), Serdes.long()
    builder.table(
        "in", Consumed.with_(key_serde=key), Materialized.as_("s").with_key_serde(Serdes.long()).with_value_serde(value)
    )
    store = builder.build().build("app").subtopologies[0].stores["s"]
    assert (store.key_serde, store.value_serde) == (key, value)


def test_a_filter_keeps_serdes_and_map_values_only_that_of_keys() -> None:
    builder = StreamsBuilder()
    key, value = Serdes.string(), Serdes.long()
    table = builder.table("in", Consumed.with_(key_serde=key, value_serde=value))
    table.filter(lambda k, v: True).to_stream().to("filtered")
    table.map_values(lambda v: v).to_stream().to("mapped")
    sinks = {n.topic: n for n in nodes_of(builder).values() if isinstance(n, SinkSpec)}
    assert (sinks["filtered"].key_serde, sinks["filtered"].value_serde) == (key, value)
    assert (sinks["mapped"].key_serde, sinks["mapped"].value_serde) == (key, None)


def test_to_table_repartitions_where_keys_may_have_changed() -> None:
    builder = StreamsBuilder()
    builder.stream("in").select_key(lambda k, v: v).to_table("t")
    built = builder.build().build("app")
    assert list(built.repartition_topics) == ["app-t-repartition"]
    assert [node.name for node in built.subtopologies[1].nodes] == ["t-repartition-source", "t"]


def test_the_topic_of_a_table_is_its_changelog_where_that_is_asked_for() -> None:
    builder = StreamsBuilder()
    builder.table("in", materialized=Materialized.as_("s"))
    config = {"topology.optimization": "reuse.ktable.source.topics"}
    part = builder.build(config).build("app").subtopologies[0]
    assert part.changelogs["s"][0] == "in"
    assert not part.stores["s"].logging
    assert builder.build().build("app").subtopologies[0].changelogs["s"][0] == "app-s-changelog"


def test_suppress_names_its_store_after_the_node_only_if_the_user_named_it() -> None:
    builder = StreamsBuilder()
    table = builder.table("in")
    buffer = BufferConfig.max_records(3).with_logging_disabled()
    table.suppress(Suppressed.until_time_limit(5, buffer).with_name("mine"))
    table.suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded()))
    nodes = nodes_of(builder)
    stores = {name: node.stores for name, node in nodes.items() if isinstance(node, ProcessorSpec)}
    assert stores["mine"] == ("mine-store",)
    assert stores["KTABLE-SUPPRESS-0000000003"] == ("KTABLE-SUPPRESS-STATE-STORE-0000000004",)
    changelogs = builder.build().build("app").subtopologies[0].changelogs
    assert "mine-store" not in changelogs
    assert changelogs["KTABLE-SUPPRESS-STATE-STORE-0000000004"][0].startswith("app-KTABLE-SUPPRESS")


def test_windows_that_do_not_exist_cannot_close() -> None:
    builder = StreamsBuilder()
    final = Suppressed.until_window_closes(BufferConfig.unbounded())
    with pytest.raises(TopologyError, match=r"Got \[root->t\]"):
        builder.table("in", Consumed.as_("t")).suppress(final)
    windowed = builder.stream("s").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(5)).count()
    windowed.filter(lambda k, v: True).suppress(final)
    sessions = SessionWindows.of_inactivity_gap_and_grace(5, 7)
    builder.stream("other").group_by_key().windowed_by(sessions).count().suppress(final.with_name("closed"))


def test_versioned_tables_cannot_be_suppressed() -> None:
    versioned = Materialized.as_(Stores.persistent_versioned_key_value_store("s", 1000))
    wait = Suppressed.until_time_limit(5, BufferConfig.unbounded())
    builder = StreamsBuilder()
    table = builder.table("in", materialized=versioned)
    with pytest.raises(TopologyError, match=r"only supported for non-versioned KTables$"):
        table.suppress(wait)
    table.filter(lambda k, v: True).suppress(wait)
    with pytest.raises(TopologyError, match="inherited from upstream"):
        builder.build()


def test_functions_are_checked_when_the_node_is_made() -> None:
    table = StreamsBuilder().table("in")
    with pytest.raises(TypeError, match="predicate"):
        table.filter(lambda value: True)  # type: ignore[arg-type,misc]  # what the test is about
    with pytest.raises(TypeError, match="subtractor"):
        table.group_by(lambda k, v: (k, v)).reduce(lambda a, b: a, lambda a: a)  # type: ignore[arg-type,misc]  # too
    with pytest.raises(TypeError, match="ValueTransformerWithKey"):
        table.transform_values(3)  # type: ignore[arg-type]  # and this
