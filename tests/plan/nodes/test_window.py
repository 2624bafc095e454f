"""The nodes of windowed aggregations."""

from __future__ import annotations

from penstock.plan import nodes as n
from penstock.plan.nodes import window
from tests.plan.nodes.families import check_family, members


def test_the_family_is_complete() -> None:
    check_family(window, n.WindowNode)


def test_all_but_the_merge_of_cogrouped_streams_are_windowed_tables() -> None:
    others = {kind for kind in members(n.WindowNode) if not issubclass(kind, n.WindowedTableNode)}
    assert others == {n.CogroupMergeNode}
