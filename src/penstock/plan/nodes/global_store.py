"""Nodes of global stores and global tables. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.nodes.base import BaseNode
from penstock.processor.api import ProcessorSupplier
from penstock.processor.timestamps import TimestampExtractor
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder


@dataclass(frozen=True, kw_only=True)
class GlobalSource(BaseNode):
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


GlobalNode = GlobalSource
"""One operation that makes a global store."""
