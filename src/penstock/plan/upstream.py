"""The paths from the sources of a plan.

They determine the sources of a node, the repartitions that must keep records without a key, and the close time of a
table's windows.

Pure functions over plans, which they do not change.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import TopologyError
from penstock.plan import nodes as n


def ancestors(plan: n.Plan, id: n.NodeId) -> Iterator[n.NodeId]:
    """Yield `id` and all nodes above it, without duplicates, depth first."""
    seen: set[n.NodeId] = set()
    stack = [id]
    while stack:
        current = stack.pop()
        if current not in seen:
            seen.add(current)
            yield current
            stack.extend(reversed(plan[current].parents))


def source_names(plan: n.Plan, id: n.NodeId) -> frozenset[str]:
    """Return the names of the source nodes that determine the partitioning of the node `id`.

    Kafka: subTopologySourceNodes.
    """
    node = plan[id]
    match node:
        case n.StreamSourceNode() | n.RepartitionNode():
            return frozenset((node.name,))
        case n.TableSourceNode():
            return frozenset((node.source_name,))
        case n.GroupedTableRepartitionNode():
            return frozenset((node.name,))
        case n.StreamTableJoinNode():
            above: tuple[n.NodeId, ...] = (*node.parents, node.table)
        case n.ForeignKeyJoinNode():
            return source_names(plan, node.primary_table) | {node.names.response_source}
        case _:
            above = node.parents
    return frozenset().union(*(source_names(plan, parent) for parent in above))


def broadcast_names(plan: n.Plan) -> frozenset[str]:
    """Return the names of the sources of all broadcasts."""
    return frozenset(node.name for node in plan.values() if isinstance(node, n.RepartitionNode) and node.is_broadcast)


def keeping_null_keys(plan: n.Plan) -> frozenset[n.NodeId]:
    """Return the nodes above operators that have results for records without a key.

    Repartitions among them keep such records (KIP-962, KIP-655).
    """
    return frozenset(
        above for id, node in plan.items() if _takes_null_keys(node) for above in ancestors(plan, id) if above != id
    )


def _takes_null_keys(node: n.GraphNode) -> bool:
    match node:
        case n.StreamStreamJoinNode() | n.StreamTableJoinNode() | n.StreamGlobalTableJoinNode():
            return node.type.keeps_left
        case _:
            return isinstance(node, n.DeduplicateNode)


def window_grace_ms(plan: n.Plan, id: n.NodeId, chain: str = "") -> int:
    """Return the time (ms) after its end during which a window may still change.

    It is the maximum over all windowed aggregations above the table `id`; sessions add their gap. Kafka class:
    GraphGraceSearchUtil.

    Raises TopologyError with the `chain` of nodes if a path from a source has no windowed aggregation.
    """
    node = plan[id]
    match node:
        case n.SessionWindowedAggregateNode():
            return node.windows.grace_period_ms + node.windows.inactivity_gap_ms
        case n.TimeWindowedCountNode() | n.TimeWindowedAggregateNode() | n.SlidingWindowedAggregateNode():
            return node.windows.grace_period_ms
        case _:
            pass
    chain = f"{node.name}->{chain}" if chain else node.name
    if not node.parents:
        raise TopologyError(f"Window close time is only defined for windowed computations. Got [root->{chain}].")
    return max(window_grace_ms(plan, parent, chain) for parent in node.parents)
