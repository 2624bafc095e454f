"""Nodes of tables: those that are read from topics and streams, their operators without keys of others, grouped tables;
and of global stores and global tables. Plain data.

`store` is the store that a table has, or would have: a source gets it only where the user named it or another node
needs it (`penstock.plan.lower.table_facts` decides), all others have it or None. `versioned`: whether updates carry
versions, None if that follows from the parent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.plan.nodes.base import BaseNode
from penstock.processor.api import ProcessorSupplier
from penstock.processor.suppress import SuppressConstraints
from penstock.processor.timestamps import TimestampExtractor
from penstock.processor.value_transformer import ValueTransformerWithKeySupplier
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder


@dataclass(frozen=True, kw_only=True)
class TableSourceNode(BaseNode):
    """The table that the records of a topic are the updates of (Kafka class: TableSourceNode).

    source_name: the name of the node that reads the topic, above the node of the table. queryable: whether the user
    named the store. reuse_topic: whether the topic serves as the changelog of the store.
    """

    source_name: str
    topic: str
    store: StoreBuilder
    queryable: bool
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None
    reuse_topic: bool = False


@dataclass(frozen=True, kw_only=True)
class StreamToTableNode(BaseNode):
    """The table that the records of a stream are the updates of (Kafka class: StreamToTableNode).

    queryable: whether the user named the store.
    """

    store: StoreBuilder
    queryable: bool


@dataclass(frozen=True, kw_only=True)
class TableFilterNode(BaseNode):
    """The entries of a table that match a predicate, or that do not match it."""

    predicate: Callable[[Any, Any], bool]
    negate: bool
    store: StoreBuilder | None = None
    versioned: bool | None = None


@dataclass(frozen=True, kw_only=True)
class TableMapValuesNode(BaseNode):
    """Each entry of a table with another value; with_key: the mapper takes key and value."""

    mapper: Callable[..., Any]
    with_key: bool
    store: StoreBuilder | None = None
    versioned: bool | None = None


@dataclass(frozen=True, kw_only=True)
class TableTransformValuesNode(BaseNode):
    """Each entry of a table with the value that a transformer of the user's own returns, which may use stores."""

    supplier: ValueTransformerWithKeySupplier
    store_names: tuple[str, ...] = ()
    store: StoreBuilder | None = None
    versioned: bool | None = None


@dataclass(frozen=True, kw_only=True)
class TableGroupByNode(BaseNode):
    """The entries of a table under other keys and with other values, ready to be grouped."""

    mapper: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class GroupedTableRepartitionNode(BaseNode):
    """A write of a grouped table's updates to an internal topic and a read from it; the node's name is that of the
    source, `sink_name` that of the sink (Kafka class: GroupedTableOperationRepartitionNode)."""

    sink_name: str
    topic: str
    key_serde: Serde | None
    value_serde: Serde | None


@dataclass(frozen=True, kw_only=True)
class TableCountNode(BaseNode):
    """A table of the number of entries of each group."""

    store: StoreBuilder


@dataclass(frozen=True, kw_only=True)
class TableReduceNode(BaseNode):
    """A table of the values of each group, combined by one reducer and taken out again by another."""

    store: StoreBuilder
    adder: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class TableAggregateNode(BaseNode):
    """A table of an aggregate of each group."""

    store: StoreBuilder
    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class TableSuppressNode(BaseNode):
    """The updates of a table held back, so that fewer are forwarded (Kafka class: TableSuppressNode)."""

    store: StoreBuilder
    constraints: SuppressConstraints


TableNode = (
    TableSourceNode
    | StreamToTableNode
    | TableFilterNode
    | TableMapValuesNode
    | TableTransformValuesNode
    | TableGroupByNode
    | GroupedTableRepartitionNode
    | TableCountNode
    | TableReduceNode
    | TableAggregateNode
    | TableSuppressNode
)
"""One operation on a table, or one that makes a table of a topic or a stream."""


@dataclass(frozen=True, kw_only=True)
class GlobalSourceNode(BaseNode):
    """A store that is filled from a topic and that every task can read; the node's name is that of the processor that
    writes it.

    supplier: makes the user's own processor; None for a global table, whose records are entries of the store as they
    are (Kafka classes: GlobalStoreNode, TableSourceNode with isGlobalKTable).
    """

    source: str
    topic: str
    store: StoreBuilder
    supplier: ProcessorSupplier | None
    key_serde: Serde | None
    value_serde: Serde | None
    timestamp_extractor: TimestampExtractor | None


GlobalNode = GlobalSourceNode
"""One operation that makes a global store."""
