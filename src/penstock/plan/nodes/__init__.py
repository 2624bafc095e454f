"""GraphNode: what the user's program says, one frozen dataclass per logical operation. Plain data; `lower` gives it
its meaning.

A plan is a mapping from id to node, in the order in which nodes are to be added to the topology; `parents` are ids. A
node's name is the name of the processor that it becomes, and of the node that its children hang on; names are unique
only once the topology has checked them. Each module holds one family of operations and their union.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.nodes.base import BaseNode, NodeId
from penstock.plan.nodes.global_store import GlobalNode, GlobalSource
from penstock.plan.nodes.stream import (
    AddStateStore,
    Aggregate,
    Branch,
    Count,
    Filter,
    FlatMap,
    FlatMapValues,
    Foreach,
    Map,
    MapValues,
    Merge,
    Peek,
    Process,
    Reduce,
    Repartition,
    SelectKey,
    Split,
    StreamNode,
    StreamSink,
    StreamSource,
    TableToStream,
)
from penstock.plan.nodes.table import (
    StreamToTable,
    TableFilter,
    TableMapValues,
    TableNode,
    TableSource,
    TableTransformValues,
)
from penstock.plan.nodes.window import (
    CogroupMerge,
    SessionWindowedAggregate,
    SlidingWindowedAggregate,
    TimeWindowedAggregate,
    TimeWindowedCount,
    WindowNode,
)

GraphNode = StreamNode | GlobalNode | TableNode | WindowNode
"""One operation of a user's program (Kafka class: GraphNode)."""

Plan = Mapping[NodeId, GraphNode]
"""All operations of one program, in the order in which they are added to the topology where their parents allow it."""

__all__ = [
    "AddStateStore",
    "Aggregate",
    "BaseNode",
    "Branch",
    "CogroupMerge",
    "Count",
    "Filter",
    "FlatMap",
    "FlatMapValues",
    "Foreach",
    "GlobalNode",
    "GlobalSource",
    "GraphNode",
    "Map",
    "MapValues",
    "Merge",
    "NodeId",
    "Peek",
    "Plan",
    "Process",
    "Reduce",
    "Repartition",
    "SelectKey",
    "SessionWindowedAggregate",
    "SlidingWindowedAggregate",
    "Split",
    "StreamNode",
    "StreamSink",
    "StreamSource",
    "StreamToTable",
    "TableFilter",
    "TableMapValues",
    "TableNode",
    "TableSource",
    "TableToStream",
    "TableTransformValues",
    "TimeWindowedAggregate",
    "TimeWindowedCount",
    "WindowNode",
]
