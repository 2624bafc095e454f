"""Nodes of joins.

Plain data. A join that looks up a table without being its child refers to it by id: a lookup does not follow the
table's updates.
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
    """Records stored for the other stream of a join (Kafka class: WindowedStreamProcessorNode)."""

    store: StoreBuilder


@dataclass(frozen=True, kw_only=True)
class StreamStreamJoinNode(BaseNode):
    """Two streams joined within windows (Kafka class: StreamStreamJoinNode).

    The node's name is that of the merge of both sides.

    Args:
        this_windowed: name of the StreamJoinWindow node of the first stream.
        other_windowed: name of the StreamJoinWindow node of the second stream.
        this_join: name of the processor of the first stream.
        other_join: name of the processor of the second stream.
        outer_store: the store of records that have not matched yet; None for an inner join.
        self_join: whether both sides share one store and one processor.
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
    """A stream joined with the current values of a table (Kafka class: StreamTableJoinNode).

    Args:
        buffer: the store in which records wait for late updates of a versioned table; None for immediate joins.
    """

    table: NodeId
    joiner: Callable[..., Any]
    with_key: bool
    type: JoinType
    grace_period_ms: int | None = None
    buffer: StoreBuilder | None = None


@dataclass(frozen=True, kw_only=True)
class StreamGlobalTableJoinNode(BaseNode):
    """A stream joined with a global table, by a key computed from each record.

    Kafka class: StreamTableJoinNode.

    Args:
        keys: the number of keys that the joiner takes: 0, 1 for the record's, 2 for the record's and the selected one.
    """

    table_store: str
    key_selector: Callable[[Any, Any], Any]
    joiner: Callable[..., Any]
    keys: int
    type: JoinType


@dataclass(frozen=True, kw_only=True)
class TableTableJoinNode(BaseNode):
    """Two tables joined by their keys (Kafka class: KTableKTableJoinNode).

    The node's name is that of the merge of both sides.

    Args:
        this_table: the first table, also a parent.
        other_table: the second table, also a parent.
        this_join: name of the processor of the first table.
        other_join: name of the processor of the second table.
        store: the store of the result; None if the result is not stored.
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
    """The path of a foreign-key join's subscriptions from the primary table to their responses.

    The task of the foreign key responds to them. The node's name is that of the responding processor.
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
    """The responses of a foreign-key join to foreign table updates (Kafka class: ForeignTableJoinNode).

    Args:
        registration_topic: the topic of the subscriptions, without prefix.
    """

    registration_topic: str
    store: StoreBuilder
    foreign_key_serde: Serde | None


@dataclass(frozen=True, kw_only=True)
class ForeignKeyJoinNode(BaseNode):
    """The return path of a foreign-key join's responses, and its result table.

    The responses return to the primary table.

    Args:
        store: the store of the result.
        queryable: whether the user named the store.
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
