"""The processors of a plan that drop records, by operator.

The null-key filter of a repartition drops records for the operators below it. Joins of tables and operators on single
entries are not listed: they drop no records of users, but only updates that newer ones have replaced.

Pure functions over plans, which they do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.plan import nodes as n

DroppingNode = (
    n.CountNode
    | n.ReduceNode
    | n.AggregateNode
    | n.WindowedTableNode
    | n.CogroupMergeNode
    | n.StreamStreamJoinNode
    | n.StreamTableJoinNode
    | n.StreamGlobalTableJoinNode
    | n.DeduplicateNode
    | n.RepartitionNode
    | n.TableSourceNode
    | n.StreamToTableNode
)
"""An operator that may drop records. A broadcast keeps them all."""

_PassingNode = n.FilterNode | n.PeekNode | n.MergeNode | n.SplitNode | n.BranchNode | n.ProcessNode
"""An operator that may be between a merged repartition and the operators that require it."""


class Dropper(NamedTuple):
    """Processors of one sub-topology that drop records of one input of an operator.

    Args:
        suffix: distinguishes the droppers of an operator; empty for the first.
        processors: their names.
        input: the number of the input: 1 for the second stream of a join.
    """

    suffix: str
    processors: tuple[str, ...]
    input: int = 0


def drops_records(node: n.GraphNode) -> bool:
    """Return whether the operator `node` may drop records."""
    return isinstance(node, DroppingNode) and not (isinstance(node, n.RepartitionNode) and node.is_broadcast)


def droppers(plan: n.Plan, id: n.NodeId) -> list[Dropper]:
    """Return the processors that drop records of the operator `id`, without the filters of repartitions."""
    node = plan[id]
    match node:
        case n.StreamStreamJoinNode(self_join=True):
            return [Dropper("", (node.this_windowed, node.name))]
        case n.StreamStreamJoinNode():
            return [
                Dropper("", (node.this_windowed, node.this_join)),
                Dropper("-other", (node.other_windowed, node.other_join), 1),
            ]
        case n.CogroupMergeNode():
            return [
                Dropper(f"-{place}" if place else "", (plan[parent].name,), place)
                for place, parent in enumerate(node.parents)
            ]
        case n.RepartitionNode():
            return [Dropper("", (node.names.filter,))]
        case _:
            return [Dropper("", (node.name,))]


def repartitions_of(plan: n.Plan, id: n.NodeId) -> Iterator[tuple[n.NodeId, n.RepartitionNode]]:
    """Yield the repartitions that the operator `id` requires, with their ids.

    The user's own repartitions are operators themselves.
    """
    node = plan[id]
    inputs = [plan[each].parents for each in node.parents] if isinstance(node, n.CogroupMergeNode) else [node.parents]
    waiting = [parent for parents in inputs for parent in parents]
    seen: set[n.NodeId] = set()
    while waiting:
        above = waiting.pop(0)
        found = plan[above]
        if above in seen:
            continue
        seen.add(above)
        if isinstance(found, n.RepartitionNode):
            if found.movable:
                yield above, found
        elif isinstance(found, _PassingNode):
            waiting.extend(found.parents)
