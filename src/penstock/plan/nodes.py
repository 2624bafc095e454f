"""GraphNode: what the user's program says, one frozen dataclass per logical operation. Plain data; `lower` gives it
its meaning.

A plan is a mapping from id to node, in the order in which nodes are to be added to the topology; `parents` are ids. A
node's name is the name of the processor that it becomes, and of the node that its children hang on; names are unique
only once the topology has checked them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.plan.names import RepartitionNames
from penstock.plan.subtopology import StreamPartitioner, TopicNameExtractor
from penstock.processor.api import ProcessorSupplier
from penstock.processor.timestamps import TimestampExtractor
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder

NodeId = int
"""Identifies a node within one plan."""


@dataclass(frozen=True, kw_only=True)
class _Node:
    """What every node has."""

    name: str
    parents: tuple[NodeId, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StreamSource(_Node):
    """Records of topics, or of all topics that a pattern matches (Kafka class: StreamSourceNode)."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None


@dataclass(frozen=True, kw_only=True)
class AddStateStore(_Node):
    """A store that processors connect to by name (Kafka class: StateStoreNode)."""

    store: StoreBuilder


@dataclass(frozen=True, kw_only=True)
class Filter(_Node):
    """Records for which a predicate holds, or does not hold."""

    predicate: Callable[[Any, Any], bool]
    negate: bool


@dataclass(frozen=True, kw_only=True)
class Map(_Node):
    """Each record as another key and value."""

    mapper: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class FlatMap(_Node):
    """Each record as any number of keys and values."""

    mapper: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class MapValues(_Node):
    """Each record with another value; with_key: the mapper takes key and value."""

    mapper: Callable[..., Any]
    with_key: bool


@dataclass(frozen=True, kw_only=True)
class FlatMapValues(_Node):
    """Each record as any number of values under its key; with_key: the mapper takes key and value."""

    mapper: Callable[..., Any]
    with_key: bool


@dataclass(frozen=True, kw_only=True)
class SelectKey(_Node):
    """Each record under another key."""

    selector: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Peek(_Node):
    """Each record as it is, after an action."""

    action: Callable[[Any, Any], object]


@dataclass(frozen=True, kw_only=True)
class Foreach(_Node):
    """An action on each record, and nothing after it."""

    action: Callable[[Any, Any], object]


@dataclass(frozen=True, kw_only=True)
class Merge(_Node):
    """The records of all parents."""


@dataclass(frozen=True, kw_only=True)
class Process(_Node):
    """A processor of the user's own, of fixed keys or not, connected to stores by name besides those that its
    supplier owns.
    """

    supplier: ProcessorSupplier
    store_names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Split(_Node):
    """Each record to the branch of the first predicate that holds; branches: their names, and that of the default
    branch if there is one.
    """

    predicates: tuple[Callable[[Any, Any], bool], ...] = ()
    branches: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Branch(_Node):
    """The records that its parent, a Split, hands to it."""


@dataclass(frozen=True, kw_only=True)
class Repartition(_Node):
    """A write to and a read from an internal topic, by which records get to the task of their key; the node's name is
    that of its source.

    movable: whether an optimisation may put it further up. partitions: the number that the user fixed, None where it
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
class StreamSink(_Node):
    """A write to a topic, or to the topic that a function names for each record (Kafka class: StreamSinkNode)."""

    topic: str | TopicNameExtractor
    key_serde: Serde | None
    value_serde: Serde | None
    partitioner: StreamPartitioner | None


@dataclass(frozen=True, kw_only=True)
class Count(_Node):
    """A table of the number of records by key."""

    store: StoreBuilder


@dataclass(frozen=True, kw_only=True)
class Reduce(_Node):
    """A table of the values of each key, combined by a reducer."""

    store: StoreBuilder
    reducer: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Aggregate(_Node):
    """A table of an aggregate by key."""

    store: StoreBuilder
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class TableToStream(_Node):
    """The updates of a table as records."""


GraphNode = (
    StreamSource
    | AddStateStore
    | Filter
    | Map
    | FlatMap
    | MapValues
    | FlatMapValues
    | SelectKey
    | Peek
    | Foreach
    | Merge
    | Process
    | Split
    | Branch
    | Repartition
    | StreamSink
    | Count
    | Reduce
    | Aggregate
    | TableToStream
)
"""One operation of a user's program (Kafka class: GraphNode)."""

Plan = Mapping[NodeId, GraphNode]
"""All operations of one program, in the order in which they are added to the topology where their parents allow it."""
