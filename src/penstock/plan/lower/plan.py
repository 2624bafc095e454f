"""Lowering of a whole plan.

A node is added as soon as all its parents are, the earliest node of the plan first.
"""

from __future__ import annotations

import heapq
from typing import assert_never

from penstock.errors import TopologyError
from penstock.plan import nodes as n
from penstock.plan.lower.join import add_join_node
from penstock.plan.lower.lowering import Lowering
from penstock.plan.lower.stream import add_stream_node
from penstock.plan.lower.table import add_global_node, add_table_node
from penstock.plan.lower.window import add_window_node
from penstock.plan.topology import Topology
from penstock.plan.topology_config import TopologyConfig
from penstock.plan.user_lines import made_at


def lower(plan: n.Plan, topology_config: TopologyConfig | None = None) -> Topology:
    """Return the topology of `plan`, made with `topology_config`.

    Raises TopologyError if the plan is not a valid topology.
    """
    lowering = Lowering(plan, topology_config)
    for id in build_order(plan):
        node = plan[id]
        lowering.topology.at_line(node.line)
        try:
            _add_node(lowering, id, node)
        except TopologyError as error:
            error.add_note(f"{node.name}{made_at(node.line)} cannot be added.")
            raise
    lowering.topology.at_line(None)
    lowering.topology.check_copartitioned()
    return lowering.topology


def _add_node(lowering: Lowering, id: n.NodeId, node: n.GraphNode) -> None:
    if isinstance(node, n.StreamNode):
        add_stream_node(lowering, id, node)
    elif isinstance(node, n.GlobalNode):
        add_global_node(lowering, node)
    elif isinstance(node, n.TableNode):
        add_table_node(lowering, id, node)
    elif isinstance(node, n.WindowNode):
        add_window_node(lowering, id, node)
    elif isinstance(node, n.JoinNode):
        add_join_node(lowering, id, node)
    else:
        assert_never(node)


def build_order(plan: n.Plan) -> list[n.NodeId]:
    """Return the ids of `plan`, parents before children, otherwise in the plan's order."""
    rank = {id: index for index, id in enumerate(plan)}
    children: dict[n.NodeId, list[n.NodeId]] = {id: [] for id in plan}
    waiting = {id: len(node.parents) for id, node in plan.items()}
    for id, node in plan.items():
        for parent in node.parents:
            children[parent].append(id)
    ready = [(rank[id], id) for id, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, id = heapq.heappop(ready)
        order.append(id)
        for child in children[id]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, (rank[child], child))
    return order
