"""Lowering: from the plan of a user's program to a Topology of concrete processors. The only module that names them.

Rules: a node is added as soon as all its parents are, the earliest of the plan first; every repartition drops records
without a key, which nothing downstream could use.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from typing import assert_never

from penstock.plan import nodes as n
from penstock.plan.java_collections import copied_hash_order
from penstock.plan.topology import Topology
from penstock.processor.aggregate import StreamAggregate, StreamCount, StreamReduce
from penstock.processor.api import Processor, SimpleSupplier
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
    StreamSelectKey,
)
from penstock.processor.table import TableToStream
from penstock.processor.timestamps import fail_on_invalid_timestamp
from penstock.state.api import StoreBuilder


def lower(plan: n.Plan) -> Topology:
    """Return the topology that `plan` describes; raises TopologyError where the plan cannot be one."""
    topology = Topology()
    for id in build_order(plan):
        node = plan[id]
        _add(topology, node, [plan[parent].name for parent in node.parents])
    return topology


def build_order(plan: n.Plan) -> list[n.NodeId]:
    """Return the ids of `plan`, parents before children, and otherwise in the order of the plan."""
    rank = {id: index for index, id in enumerate(plan)}
    children: dict[n.NodeId, list[n.NodeId]] = {id: [] for id in plan}
    waiting = {id: len(node.parents) for id, node in plan.items()}
    for id, node in plan.items():
        for parent in node.parents:
            children[parent].append(id)
    ready = [(rank[id], id) for id, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, id = heapq.heappop(ready)
        order.append(id)
        for child in children[id]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, (rank[child], child))
    return order


def _add(topology: Topology, node: n.GraphNode, parents: list[str]) -> None:
    """Add what `node` becomes to `topology`, below `parents`."""

    def processor(factory: Callable[[], Processor], *stores: StoreBuilder) -> None:
        topology.add_processor(node.name, SimpleSupplier(factory, stores), *parents)

    match node:
        case n.StreamSource():
            _add_source(topology, node)
        case n.AddStateStore():
            topology.add_state_store(node.store)
        case n.Filter():
            processor(partial(StreamFilter, node.predicate, node.negate))
        case n.Map():
            processor(partial(StreamMap, node.mapper))
        case n.FlatMap():
            processor(partial(StreamFlatMap, node.mapper))
        case n.MapValues():
            processor(partial(StreamMapValues, node.mapper, node.with_key))
        case n.FlatMapValues():
            processor(partial(StreamFlatMapValues, node.mapper, node.with_key))
        case n.SelectKey():
            processor(partial(StreamSelectKey, node.selector))
        case n.Peek():
            processor(partial(StreamPeek, node.action))
        case n.Foreach():
            processor(partial(StreamForeach, node.action))
        case n.Merge() | n.Branch():
            processor(StreamMerge)
        case n.Process():
            topology.add_processor(node.name, node.supplier, *parents)
            if node.store_names:
                topology.connect_processor_and_state_stores(node.name, *node.store_names)
        case n.Split():
            processor(partial(StreamBranch, node.predicates, node.branches))
        case n.Repartition():
            _add_repartition(topology, node, parents)
        case n.StreamSink():
            _add_sink(topology, node, parents)
        case n.Count():
            processor(partial(StreamCount, node.store.name), node.store)
        case n.Reduce():
            processor(partial(StreamReduce, node.store.name, node.reducer), node.store)
        case n.Aggregate():
            processor(partial(StreamAggregate, node.store.name, node.initializer, node.aggregator), node.store)
        case n.TableToStream():
            processor(TableToStream)
        case _:
            assert_never(node)


def _add_source(topology: Topology, node: n.StreamSource) -> None:
    topology.add_source(
        node.name,
        *copied_hash_order(node.topics),
        pattern=node.pattern,
        key_serde=node.key_serde,
        value_serde=node.value_serde,
        timestamp_extractor=node.timestamp_extractor,
        offset_reset=node.offset_reset,
    )


def _add_sink(topology: Topology, node: n.StreamSink, parents: list[str]) -> None:
    topology.add_sink(
        node.name,
        node.topic,
        *parents,
        key_serde=node.key_serde,
        value_serde=node.value_serde,
        partitioner=node.partitioner,
    )


def _add_repartition(topology: Topology, node: n.Repartition, parents: list[str]) -> None:
    names = node.names
    topology.add_internal_topic(names.topic, node.partitions)
    topology.add_processor(names.filter, SimpleSupplier(NullKeyFilter), *parents)
    topology.add_sink(
        names.sink,
        names.topic,
        names.filter,
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
