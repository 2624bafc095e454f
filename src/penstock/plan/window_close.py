"""When the windows of a table close, by its plan."""

from __future__ import annotations

from penstock.errors import TopologyError
from penstock.plan import nodes as n


def window_grace_ms(plan: n.Plan, id: n.NodeId, chain: str = "") -> int:
    """Return how long (ms) after its end a window of the table `id` may still change: the longest time of all windowed
    aggregations that the table comes from; for sessions with the gap.

    Raises TopologyError, naming the `chain` of nodes, if it comes from a source without any (Kafka class:
    GraphGraceSearchUtil).
    """
    node = plan[id]
    match node:
        case n.SessionWindowedAggregate():
            return node.windows.grace_period_ms + node.windows.inactivity_gap_ms
        case n.TimeWindowedCount() | n.TimeWindowedAggregate() | n.SlidingWindowedAggregate():
            return node.windows.grace_period_ms
        case _:
            pass
    chain = f"{node.name}->{chain}" if chain else node.name
    if not node.parents:
        raise TopologyError(f"Window close time is only defined for windowed computations. Got [root->{chain}].")
    return max(window_grace_ms(plan, parent, chain) for parent in node.parents)
