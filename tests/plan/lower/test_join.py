"""What joins become: their processors, stores and topics."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Joined, JoinWindows, Materialized, Repartitioned, Stores, StreamsBuilder
from penstock.errors import TopologyError
from penstock.plan.subtopology import ProcessorSpec
from penstock.plan.versions import NOT_VERSIONED
from tests.plan.lower.programs import build, kinds, nodes_of, sinks

WINDOWS = JoinWindows.of_time_difference_with_no_grace(5)
GRACE = Joined.with_(grace_period_ms=10)


def first(one: Any, other: Any) -> Any:
    return one


@pytest.mark.parametrize(
    ("method", "kind", "stores"),
    [
        ("join", "StreamStreamInnerJoin", 2),
        ("left_join", "StreamStreamOuterJoin", 3),
        ("outer_join", "StreamStreamOuterJoin", 3),
    ],
)
def test_only_outer_joins_of_streams_keep_unmatched_records(method: str, kind: str, stores: int) -> None:
    builder = StreamsBuilder()
    getattr(builder.stream("a"), method)(builder.stream("b"), first, WINDOWS)
    built = build(builder)
    assert kinds(built) == ["StreamJoinWindow", "StreamJoinWindow", kind, kind, "StreamMerge"]
    assert len(built.subtopologies[0].stores) == stores
    assert built.copartition_groups == (frozenset("ab"),)


def test_a_self_join_has_one_store_if_that_is_chosen() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("a")
    stream.join(stream, first, WINDOWS)
    built = builder.build({"topology.optimization": "single.store.self.join"}).build("app")
    assert kinds(built) == ["StreamJoinWindow", "StreamStreamSelfJoin"]
    assert len(built.subtopologies[0].stores) == 1


def test_a_lookup_reads_the_store_of_its_table_and_is_not_below_it() -> None:
    builder = StreamsBuilder()
    builder.stream("a").join(builder.table("t", materialized=Materialized.as_("rows")), first)
    join = list(nodes_of(build(builder)).values())[-1]
    assert isinstance(join, ProcessorSpec)
    assert (join.stores, join.parents) == (("rows",), ("KSTREAM-SOURCE-0000000000",))


@pytest.mark.parametrize(
    ("supplier", "lookup", "answer"),
    [
        (Stores.persistent_key_value_store("rows"), "BatchStreamTableJoin", "BatchResponseJoin"),
        (Stores.persistent_versioned_key_value_store("rows", 9), "StreamTableJoin", "ResponseJoin"),
    ],
)
def test_only_a_table_without_versions_is_read_column_by_column(supplier: Any, lookup: str, answer: str) -> None:
    builder = StreamsBuilder()
    table = builder.table("t", materialized=Materialized.as_(supplier))
    builder.stream("a").join(table, first)
    table.join(builder.table("people"), first, foreign_key_extractor=str.lower)
    assert {lookup, answer, "BatchSubscriptionJoin"} <= set(kinds(build(builder)))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (None, NOT_VERSIONED),
        (Stores.persistent_versioned_key_value_store("rows", 9), "History retention must be at least grace period"),
        (Stores.persistent_versioned_key_value_store("rows", 10), None),
    ],
)
def test_a_grace_period_needs_versions_for_as_long(table: Any, says: str | None) -> None:
    builder = StreamsBuilder()
    materialized = None if table is None else Materialized.as_(table)

    def made() -> list[str]:
        builder.stream("a").join(builder.table("t", materialized=materialized), first, joined=GRACE)
        return kinds(build(builder))

    if says is None:
        assert made()[-1] == "StreamTableGraceJoin"
    else:
        with pytest.raises(ValueError, match=says):
            made()


@pytest.mark.parametrize(
    ("options", "expected"),
    [(None, []), (Materialized.as_("joined"), ["joined"])],
)
def test_a_join_of_tables_reads_both_and_keeps_a_result_that_is_named(
    options: Materialized | None, expected: list[str]
) -> None:
    builder = StreamsBuilder()
    builder.table("a", materialized=Materialized.as_("A")).join(
        builder.table("b", materialized=Materialized.as_("B")), first, materialized=options
    )
    built = build(builder)
    assert kinds(built)[2:4] == ["BatchTableTableJoin"] * 2
    assert set(built.subtopologies[0].stores) == {"A", "B", *expected}


def test_a_foreign_key_join_has_a_topic_for_each_direction() -> None:
    builder = StreamsBuilder()
    builder.table("orders").join(builder.table("people"), first, foreign_key_extractor=str.lower)
    built = build(builder)
    asking, answering = sinks(built)
    assert list(built.repartition_topics) == [asking.topic, answering.topic]
    assert {part.sink_topics for part in built.subtopologies} == {(asking.topic,), (answering.topic,)}
    assert {"SubscriptionSend", "SubscriptionReceive", "ForeignTableJoin", "BatchResponseJoin"} <= set(kinds(built))
    assert len(built.copartition_groups) == 2


def test_a_broadcast_is_not_copartitioned_with_the_table_that_it_joins() -> None:
    builder = StreamsBuilder()
    everywhere = builder.stream("control").broadcast(Repartitioned.as_("b"))
    everywhere.join(builder.table("people"), first)
    everywhere.join(builder.stream("orders"), first, WINDOWS)
    assert set(build(builder).copartition_groups) == {frozenset({"people"}), frozenset({"orders"})}


def test_a_join_by_foreign_key_takes_a_broadcast_only_as_foreign_table() -> None:
    builder = StreamsBuilder()
    rules = builder.stream("rules").broadcast(Repartitioned.as_("b")).to_table()
    orders = builder.table("orders")
    orders.join(rules, first, foreign_key_extractor=str.lower)
    assert len(build(builder).subtopologies) == 3
    rules.join(orders, first, foreign_key_extractor=str.lower)
    with pytest.raises(
        TopologyError, match="reads the broadcast b-broadcast-repartition-source: every task has each row"
    ):
        builder.build()
