"""Nodes of streams, stores and topics, and of aggregations of streams without windows.

Plain data.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.lake.tables import LakeSink
from penstock.plan.broadcast import every_partition
from penstock.plan.names import InternalNameProvider, RepartitionNames
from penstock.plan.nodes.base import BaseNode, NodeId
from penstock.plan.subtopology import DataFrameSink, DataFrameSource, StreamPartitioner, TopicNameExtractor
from penstock.plan.topic_history import TopicHistory
from penstock.processor.api import ProcessorSupplier
from penstock.processor.called_functions import CalledFunctions
from penstock.processor.calls import CallSpec
from penstock.processor.park import ParkRules
from penstock.processor.timestamps import TimestampExtractor
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder


@dataclass(frozen=True, kw_only=True)
class StreamSourceNode(BaseNode):
    """Records of topics, or of all topics that match a pattern (Kafka class: StreamSourceNode).

    Args:
        data_frame: the Spark DataFrame that fills the single topic, whose name has no prefix; None for other topics.
        history: the rows that precede the records of the single topic, or None.
    """

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None
    data_frame: DataFrameSource | None = None
    history: TopicHistory | None = None


@dataclass(frozen=True, kw_only=True)
class AddStateStoreNode(BaseNode):
    """A store that processors connect to by name (Kafka class: StateStoreNode)."""

    store: StoreBuilder


@dataclass(frozen=True, kw_only=True)
class Parking:
    """The store and the rules of an operator that parks the records on which its function fails.

    Args:
        store: the waiting records.
        rules: when they are tried again, and how many there may be.
        dead_letters: the topic of the records that fail each time, or None.
        key_serde, value_serde: of the records.
    """

    store: StoreBuilder
    rules: ParkRules
    dead_letters: str | None
    key_serde: Serde | None
    value_serde: Serde | None


@dataclass(frozen=True, kw_only=True)
class Calling:
    """The store and the calls of an operator whose function is called outside of its task.

    Args:
        store: the waiting records.
        spec: the calls.
        dead_letters: the topic of the records whose last attempt failed, or None.
    """

    store: StoreBuilder
    spec: CallSpec
    dead_letters: str | None


@dataclass(frozen=True, kw_only=True)
class ProcessorCalling(Calling):
    """The store and the calls of a user's processor.

    Args:
        functions: the functions that it may call.
    """

    functions: CalledFunctions


@dataclass(frozen=True, kw_only=True)
class FunctionNode(BaseNode):
    """The base of operators with a function and no store of their own.

    Args:
        parking: what happens to records on which the function fails; None leaves them to the handler.
        calling: how the function is called outside of the task; None for a call by the operator itself.
    """

    parking: Parking | None = None
    calling: Calling | None = None


@dataclass(frozen=True, kw_only=True)
class FilterNode(FunctionNode):
    """Records that match a predicate, or that do not match it."""

    predicate: Callable[[Any, Any], bool]
    negate: bool


@dataclass(frozen=True, kw_only=True)
class MapNode(FunctionNode):
    """Each record mapped to another key and value."""

    mapper: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class FlatMapNode(FunctionNode):
    """Each record mapped to any number of keys and values."""

    mapper: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class MapValuesNode(FunctionNode):
    """Each record with another value.

    Args:
        mapper: returns the new value.
        with_key: whether the mapper takes key and value.
    """

    mapper: Callable[..., Any]
    with_key: bool


@dataclass(frozen=True, kw_only=True)
class FlatMapValuesNode(FunctionNode):
    """Each record mapped to any number of values with its key.

    Args:
        mapper: returns the new values.
        with_key: whether the mapper takes key and value.
    """

    mapper: Callable[..., Any]
    with_key: bool


@dataclass(frozen=True, kw_only=True)
class SelectKeyNode(FunctionNode):
    """Each record with another key."""

    selector: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class PeekNode(FunctionNode):
    """Each record, unchanged, after an action on it."""

    action: Callable[[Any, Any], object]


@dataclass(frozen=True, kw_only=True)
class ForeachNode(FunctionNode):
    """An action on each record, without output."""

    action: Callable[[Any, Any], object]


@dataclass(frozen=True, kw_only=True)
class PrintNode(BaseNode):
    """A line of text for each record, without output records.

    Args:
        label: the beginning of each line.
        path: the file of the lines; None for standard output.
        mapper: returns the text after the label; None for key and value.
    """

    label: str
    mapper: Callable[[Any, Any], str] | None
    path: str | None


@dataclass(frozen=True, kw_only=True)
class MergeNode(BaseNode):
    """The records of all parents."""


@dataclass(frozen=True, kw_only=True)
class ProcessNode(BaseNode):
    """A processor of the user's own, with or without fixed keys.

    Args:
        supplier: makes the processors; its own stores are connected too.
        store_names: names of further stores to connect.
        calling: the calls of the processors; None if they call no function.
    """

    supplier: ProcessorSupplier
    store_names: tuple[str, ...]
    calling: ProcessorCalling | None = None


@dataclass(frozen=True, kw_only=True)
class SplitNode(BaseNode):
    """Each record sent to the branch of the first matching predicate.

    Args:
        predicates: the conditions of the branches.
        branches: the names of the branches, then the name of the default branch if it exists.
    """

    predicates: tuple[Callable[[Any, Any], bool], ...] = ()
    branches: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BranchNode(BaseNode):
    """The records that its parent, a Split, sends to it."""


@dataclass(frozen=True, kw_only=True)
class RepartitionNode(BaseNode):
    """An internal topic that moves records to the task of their key, or copies them to every task.

    The node's name is that of its source. Kafka class: BaseRepartitionNode.

    Args:
        movable: whether an optimisation may move it up.
        partitioner: `every_partition` makes it a broadcast.
        partitions: the number that the user fixed, None if it follows from the topology.
    """

    names: RepartitionNames
    key_serde: Serde | None
    value_serde: Serde | None
    movable: bool = True
    partitioner: StreamPartitioner | None = None
    partitions: int | None = None

    @property
    def is_broadcast(self) -> bool:
        """Whether each record goes to every partition of the topic."""
        return self.partitioner is every_partition

    @staticmethod
    def below(
        parent: NodeId, prefix: str, counter: InternalNameProvider, key_serde: Serde | None, value_serde: Serde | None
    ) -> RepartitionNode:
        """Return a repartition of the records of `parent`, with names based on `prefix`.

        Its names take three numbers of `counter`, whether it is added or not.
        """
        names = RepartitionNames.make(prefix, counter)
        return RepartitionNode(
            name=names.source, parents=(parent,), names=names, key_serde=key_serde, value_serde=value_serde
        )


@dataclass(frozen=True, kw_only=True)
class StreamSinkNode(BaseNode):
    """A write to one topic, or to a topic chosen for each record.

    Kafka class: StreamSinkNode.

    Args:
        topic: the topic, or a function that chooses it.
        data_frame: the function that receives the single topic (name without prefix) as Spark DataFrames, or None.
        lake: the table that receives the records of the single topic (name without prefix), or None.
    """

    topic: str | TopicNameExtractor
    key_serde: Serde | None
    value_serde: Serde | None
    partitioner: StreamPartitioner | None
    data_frame: DataFrameSink | None = None
    lake: LakeSink | None = None


@dataclass(frozen=True, kw_only=True)
class DroppedRecordsNode(BaseNode):
    """A write of the records that an operator, its parent, drops.

    Args:
        key_serde: of the operator's records.
        value_serdes: of the operator's records, by input.
    """

    topic: str
    key_serde: Serde | None
    value_serdes: tuple[Serde | None, ...]
    partitioner: StreamPartitioner | None


@dataclass(frozen=True, kw_only=True)
class DeduplicateNode(BaseNode):
    """The first record of each key, or of each key and id, within an interval (KIP-655).

    Args:
        store: the keys, or the keys with their ids, and the times of their first records.
        interval_ms: the interval in ms.
        mapper: returns the id from key and value; None if the key alone identifies a record.
    """

    store: StoreBuilder
    interval_ms: int
    mapper: Callable[[Any, Any], Any] | None


@dataclass(frozen=True, kw_only=True)
class CountNode(BaseNode):
    """A table with the number of records per key."""

    store: StoreBuilder


@dataclass(frozen=True, kw_only=True)
class ReduceNode(BaseNode):
    """A table with the values of each key, combined by a reducer."""

    store: StoreBuilder
    reducer: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class AggregateNode(BaseNode):
    """A table with an aggregate per key."""

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
    | DroppedRecordsNode
    | DeduplicateNode
    | CountNode
    | ReduceNode
    | AggregateNode
    | TableToStreamNode
)
"""One operation on a stream, including conversions to tables without windows."""
