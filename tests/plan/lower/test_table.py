"""What the operators of tables become, and which of them get a store."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import BufferConfig, Materialized, Stores, StreamsBuilder, Suppressed
from penstock.errors import TopologyError
from penstock.plan.lower.plan import lower
from penstock.plan.subtopology import SourceSpec
from penstock.serdes.changed import ChangedSerde
from tests.plan.lower.programs import build, kinds, nodes_of, processors, sinks
from tests.plan.plans import store, table, versioned_store


@pytest.mark.parametrize(
    ("options", "kind", "stores"),
    [
        ({}, "TableSource", []),
        ({"queryable": True}, "MaterializedTableSource", ["s"]),
        ({"queryable": True, "store": versioned_store("s")}, "RecordByRecord", ["s"]),
    ],
)
def test_a_table_has_a_store_only_if_something_reads_it(options: dict[str, Any], kind: str, stores: list[str]) -> None:
    built = lower({0: table("t", **{"store": store("s"), **options})}).build("app")
    assert kinds(built) == [kind]
    assert list(built.subtopologies[0].stores) == stores


@pytest.mark.parametrize(("reuse", "changelog"), [(False, "app-s-changelog"), (True, "t")])
def test_the_changelog_of_a_table_is_its_topic_if_that_is_reused(reuse: bool, changelog: str) -> None:
    built = lower({0: table("t", store=store("s"), queryable=True, reuse_topic=reuse)}).build("app")
    assert built.subtopologies[0].changelogs["s"][0] == changelog


@pytest.mark.parametrize(
    ("options", "kind"),
    [(None, "BatchTableValues"), (Materialized.as_("kept"), "BatchMaterializedTableValues")],
)
def test_a_filter_has_a_store_only_if_the_user_names_it(options: Materialized | None, kind: str) -> None:
    builder = StreamsBuilder()
    builder.table("t").filter(lambda key, value: True, materialized=options)
    assert kinds(build(builder))[-1] == kind


def test_a_grouped_table_sends_changes_to_the_task_of_their_group() -> None:
    builder = StreamsBuilder()
    builder.table("t").group_by(lambda key, value: (value, key)).count()
    built = build(builder)
    (sink,) = sinks(built)
    assert isinstance(sink.value_serde, ChangedSerde)
    source = next(node for node in built.subtopologies[1].nodes if isinstance(node, SourceSpec))
    assert (source.topics, type(source.value_serde)) == ((sink.topic,), ChangedSerde)
    assert kinds(built) == ["MaterializedTableSource", "TableGroupBy", "TableCount"]


def test_a_table_with_versions_cannot_be_suppressed() -> None:
    builder = StreamsBuilder()
    versioned = Materialized.as_(Stores.persistent_versioned_key_value_store("v", 5))
    suppressed = Suppressed.until_time_limit(5, BufferConfig.unbounded())
    builder.table("t", materialized=versioned).filter(lambda key, value: True).suppress(suppressed)
    with pytest.raises(TopologyError, match="only supported for non-versioned KTables"):
        builder.build()


def test_a_global_table_is_apart_from_the_subtopologies() -> None:
    builder = StreamsBuilder()
    builder.global_table("g", materialized=Materialized.as_("all"))
    built = build(builder)
    assert nodes_of(built) == processors(built) == {}
    assert built.global_topology is not None
    assert (built.global_topology.source_topics, list(built.global_topology.stores)) == (("g",), ["all"])
    assert built.global_topology.changelogs == {}
