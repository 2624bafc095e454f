"""Lowering of streams, stores and topics, and of aggregations without windows.

Rule: a repartition drops records without a key, unless an operator downstream has results for them. A broadcast keeps
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import assert_never

from penstock.plan import nodes as n
from penstock.plan.java_collections import copied_hash_order
from penstock.plan.lower.dropped import add_dropped_records
from penstock.plan.lower.functions import add_function
from penstock.plan.lower.lowering import Lowering
from penstock.plan.partitioning import WindowedStreamPartitioner
from penstock.plan.processor_calls import add_calling_processor
from penstock.plan.topology import Topology
from penstock.plan.user_lines import made_at
from penstock.plan.versions import is_versioned_store
from penstock.processor.added_values import AddedValues
from penstock.processor.aggregate import RecordByRecord, StreamAggregate, StreamCount, StreamReduce
from penstock.processor.api import Processor
from penstock.processor.column_aggregate import ColumnAggregate
from penstock.processor.deduplicate import StreamDeduplicate, StreamDeduplicateById
from penstock.processor.stateless import (
    NullKeyFilter,
    StreamBranch,
    StreamFilter,
    StreamFlatMap,
    StreamFlatMapValues,
    StreamForeach,
    StreamMap,
    StreamMapValues,
    StreamMerge,
    StreamPeek,
    StreamPrint,
    StreamSelectKey,
)
from penstock.processor.table import TableToStream
from penstock.processor.timestamps import fail_on_invalid_timestamp
from penstock.serdes.windowed import WindowedSerde


def add_stream_node(lowering: Lowering, id: n.NodeId, node: n.StreamNode) -> None:
    """Add the processors, stores and topics of `node` to the topology."""
    topology, processor = lowering.topology, partial(lowering.add_processor, node)
    function = partial(add_function, lowering)

    match node:
        case n.StreamSourceNode():
            _add_source(topology, node)
        case n.AddStateStoreNode():
            topology.add_state_store(node.store)
        case n.FilterNode():
            function(node, StreamFilter, node.predicate, node.negate)
        case n.MapNode():
            function(node, StreamMap, node.mapper)
        case n.FlatMapNode():
            function(node, StreamFlatMap, node.mapper)
        case n.MapValuesNode():
            function(node, StreamMapValues, node.mapper, node.with_key)
        case n.FlatMapValuesNode():
            function(node, StreamFlatMapValues, node.mapper, node.with_key)
        case n.SelectKeyNode():
            function(node, StreamSelectKey, node.selector)
        case n.PeekNode():
            function(node, StreamPeek, node.action)
        case n.ForeachNode():
            function(node, StreamForeach, node.action)
        case n.PrintNode():
            processor(partial(StreamPrint, node.label, node.mapper, node.path))
        case n.MergeNode() | n.BranchNode():
            processor(StreamMerge)
        case n.ProcessNode():
            _add_processor(lowering, node)
        case n.SplitNode():
            processor(partial(StreamBranch, node.predicates, node.branches))
        case n.RepartitionNode():
            _add_repartition(lowering, id, node)
        case n.StreamSinkNode():
            _add_sink(lowering, node)
        case n.DroppedRecordsNode():
            add_dropped_records(lowering, node)
        case n.DeduplicateNode():
            _add_deduplication(lowering, node)
        case n.CountNode() | n.ReduceNode() | n.AggregateNode():
            _add_aggregation(lowering, node, lowering.tables.sends_old_values(id))
        case n.TableToStreamNode():
            processor(TableToStream)
        case _:
            assert_never(node)


def _add_processor(lowering: Lowering, node: n.ProcessNode) -> None:
    """Add a processor of the user's own."""
    topology = lowering.topology
    if node.calling is None:
        topology.add_processor(node.name, node.supplier, *lowering.parents(node))
    else:
        add_calling_processor(lowering.topology, node.name, node.supplier, lowering.parents(node), node.calling)
    if node.store_names:
        topology.connect_processor_and_state_stores(node.name, *node.store_names)


def _add_aggregation(
    lowering: Lowering, node: n.CountNode | n.ReduceNode | n.AggregateNode, sends_old_values: bool
) -> None:
    store = node.store
    make: Callable[[], Processor]
    match node:
        case n.CountNode():
            make = partial(StreamCount, store.name, sends_old_values)
        case n.ReduceNode():
            make = partial(StreamReduce, store.name, node.reducer, sends_old_values)
        case n.AggregateNode(aggregator=AddedValues() as adder):
            make = partial(ColumnAggregate, store.name, adder, sends_old_values)
        case n.AggregateNode():
            make = partial(StreamAggregate, store.name, node.initializer, node.aggregator, sends_old_values)
    lowering.add_processor(node, partial(RecordByRecord, make) if is_versioned_store(store) else make, store)


def _add_deduplication(lowering: Lowering, node: n.DeduplicateNode) -> None:
    make = (
        partial(StreamDeduplicate, node.store.name, node.interval_ms)
        if node.mapper is None
        else partial(StreamDeduplicateById, node.store.name, node.interval_ms, node.mapper)
    )
    lowering.add_processor(node, make, node.store)


def _add_source(topology: Topology, node: n.StreamSourceNode) -> None:
    if node.data_frame is not None:
        (topic,) = node.topics
        topology.outside_topics.sources[topic] = node.data_frame
    if node.history is not None:
        (topic,) = node.topics
        topology.outside_topics.histories[topic] = node.history
    topology.add_source(
        node.name,
        *copied_hash_order(node.topics),
        pattern=node.pattern,
        key_serde=node.key_serde,
        value_serde=node.value_serde,
        timestamp_extractor=node.timestamp_extractor,
        offset_reset=node.offset_reset,
    )


def _add_sink(lowering: Lowering, node: n.StreamSinkNode) -> None:
    partitioner = node.partitioner
    if partitioner is None and isinstance(node.key_serde, WindowedSerde):
        partitioner = WindowedStreamPartitioner(node.key_serde.inner)
    lowering.topology.add_sink(
        node.name,
        node.topic,
        *lowering.parents(node),
        key_serde=node.key_serde,
        value_serde=node.value_serde,
        partitioner=partitioner,
    )
    if node.data_frame is not None and isinstance(node.topic, str):
        lowering.topology.outside_topics.sinks[node.topic] = node.data_frame
    if node.lake is not None and isinstance(node.topic, str):
        lake = replace(node.lake, node=f"{node.name}{made_at(node.line)}")
        lowering.topology.outside_topics.lakes[node.topic] = lake


def _add_repartition(lowering: Lowering, id: n.NodeId, node: n.RepartitionNode) -> None:
    topology, names = lowering.topology, node.names
    topology.add_internal_topic(names.topic, node.partitions)
    parents = lowering.parents(node)
    if not node.is_broadcast:  # a broadcast needs no key
        passing = StreamMerge if id in lowering.keeping_null_keys else NullKeyFilter
        lowering.add_processor_below(names.filter, parents, passing)
        parents = [names.filter]
    topology.add_sink(
        names.sink,
        names.topic,
        *parents,
        key_serde=node.key_serde,
        value_serde=node.value_serde,
        partitioner=node.partitioner,
    )
    topology.add_source(
        names.source,
        names.topic,
        key_serde=node.key_serde,
        value_serde=node.value_serde,
        timestamp_extractor=fail_on_invalid_timestamp,
    )
