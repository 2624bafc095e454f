"""Which topics must have equal numbers of partitions, and the errors if they do not."""

from __future__ import annotations

import pytest

from penstock import Joined, JoinWindows, KStream, Materialized, Repartitioned, StreamsBuilder
from penstock.errors import TopologyError
from penstock.plan.copartition import check_copartitioned, enforce_copartitioning
from penstock.plan.subtopology import BuiltTopology

WINDOWS = JoinWindows.of_time_difference_with_no_grace(5)


def first(one: str, other: str) -> str:
    return one


def build(builder: StreamsBuilder) -> BuiltTopology:
    return builder.build().build("app")


def repartitioned(builder: StreamsBuilder, topic: str, name: str, partitions: int) -> KStream:
    return builder.stream(topic).repartition(Repartitioned.as_(name).with_number_of_partitions(partitions))


def test_the_sources_of_both_sides_of_a_join_are_copartitioned() -> None:
    builder = StreamsBuilder()
    builder.stream("a").join(builder.stream("b").select_key(first), first, WINDOWS)
    assert build(builder).copartition_groups == (frozenset(["a", "app-KSTREAM-KEY-SELECT-0000000002-repartition"]),)


def test_groups_that_share_a_topic_are_one() -> None:
    builder = StreamsBuilder()
    table = builder.table("t")
    builder.stream("a").join(table, first)
    builder.stream("b").left_join(table, first, joined=Joined.as_("j"))
    assert build(builder).copartition_groups == (frozenset(["a", "b", "t"]),)


def test_a_foreign_key_join_binds_each_table_to_its_own_internal_topic() -> None:
    builder = StreamsBuilder()
    builder.table("orders").join(
        builder.table("people"), first, foreign_key_extractor=str.lower, materialized=Materialized.as_("joined")
    )
    registration, response = build(builder).repartition_topics
    assert set(build(builder).copartition_groups) == {
        frozenset(["people", registration]),
        frozenset(["orders", response]),
    }


def test_a_join_with_a_global_table_binds_nothing() -> None:
    builder = StreamsBuilder()
    builder.stream("a").join(builder.global_table("g"), first, key_selector=first)
    assert build(builder).copartition_groups == ()


def test_repartition_topics_that_the_user_gave_other_numbers_are_refused_when_the_topology_is_built() -> None:
    builder = StreamsBuilder()
    repartitioned(builder, "a", "p", 3).join(repartitioned(builder, "b", "q", 4), first, WINDOWS)
    message = r"Following topics do not have the same number of partitions: \[\{p-repartition=3, q-repartition=4\}\]"
    with pytest.raises(TopologyError, match=message):
        builder.build()


def test_a_topic_without_its_own_number_cannot_differ() -> None:
    group = frozenset(["p", "q"])
    check_copartitioned([group], {"p": 3})
    with pytest.raises(TopologyError, match="p=3, q=4"):
        check_copartitioned([group], {"p": 3, "q": 4})


def test_repartition_topics_follow_the_topics_of_the_users_own() -> None:
    group = frozenset(["a", "b", "r"])
    assert enforce_copartitioning(group, {"r": 9}, {}, {"a": 4, "b": 4}) == {"r": 4}
    with pytest.raises(TopologyError, match=r"Topics not co-partitioned: \[\{a=4, b=5\}\]"):
        enforce_copartitioning(group, {"r": 9}, {}, {"a": 4, "b": 5})
    with pytest.raises(TopologyError, match=r"\[9\] of repartition topic \[r\] .* partitions \[4\]"):
        enforce_copartitioning(group, {"r": 9}, {"r": 9}, {"a": 4, "b": 4})


def test_repartition_topics_alone_take_the_number_that_is_fixed_or_else_the_largest() -> None:
    group = frozenset(["p", "q"])
    assert enforce_copartitioning(group, {"p": 2, "q": 7}, {}, {}) == {"p": 7, "q": 7}
    assert enforce_copartitioning(group, {"p": 2, "q": 7}, {"p": 2}, {}) == {"p": 2, "q": 2}
    with pytest.raises(TopologyError, match="do not have the same number of partitions"):
        enforce_copartitioning(group, {"p": 2, "q": 7}, {"p": 2, "q": 7}, {})
