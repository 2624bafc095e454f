"""The joins of KTable: nodes, topics, stores and serdes."""

from __future__ import annotations

from penstock import Materialized, StreamsBuilder, TableJoined
from tests.support.joins import pair


def node_names(builder: StreamsBuilder) -> list[str]:
    return [node.name for part in builder.build().build("app").subtopologies for node in part.nodes]


def test_the_result_of_a_join_of_tables_has_a_store_only_if_it_is_materialized() -> None:
    builder = StreamsBuilder()
    left, right = builder.table("a"), builder.table("b")
    assert left.join(right, pair, named="plain").queryable_store_name is None
    kept = left.join(right, pair, materialized=Materialized.as_("kept"))
    assert kept.queryable_store_name == "kept"
    stores = {name for part in builder.build().build("app").subtopologies for name in part.stores}
    assert stores == {"a-STATE-STORE-0000000000", "b-STATE-STORE-0000000003", "kept"}
    assert {"plain-join-this", "plain-join-other", "plain"} <= set(node_names(builder))


def test_a_join_by_foreign_key_names_all_after_what_the_user_gave() -> None:
    builder = StreamsBuilder()
    builder.table("a").join(
        builder.table("b"), pair, foreign_key_extractor=str.lower, table_joined=TableJoined.as_("link")
    )
    assert set(builder.build().build("app").repartition_topics) == {
        "app-link-subscription-registration-topic",
        "app-link-subscription-response-topic",
    }
    assert "link-subscription-store" in {
        name for part in builder.build().build("app").subtopologies for name in part.stores
    }
    assert "link-result" in node_names(builder)
