"""The order in which a plan is lowered, and the errors of a plan that is no topology."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import TopologyError
from penstock.plan import nodes as n
from penstock.plan.lower.plan import build_order, lower
from penstock.plan.topology_config import TopologyConfig
from tests.plan.plans import keep, repartition, stream


@st.composite
def plans(draw: st.DrawFn) -> n.Plan:
    """Draw a plan whose nodes are in any order."""
    size = draw(st.integers(1, 8))
    above = [draw(st.lists(st.sampled_from(range(id)), unique=True, max_size=3)) if id else [] for id in range(size)]
    made = {id: keep(*parents, name=str(id)) for id, parents in enumerate(above)}
    return {id: made[id] for id in draw(st.permutations(range(size)))}


@given(plans())
def test_each_node_comes_as_early_as_its_parents_allow(plan: n.Plan) -> None:
    order, left, expected = build_order(plan), list(plan), list[int]()
    while left:
        expected.append(next(id for id in left if set(plan[id].parents) <= set(expected)))
        left.remove(expected[-1])
    assert order == expected


def test_a_node_that_cannot_be_added_is_named_with_its_line() -> None:
    plan: n.Plan = {0: stream("a"), 1: n.MergeNode(name="read-a", parents=(0,), line="program.py:7")}
    with pytest.raises(TopologyError, match="Processor read-a is already added") as caught:
        lower(plan)
    assert caught.value.__notes__ == ["read-a (created at program.py:7) cannot be added."]


def test_the_lines_of_nodes_are_those_of_the_program() -> None:
    built = lower({0: stream("a", line="program.py:7"), 1: keep(0)}).build("app")
    assert built.node_lines["read-a"] == "program.py:7"


def test_repartitions_with_other_numbers_cannot_be_copartitioned() -> None:
    plan: n.Plan = {
        0: stream("a"),
        1: repartition("x", 0, partitions=3),
        2: repartition("y", 0, partitions=4),
        3: n.CogroupMergeNode(name="merge", parents=(1, 2), store=None),  # type: ignore[arg-type]  # not needed
    }
    with pytest.raises(TopologyError, match="do not have the same number of partitions"):
        lower(plan)


def test_the_topology_has_the_configuration_that_it_is_made_with() -> None:
    config = TopologyConfig(overrides={"max.task.idle.ms": 7})
    assert lower({0: stream("a")}, config).build("app").config_overrides == {"max.task.idle.ms": 7}
    assert lower({}).build("app").subtopologies == ()
