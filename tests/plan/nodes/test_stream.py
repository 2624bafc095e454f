"""The nodes of streams."""

from __future__ import annotations

import pytest

from penstock.plan import nodes as n
from penstock.plan.nodes import stream
from tests.plan.nodes.families import check_family
from tests.plan.plans import keep, repartition
from tests.plan.plans import stream as source


def test_the_family_is_complete() -> None:
    check_family(stream, n.StreamNode)


def test_the_line_of_the_program_makes_no_other_node() -> None:
    one, other = (n.MergeNode(name="merge", parents=(1, 2), line=line) for line in ("a.py:1", None))
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == "MergeNode(name='merge', parents=(1, 2))"
    assert source("a") != source("b")


def test_a_node_cannot_change() -> None:
    with pytest.raises(AttributeError):
        keep(0).negate = True  # type: ignore[misc]  # the mistake


def test_a_repartition_may_move_unless_it_says_otherwise() -> None:
    node = repartition("r", 0)
    assert (node.movable, node.partitions, node.partitioner) == (True, None, None)
