"""Lowering of joins.

A join of two sides becomes a processor for each side and one that merges them. A foreign-key join becomes two
sub-topologies connected by two internal topics.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import assert_never

from penstock.errors import TopologyError
from penstock.plan import nodes as n
from penstock.plan.lower.lowering import Lowering
from penstock.plan.lower.table import add_table_source
from penstock.plan.versions import NOT_VERSIONED, is_versioned_store
from penstock.processor.aggregate import RecordByRecord
from penstock.processor.api import Processor
from penstock.processor.foreign_key_join import (
    BatchResponseJoin,
    BatchSubscriptionJoin,
    ForeignTableJoin,
    ResponseJoin,
    SingletonPartitioner,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
    partition_of_response,
)
from penstock.processor.stateless import StreamMerge
from penstock.processor.stream_join import (
    JoinSide,
    StreamJoinWindow,
    StreamStreamInnerJoin,
    StreamStreamOuterJoin,
    StreamStreamSelfJoin,
)
from penstock.processor.stream_table_join import (
    BatchStreamTableJoin,
    StreamGlobalTableJoin,
    StreamTableGraceJoin,
    StreamTableJoin,
)
from penstock.processor.table import StoreValueGetterSupplier, ValueGetterSupplier
from penstock.processor.table_join import BatchTableTableJoin, TableTableJoin, TableTableJoinMerge
from penstock.serdes.subscription import SubscriptionResponseWrapperSerde, SubscriptionWrapperSerde
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import VersionedBytesStoreSupplier


def add_join_node(lowering: Lowering, id: n.NodeId, node: n.JoinNode) -> None:
    """Add the processors, stores and topics of `node` to the topology."""
    match node:
        case n.StreamJoinWindowNode():
            lowering.add_processor(node, partial(StreamJoinWindow, node.store.name))
        case n.StreamStreamJoinNode():
            _add_stream_stream_join(lowering, node)
        case n.StreamTableJoinNode():
            _add_stream_table_join(lowering, id, node)
        case n.StreamGlobalTableJoinNode():
            getter = StoreValueGetterSupplier(node.table_store)
            joiner = node.key_selector, node.joiner, node.keys, node.type.keeps_left
            lowering.add_processor(node, partial(StreamGlobalTableJoin, getter, *joiner))
        case n.TableTableJoinNode():
            _add_table_table_join(lowering, id, node)
        case n.ForeignKeySubscriptionNode():
            _add_subscription(lowering, node)
        case n.ForeignTableJoinNode():
            _add_foreign_table_join(lowering, node)
        case n.ForeignKeyJoinNode():
            _add_foreign_key_join(lowering, id, node)
        case _:
            assert_never(node)


# ---------------------------------------- streams


def _add_stream_stream_join(lowering: Lowering, node: n.StreamStreamJoinNode) -> None:
    topology = lowering.topology
    if node.self_join:
        make = partial(StreamStreamSelfJoin, node.this_store.name, node.name, node.joiner, node.with_key, node.windows)
        lowering.add_processor_below(node.name, [node.this_windowed], make)
        topology.add_state_store(node.this_store, node.this_windowed, node.name)
        return
    type = node.type
    processor = StreamStreamInnerJoin if node.outer_store is None else StreamStreamOuterJoin
    side = partial(
        JoinSide,
        joiner=node.joiner,
        with_key=node.with_key,
        windows=node.windows,
        outer_store=None if node.outer_store is None else node.outer_store.name,
        join_name=node.name,
    )
    this = side(left=True, keeps_this=type.keeps_left, keeps_other=type.keeps_right, other_store=node.other_store.name)
    other = side(left=False, keeps_this=type.keeps_right, keeps_other=type.keeps_left, other_store=node.this_store.name)
    lowering.add_processor_below(node.this_join, [node.this_windowed], partial(processor, this))
    lowering.add_processor_below(node.other_join, [node.other_windowed], partial(processor, other))
    lowering.add_processor_below(node.name, [node.this_join, node.other_join], StreamMerge)
    topology.add_state_store(node.this_store, node.this_windowed, node.other_join)
    topology.add_state_store(node.other_store, node.other_windowed, node.this_join)
    if node.outer_store is not None:
        topology.add_state_store(node.outer_store, node.this_join, node.other_join)
    lowering.copartition(*node.parents)


def _add_stream_table_join(lowering: Lowering, id: n.NodeId, node: n.StreamTableJoinNode) -> None:
    getter = lowering.tables.value_getter(node.table)
    arguments = getter, node.joiner, node.with_key, node.type.keeps_left
    if node.buffer is None or node.grace_period_ms is None:
        lowering.add_processor(node, partial(_stream_table_join(lowering, node.table, getter), *arguments))
    else:
        for name in getter.store_names():
            _check_history(lowering.topology.state_store(name), node.grace_period_ms)
        lowering.add_processor(node, partial(StreamTableGraceJoin, *arguments, node.buffer.name, node.grace_period_ms))
    _connect(lowering, node.name, getter)
    if node.buffer is not None:
        lowering.topology.add_state_store(node.buffer, node.name)
    lowering.copartition(id)


def _stream_table_join(lowering: Lowering, table: n.NodeId, getter: ValueGetterSupplier) -> type[StreamTableJoin]:
    is_store = isinstance(getter, StoreValueGetterSupplier) and not _has_versions(lowering, table)
    return BatchStreamTableJoin if is_store else StreamTableJoin


def _check_history(store: StoreBuilder, grace_period_ms: int) -> None:
    """Raise ValueError unless `store` keeps versions for the grace period."""
    if not isinstance(store.supplier, VersionedBytesStoreSupplier):
        raise ValueError(NOT_VERSIONED)
    if grace_period_ms > store.supplier.history_retention_ms:
        raise ValueError("History retention must be at least grace period.")


# ---------------------------------------- tables


def _connect(lowering: Lowering, name: str, getter: ValueGetterSupplier) -> None:
    if getter.store_names():
        lowering.topology.connect_processor_and_state_stores(name, *getter.store_names())


def _has_versions(lowering: Lowering, table: n.NodeId) -> bool:
    return is_versioned_store(lowering.tables.store(table))


def _add_table_table_join(lowering: Lowering, id: n.NodeId, node: n.TableTableJoinNode) -> None:
    tables, plan, type = lowering.tables, lowering.plan, node.type
    sends_old_values = tables.sends_old_values(id)
    sides = (
        (node.this_join, node.this_table, node.other_table, False, type.keeps_left, type.keeps_right),
        (node.other_join, node.other_table, node.this_table, True, type.keeps_right, type.keeps_left),
    )
    for name, table, other, reverse, keeps_this, keeps_other in sides:
        getter, versioned = tables.value_getter(other), tables.is_versioned(table)
        arguments = node.joiner, reverse, keeps_this, keeps_other, sends_old_values
        join: Callable[[], Processor] = partial(TableTableJoin, getter, *arguments, versioned)
        if isinstance(getter, StoreValueGetterSupplier) and not (versioned or _has_versions(lowering, other)):
            join = partial(BatchTableTableJoin, getter, *arguments)
        lowering.add_processor_below(name, [plan[table].name], join)
    parents = [node.this_join, node.other_join]
    if node.store is None:
        lowering.add_processor_below(node.name, parents, StreamMerge)
    else:
        make = partial(TableTableJoinMerge, node.store.name, sends_old_values)
        make_any = partial(RecordByRecord, make) if is_versioned_store(node.store) else make
        lowering.add_processor_below(node.name, parents, make_any)
    _connect(lowering, node.this_join, tables.value_getter(node.other_table))
    _connect(lowering, node.other_join, tables.value_getter(node.this_table))
    if node.store is not None:
        lowering.topology.add_state_store(node.store, node.name)
    lowering.copartition(id)


# ---------------------------------------- foreign keys


def _add_subscription(lowering: Lowering, node: n.ForeignKeySubscriptionNode) -> None:
    topology, names = lowering.topology, node.names
    versioned = lowering.tables.is_versioned(node.parents[0])
    send = partial(
        SubscriptionSend,
        node.extractor,
        node.with_key,
        node.type.keeps_left,
        versioned,
        node.foreign_key_serde,
        node.primary_value_serde,
        names.registration_topic,
    )
    serde = SubscriptionWrapperSerde(node.primary_key_serde)
    topology.add_internal_topic(names.registration_topic)
    lowering.add_processor_below(names.registration, lowering.parents(node), send)
    topology.add_sink(
        names.registration_sink,
        names.registration_topic,
        names.registration,
        key_serde=node.foreign_key_serde,
        value_serde=serde,
        partitioner=None if node.partitioner is None else SingletonPartitioner(node.partitioner),
    )
    topology.add_source(
        names.registration_source, names.registration_topic, key_serde=node.foreign_key_serde, value_serde=serde
    )
    receive = partial(
        SubscriptionReceive,
        node.store.name,
        node.foreign_key_serde,
        node.primary_key_serde,
        names.registration_topic,
    )
    lowering.add_processor_below(names.receive, [names.registration_source], receive, node.store)
    getter = lowering.tables.value_getter(node.foreign_table)
    join: Callable[[], Processor] = partial(SubscriptionJoin, getter)
    if isinstance(getter, StoreValueGetterSupplier) and not _has_versions(lowering, node.foreign_table):
        join = partial(BatchSubscriptionJoin, getter)
    lowering.add_processor_below(names.join_foreign, [names.receive], join)
    _connect(lowering, names.join_foreign, getter)
    lowering.copartition(node.foreign_table, source=names.registration_source)


def _add_foreign_table_join(lowering: Lowering, node: n.ForeignTableJoinNode) -> None:
    versioned = lowering.tables.is_versioned(node.parents[0])
    make = partial(ForeignTableJoin, node.store.name, node.foreign_key_serde, versioned, node.registration_topic)
    lowering.add_processor(node, make, node.store)


def _add_foreign_key_join(lowering: Lowering, id: n.NodeId, node: n.ForeignKeyJoinNode) -> None:
    topology, names = lowering.topology, node.names
    if broadcasts := lowering.broadcasts_above(node.primary_table):
        raise TopologyError(
            f"The primary table of the foreign-key join {node.name} reads the broadcast {', '.join(broadcasts)}: every "
            "task has each row, and one of them would get the answer. Join without broadcast(), or broadcast the "
            "foreign table."
        )
    serde = SubscriptionResponseWrapperSerde(node.foreign_value_serde)
    partitioner = partition_of_response if node.partitioner is None else SingletonPartitioner(node.partitioner)
    topology.add_internal_topic(names.response_topic)
    topology.add_sink(
        names.response_sink,
        names.response_topic,
        *lowering.parents(node),
        key_serde=node.primary_key_serde,
        value_serde=serde,
        partitioner=partitioner,
    )
    topology.add_source(
        names.response_source, names.response_topic, key_serde=node.primary_key_serde, value_serde=serde
    )
    getter = lowering.tables.value_getter(node.primary_table)
    arguments = node.primary_value_serde, node.joiner, node.type.keeps_left, names.registration_topic
    make: Callable[[], Processor] = partial(ResponseJoin, getter, *arguments)
    if isinstance(getter, StoreValueGetterSupplier) and not _has_versions(lowering, node.primary_table):
        make = partial(BatchResponseJoin, getter, *arguments)
    lowering.add_processor_below(names.resolver, [names.response_source], make)
    _connect(lowering, names.resolver, getter)
    add_table_source(lowering, id, node, names.resolver)
    lowering.copartition(node.primary_table, source=names.response_source)
