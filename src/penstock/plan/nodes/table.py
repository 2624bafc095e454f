"""Nodes of tables, global stores and global tables.

These are tables read from topics and streams, operators on single keys, and grouped tables. Plain data.

`store` is the actual or potential store of the table: a source gets it only if the user named it or another node needs
it (`penstock.plan.lower.table_facts` decides), all others have it or None. `versioned`: whether updates carry versions,
None if that follows from the parent.
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
    """The table whose updates are the records of a topic (Kafka class: TableSourceNode).

    Args:
        source_name: the name of the node that reads the topic, above the node of the table.
        queryable: whether the user named the store.
        reuse_topic: whether the topic serves as the changelog of the store.
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
    """The table whose updates are the records of a stream (Kafka class: StreamToTableNode).

    Args:
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
    """Each entry of a table with another value.

    Args:
        mapper: returns the new value.
        with_key: whether the mapper takes key and value.
    """

    mapper: Callable[..., Any]
    with_key: bool
    store: StoreBuilder | None = None
    versioned: bool | None = None


@dataclass(frozen=True, kw_only=True)
class TableTransformValuesNode(BaseNode):
    """Each entry of a table with the value that a user's transformer returns.

    The transformer may use stores.
    """

    supplier: ValueTransformerWithKeySupplier
    store_names: tuple[str, ...] = ()
    store: StoreBuilder | None = None
    versioned: bool | None = None


@dataclass(frozen=True, kw_only=True)
class TableGroupByNode(BaseNode):
    """The entries of a table with other keys and values, ready for grouping."""

    mapper: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class GroupedTableRepartitionNode(BaseNode):
    """An internal topic that moves a grouped table's updates to their group's task.

    Kafka class: GroupedTableOperationRepartitionNode. The node's name is that of the source.

    Args:
        sink_name: the name of the sink.
    """

    sink_name: str
    topic: str
    key_serde: Serde | None
    value_serde: Serde | None


@dataclass(frozen=True, kw_only=True)
class TableCountNode(BaseNode):
    """A table with the number of entries per group."""

    store: StoreBuilder


@dataclass(frozen=True, kw_only=True)
class TableReduceNode(BaseNode):
    """A table with the values of each group, combined by a reducer.

    Args:
        adder: adds a value to the group.
        subtractor: removes a value from the group.
    """

    store: StoreBuilder
    adder: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class TableAggregateNode(BaseNode):
    """A table with an aggregate per group."""

    store: StoreBuilder
    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class TableSuppressNode(BaseNode):
    """The updates of a table, held back to forward fewer of them (Kafka class: TableSuppressNode)."""

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
"""One operation on a table, or the creation of one from a topic or stream."""


@dataclass(frozen=True, kw_only=True)
class GlobalSourceNode(BaseNode):
    """A store filled from a topic, which every task can read.

    The node's name is that of the processor that writes it. Kafka classes: GlobalStoreNode, TableSourceNode with
    isGlobalKTable.

    Args:
        supplier: makes the user's own processor; None for a global table, whose records are entries of the store.
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
