"""Lowering of global stores and global tables."""

from __future__ import annotations

from functools import partial

from penstock.plan import nodes as n
from penstock.plan.lower.lowering import Lowering
from penstock.processor.api import SimpleSupplier
from penstock.processor.global_table import GlobalTableSource


def add_global_node(lowering: Lowering, node: n.GlobalNode) -> None:
    """Add what `node` becomes to the topology."""
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
