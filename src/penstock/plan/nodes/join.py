"""Nodes of joins. Plain data.

A join that reads a table which is no parent of its node names it by id: a lookup does not follow the table's updates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.plan.nodes.base import BaseNode, NodeId
from penstock.plan.subtopology import StreamPartitioner
from penstock.processor.joiner import JoinType
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder
from penstock.windows import JoinWindows


@dataclass(frozen=True, kw_only=True)
class StreamJoinWindowNode(BaseNode):
    """Records that are kept for the other stream of a join (Kafka class: WindowedStreamProcessorNode)."""

    store: StoreBuilder


@dataclass(frozen=True, kw_only=True)
class StreamStreamJoinNode(BaseNode):
    """Two streams joined within windows; the node's name is that of the merge of both sides (Kafka class:
    StreamStreamJoinNode).

    this_windowed, other_windowed: names of the StreamJoinWindow nodes. this_join, other_join: names of the processors
    of both sides. outer_store: where records wait that have met none yet; None for an inner join. self_join: whether
    one store and one processor do for both sides.
    """

    joiner: Callable[..., Any]
    with_key: bool
    windows: JoinWindows
    type: JoinType
    this_windowed: str
    other_windowed: str
    this_join: str
    other_join: str
    this_store: StoreBuilder
    other_store: StoreBuilder
    outer_store: StoreBuilder | None
    self_join: bool = False


@dataclass(frozen=True, kw_only=True)
class StreamTableJoinNode(BaseNode):
    """A stream joined with the values that a table has when its records come (Kafka class: StreamTableJoinNode).

    buffer: where records wait for late updates of a versioned table; None to join them immediately.
    """

    table: NodeId
    joiner: Callable[..., Any]
    with_key: bool
    type: JoinType
    grace_period_ms: int | None = None
    buffer: StoreBuilder | None = None


@dataclass(frozen=True, kw_only=True)
class StreamGlobalTableJoinNode(BaseNode):
    """A stream joined with a global table by a key that is made of each record (Kafka class: StreamTableJoinNode)."""

    table_store: str
    key_selector: Callable[[Any, Any], Any]
    joiner: Callable[..., Any]
    with_key: bool
    type: JoinType


@dataclass(frozen=True, kw_only=True)
class TableTableJoinNode(BaseNode):
    """Two tables joined by their keys; the node's name is that of the merge of both sides (Kafka class:
    KTableKTableJoinNode).

    this_table, other_table: the two tables, which are the parents too. this_join, other_join: names of the processors
    of both sides. store: of the result; None if it is not kept.
    """

    this_table: NodeId
    other_table: NodeId
    joiner: Callable[[Any, Any], Any]
    type: JoinType
    this_join: str
    other_join: str
    store: StoreBuilder | None


@dataclass(frozen=True, kw_only=True)
class ForeignKeyNames:
    """The names of the topics, the nodes and the store of a foreign-key join."""

    registration_topic: str
    registration: str
    registration_sink: str
    registration_source: str
    subscription_store: str
    receive: str
    join_foreign: str
    foreign_join: str
    response_topic: str
    response_sink: str
    response_source: str
    resolver: str
    result: str


@dataclass(frozen=True, kw_only=True)
class ForeignKeySubscriptionNode(BaseNode):
    """The way of the subscriptions of a foreign-key join, from the primary table to the task of the foreign key and its
    answer there; the node's name is that of the processor that answers.
    """

    foreign_table: NodeId
    extractor: Callable[..., Any]
    with_key: bool
    type: JoinType
    names: ForeignKeyNames
    store: StoreBuilder
    partitioner: StreamPartitioner | None
    primary_key_serde: Serde | None
    primary_value_serde: Serde | None
    foreign_key_serde: Serde | None


@dataclass(frozen=True, kw_only=True)
class ForeignTableJoinNode(BaseNode):
    """The answers of a foreign-key join to an update of the foreign table (Kafka class: ForeignTableJoinNode).

    registration_topic: the topic of the subscriptions, without prefix.
    """

    registration_topic: str
    store: StoreBuilder
    foreign_key_serde: Serde | None


@dataclass(frozen=True, kw_only=True)
class ForeignKeyJoinNode(BaseNode):
    """The way of the answers of a foreign-key join back to the primary table, and the table of its results.

    store: of the result. queryable: whether the user named it.
    """

    primary_table: NodeId
    joiner: Callable[[Any, Any], Any]
    type: JoinType
    names: ForeignKeyNames
    partitioner: StreamPartitioner | None
    primary_key_serde: Serde | None
    primary_value_serde: Serde | None
    foreign_value_serde: Serde | None
    store: StoreBuilder
    queryable: bool


JoinNode = (
    StreamJoinWindowNode
    | StreamStreamJoinNode
    | StreamTableJoinNode
    | StreamGlobalTableJoinNode
    | TableTableJoinNode
    | ForeignKeySubscriptionNode
    | ForeignTableJoinNode
    | ForeignKeyJoinNode
)
"""One step of a join."""
