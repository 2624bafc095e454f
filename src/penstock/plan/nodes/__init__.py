"""GraphNode: the user's program as one frozen dataclass per logical operation.

Plain data; `lower` gives it its meaning.

A plan is a mapping from id to node, in the order of addition to the topology; `parents` are ids. A node's name is the
name of its processor, and of the node above its children. Names are unique only after the topology has checked them.
Each module contains one family of operations and their union.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.nodes.base import BaseNode, NodeId
from penstock.plan.nodes.join import (
    ForeignKeyJoinNode,
    ForeignKeyNames,
    ForeignKeySubscriptionNode,
    ForeignTableJoinNode,
    JoinNode,
    StreamGlobalTableJoinNode,
    StreamJoinWindowNode,
    StreamStreamJoinNode,
    StreamTableJoinNode,
    TableTableJoinNode,
)
from penstock.plan.nodes.stream import (
    AddStateStoreNode,
    AggregateNode,
    BranchNode,
    Calling,
    CountNode,
    DeduplicateNode,
    DroppedRecordsNode,
    FilterNode,
    FlatMapNode,
    FlatMapValuesNode,
    ForeachNode,
    FunctionNode,
    MapNode,
    MapValuesNode,
    MergeNode,
    Parking,
    PeekNode,
    PrintNode,
    ProcessNode,
    ProcessorCalling,
    ReduceNode,
    RepartitionNode,
    SelectKeyNode,
    SplitNode,
    StreamNode,
    StreamSinkNode,
    StreamSourceNode,
    TableToStreamNode,
)
from penstock.plan.nodes.table import (
    GlobalNode,
    GlobalSourceNode,
    GroupedTableRepartitionNode,
    StreamToTableNode,
    TableAggregateNode,
    TableCountNode,
    TableFilterNode,
    TableGroupByNode,
    TableMapValuesNode,
    TableNode,
    TableReduceNode,
    TableSourceNode,
    TableSuppressNode,
    TableTransformValuesNode,
)
from penstock.plan.nodes.window import (
    CogroupMergeNode,
    SessionWindowedAggregateNode,
    SlidingWindowedAggregateNode,
    TimeWindowedAggregateNode,
    TimeWindowedCountNode,
    WindowedTableNode,
    WindowNode,
)

GraphNode = StreamNode | GlobalNode | TableNode | WindowNode | JoinNode
"""One operation of a user's program (Kafka class: GraphNode)."""

Plan = Mapping[NodeId, GraphNode]
"""All operations of one program, by id.

They are added to the topology in this order, as far as their parents allow it.
"""

__all__ = [
    "AddStateStoreNode",
    "AggregateNode",
    "BaseNode",
    "BranchNode",
    "Calling",
    "CogroupMergeNode",
    "CountNode",
    "DeduplicateNode",
    "DroppedRecordsNode",
    "FilterNode",
    "FlatMapNode",
    "FlatMapValuesNode",
    "ForeachNode",
    "ForeignKeyJoinNode",
    "ForeignKeyNames",
    "ForeignKeySubscriptionNode",
    "ForeignTableJoinNode",
    "FunctionNode",
    "GlobalNode",
    "GlobalSourceNode",
    "GraphNode",
    "GroupedTableRepartitionNode",
    "JoinNode",
    "MapNode",
    "MapValuesNode",
    "MergeNode",
    "NodeId",
    "Parking",
    "PeekNode",
    "Plan",
    "PrintNode",
    "ProcessNode",
    "ProcessorCalling",
    "ReduceNode",
    "RepartitionNode",
    "SelectKeyNode",
    "SessionWindowedAggregateNode",
    "SlidingWindowedAggregateNode",
    "SplitNode",
    "StreamGlobalTableJoinNode",
    "StreamJoinWindowNode",
    "StreamNode",
    "StreamSinkNode",
    "StreamSourceNode",
    "StreamStreamJoinNode",
    "StreamTableJoinNode",
    "StreamToTableNode",
    "TableAggregateNode",
    "TableCountNode",
    "TableFilterNode",
    "TableGroupByNode",
    "TableMapValuesNode",
    "TableNode",
    "TableReduceNode",
    "TableSourceNode",
    "TableSuppressNode",
    "TableTableJoinNode",
    "TableToStreamNode",
    "TableTransformValuesNode",
    "TimeWindowedAggregateNode",
    "TimeWindowedCountNode",
    "WindowNode",
    "WindowedTableNode",
]
