"""The joins of KTable: nodes, topics, stores and serdes."""

from __future__ import annotations

import pytest

from penstock import Consumed, Materialized, Serdes, StreamsBuilder, TableJoined
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


def test_generated_names_take_numbers_in_the_order_of_kafka_streams() -> None:
    builder = StreamsBuilder()
    builder.table("a").join(builder.table("b"), pair).to_stream().peek(lambda k, v: None)
    assert set(node_names(builder)) == {
        "KSTREAM-SOURCE-0000000001",
        "KSTREAM-SOURCE-0000000004",
        "KTABLE-SOURCE-0000000002",
        "KTABLE-SOURCE-0000000005",
        "KTABLE-JOINTHIS-0000000007",
        "KTABLE-JOINOTHER-0000000008",
        "KTABLE-MERGE-0000000006",
        "KTABLE-TOSTREAM-0000000009",
        "KSTREAM-PEEK-0000000010",
    }


def test_the_result_has_the_key_serde_of_the_side_that_has_one() -> None:
    serde = Serdes.string()
    builder = StreamsBuilder()
    plain, typed = builder.table("a"), builder.table("b", Consumed.with_(serde, serde))
    plain.join(typed, pair, materialized=Materialized.as_("kept"))
    stores = {name: store for part in builder.build().build("app").subtopologies for name, store in part.stores.items()}
    assert stores["kept"].key_serde == serde


def test_both_tables_of_a_join_by_key_have_equal_numbers_of_partitions() -> None:
    def groups(**options: object) -> set[frozenset[str]]:
        builder = StreamsBuilder()
        builder.table("a").join(builder.table("b"), pair, **options)  # type: ignore[call-overload]  # any options
        return {group for group in builder.build().build("app").copartition_groups if len(group) > 1}

    assert groups() == {frozenset({"a", "b"})}
    assert not any({"a", "b"} <= group for group in groups(foreign_key_extractor=str.lower))


def test_an_extractor_takes_the_value_or_the_key_and_the_value() -> None:
    builder = StreamsBuilder()
    left, right = builder.table("a"), builder.table("b")
    left.join(right, pair, foreign_key_extractor=lambda value: value)
    left.join(right, pair, foreign_key_extractor=lambda key, value: key)
    with pytest.raises(TypeError, match="foreign_key_extractor"):
        left.join(right, pair, foreign_key_extractor=lambda key, value, other: key)  # type: ignore[arg-type,misc]  # the mistake that is tested
