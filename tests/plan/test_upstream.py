"""The paths above a node: its sources, keys that are missing, and the close of windows."""

from __future__ import annotations

import pytest

from penstock.errors import TopologyError
from penstock.plan import nodes as n
from penstock.plan.broadcast import every_partition
from penstock.plan.upstream import ancestors, broadcast_names, keeping_null_keys, source_names, window_grace_ms
from penstock.processor.joiner import JoinType
from penstock.windows import EmitStrategy, SessionWindows, TimeWindows
from tests.plan.plans import keep, lookup, rekey, repartition, store, stream, table

DIAMOND: n.Plan = {0: stream("a"), 1: keep(0, name="left"), 2: keep(0, name="right"), 3: keep(1, 2, name="both")}


def test_each_node_above_comes_once_depth_first() -> None:
    assert list(ancestors(DIAMOND, 3)) == [3, 1, 0, 2]
    assert list(ancestors(DIAMOND, 0)) == [0]


def test_the_sources_of_a_node_end_at_the_nearest_repartition() -> None:
    plan: n.Plan = {0: stream("a"), 1: rekey(0), 2: repartition("r", 1), 3: stream("b"), 4: keep(2, 3)}
    assert source_names(plan, 1) == {"read-a"}
    assert source_names(plan, 4) == {"r-repartition-source", "read-b"}


def test_broadcasts_are_named_after_their_sources() -> None:
    plan: n.Plan = {0: stream("a"), 1: repartition("r", 0), 2: repartition("b", 0, partitioner=every_partition)}
    assert broadcast_names(plan) == {"b-repartition-source"}


def test_a_table_that_is_looked_up_is_a_source_too() -> None:
    plan: n.Plan = {0: stream("a"), 1: table("t"), 2: lookup(0, 1), 3: keep(2)}
    assert source_names(plan, 3) == {"read-a", "read-t"}


@pytest.mark.parametrize(("type", "kept"), [(JoinType.INNER, set()), (JoinType.LEFT, {0, 1, 2})])
def test_records_without_a_key_are_kept_only_above_a_left_join(type: JoinType, kept: set[int]) -> None:
    plan: n.Plan = {0: stream("a"), 1: rekey(0), 2: repartition("r", 1), 3: table("t"), 4: lookup(2, 3, type)}
    assert keeping_null_keys(plan) == kept


def test_records_without_a_key_are_kept_above_a_deduplication() -> None:
    unique = n.DeduplicateNode(name="unique", parents=(2,), store=store(), interval_ms=5, mapper=None)
    plan: n.Plan = {0: stream("a"), 1: rekey(0), 2: repartition("r", 1), 3: unique, 4: keep(3)}
    assert keeping_null_keys(plan) == {0, 1, 2}


def counted(grace_ms: int, *parents: n.NodeId) -> n.TimeWindowedCountNode:
    return n.TimeWindowedCountNode(
        name="counts",
        parents=parents,
        store=store(),
        emit_strategy=EmitStrategy.ON_WINDOW_UPDATE,
        windows=TimeWindows.of_size_and_grace(10, grace_ms),
    )


def sessions(*parents: n.NodeId) -> n.SessionWindowedAggregateNode:
    return n.SessionWindowedAggregateNode(
        name="sessions",
        parents=parents,
        store=store(),
        emit_strategy=EmitStrategy.ON_WINDOW_UPDATE,
        windows=SessionWindows.of_inactivity_gap_and_grace(30, 4),
        initializer=int,
        aggregator=max,
        merger=max,
    )


def test_windows_close_after_the_longest_grace_and_the_gap_of_sessions() -> None:
    plan: n.Plan = {0: stream("a"), 1: counted(7, 0), 2: counted(9, 0), 3: sessions(0), 4: keep(1, 2), 5: keep(3, 4)}
    assert [window_grace_ms(plan, id) for id in (1, 3, 4, 5)] == [7, 34, 9, 34]


def test_a_path_without_windows_is_named_from_its_source() -> None:
    with pytest.raises(TopologyError) as caught:
        window_grace_ms({0: table("t"), 1: counted(7, 0), 2: keep(0, 1, name="mixed")}, 2)
    assert str(caught.value) == (
        "Invalid topology: Window close time is only defined for windowed computations. Got [root->table-t->mixed]."
    )
