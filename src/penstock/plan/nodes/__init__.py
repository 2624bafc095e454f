"""GraphNode: the user's program, one frozen dataclass per logical operation. Plain data; `lower` gives it
its meaning.

A plan is a mapping from id to node, in the order in which nodes are to be added to the topology; `parents` are ids. A
node's name is the name of the processor that it becomes, and of the node that its children hang on; names are unique
only once the topology has checked them. Each module holds one family of operations and their union.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.nodes.base import BaseNode, NodeId
from penstock.plan.nodes.join import (
    ForeignKeyJoin,
    ForeignKeyNames,
    ForeignKeySubscription,
    ForeignTableJoin,
    JoinNode,
    StreamGlobalTableJoin,
    StreamJoinWindow,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
)
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
    Print,
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
    GlobalNode,
    GlobalSource,
    GroupedTableRepartition,
    StreamToTable,
    TableAggregate,
    TableCount,
    TableFilter,
    TableGroupBy,
    TableMapValues,
    TableNode,
    TableReduce,
    TableSource,
    TableSuppress,
    TableTransformValues,
)
from penstock.plan.nodes.window import (
    CogroupMerge,
    SessionWindowedAggregate,
    SlidingWindowedAggregate,
    TimeWindowedAggregate,
    TimeWindowedCount,
    WindowedTable,
    WindowNode,
)

GraphNode = StreamNode | GlobalNode | TableNode | WindowNode | JoinNode
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
    "ForeignKeyJoin",
    "ForeignKeyNames",
    "ForeignKeySubscription",
    "ForeignTableJoin",
    "GlobalNode",
    "GlobalSource",
    "GraphNode",
    "GroupedTableRepartition",
    "JoinNode",
    "Map",
    "MapValues",
    "Merge",
    "NodeId",
    "Peek",
    "Plan",
    "Print",
    "Process",
    "Reduce",
    "Repartition",
    "SelectKey",
    "SessionWindowedAggregate",
    "SlidingWindowedAggregate",
    "Split",
    "StreamGlobalTableJoin",
    "StreamJoinWindow",
    "StreamNode",
    "StreamSink",
    "StreamSource",
    "StreamStreamJoin",
    "StreamTableJoin",
    "StreamToTable",
    "TableAggregate",
    "TableCount",
    "TableFilter",
    "TableGroupBy",
    "TableMapValues",
    "TableNode",
    "TableReduce",
    "TableSource",
    "TableSuppress",
    "TableTableJoin",
    "TableToStream",
    "TableTransformValues",
    "TimeWindowedAggregate",
    "TimeWindowedCount",
    "WindowNode",
    "WindowedTable",
]
