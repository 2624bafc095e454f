"""Lowering of tables, global stores and global tables.

Lowers table sources, operators on single keys, and aggregations of grouped tables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import assert_never

from penstock.errors import TopologyError
from penstock.plan import nodes as n
from penstock.plan.lower.lowering import Lowering
from penstock.plan.versions import is_versioned_store
from penstock.processor.aggregate import RecordByRecord
from penstock.processor.api import Processor, SimpleSupplier
from penstock.processor.global_table import GlobalTableSource
from penstock.processor.suppress import TableSuppress
from penstock.processor.table import (
    BatchMaterializedTableValues,
    BatchTableValues,
    MaterializedTableSource,
    MaterializedTableValues,
    TableSource,
    TableValues,
)
from penstock.processor.table_aggregate import TableAggregate, TableCount, TableGroupBy, TableReduce
from penstock.processor.timestamps import fail_on_invalid_timestamp
from penstock.serdes.changed import ChangedSerde


def add_table_node(lowering: Lowering, id: n.NodeId, node: n.TableNode) -> None:
    """Add the processors, stores and topics of `node` to the topology."""
    match node:
        case n.TableSourceNode():
            lowering.topology.add_source(
                node.source_name,
                node.topic,
                key_serde=node.key_serde,
                value_serde=node.value_serde,
                timestamp_extractor=node.timestamp_extractor,
                offset_reset=node.offset_reset,
            )
            add_table_source(lowering, id, node, node.source_name)
            store = lowering.tables.store(id)
            if store is not None and node.reuse_topic:
                lowering.topology.connect_source_store_and_topic(store.name, node.topic)
        case n.StreamToTableNode():
            add_table_source(lowering, id, node, *lowering.parents(node))
        case n.TableFilterNode() | n.TableMapValuesNode():
            with_store = MaterializedTableValues if is_versioned_store(node.store) else BatchMaterializedTableValues
            _add_values(lowering, id, node, BatchTableValues, with_store)
        case n.TableTransformValuesNode():
            _add_values(lowering, id, node, TableValues, MaterializedTableValues)
            _connect(lowering, node)
        case n.TableGroupByNode():
            skip_older_versions = lowering.tables.is_versioned(node.parents[0])
            lowering.add_processor(node, partial(TableGroupBy, node.mapper, skip_older_versions))
        case n.GroupedTableRepartitionNode():
            _add_repartition(lowering, node)
        case n.TableCountNode() | n.TableReduceNode() | n.TableAggregateNode():
            _add_aggregation(lowering, node, lowering.tables.sends_old_values(id))
        case n.TableSuppressNode():
            _add_suppress(lowering, node)
        case _:
            assert_never(node)


def add_table_source(
    lowering: Lowering,
    id: n.NodeId,
    node: n.TableSourceNode | n.StreamToTableNode | n.ForeignKeyJoinNode,
    *parents: str,
) -> None:
    """Add the processor of the table `node`, whose updates are the records of `parents`."""
    store = lowering.tables.store(id)
    if store is None:
        lowering.add_processor_below(node.name, parents, TableSource)
        return
    sends_old_values = lowering.tables.sends_old_values(id)
    make = partial(MaterializedTableSource, store.name, sends_old_values)
    lowering.add_processor_below(
        node.name, parents, partial(RecordByRecord, make) if is_versioned_store(store) else make, store
    )


def _add_values(
    lowering: Lowering,
    id: n.NodeId,
    node: n.TableFilterNode | n.TableMapValuesNode | n.TableTransformValuesNode,
    without_store: type[TableValues],
    with_store: type[MaterializedTableValues],
) -> None:
    tables = lowering.tables
    computation, sends_old_values = tables.computation(id), tables.sends_old_values(id)
    skip_absent = isinstance(node, n.TableFilterNode) and sends_old_values and not tables.is_versioned(node.parents[0])
    if node.store is None:
        lowering.add_processor(node, partial(without_store, computation, sends_old_values, skip_absent))
        return
    make = partial(with_store, node.store.name, computation, sends_old_values, skip_absent)
    lowering.add_processor(node, make, node.store)


def _connect(lowering: Lowering, node: n.TableTransformValuesNode) -> None:
    """Connect the stores of a transformer, in addition to that of the table."""
    for store in node.supplier.stores():
        lowering.topology.add_state_store(store, node.name)
    if node.store_names:
        lowering.topology.connect_processor_and_state_stores(node.name, *node.store_names)


def _add_repartition(lowering: Lowering, node: n.GroupedTableRepartitionNode) -> None:
    topology, value_serde = lowering.topology, ChangedSerde(node.value_serde)
    topology.add_internal_topic(node.topic)
    parents = lowering.parents(node)
    topology.add_sink(node.sink_name, node.topic, *parents, key_serde=node.key_serde, value_serde=value_serde)
    topology.add_source(
        node.name,
        node.topic,
        key_serde=node.key_serde,
        value_serde=value_serde,
        timestamp_extractor=fail_on_invalid_timestamp,
    )


def _add_aggregation(
    lowering: Lowering, node: n.TableCountNode | n.TableReduceNode | n.TableAggregateNode, sends_old_values: bool
) -> None:
    store = node.store
    make: Callable[[], Processor]
    match node:
        case n.TableCountNode():
            make = partial(TableCount, store.name, sends_old_values)
        case n.TableReduceNode():
            make = partial(TableReduce, store.name, node.adder, node.subtractor, sends_old_values)
        case n.TableAggregateNode():
            make = partial(TableAggregate, store.name, node.initializer, node.adder, node.subtractor, sends_old_values)
    lowering.add_processor(node, make, store)


def _add_suppress(lowering: Lowering, node: n.TableSuppressNode) -> None:
    if lowering.tables.is_versioned(node.parents[0]):
        raise TopologyError(
            "suppress() is only supported for non-versioned KTables (note that version semantics might be inherited "
            "from upstream)"
        )
    lowering.add_processor(node, partial(TableSuppress, node.name, node.store.name, node.constraints), node.store)


def add_global_node(lowering: Lowering, node: n.GlobalNode) -> None:
    """Add the source, the processor and the store of `node` to the topology."""
    supplier = node.supplier or SimpleSupplier(partial(GlobalTableSource, node.store.name))
    lowering.topology.add_global_store(
        node.store,
        node.source,
        node.topic,
        node.name,
        supplier,
        key_serde=node.key_serde,
        value_serde=node.value_serde,
        timestamp_extractor=node.timestamp_extractor,
    )
