"""Nodes of streams, stores and topics, and the aggregations of streams without windows. Plain data."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.plan.names import RepartitionNames
from penstock.plan.nodes.base import BaseNode
from penstock.plan.subtopology import DataFrameSink, DataFrameSource, StreamPartitioner, TopicNameExtractor
from penstock.processor.api import ProcessorSupplier
from penstock.processor.timestamps import TimestampExtractor
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder


@dataclass(frozen=True, kw_only=True)
class StreamSourceNode(BaseNode):
    """Records of topics, or of all topics that a pattern matches (Kafka class: StreamSourceNode).

    data_frame: for the one topic that a DataFrame of Spark fills; its name has no prefix.
    """

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None
    data_frame: DataFrameSource | None = None


@dataclass(frozen=True, kw_only=True)
class AddStateStoreNode(BaseNode):
    """A store that processors connect to by name (Kafka class: StateStoreNode)."""

    store: StoreBuilder


@dataclass(frozen=True, kw_only=True)
class FilterNode(BaseNode):
    """Records that match a predicate, or that do not match it."""

    predicate: Callable[[Any, Any], bool]
    negate: bool


@dataclass(frozen=True, kw_only=True)
class MapNode(BaseNode):
    """Each record as another key and value."""

    mapper: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class FlatMapNode(BaseNode):
    """Each record as any number of keys and values."""

    mapper: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class MapValuesNode(BaseNode):
    """Each record with another value; with_key: the mapper takes key and value."""

    mapper: Callable[..., Any]
    with_key: bool


@dataclass(frozen=True, kw_only=True)
class FlatMapValuesNode(BaseNode):
    """Each record as any number of values under its key; with_key: the mapper takes key and value."""

    mapper: Callable[..., Any]
    with_key: bool


@dataclass(frozen=True, kw_only=True)
class SelectKeyNode(BaseNode):
    """Each record under another key."""

    selector: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class PeekNode(BaseNode):
    """Each record as it is, after an action."""

    action: Callable[[Any, Any], object]


@dataclass(frozen=True, kw_only=True)
class ForeachNode(BaseNode):
    """An action on each record, and nothing after it."""

    action: Callable[[Any, Any], object]


@dataclass(frozen=True, kw_only=True)
class PrintNode(BaseNode):
    """A line for each record, on standard output or in the file `path`, and nothing after it.

    mapper: makes the text behind the label; None for key and value.
    """

    label: str
    mapper: Callable[[Any, Any], str] | None
    path: str | None


@dataclass(frozen=True, kw_only=True)
class MergeNode(BaseNode):
    """The records of all parents."""


@dataclass(frozen=True, kw_only=True)
class ProcessNode(BaseNode):
    """A processor of the user's own, of fixed keys or not, connected to stores by name besides those that its
    supplier owns.
    """

    supplier: ProcessorSupplier
    store_names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SplitNode(BaseNode):
    """Each record to the branch of the first predicate that holds; branches: their names, and that of the default
    branch if there is one.
    """

    predicates: tuple[Callable[[Any, Any], bool], ...] = ()
    branches: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BranchNode(BaseNode):
    """The records that its parent, a Split, hands to it."""


@dataclass(frozen=True, kw_only=True)
class RepartitionNode(BaseNode):
    """A write to and a read from an internal topic, by which records get to the task of their key; the node's name is
    that of its source.

    movable: whether an optimisation may put it further up. partitions: the number that the user fixed, None if it
        follows from the topology (Kafka class:
        BaseRepartitionNode).
    """

    names: RepartitionNames
    key_serde: Serde | None
    value_serde: Serde | None
    movable: bool = True
    partitioner: StreamPartitioner | None = None
    partitions: int | None = None


@dataclass(frozen=True, kw_only=True)
class StreamSinkNode(BaseNode):
    """A write to a topic, or to the topic that a function names for each record (Kafka class: StreamSinkNode).

    data_frame: for the one topic that is handed to Spark; its name has no prefix.
    """

    topic: str | TopicNameExtractor
    key_serde: Serde | None
    value_serde: Serde | None
    partitioner: StreamPartitioner | None
    data_frame: DataFrameSink | None = None


@dataclass(frozen=True, kw_only=True)
class CountNode(BaseNode):
    """A table of the number of records by key."""

    store: StoreBuilder


@dataclass(frozen=True, kw_only=True)
class ReduceNode(BaseNode):
    """A table of the values of each key, combined by a reducer."""

    store: StoreBuilder
    reducer: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class AggregateNode(BaseNode):
    """A table of an aggregate by key."""

    store: StoreBuilder
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class TableToStreamNode(BaseNode):
    """The updates of a table as records."""


StreamNode = (
    StreamSourceNode
    | AddStateStoreNode
    | FilterNode
    | MapNode
    | FlatMapNode
    | MapValuesNode
    | FlatMapValuesNode
    | SelectKeyNode
    | PeekNode
    | ForeachNode
    | PrintNode
    | MergeNode
    | ProcessNode
    | SplitNode
    | BranchNode
    | RepartitionNode
    | StreamSinkNode
    | CountNode
    | ReduceNode
    | AggregateNode
    | TableToStreamNode
)
"""One operation on a stream, or one that makes a table of one without windows."""
