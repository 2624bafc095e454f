"""The optimisations of a plan, and the merging of sources."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock.errors import ConfigError, TopologyError
from penstock.plan import nodes as n
from penstock.plan.broadcast import every_partition
from penstock.plan.optimize import (
    MERGE_REPARTITION_TOPICS,
    REUSE_TABLE_SOURCE_TOPICS,
    SINGLE_STORE_SELF_JOIN,
    merge_duplicate_sources,
    merge_repartitions,
    optimizations,
    optimize,
    single_store_self_joins,
)
from penstock.processor.joiner import JoinType
from penstock.windows import JoinWindows
from tests.plan.plans import TEXT, keep, rekey, repartition, revalue, store, stream, table

ALL = {REUSE_TABLE_SOURCE_TOPICS, MERGE_REPARTITION_TOPICS, SINGLE_STORE_SELF_JOIN}


def parents(plan: n.Plan) -> dict[n.NodeId, tuple[n.NodeId, ...]]:
    return {id: node.parents for id, node in plan.items()}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("none", set()),
        ("all", ALL),
        (f"{MERGE_REPARTITION_TOPICS} , {SINGLE_STORE_SELF_JOIN}", ALL - {"reuse.ktable.source.topics"}),
    ],
)
def test_the_optimisations_are_those_of_the_configuration(value: str, expected: set[str]) -> None:
    assert optimizations({"topology.optimization": value}) == expected
    assert optimizations({}) == frozenset()


@pytest.mark.parametrize(
    ("value", "says"), [("all,none", '"all,none" is not a valid'), ("some", "Unrecognized"), ("", "Unrecognized")]
)
def test_other_values_are_refused_with_the_text_of_kafka(value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"{says}.*Acceptable values are"):
        optimizations({"topology.optimization": value})


def test_the_first_of_equal_sources_adopts_the_children_of_others() -> None:
    by_pattern: dict[str, Any] = {"pattern": re.compile("x.*")}
    plan: n.Plan = {
        0: stream("a", "b"), 1: stream("b", "a"), 2: keep(1), 3: stream("c"), 4: keep(0, 1, 3),
        5: stream(**by_pattern), 6: stream(**by_pattern), 7: keep(6),
    }  # fmt: skip
    assert parents(merge_duplicate_sources(plan)) == {0: (), 2: (0,), 3: (), 4: (0, 3), 5: (), 7: (5,)}


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (stream("a", "b"), "overlapping but not equal input topics"),
        (stream("a", offset_reset="latest"), "different offset reset policies"),
        (stream("a", data_frame=object()), "Two DataFrames write to a"),
    ],
)
def test_sources_that_cannot_be_one_are_refused(other: n.StreamSourceNode, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        optimize({0: stream("a"), 1: other}, frozenset())


@pytest.mark.parametrize("chosen", [frozenset(), frozenset([REUSE_TABLE_SOURCE_TOPICS])])
def test_topics_of_tables_are_their_changelogs_only_if_chosen(chosen: frozenset[str]) -> None:
    node = optimize({0: table("t")}, chosen)[0]
    assert isinstance(node, n.TableSourceNode)
    assert node.reuse_topic == bool(chosen)


def test_repartitions_move_up_to_the_node_that_changes_the_keys() -> None:
    plan: n.Plan = {
        0: stream("a"),
        1: rekey(0),
        2: keep(1),
        3: repartition("first", 2),
        4: repartition("second", 1, key_serde=TEXT),
        5: keep(3, name="left"),
        6: keep(4, name="right"),
    }
    merged = merge_repartitions(plan)
    assert parents(merged) == {0: (), 1: (0,), 2: (7,), 5: (2,), 6: (7,), 7: (1,)}
    single = merged[7]
    assert isinstance(single, n.RepartitionNode)
    assert (single.names.topic, single.key_serde) == ("first-repartition", TEXT)
    assert optimize(plan, frozenset()) == plan


@pytest.mark.parametrize("between", [revalue(1), repartition("fixed", 1, movable=False)])
def test_a_repartition_does_not_move_above_other_values_or_if_it_is_fixed(between: n.GraphNode) -> None:
    plan: n.Plan = {0: stream("a"), 1: rekey(0), 2: between, 3: keep(2)}
    if isinstance(between, n.MapValuesNode):
        plan = {**plan, 4: repartition("r", 2)}
    assert merge_repartitions(plan) == plan


def test_a_repartition_does_not_move_above_a_broadcast() -> None:
    copied = repartition("b", 1, movable=False, partitioner=every_partition)
    plan: n.Plan = {0: stream("a"), 1: rekey(0), 2: copied, 3: keep(2), 4: repartition("r", 3)}
    assert merge_repartitions(plan) == plan


def test_repartitions_below_a_merge_move_up_to_the_merge() -> None:
    merge = n.MergeNode(name="merge", parents=(1, 2))
    plan: n.Plan = {
        0: stream("a"),
        1: rekey(0),
        2: rekey(0, name="other"),
        3: merge,
        4: repartition("r", 3),
        5: keep(4),
    }
    assert parents(merge_repartitions(plan)) == {0: (), 1: (0,), 2: (0,), 3: (1, 2), 5: (6,), 6: (3,)}


@pytest.mark.parametrize("is_self", [True, False])
def test_only_a_join_of_one_stream_with_itself_gets_a_single_store(is_self: bool) -> None:
    join = n.StreamStreamJoinNode(
        name="join",
        parents=(0,) if is_self else (0, 1),
        joiner=max,
        with_key=False,
        windows=JoinWindows.of_time_difference_with_no_grace(5),
        type=JoinType.INNER,
        this_windowed="this",
        other_windowed="other",
        this_join="j1",
        other_join="j2",
        this_store=store("s1"),
        other_store=store("s2"),
        outer_store=None,
    )
    windows = [n.StreamJoinWindowNode(name=name, parents=(0,), store=store(name)) for name in ("this", "other")]
    plan: n.Plan = {0: stream("a"), 1: stream("b"), 2: windows[0], 3: windows[1], 4: join}
    single = single_store_self_joins(plan)
    assert single.keys() == plan.keys() - ({3} if is_self else set())
    assert single[4].self_join == is_self  # type: ignore[union-attr]  # the join
